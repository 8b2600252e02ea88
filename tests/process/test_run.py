"""`explore run` from the command to the folder: repeated to the byte, every part swapped, watched, broken off."""

import csv
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from explore._cli.main import main
from explore._storage.run_folder import Run

SMALL = {
    "pins_deep_sea": (
        "experiment.episodes = 4",
        "experiment.seeds = (0, 1)",
        "environment.DeepSea.size = 4",
        "agent.Indexed.min_replay = 4",
        "agent.Indexed.batches_per_episode = 2",
        "agent.Indexed.target_period = 2",
        "value.MLP.hidden = (16,)",
        "uncertainty.SoftplusHeads.hidden = (16,)",
    ),
    "pins_cartpole": (
        "experiment.episodes = 2",
        "experiment.seeds = (0, 1)",
        "environment.CartpoleSwingup.max_time = 0.2",
        "agent.Indexed.min_replay = 1",
        "agent.Indexed.batches_per_episode = 2",
    ),
}
SMALL["dqn_deep_sea"] = SMALL["pins_deep_sea"][:-1]
SMALL["bsp10_deep_sea"] = SMALL["pins_deep_sea"][:-1]
SMALL["bsp10_cartpole"] = SMALL["pins_cartpole"]

WIDE_HEADS = """
    from explore import hookimpl
    from explore.interfaces import ScaleModule
    from explore.nn import MLP
    from torch.nn.functional import softplus

    class WideHeads(ScaleModule):
        def __init__(self, spec, heads: int = 4, width: int = 24):
            super().__init__(heads)
            self.net = MLP(spec.observation, (width,), spec.num_actions * heads)

        def forward(self, obs):
            return softplus(self.net(obs)).unflatten(-1, (-1, self.heads))

    @hookimpl
    def explore_uncertainty_modules():
        return [WideHeads]
"""
USE_WIDE_HEADS = "agent.Indexed.uncertainty = @uncertainty.WideHeads"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def plugin(folder):
    """Writes a plugin file; returns the options that load it."""

    def write(text, name="mine.py"):
        (folder / name).write_text(textwrap.dedent(text))
        return "-p", name

    return write


def command(*options, recipe="pins_deep_sea", bindings=(), out="out"):
    bound = [word for binding in (*SMALL.get(recipe, ()), *bindings) for word in ("-b", binding)]
    return ["run", recipe, *bound, *options, "--out", out]


def explored(*options, quiet=True, **choices):
    """Runs a command that must succeed; returns the run."""
    arguments = command(*options, *(["--quiet"] if quiet else []), **choices)
    assert main(arguments) == 0
    return Run.open(arguments[-1])


def in_a_process_of_its_own(arguments, *paths):
    path = os.pathsep.join([*map(str, paths), *filter(None, sys.path)])
    program = [sys.executable, "-m", "explore", *arguments]
    return subprocess.run(program, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, timeout=60)


def rows_of(folder, without=()):
    with Path(folder, "episodes.csv").open() as file:
        return [{name: cell for name, cell in row.items() if name not in without} for row in csv.DictReader(file)]


def repeatable(folder):
    """All bytes of a run that must be the same in every repetition: the last column is the wall clock."""
    episodes, *others = (Path(folder, name).read_bytes() for name in ("episodes.csv", "summary.json", "config.gin"))
    return [line.rpartition(b",")[0] for line in episodes.splitlines()], *others


def bound_in(config):
    """Every binding of a `config.gin`, by name."""
    bound, block = {}, ""
    for line in filter(None, config.splitlines()):
        if line.startswith("  "):
            name, _, value = line.partition("=")
            bound[f"{block}.{name.strip()}"] = value.strip()
        else:
            block = line.removesuffix(":")
    return bound


# The same again


def test_a_command_gives_the_same_in_another_process():
    explored(out="first")
    done = in_a_process_of_its_own(command(out="second"))
    assert done.returncode == 0, done.stderr
    assert repeatable("first") == repeatable("second")
    assert any(row["mean_loss"] for row in rows_of("first"))


