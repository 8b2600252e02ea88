"""The same from Python: `explore.run` trains, `explore.load_agent` gives an agent to be asked."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import explore
from explore._config.discovery import discover
from explore._running.experiment import load
from explore.errors import RunFailed, UserError

SMALL = [
    "experiment.episodes = 4",
    "environment.DeepSea.size = 5",
    "agent.Indexed.min_replay = 5",
    "agent.Indexed.batches_per_episode = 2",
]
SWING = ["experiment.episodes = 2", "environment.CartpoleSwingup.max_time = 0.2", "agent.Indexed.min_replay = 5"]
CELLS = np.arange(25)

TWICE = """
from explore import hookimpl
from explore.interfaces import Prior

class Twice(Prior):
    def join(self, trained, frozen, network):
        return trained + 2 * frozen

@hookimpl
def explore_priors():
    return [Twice]
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def trained(recipe="pins_deep_sea", bindings=SMALL, seeds=range(2), **options):
    return explore.run(recipe, bindings=bindings, seeds=seeds, quiet=True, **options)


# Running


def test_a_run_is_returned_done_with_all_that_was_recorded():
    run = trained(out="here")
    assert (run.folder, run.status, run.info["seeds"]) == (Path("here"), "done", [0, 1])
    assert run.summary["task"] == "DeepSea"
    assert list(run.summary["seeds"]) == ["0", "1"]
    assert run.episodes["episode"].tolist() == [1, 1, 2, 2, 3, 3, 4, 4]
    assert run.episodes["return"].dtype == float
    assert run.episodes["index"][0].startswith("z=")
    assert "environment.DeepSea:\n  size               = 5" in run.config
    assert run.config == Path("here/config.gin").read_text()


def test_without_a_folder_runs_are_numbered():
    assert [trained().folder for _ in range(2)] == [Path("runs/pins_deep_sea"), Path("runs/pins_deep_sea-2")]


def test_a_recipe_is_a_path_or_a_name(folder):
    (folder / "mine.gin").write_text("include 'pins_deep_sea.gin'\n" + "\n".join(SMALL))
    by_path = trained(folder / "mine.gin", bindings=())
    assert by_path.folder == Path("runs/mine")
    assert by_path.config == trained().config


@pytest.mark.parametrize("seeds", [(3, 1), np.array([3, 1]), iter([3, 1]), [np.int64(3), 1]], ids=type)
def test_seeds_are_any_whole_numbers(seeds):
    run = trained(seeds=seeds)
    assert run.info["seeds"] == [3, 1]
    assert "seeds              = (3, 1)" in run.config


def test_without_seeds_those_of_the_configuration_are_run():
    assert trained(seeds=None).info["seeds"] == [0, 1, 2, 3, 4]


def test_a_seed_that_is_no_integer_is_refused():
    with pytest.raises(UserError, match="seeds must be"):
        trained(seeds=[1.7])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"seeds": ()}, "seeds must be different integers"),
        ({"seeds": (1, 1)}, "seeds must be different integers"),
        ({"bindings": ["uncertainty.SoftplusHeads.heads = 0"]}, "heads must be at least 1"),
        ({"recipe": "pins_deepsea"}, "did you mean 'pins_deep_sea'?"),
        ({"plugins": ["nowhere.py"]}, "plugin nowhere.py: there is no such file"),
    ],
)
def test_mistakes_are_user_errors(folder, options, expected):
    with pytest.raises(UserError) as raised:
        trained(**options)
    assert expected in str(raised.value)
    assert list(folder.iterdir()) == []


def test_a_failure_is_an_exception_too():
    with pytest.raises(RunFailed, match=r"loss of seed 0 turned (nan|inf)"):
        trained(bindings=[*SMALL, "agent.Indexed.learning_rate = 1e30"])


# Asking


def test_an_agent_says_what_the_trained_one_would():
    run = trained()
    experiment = load("pins_deep_sea", [*SMALL, "experiment.seeds = (0, 1)"], discover()).build()
    [*experiment.train()]
    before = experiment.agent.values(CELLS), experiment.agent.uncertainty(CELLS), experiment.agent.actions(CELLS)
    agent = explore.load_agent(run.folder)
    after = agent.values(CELLS), agent.uncertainty(CELLS), agent.actions(CELLS)
    for one, other in zip(before, after):
        np.testing.assert_array_equal(one, other)


def test_an_agent_is_asked_about_any_observations():
    agent = explore.load_agent(str(trained().folder))
    values, uncertainty, actions = agent.values(CELLS), agent.uncertainty(CELLS), agent.actions(CELLS)
    assert values.shape == uncertainty.shape == (2, 25, 2)
    assert actions.shape == (2, 25)
    np.testing.assert_array_equal(actions, values.argmax(-1))
    np.testing.assert_allclose(agent.values([7]), values[:, [7]], rtol=1e-6)
    assert not np.array_equal(values[0], values[1])


@pytest.mark.parametrize("recipe", ["pins_cartpole", "bsp5_cartpole"])
def test_observations_may_be_floats(recipe):
    agent = explore.load_agent(trained(recipe, bindings=SWING).folder)
    observations = np.random.default_rng(0).normal(size=(7, 1, 8))
    assert agent.values(observations).shape == (2, 7, 3)
    assert (agent.uncertainty(observations) > 0).all()
    assert agent.actions(observations).shape == (2, 7)


@pytest.mark.parametrize(
    ("recipe", "uncertain"), [("pins_deep_sea", True), ("bsp5_deep_sea", True), ("dqn_deep_sea", False)]
)
def test_only_an_indexed_value_function_is_uncertain(recipe, uncertain):
    uncertainty = explore.load_agent(trained(recipe).folder).uncertainty(CELLS)
    assert ((uncertainty > 0) == uncertain).all()
    assert (uncertainty >= 0).all()


def test_learning_is_what_the_weights_hold():
    long, short = (trained(bindings=[*SMALL, f"experiment.episodes = {n}"]).folder for n in (8, 1))
    assert not np.array_equal(explore.load_agent(long).values(CELLS), explore.load_agent(short).values(CELLS))


def test_an_agent_with_parts_of_a_plugin_needs_the_plugin(folder):
    (folder / "twice.py").write_text(TWICE)
    run = trained(bindings=[*SMALL, "agent.Indexed.prior = @prior.Twice"], plugins=["twice.py"])
    assert explore.load_agent(run.folder, plugins=["twice.py"]).values(CELLS).shape == (2, 25, 2)
    with pytest.raises(UserError, match=r"^runs/pins_deep_sea was made with the plugin twice; add -p twice.py$"):
        explore.load_agent(run.folder)


def test_a_run_without_a_checkpoint_has_no_agent(folder):
    run = trained()
    shutil.rmtree(run.folder / "checkpoint")
    with pytest.raises(UserError, match=r"^runs/pins_deep_sea has no checkpoint, so there is no agent to load$"):
        explore.load_agent(run.folder)


def test_a_folder_that_is_no_run_has_no_agent(folder):
    with pytest.raises(UserError, match=r"^there is no run folder nowhere$"):
        explore.load_agent("nowhere")
    with pytest.raises(UserError, match=r"is not the folder of a run: it has no run.json$"):
        explore.load_agent(folder)
