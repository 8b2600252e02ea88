"""Visits and best episodes against a plain record of what happened, and snapshots of them on disk."""

import io
import math
import shutil

import dm_env
import numpy as np
import pytest
import torch
from building import CELLS, FLOATS, Walk, build, live
from dm_env import specs
from explore_plugins.deep_sea import DeepSea
from explore_plugins.selections import MeanArgmax

import explore
from explore._cli.main import main
from explore._config.gin_files import list_recipes
from explore._running.loop import Progress, train
from explore._running.visits import BestEpisodes, MapVisits, beliefs, track_visits
from explore._storage.snapshots import Snapshots, is_due
from explore.errors import UserError
from explore.interfaces import Spec, Timesteps

SMALL = (
    "environment.DeepSea.size = 4",
    "agent.Indexed.min_replay = 8",
    "agent.Indexed.batches_per_episode = 2",
    "experiment.checkpoint_every = 10",
)


class Diary(DeepSea):
    """Deep-sea that writes down where it was."""

    def __init__(self, seed, size=4):
        super().__init__(seed, size)
        self.visited = []

    def reset(self):
        timestep = super().reset()
        self.visited.append(int(timestep.observation))
        return timestep

    def step(self, action):
        timestep = super().step(action)
        if not timestep.last():
            self.visited.append(int(timestep.observation))
        return timestep


def trained(environments, agent, seen, episodes):
    judges = [environment.judge(environment) for environment in environments]
    progress = Progress(np.zeros(len(environments), int))
    rows = train(agent, environments, judges, range(len(environments)), episodes, lambda _: {}, progress, seen)
    return [row for new in rows for row in new]


def deep_sea_agent(seeds=(0, 1)):
    return build(seeds, Spec(specs.DiscreteArray(16), 2))


def test_visits_are_counted_cell_by_cell():
    environments = [Diary(seed) for seed in (0, 1)]
    agent, seen = deep_sea_agent(), track_visits(environments[0], 2)
    assert isinstance(seen, MapVisits)
    trained(environments, agent, seen, 12)
    visits, cells = seen.picture(agent)["visits"], environments[0].cells()
    for lane, environment in enumerate(environments):
        for row in range(4):
            for column in range(4):
                expected = environment.visited.count(cells[row, column]) if column <= row else -1
                assert visits[lane, row, column] == expected
    assert visits[visits >= 0].sum() == 2 * 12 * 4


def test_beliefs_of_a_map_are_what_the_agent_says_of_each_cell():
    environment, agent = DeepSea(0, size=4), deep_sea_agent()
    picture = track_visits(environment, 2).picture(agent)
    cells = environment.cells()
    for name, told in {"mean": agent.values(cells.ravel()), "uncertainty": agent.uncertainty(cells.ravel())}.items():
        assert picture[name].shape == (2, 4, 4, 2)
        assert np.isnan(picture[name][:, 0, 1:]).all()
        below = np.tri(4, dtype=bool)
        np.testing.assert_allclose(picture[name][:, below], told.reshape(2, 4, 4, 2)[:, below], rtol=1e-5)


def test_the_prior_alone_is_the_belief_of_networks_that_give_nothing():
    agent = build()
    observations = np.random.RandomState(0).normal(size=(2, 5, 2, 2)).astype(np.float32)
    prior = {name: values for name, values in agent.beliefs(observations).items() if name.startswith("prior_")}
    for stack in agent.function.stacks:
        stack.buffer[0] = 0  # the trained networks; softplus of 0 is not 0
    heads = np.float32(np.log(2))
    now = agent.beliefs(observations)
    np.testing.assert_allclose(now["mean"], prior["prior_mean"], rtol=1e-5)
    m = agent.function.prior_only_features(agent._tensor(observations))[1].numpy()
    np.testing.assert_allclose(now["uncertainty"], np.sqrt(((m + heads) ** 2).mean(-1)), rtol=1e-5)
    np.testing.assert_allclose(prior["prior_uncertainty"], np.sqrt((m**2).mean(-1)), rtol=1e-5)


def test_no_prior_no_belief_of_one():
    from explore_plugins.priors import NoPrior

    assert set(build(prior=NoPrior).beliefs(np.zeros((2, 1, 2, 2), np.float32))) == {"mean", "uncertainty"}


