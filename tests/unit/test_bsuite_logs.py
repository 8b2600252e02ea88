"""What is exported is what bsuite's own logging would have written, and bsuite reads it."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from bsuite import sweep
from bsuite.bsuite import EXPERIMENT_NAME_TO_ENVIRONMENT
from bsuite.environments.deep_sea import DeepSea
from bsuite.logging import csv_load, csv_logging
from explore_plugins.bsuite_logs import export_bsuite, file_name

import explore
from explore._storage import files
from explore.errors import UserError
from explore.streams import integer_seed

PLUGIN = """
import json
from explore import hookimpl
from explore.interfaces import Agent

class Recorded(Agent):
    def __init__(self, spec, streams, device, file: str):
        with open(file) as text:
            actions = json.load(text)
        self.actions = [actions[str(seed)] for seed in streams.seeds]
        self.episode = 0

    def begin_episode(self, observations, progress):
        self.episode += 1
        self.steps = 0

    def act(self, observations, active):
        self.steps += 1
        return [lane[self.episode - 1][self.steps - 1] if on else 0 for lane, on in zip(self.actions, active)]

    def observe(self, actions, timesteps, active):
        pass

    def evaluate(self, observations, active):
        return [0] * len(active)

@hookimpl
def explore_agents():
    return [Recorded]
"""
PAGE = Path(__file__).parents[2] / "docs" / "howto" / "bsuite.md"
SEEDS = (0, 7)
EPISODES = {"cartpole_swingup/0": 12, "cartpole_swingup/19": 2}  # long ones
SUMS = ["total_return", "raw_return"]  # bsuite adds up steps, the export episodes
MARKS = {  # what must happen in the episodes, lest equality says little
    "deep_sea": ["total_bad_episodes", "denoised_return"],
    "cartpole_swingup/0": ["total_upright", "best_episode"],
    "catch": ["total_regret"],
    "memory": ["total_regret", "total_perfect"],
}


def bsuites_own(id, seed):
    """The environment that bsuite has for an id, with the randomness of a run's seed."""
    experiment, settings = id.split("/")[0], dict(sweep.SETTINGS[id])
    if experiment.startswith("deep_sea"):
        return DeepSea(seed=integer_seed(seed, "transitions"), deterministic=experiment == "deep_sea", **settings)
    seeded = {} if experiment in ("bandit", "discounting_chain") else {"seed": integer_seed(seed, "environment")}
    return EXPERIMENT_NAME_TO_ENVIRONMENT[experiment](**settings | seeded)


def action(environment, timestep, rng):
    """One that gets somewhere."""
    if hasattr(environment, "_action_mapping"):
        right = int(environment._action_mapping[environment._row, environment._column])
        return right if rng.rand() < 0.9 else 1 - right
    if timestep.observation.shape == (1, 8):  # swing-up: gets the pole up, and holds it for a moment
        x, x_dot, sin, cos, theta_dot = timestep.observation[0, :5]
        push = 4 * sin + theta_dot + 0.3 * x_dot + 0.2 * x if cos > 0.5 else -cos * theta_dot - 2 * x - x_dot
        return 1 + int(np.sign(push)) if rng.rand() < 0.9 else 1
    return int(rng.randint(environment.action_spec().num_values))


def play_bsuite(id, seed, folder):
    """Plays an environment of bsuite that logs to a folder; returns the actions of each episode."""
    environment = csv_logging.wrap_environment(bsuites_own(id, seed), id, str(folder))
    rng, actions = np.random.RandomState(seed), []
    for _ in range(EPISODES.get(id, 30)):
        timestep = environment.reset()
        actions.append([])
        while not timestep.last():
            actions[-1].append(action(environment, timestep, rng))
            timestep = environment.step(actions[-1][-1])
    return actions


def play_explore(folder, bindings, actions, out="run", **options):
    """A run of the given actions."""
    (folder / "recorded.py").write_text(PLUGIN)
    (folder / "actions.json").write_text(json.dumps(actions))
    (folder / "experiment.gin").write_text("experiment.agent = @agent.Recorded\n")
    settings = [f"agent.Recorded.file = {str(folder / 'actions.json')!r}", *bindings]
    plugins = [str(folder / "recorded.py")]
    options = {"seeds": [int(seed) for seed in actions]} | options
    return explore.run(folder / "experiment.gin", bindings=settings, plugins=plugins, out=folder / out, **options)