@pytest.mark.parametrize(
    ("options", "choices"),
    [
        ((), {}),
        (("--seeds", "7,3"), {"bindings": ["prior.Additive.scale = 3.5", "agent.Indexed.evaluation = None"]}),
        (("--seeds", "4"), {"recipe": "bsp10_cartpole"}),
        (
            (),
            {
                "bindings": [
                    "objective.WassersteinTD.sigma = @falling/schedule.Linear",
                    "agent.Indexed.acting = @selection.EpsilonGreedy",
                    "selection.EpsilonGreedy.epsilon = @rare/schedule.Linear",
                    "schedule.Linear.end = 0.0",
                    "falling/schedule.Linear.start = 2.0",
                    "rare/schedule.Linear.start = 0.5",
                    "rare/schedule.Linear.until = 0.25",
                ]
            },
        ),
        (("-p", "wide.py"), {"bindings": [USE_WIDE_HEADS, "uncertainty.WideHeads.heads = 3"]}),
    ],
    ids=["recipe", "seeds", "ensemble", "scopes", "plugin"],
)
def test_the_configuration_in_the_folder_repeats_the_run(plugin, capsys, options, choices):
    plugin(WIDE_HEADS, "wide.py")
    explored(*options, **choices, out="first")
    capsys.readouterr()
    plugins = options if "-p" in options else ()
    explored(*plugins, recipe="first/config.gin", out="second")
    assert repeatable("first") == repeatable("second")
    assert capsys.readouterr() == ("", "")


def test_what_options_set_is_in_the_configuration():
    run = explored("--seeds", "5,2", bindings=["environment.DeepSea.mapping_seed = 42"])
    bound = bound_in(run.config)
    assert bound["experiment.seeds"] == "(5, 2)"
    assert bound["environment.DeepSea.mapping_seed"] == "42"
    assert {row["seed"] for row in rows_of("out")} == {"5", "2"}


# Any part swapped

SWAPS = {
    "a-tilde": ["agent.Indexed.target = @selection.SampledArgmax"],
    "no prior": ["agent.Indexed.prior = @prior.NoPrior"],
    "beta_2 alone": ["prior.Additive.uncertainty_scale = 5.0"],
    "one head": ["uncertainty.SoftplusHeads.heads = 1"],
    "masked heads": ["uncertainty.SoftplusHeads.train_heads = 'masked'"],
    "TD at sampled indices": ["agent.Indexed.objective = @objective.SampledTD", "objective.SampledTD.indices = 3"],
    "noise": ["agent.Indexed.objective = @objective.SampledTD", "objective.SampledTD.noise = 0.5"],
    "heads on an ensemble of means": [
        "agent.Indexed.uncertainty = [@uncertainty.Ensemble, @uncertainty.SoftplusHeads]",
        "uncertainty.Ensemble.size = 3",
    ],
    "an ensemble": [
        "agent.Indexed.uncertainty = @uncertainty.Ensemble",
        "agent.Indexed.objective = @objective.SampledTD",
    ],
    "epsilon-greedy Thompson sampling": [
        "agent.Indexed.acting = @selection.EpsilonGreedy",
        "selection.EpsilonGreedy.greedy = @selection.SampledArgmax",
    ],
    "optimistic targets": [
        "agent.Indexed.target = @selection.OptimisticArgmax",
        "selection.OptimisticArgmax.draws = 4",
        "selection.OptimisticArgmax.quantile = 0.9",
    ],
    "Boltzmann": ["agent.Indexed.acting = @selection.Boltzmann", "selection.Boltzmann.temperature = 0.5"],
    "information-directed sampling": [
        "agent.Indexed.acting = @selection.InformationDirected",
        "selection.InformationDirected.draws = 10",
        "selection.InformationDirected.information = 'value'",
    ],
    "two schedules": [
        "objective.WassersteinTD.sigma = @sigma/schedule.Linear",
        "sigma/schedule.Linear.start = 2.0",
        "sigma/schedule.Linear.end = 1.0",
        "agent.Indexed.acting = @selection.EpsilonGreedy",
        "selection.EpsilonGreedy.epsilon = @epsilon/schedule.Linear",
        "epsilon/schedule.Linear.start = 1.0",
        "epsilon/schedule.Linear.end = 0.0",
    ],
    "learning within the episode": ["agent.Indexed.learn_every = 2"],
    "another initialiser": ["value.MLP.init = 'glorot_uniform'", "prior.Additive.init = 'he_normal'"],
    "a stochastic sea": ["environment.DeepSea.deterministic = False"],
    "a small replay": ["agent.Indexed.replay_capacity = 7"],
}


@pytest.mark.parametrize("bindings", SWAPS.values(), ids=SWAPS)
def test_a_part_of_pins_is_swapped_in_bindings(bindings):
    run = explored(bindings=bindings)
    assert run.status == "done"
    expected = dict(binding.split(" = ") for binding in bindings)
    assert expected.items() <= bound_in(run.config).items()
    loss = run.info["columns"][run.info["columns"].index("index") + 1]
    assert all(row[loss] for row in rows_of("out")[2:]), "it has not learned"