class Scripted(dm_env.Environment):
    """Gives the rewards of a list of episodes; the observation is the step's number."""

    judge = staticmethod(lambda environment: explore.interfaces.Judge(environment))

    def __init__(self, *episodes):
        self.episodes = iter(episodes)

    def reset(self):
        self.left, self.time = [*next(self.episodes)], 0
        return dm_env.restart(self._observation())

    def step(self, action):
        self.time += 1
        reward = self.left.pop(0)
        kind = dm_env.transition if self.left else dm_env.termination
        return kind(reward, self._observation())

    def _observation(self):
        return np.full((2, 2), self.time, np.float32)

    def observation_spec(self):
        return FLOATS.observation

    def action_spec(self):
        return specs.DiscreteArray(3)


def test_the_best_episode_of_each_seed_is_kept_step_by_step():
    first = Scripted([1.0, 2.0], [0.0, 4.0, 0.0], [4.0], [-1.0])
    second = Scripted([-3.0] * 4, [-2.0] * 2, [-5.0], [-9.0])
    agent, seen = build(), track_visits(first, 2)
    taken = []
    act = agent.act
    agent.act = lambda observations, active: taken.append(act(observations, active)) or taken[-1]
    trained([first, second], agent, seen, 4)
    picture = seen.picture(agent)
    assert picture["best_episode"].tolist() == [2, 2]  # the first of equals
    assert picture["best_return"].tolist() == [4.0, -4.0]
    assert picture["lengths"].tolist() == [3, 2]
    np.testing.assert_array_equal(picture["rewards"], [[0, 4, 0], [-2, -2, np.nan]])
    assert picture["observations"][0, :, 0, 0].tolist() == [0, 1, 2]
    second_episode = np.array(taken[4:7])  # after one of 4 steps
    assert picture["actions"][0].tolist() == second_episode[:, 0].tolist()
    assert picture["actions"][1].tolist() == [*second_episode[:2, 1], -1]
    values = agent.values(picture["observations"][0])[0]
    np.testing.assert_allclose(picture["mean"][0], values, rtol=1e-5)
    assert np.isnan(picture["mean"][1, 2]).all() and np.isfinite(picture["mean"][1, :2]).all()


def test_a_return_that_is_no_number_is_kept_until_there_is_one():
    """And a seed with such a return does not end the run of the others."""
    first, second = Scripted([math.nan], [math.nan], [1.0, 1.0]), Scripted([1.0], [-math.inf], [0.0])
    agent, seen = build(), track_visits(first, 2)
    rows = train(
        agent, [first, second], [explore.interfaces.Judge(None)] * 2, (0, 1), 3, lambda _: {},
        Progress(np.zeros(2, int)), seen,
    )  # fmt: skip
    kept = [next(rows) and seen.picture(agent)["best_episode"].tolist() for _ in range(3)]
    assert kept == [[1, 1], [1, 1], [3, 1]]


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"mean": np.zeros((2, 5))}, r"must give numbers \[lanes, batch, actions\], got mean of shape \[2, 5\]"),
        ({"mean": np.zeros((2, 4, 3))}, r"got mean of shape \[2, 4, 3\]"),
        ({"mean": np.full((2, 5, 3), "x")}, "got mean of type <U1"),
        ({"visits": np.zeros((2, 5, 3))}, "must not give anything called 'visits'"),
        ({"a/b": np.zeros((2, 5, 3))}, "must not give anything called 'a/b'"),
    ],
)
def test_beliefs_that_are_none_are_refused(told, expected):
    agent = build()
    agent.beliefs = lambda observations: told
    with pytest.raises(ValueError, match=f"Indexed.beliefs\\(\\) .*{expected}"):
        beliefs(agent, np.zeros((2, 5, 2, 2), np.float32))


def test_beliefs_may_be_tensors_and_lists():
    agent = build()
    agent.beliefs = lambda observations: {"mean": torch.ones(2, 1, 3), "uncertainty": [[[1, 2, 3]], [[4, 5, 6]]]}
    found = beliefs(agent, np.zeros((2, 1, 2, 2), np.float32))
    assert found["uncertainty"].tolist() == [[[1, 2, 3]], [[4, 5, 6]]] and found["mean"].dtype == np.float32