def of_id(id, episodes=None):
    bindings = ["experiment.environment = @environment.Bsuite", f"environment.Bsuite.id = {id!r}"]
    return [*bindings, f"experiment.episodes = {episodes or EPISODES.get(id, 30)}"]


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """For an id, the folder of a run and the actions in it; bsuite's own logs are in `bsuite_0`, `bsuite_7` beside."""
    made = {}

    def make(id):
        if id not in made:
            folder = tmp_path_factory.mktemp(id.replace("/", "-"))
            actions = {seed: play_bsuite(id, seed, folder / f"bsuite_{seed}") for seed in SEEDS}
            play_explore(folder, of_id(id), actions, quiet=True)
            made[id] = folder, actions
        return made[id]

    return make


@pytest.mark.parametrize(
    "id",
    [
        "deep_sea/0",
        "deep_sea_stochastic/1",
        "cartpole_swingup/0",
        "cartpole_swingup/19",  # all returns are negative
        "bandit_noise/3",
        "catch/0",
        "catch_scale/4",
        "cartpole_noise/2",
        "discounting_chain/1",
        "memory_len/2",
        "umbrella_distract/5",
    ],
)
def test_the_export_is_what_bsuite_logs_of_the_same_actions(id, both, tmp_path):
    folder, _ = both(id)
    export_bsuite([folder / "run"], tmp_path / "out")
    for seed in SEEDS:
        ours = pd.read_csv(tmp_path / f"out/seed_{seed}" / file_name(id))
        theirs = pd.read_csv(folder / f"bsuite_{seed}" / file_name(id))
        assert [*ours] == [*theirs]
        sums = [name for name in ours if name in SUMS]
        pd.testing.assert_frame_equal(ours[sums], theirs[sums], check_dtype=False, rtol=1e-12, atol=1e-12)
        pd.testing.assert_frame_equal(
            ours.drop(columns=sums), theirs.drop(columns=sums), check_dtype=False, check_exact=True
        )
        marks = [mark for start, names in MARKS.items() if id.startswith(start) for mark in names]
        assert (theirs[marks].iloc[-1] > 0).all()


def test_the_file_of_all_seeds_tells_them_apart(both, tmp_path):
    folder, _ = both("catch/0")
    export_bsuite([folder / "run"], tmp_path)
    together = pd.read_csv(tmp_path / file_name("catch/0"))
    for seed in SEEDS:
        apart = pd.read_csv(tmp_path / f"seed_{seed}" / file_name("catch/0"))
        of_seed = together[together.run_seed == seed].drop(columns="run_seed").reset_index(drop=True)
        pd.testing.assert_frame_equal(of_seed, apart)
    assert len(together) == 2 * 16  # the logged of 30 episodes


def test_bsuite_loads_the_export_and_joins_the_settings_of_the_ids(both, tmp_path):
    out = tmp_path / "out"
    written = export_bsuite([both(id)[0] / "run" for id in ("deep_sea/0", "catch/0", "bandit_noise/3")], out)
    assert sorted(written) == sorted(out.rglob("*.csv"))
    loaded, _ = csv_load.load_bsuite(str(out))
    sea, noise = loaded[loaded.bsuite_env == "deep_sea"], loaded[loaded.bsuite_id == "bandit_noise/3"]
    assert set(sea["size"]) == {10}
    assert set(sea.mapping_seed) == {42}
    assert set(noise.noise_scale) == {sweep.SETTINGS["bandit_noise/3"]["noise_scale"]}
    assert set(loaded.run_seed) == {*SEEDS}
    assert loaded.seed.isna().all(), "bsuite's own setting of that name"
    apart, names = csv_load.load_bsuite({f"seed {seed}": str(out / f"seed_{seed}") for seed in SEEDS})
    assert names == ["agent_name"]
    assert apart.groupby(["agent_name", "bsuite_id"]).size().tolist() == [16] * 6
    assert "run_seed" not in apart