@pytest.mark.parametrize(
    "bindings",
    [
        ["uncertainty.Ensemble.size = 3"],
        ["agent.Indexed.target = @selection.MeanArgmax"],
        ["agent.Indexed.mask_probability = 1.0"],
    ],
    ids=["three members", "a-bar", "no bootstrap"],
)
def test_a_part_of_an_ensemble_is_swapped_in_bindings(bindings):
    run = explored(recipe="bsp10_deep_sea", bindings=bindings)
    assert dict(binding.split(" = ") for binding in bindings).items() <= bound_in(run.config).items()


@pytest.mark.parametrize("id", ["catch/0", "cartpole/0", "mountain_car/0", "bandit/0", "deep_sea_stochastic/0"])
def test_the_environment_is_any_of_bsuites(id):
    bindings = ["experiment.environment = @environment.Bsuite", f"environment.Bsuite.id = '{id}'"]
    run = explored(recipe="pins_cartpole", bindings=bindings)
    assert bound_in(run.config)["environment.Bsuite.id"] == repr(id)
    assert all(row["mean_loss"] for row in rows_of("out") if row["episode"] == "2")


def test_evaluation_episodes_are_played_now_and_then_and_change_nothing():
    explored(bindings=["experiment.evaluate_every = 2", "agent.Indexed.evaluation = @selection.SampledArgmax"])
    explored(out="unwatched")
    evaluated = {row["episode"]: bool(row["evaluation"]) for row in rows_of("out")}
    assert evaluated == {"1": False, "2": True, "3": False, "4": True}
    assert rows_of("out", without=["evaluation", "seconds"]) == rows_of("unwatched", without=["seconds"])


def test_a_run_stops_when_every_seed_has_solved_its_task():
    at_random = ["environment.DeepSea.size = 2", "selection.EpsilonGreedy.epsilon = 1.0"]
    ending = ["experiment.stop_when_solved = True", "experiment.episodes = 100"]
    run = explored(recipe="dqn_deep_sea", bindings=[*at_random, *ending])
    solved_at = [seed["solved_at"] for seed in run.summary["seeds"].values()]
    assert run.status == "done"
    assert len(rows_of("out")) == 2 * max(solved_at) < 200


# Plugins


def test_a_file_with_a_new_uncertainty_network_is_used_by_name(plugin):
    bindings = [USE_WIDE_HEADS, "uncertainty.WideHeads.heads = 3"]
    run = explored(*plugin(WIDE_HEADS, "wide.py"), bindings=bindings)
    bound = bound_in(run.config)
    assert bound["agent.Indexed.uncertainty"] == "@uncertainty.WideHeads"
    assert (bound["uncertainty.WideHeads.heads"], bound["uncertainty.WideHeads.width"]) == ("3", "24")
    *_, added = run.info["plugins"]
    assert (added["name"], added["version"], added["source"]) == ("wide", "", "wide.py")
    assert {row["index"].split()[1] for row in rows_of("out")} <= {"head=0", "head=1", "head=2"}


def test_an_installed_package_is_used_without_being_named(folder):
    site = folder / "site"
    metadata = site / "wide_heads-1.2.dist-info"
    metadata.mkdir(parents=True)
    (site / "wide_heads.py").write_text(textwrap.dedent(WIDE_HEADS))
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: wide-heads\nVersion: 1.2\n")
    (metadata / "entry_points.txt").write_text("[explore]\nwide = wide_heads\n")
    done = in_a_process_of_its_own(command(bindings=[USE_WIDE_HEADS]), site)
    assert done.returncode == 0, done.stderr
    source = "entry point (wide-heads 1.2)"
    *_, added = Run.open(folder / "out").info["plugins"]
    assert (added["name"], added["version"], added["source"]) == ("wide", "1.2", source)


WATCHER = """
    from explore import hookimpl

    seen = []

    @hookimpl
    def explore_run_started(run):
        seen.append(("started", run.status, sorted(path.name for path in run.folder.iterdir())))

    @hookimpl
    def explore_episode_finished(run, rows):
        on_disk = run.episodes["episode"].tolist()
        seen.append(("episode", run.status, [(row["seed"], row["episode"]) for row in rows], on_disk[-len(rows):]))

    @hookimpl
    def explore_run_finished(run, summary):
        seen.append(("finished", run.status, summary == run.summary, summary["overall"]["seeds"]))
"""


def test_a_watcher_sees_the_run_in_order_and_every_row_on_disk(plugin):
    explored(*plugin(WATCHER, "watcher.py"), bindings=["experiment.episodes = 2"])
    assert sys.modules["explore_plugin_watcher"].seen == [
        ("started", "running", [".lock", "config.gin", "episodes.csv", "run.json"]),
        ("episode", "running", [(0, 1), (1, 1)], [1, 1]),
        ("episode", "running", [(0, 2), (1, 2)], [2, 2]),
        ("finished", "done", True, 2),
    ]


# What is printed


def test_quiet_prints_nothing(capsys):
    explored()
    assert capsys.readouterr() == ("", "")