def test_beliefs_are_asked_for_before_the_run(tmp_path, monkeypatch, capsys):
    (tmp_path / "odd.py").write_text(
        "from explore_plugins.indexed_agent import Indexed\n\nfrom explore import hookimpl\n\n\n"
        "class Odd(Indexed):\n    def beliefs(self, observations):\n        return {'mean': observations}\n\n\n"
        "@hookimpl\ndef explore_agents():\n    return [Odd]\n"
    )
    monkeypatch.chdir(tmp_path)
    recipe = (list_recipes()["pins_deep_sea"]).read_text().replace("agent.Indexed", "agent.Odd")
    base = list_recipes()["deep_sea"].read_text().replace("agent.Indexed", "agent.Odd")
    (tmp_path / "odd.gin").write_text(base + recipe.replace("include 'deep_sea.gin'", ""))
    assert main(["run", "odd.gin", "-p", "odd.py", "--out", "run"]) == 2
    assert "Odd.beliefs() must give numbers [lanes, batch, actions]" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_whole_episodes_of_large_observations_are_not_kept():
    large = Walk(0, Spec(specs.Array((40, 40), np.float32), 3))
    assert track_visits(large, 1) is None
    assert isinstance(track_visits(Walk(0, CELLS), 1), BestEpisodes)


@pytest.mark.parametrize("places", [[0, 1], [[0.5]], [[9]], [[-2]]])
def test_a_map_of_what_is_no_observation_is_refused(places):
    environment = Walk(0, CELLS)
    environment.belief_map = lambda: np.array(places)
    with pytest.raises(ValueError, match=r"belief_map\(\) must give numbers of observations \[rows, columns\]"):
        track_visits(environment, 1)


def test_asking_for_beliefs_changes_nothing():
    quiet, asked = build(), build()
    first = live(quiet, 6)
    observations = np.zeros((2, 3, 2, 2), np.float32)
    second = live(asked, 6, measure=lambda episode: asked.beliefs(observations) and {})
    assert first == second
    assert live(build(acting=MeanArgmax), 6) != first  # which could be seen


def test_moments_are_as_many_for_every_tenfold():
    assert [n for n in range(1, 1000) if is_due(n, 6)] == [
        1, 2, 3, 5, 7, 10, 15, 22, 32, 46, 68, 100, 147, 215, 316, 464, 681,
    ]  # fmt: skip
    assert [n for n in range(1, 2000) if is_due(n, 1)] == [1, 10, 100, 1000]
    assert all(sum(is_due(n, k) for n in range(1000, 10_000)) == k for k in (1, 3, 6, 20))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return explore.run(
        "pins_deep_sea", bindings=[*SMALL, "experiment.episodes = 40"], seeds=(0, 1), out=folder / "run", quiet=True
    )


def files(run):
    return {path.name: path.read_bytes() for path in (run.folder / "snapshots").iterdir()}


def test_a_run_takes_snapshots_that_read_back(run):
    assert run.snapshots.episodes() == [1, 2, 3, 5, 7, 10, 15, 22, 32, 40]
    picture = run.snapshots.read(22)
    assert set(picture) == {"visits", "mean", "uncertainty", "prior_mean", "prior_uncertainty"}
    assert (picture["visits"][:, 0, 0] == 22).all()
    assert (run.snapshots.read(1)["prior_mean"][0] == picture["prior_mean"][0])[np.tri(4, dtype=bool)].all()


def test_snapshots_are_the_same_whatever_happens_to_the_run(run, tmp_path, monkeypatch):
    """The seed's company, an interruption, and how long the run was meant to be."""
    monkeypatch.chdir(tmp_path)
    bindings = [*SMALL, "experiment.episodes = 12"]
    explore.run("pins_deep_sea", bindings=bindings, seeds=(0, 1), out="short", quiet=True)
    longer = explore.run(bindings=["experiment.episodes = 40"], out="short", resume=True, quiet=True)
    assert files(longer) == files(run)
    alone = explore.run("pins_deep_sea", bindings=[*SMALL, "experiment.episodes = 40"], seeds=(1,), quiet=True)
    for name, values in alone.snapshots.read(32).items():
        np.testing.assert_array_equal(values[0], run.snapshots.read(32)[name][1])