def test_the_page_on_bsuite_shows_how_to_load_an_export(both, tmp_path, monkeypatch):
    _, actions = both("deep_sea/0")
    run = play_explore(tmp_path, of_id("deep_sea/0"), dict.fromkeys(range(5), actions[0]), quiet=True)
    export_bsuite([run.folder], tmp_path / "exports/sea")
    monkeypatch.chdir(tmp_path)
    [shown] = re.findall("```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names = {}
    exec(shown, names)
    assert len(names["together"]) == len(names["apart"]) == 5 * 16
    assert names["sweep_vars"] == ["agent_name"]


def test_bsuite_finds_every_id_in_the_name_of_its_file(tmp_path):
    for id in sweep.SWEEP:
        (tmp_path / file_name(id)).write_text("episode\n1\n")
    assert sorted(csv_load.load_bsuite(str(tmp_path))[0].bsuite_id) == sorted(sweep.SWEEP)


def test_one_seed_has_no_folder_of_its_own(both, tmp_path):
    folder, actions = both("catch/0")
    run = play_explore(folder, of_id("catch/0"), {7: actions[7]}, out="alone", quiet=True)
    written = export_bsuite([run.folder], tmp_path / "a/b")
    assert written == [*(tmp_path / "a/b").rglob("*")] == [tmp_path / "a/b" / file_name("catch/0")]


def test_seeds_of_several_runs_and_the_runs_of_a_sweep_are_put_together(both, tmp_path):
    folder, actions = both("catch/0")
    for seed in SEEDS:
        play_explore(folder, of_id("catch/0"), {seed: actions[seed]}, out=f"sweep/{seed}", quiet=True)
    export_bsuite([folder / "sweep"], tmp_path / "apart")
    export_bsuite([folder / "run"], tmp_path / "at once")
    for path in (file_name("catch/0"), f"seed_7/{file_name('catch/0')}"):
        assert (tmp_path / "apart" / path).read_text() == (tmp_path / "at once" / path).read_text()


def test_a_resumed_run_gives_the_same_export(both, tmp_path):
    folder, actions = both("memory_len/2")
    play_explore(tmp_path, of_id("memory_len/2", episodes=11), actions, quiet=True)
    play_explore(tmp_path, of_id("memory_len/2"), actions, resume=True, quiet=True)
    for name, run in {"whole": folder / "run", "resumed": tmp_path / "run"}.items():
        export_bsuite([run], tmp_path / name)
    name = file_name("memory_len/2")
    assert (tmp_path / "whole" / name).read_text() == (tmp_path / "resumed" / name).read_text()


SEA = {"size": 10, "deterministic": True, "mapping_seed": 42, "unscaled_move_cost": 0.01, "move_costs": "every"}
SWING = {"height_threshold": 0.95, "x_reward_threshold": 0.05, "move_cost": 0.1, "x_threshold": 3}
REST = {"theta_dot_threshold": 1.0, "x_dot_threshold": None, "timescale": 0.01, "max_time": 10.0, "init_range": 0.05}


def config(environment, **parameters):
    lines = [f"experiment.environment = @{environment}", *(f"{environment}.{n} = {v!r}" for n, v in parameters.items())]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("id", "environment", "settings"),
    [
        ("deep_sea/0", "DeepSea", SEA),
        ("deep_sea_stochastic/1", "DeepSea", SEA | {"size": 12, "deterministic": False}),
        ("cartpole_swingup/19", "CartpoleSwingup", SWING),
    ],
)
def test_explores_own_environments_with_bsuites_settings_are_exported_under_the_id(
    id, environment, settings, both, tmp_path
):
    folder, actions = both(id)
    bindings = [f"environment.{environment}.{name} = {value!r}" for name, value in settings.items()]
    bindings += [f"experiment.environment = @environment.{environment}", f"experiment.episodes = {len(actions[0])}"]
    play_explore(tmp_path, bindings, actions, quiet=True)
    export_bsuite([folder / "run"], tmp_path / "by id")
    export_bsuite([tmp_path / "run"], tmp_path / "own")
    assert (tmp_path / "own" / file_name(id)).read_text() == (tmp_path / "by id" / file_name(id)).read_text()


def test_another_mapping_of_actions_or_a_scope_makes_no_other_id(both, tmp_path):
    run = shutil.copytree(both("deep_sea/0")[0] / "run", tmp_path / "run")
    (run / "config.gin").write_text(config("deep/environment.DeepSea", **SEA | {"mapping_seed": None}))
    assert export_bsuite([run], tmp_path / "out")[0].name == file_name("deep_sea/0")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            config("environment.DeepSea", **SEA | {"size": 11}),
            "is a run of environment.DeepSea with settings that bsuite does not have; for deep_sea/0, say, "
            "it would need size = 10",
        ),
        (config("environment.DeepSea", **SEA | {"unscaled_move_cost": 0.1}), "would need unscaled_move_cost = 0.01"),
        (config("environment.DeepSea", **SEA | {"move_costs": "diagonal"}), "would need move_costs = 'every'"),
        (
            config("environment.CartpoleSwingup", **SWING | REST | {"x_dot_threshold": 1.0}),
            "for cartpole_swingup/19, say, it would need x_dot_threshold = None",
        ),
        (
            config("environment.CartpoleSwingup", **SWING | REST | {"x_threshold": 5.0, "max_time": 5.0}),
            "for cartpole_swingup/19, say, it would need x_threshold = 3.0, max_time = 10.0",
        ),
        (config("environment.Walk"), "is a run of environment.Walk, which bsuite does not have; it has those of"),
        ("experiment.episodes = 3\n", "is a run of no environment, which bsuite does not have"),
        (config("environment.Bsuite", id="cach/0"), "'cach/0', which is no id of bsuite's; the nearest are catch/0"),
        (config("environment.Bsuite", id=["catch/0"]), "which is no id of bsuite's"),
        (config("environment.Bsuite", id="mnist/0"), "which is no id of bsuite's"),
    ],
)
def test_a_task_that_bsuite_does_not_have_is_refused(text, expected, both, tmp_path):
    run = shutil.copytree(both("catch/0")[0] / "run", tmp_path / "run")
    (run / "config.gin").write_text(text)
    with pytest.raises(UserError) as raised:
        export_bsuite([run], tmp_path / "out")
    assert str(raised.value).startswith(str(run))
    assert expected in str(raised.value)
    assert not (tmp_path / "out").exists()