def test_progress_is_plain_lines_without_a_terminal(capsys, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    explored(quiet=False)
    out, err = capsys.readouterr()
    assert "episode 4/4 (100%)" in out
    assert "done after 4 of 4 episodes" in out
    assert "\033" not in out
    assert err == ""


def test_bindings_without_effect_are_noted(capsys):
    explored(bindings=["schedule.Linear.until = 0.5"])
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        'explore: note: -b "schedule.Linear.until = 0.5": schedule.Linear.until = 0.5 has no effect in this run\n'
    )


# Runs that end before their time

RAISING = """
    from explore import hookimpl

    @hookimpl
    def explore_{hook}:
        if {when}:
            raise {exception}
"""


def raising(exception, hook="episode_finished(run, rows)", when="rows[0]['episode'] == 2"):
    return RAISING.format(exception=exception, hook=hook, when=when)


def ended(code, *options, **choices):
    """Runs a command that ends with an exit code; returns the run and how many rows it left."""
    assert main(command(*options, "--quiet", **choices)) == code
    run = Run.open("out")
    assert run.summary["overall"]["seeds"] == 2
    return run, len(rows_of("out"))


def test_an_interrupted_run_keeps_its_rows_and_what_was_learned(plugin, capsys):
    run, rows = ended(130, *plugin(raising("KeyboardInterrupt")))
    assert (run.status, run.info["reason"], rows) == ("interrupted", None, 4)
    go_on = "to resume: explore resume out -p mine.py"
    assert capsys.readouterr() == ("", f"explore: interrupted: saved after episode 1 of 4; {go_on}\n")


def test_a_loss_that_is_not_a_number_ends_the_run_with_its_rows_on_disk(capsys):
    run, rows = ended(1, bindings=["agent.Indexed.learning_rate = 1e30"])
    assert (run.status, rows) == ("failed", 2)
    assert re.match("mean_loss of seed 0 turned (nan|inf) in episode 2$", run.info["reason"])
    assert capsys.readouterr() == ("", f"explore: error: {run.info['reason']}\n")


def test_a_loss_that_is_not_a_number_is_told_with_its_episode():
    run, _ = ended(1, bindings=["agent.Indexed.learning_rate = 1e30"])
    assert "episode 2" in run.info["reason"]


@pytest.mark.parametrize(
    ("factor", "reason"),
    [
        ("nan", "uncertainty_loss of seed 0 turned nan"),
        ("tensor(-9.0)", "WideHeads gave a negative uncertainty; it must never be below 0"),
    ],
)
def test_a_network_that_goes_wrong_ends_the_run_with_its_rows_on_disk(plugin, factor, reason):
    changes = {
        "from explore.nn import MLP": "import torch; from explore.nn import MLP, zeros",
        "super().__init__(heads)": "super().__init__(heads); self.drift = torch.nn.Parameter(zeros(1, 1))",
        "self.net(obs)": "self.net(obs) + self.drift",
        "return": f"return torch.where(self.drift.abs() > 0.002, torch.{factor}, 1.0).unsqueeze(-1) *",
    }
    text, plural = WIDE_HEADS.split("@hookimpl")
    for old, new in changes.items():
        text = text.replace(old, new)
    text += f"@hookimpl{plural}"
    run, rows = ended(1, *plugin(text, "wide.py"), bindings=[USE_WIDE_HEADS, "agent.Indexed.target_period = 1"])
    assert run.status == "failed"
    assert reason in run.info["reason"]
    assert 0 < rows < 8


def test_a_bug_in_a_watcher_ends_the_run_without_a_traceback(plugin, capsys):
    run, rows = ended(1, *plugin(raising("LookupError('no such page')")))
    reason = "explore_episode_finished of plugin mine raises LookupError: no such page (mine.py:7)"
    assert (run.status, run.info["reason"], rows) == ("failed", reason, 4)
    out, err = capsys.readouterr()
    assert out == ""
    assert "LookupError: no such page" in err
    assert err.count("\n") == 1


def test_a_bug_in_a_watcher_is_told_with_the_plugin_and_its_line(plugin, capsys):
    ended(1, *plugin(raising("LookupError('no such page')")))
    err = capsys.readouterr().err
    assert "mine.py:7" in err
    assert "a bug in explore" not in err


@pytest.mark.parametrize(
    ("exception", "code", "status"), [("LookupError", 1, "failed"), ("KeyboardInterrupt", 130, "interrupted")]
)
def test_a_run_that_ends_before_its_first_episode_says_so(plugin, exception, code, status):
    run, rows = ended(code, *plugin(raising(exception, hook="run_started(run)", when="run")))
    assert (run.status, rows) == (status, 0)