def test_snapshots_after_the_checkpoint_go_when_a_run_goes_on(run, tmp_path):
    short = shutil.copytree(run.folder, tmp_path / "run")
    (short / "checkpoint/000000040.state").unlink()
    (short / "snapshots/000000032.npz").write_bytes(b"torn")
    (short / "snapshots/000000099.npz").write_bytes(b"of another time")
    assert files(explore.run(out=short, resume=True, quiet=True)) == files(run)


def test_snapshots_can_be_switched_off_and_on_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bindings = [*SMALL, "experiment.episodes = 12", "experiment.snapshots = None"]
    explore.run("pins_deep_sea", bindings=bindings, out="run", quiet=True)
    assert not (tmp_path / "run/snapshots").exists()
    on = ["experiment.episodes = 16", "experiment.snapshots = 6"]
    run = explore.run(bindings=on, out="run", resume=True, quiet=True)
    assert run.snapshots.episodes() == [15, 16]
    assert (run.snapshots.read(15)["visits"][:, 0, 0] == 15).all()


def damaged(**changes):
    arrays = {"visits": np.zeros((2, 3, 3), int), "mean": np.zeros((2, 3, 3, 2), np.float32)}
    return arrays | changes


@pytest.mark.parametrize(
    "arrays",
    [
        damaged(visits=np.zeros((1, 3, 3), int)),
        damaged(visits=np.zeros((2, 3), int)),
        damaged(visits=np.array(["x"])),
        damaged(mean=np.zeros((2, 3, 2, 2))),
        damaged(mean=np.zeros((2, 3, 3, 0))),
        damaged(mean=np.zeros(())),
        {"mean": np.zeros((2, 3, 3, 2))},
        {},
    ],
)
def test_arrays_that_are_no_snapshot_are_refused(tmp_path, arrays):
    snapshots = Snapshots(tmp_path / "snapshots", 2)
    snapshots.write(1, arrays)
    with pytest.raises(UserError, match="is damaged: its arrays are not those of a snapshot of 2 seeds"):
        snapshots.read(1)


@pytest.mark.parametrize("wrong", ["lengths", "actions", "rewards", "observations", "best_return", "mean"])
def test_best_episodes_that_do_not_fit_together_are_refused(tmp_path, wrong):
    seen = BestEpisodes(2)
    observations = np.zeros((2, 4), np.float32)
    seen.step(observations, [0, 1], Timesteps.gather([dm_env.termination(1.0, np.zeros(4))] * 2, [True, True]))
    seen.end(1, [1.0, 1.0], np.array([1, 1]))
    agent = build(spec=Spec(specs.Array((4,), np.float32), 3))
    snapshots = Snapshots(tmp_path / "snapshots", 2)
    snapshots.write(1, seen.picture(agent))
    arrays = snapshots.read(1)
    snapshots.write(1, arrays | {wrong: np.concatenate([arrays[wrong]] * 2) + 5})
    with pytest.raises(UserError, match="is damaged: its arrays"):
        snapshots.read(1)


def test_bytes_that_are_no_arrays_are_refused(run, tmp_path):
    whole = (run.folder / "snapshots/000000001.npz").read_bytes()
    snapshots = Snapshots(tmp_path, 2)
    pickled = io.BytesIO()
    np.savez(pickled, visits=np.array([{"an": "object"}]))
    for content in (b"", b"PK", whole[:-30], whole[:100] + b"\0" * 50 + whole[150:], pickled.getvalue()):
        (tmp_path / "000000001.npz").write_bytes(content)
        with pytest.raises(UserError, match=r"000000001\.npz is damaged: "):
            snapshots.read(1)
    (tmp_path / "000000002.npz").symlink_to("/dev/zero")
    with pytest.raises(UserError, match=r"000000002\.npz: it is not a file"):
        snapshots.read(2)


def test_a_folder_that_is_a_link_is_left_alone(run, tmp_path):
    other = shutil.copytree(run.folder / "snapshots", tmp_path / "other")
    (tmp_path / "link").symlink_to(other)
    with pytest.raises(UserError, match="link is damaged: it is a link to elsewhere"):
        Snapshots(tmp_path / "link", 2).remove_after(1)
    assert len([*other.iterdir()]) == 10