def rewrite(path, change):
    path.write_text(change(path.read_text()))


def without(column):
    """`episodes.csv` as an earlier version wrote it."""

    def change(text):
        rows = [line.split(",") for line in text.splitlines()]
        at = rows[0].index(column)
        return "".join(",".join(row[:at] + row[at + 1 :]) + "\n" for row in rows)

    return change


def test_a_run_of_an_earlier_version_lacks_what_bsuite_reports(both, tmp_path):
    run = shutil.copytree(both("cartpole_swingup/19")[0] / "run", tmp_path / "run")
    rewrite(run / "episodes.csv", without("upright"))
    rewrite(run / "run.json", lambda text: text.replace('"upright",', ""))
    with pytest.raises(UserError, match=r"episodes.csv has no column upright: an earlier version"):
        export_bsuite([run], tmp_path / "out")


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[: text.rstrip().rindex("\n") + 1],  # the last row is lost
        lambda text: text.splitlines()[0] + "\n",
        lambda text: text.replace("\n7,3,", "\n8,3,"),
        lambda text: text.replace("\n7,3,", "\n7,4,"),
        lambda text: re.sub("\n7,3,[^,]+", "\n7,3,", text),  # no return
        lambda text: re.sub("\n7,3,[^,]+", "\n7,3,nan", text),
        lambda text: re.sub("\n7,3,[^,]+", "\n7,3,1e300", text),
        lambda text: re.sub("(\n7,3,.*),[^,]+(,[^,]+\n)", r"\1,much\2", text),  # bsuite_total_regret
    ],
)
def test_a_damaged_run_is_refused(change, both, tmp_path):
    run = shutil.copytree(both("catch/0")[0] / "run", tmp_path / "run")
    rewrite(run / "episodes.csv", change)
    with pytest.raises(UserError, match=r"episodes.csv is damaged: "):
        export_bsuite([run], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_one_seed_of_an_id_twice_is_refused(both, tmp_path):
    run = both("catch/0")[0] / "run"
    copy = shutil.copytree(run, tmp_path / "copy")
    with pytest.raises(UserError, match=f"{run} and {copy} both hold seed 0 of catch/0; .* export them apart"):
        export_bsuite([run, copy], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_runs_that_are_not_over_are_left_out_and_named(both, tmp_path, capsys):
    run, copy = both("deep_sea/0")[0] / "run", shutil.copytree(both("catch/0")[0] / "run", tmp_path / "copy")
    rewrite(copy / "run.json", lambda text: text.replace('"done"', '"interrupted"'))
    with pytest.raises(UserError, match=f"there is no finished run to export: {copy} is interrupted"):
        export_bsuite([copy], tmp_path / "out")
    assert not (tmp_path / "out").exists()
    written = export_bsuite([run, copy], tmp_path / "out")
    assert {path.name for path in written} == {file_name("deep_sea/0")}
    assert f"left out: {copy} is interrupted" in capsys.readouterr().err


def test_only_an_empty_folder_is_written_to(both, tmp_path):
    run = both("catch/0")[0] / "run"
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=f"the folder {tmp_path} is not empty; choose another"):
        export_bsuite([run], tmp_path)
    with pytest.raises(UserError, match=f"cannot write to {tmp_path / 'file'}: Not a directory"):
        export_bsuite([run], tmp_path / "file")
    assert [*tmp_path.iterdir()] == [tmp_path / "file"]
    (tmp_path / "empty").mkdir()
    assert len(export_bsuite([run], tmp_path / "empty")) == 3


def test_nothing_is_left_behind_when_the_disk_is_full(both, tmp_path, monkeypatch):
    write, written = files.write, []

    def fill(path, text):
        written.append(path)
        if len(written) == 3:
            raise OSError(28, "No space left on device")
        write(path, text)

    monkeypatch.setattr(files, "write", fill)
    with pytest.raises(UserError, match=f"cannot write to {tmp_path / 'a/b'}: No space left on device"):
        export_bsuite([both("catch/0")[0] / "run"], tmp_path / "a/b")
    assert [*tmp_path.iterdir()] == []
