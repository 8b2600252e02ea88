"""All seeds live in lockstep; an experiment is a task, an agent and seeds."""

from __future__ import annotations

import copy
from functools import partial

import dm_env
import numpy as np
import pytest
from building import BSP, PINS, Walk
from dm_env import specs
from explore_plugins.bsuite import Bsuite
from explore_plugins.cartpole_swingup import CartpoleSwingup
from explore_plugins.deep_sea import DeepSea
from explore_plugins.indexed_agent import Indexed
from explore_plugins.random_mdp import RandomMDP
from explore_plugins.selections import EpsilonGreedy, SampledArgmax

from explore._running.experiment import Experiment
from explore._running.lanes import Lanes, find_batch_form, step_one_by_one
from explore._running.loop import Progress, play_episode, train
from explore._running.preflight import to_bytes
from explore.interfaces import Agent, Judge, Timesteps
from explore.testing import toy


class Fixed(dm_env.Environment):
    """Episodes of one length, a reward of 1 for each step; it must never be stepped after the end."""

    def __init__(self, seed=0, length=3):
        self.length, self.time = length, None

    def reset(self):
        self.time = 0
        return dm_env.restart(np.float32([self.length, 0]))

    def step(self, action):
        assert self.time < self.length
        assert action == 10 * self.length + self.time
        self.time += 1
        return (dm_env.termination if self.time == self.length else dm_env.transition)(
            1.0, np.float32([self.length, self.time])
        )

    def observation_spec(self):
        return specs.Array((2,), np.float32)

    def action_spec(self):
        return specs.DiscreteArray(100)


class Scribe(Agent):
    """Writes down all that it is told."""

    columns = ("double",)

    def __init__(self, *_):
        self.began, self.seen = [], []

    def begin_episode(self, observations, progress):
        self.began.append((observations[:, 0].tolist(), progress))

    def act(self, observations, active):
        return [int(10 * length + time) for length, time in observations]

    evaluate = act

    def observe(self, actions, timesteps, active):
        self.seen.append((list(active), [t.last() for t in timesteps]))

    def metrics(self):
        return {"double": [10, 20, 30]}


def test_a_lane_whose_episode_has_ended_waits():
    agent = Scribe()
    environments = [Fixed(length=length) for length in (2, 4, 1)]
    lanes = play_episode(agent, environments, progress=0.5)
    assert lanes.returns == [2.0, 4.0, 1.0]
    assert lanes.lengths.tolist() == [2, 4, 1]
    assert agent.began == [([2, 4, 1], 0.5)]
    assert [active for active, _ in agent.seen] == [
        [True, True, True], [True, True, False], [False, True, False], [False, True, False],
    ]  # fmt: skip


class FixedInOneCall(Fixed):
    """The same, in one call."""

    @staticmethod
    def step_lanes(environments, actions, lanes, timesteps):
        for lane in lanes:
            timestep = environments[lane].step(actions[lane])
            timesteps.observations[lane], timesteps.rewards[lane] = timestep.observation, timestep.reward
            if timestep.last():
                timesteps.end(lane)


class Twofold(FixedInOneCall):
    """Overrides the form for one lane alone."""

    def step(self, action):
        return super().step(action)._replace(reward=2.0)


def test_lanes_are_stepped_in_one_call_where_their_class_says_how():
    for kinds, batch in (
        ((FixedInOneCall, FixedInOneCall), FixedInOneCall.step_lanes),
        ((FixedInOneCall, Fixed), None),
        ((Twofold, Twofold), None),
        ((Fixed, Fixed), None),
    ):
        assert find_batch_form([kind() for kind in kinds]) is batch
    assert play_episode(Scribe(), [Twofold(length=3)], progress=0.0).returns == [6.0]


@pytest.mark.parametrize("lengths", [(2, 4, 1), (3,), (2, 2)])
def test_in_one_call_all_is_as_one_by_one(lengths):
    agents, played = (Scribe(), Scribe()), []
    for agent, kind in zip(agents, (Fixed, FixedInOneCall)):
        played.append(play_episode(agent, [kind(length=length) for length in lengths], progress=0.0))
    single, batch = ([lanes.returns, lanes.lengths.tolist(), lanes.observations.tolist()] for lanes in played)
    assert single == batch and agents[0].seen == agents[1].seen


@pytest.mark.parametrize("environment", [DeepSea, partial(DeepSea, deterministic=False), CartpoleSwingup])
def test_the_lanes_of_a_task_are_to_the_bit_those_stepped_one_by_one(environment):
    single, batch = (Lanes([environment(seed) for seed in range(4)], form) for form in (step_one_by_one, None))
    random = np.random.default_rng(0)
    for _ in range(3):
        single.reset(), batch.reset()
        while any(single.active):
            actions = random.integers(2, size=4).tolist()
            one, other = single.step(actions), batch.step(actions)
            for name in ("observations", "rewards", "discounts", "last"):
                a, b = getattr(one, name), getattr(other, name)
                assert (a.dtype, a.tobytes()) == (b.dtype, b.tobytes())
        assert (single.returns, batch.active) == (batch.returns, single.active)


def test_what_a_step_led_to_stays_as_it_is():
    lanes = Lanes([FixedInOneCall(length=length) for length in (1, 3)])
    lanes.reset()
    seen, copies = [], []
    while any(lanes.active):
        seen.append(lanes.step([int(10 * length + time) for length, time in lanes.observations]))
        copies.append(copy.deepcopy(seen[-1]))
    for one, other in zip(seen, copies, strict=True):
        assert all((vars(one)[name] == vars(other)[name]).all() for name in vars(one))
    assert [timesteps.rewards.tolist() for timesteps in seen] == [[1, 1], [0, 1], [0, 1]]
    assert [timesteps.last.tolist() for timesteps in seen] == [[True, False], [True, False], [True, True]]


def test_timesteps_are_a_sequence_of_dm_env_s():
    timesteps = Timesteps(
        np.float32([[1, 2], [3, 4], [5, 6]]),
        np.array([0.5, 1.5, 0]),
        np.array([1, 0, 0.5]),
        np.array([False, True, True]),
    )
    mid, terminal, cut = timesteps
    assert mid.mid() and terminal.last() and cut.last()
    assert [(t.reward, t.discount) for t in timesteps] == [(0.5, 1.0), (1.5, 0.0), (0.0, 0.5)]
    assert terminal.observation.tolist() == [3, 4]
    assert [t.reward for t in timesteps[1:]] == [1.5, 0.0] and timesteps[-1].discount == 0.5
    with pytest.raises(IndexError):
        timesteps[3]
    again = Timesteps.gather([*timesteps], [True] * 3)
    assert all((vars(again)[name] == vars(timesteps)[name]).all() for name in vars(again))
    waiting = Timesteps.gather([None, terminal, None], [False, True, False])
    assert (waiting.rewards.tolist(), len(waiting)) == ([0.0, 1.5, 0.0], 3)


@pytest.mark.parametrize(
    "environment",
    [DeepSea, partial(DeepSea, deterministic=False), CartpoleSwingup, RandomMDP, partial(Bsuite, id="catch_noise/3")],
)
@pytest.mark.parametrize("seed", [3, 2**70 + 1])
def test_an_environment_built_by_hand_is_that_of_the_seed_in_a_run(environment, seed):
    made = Experiment(environment, toy.Dice, episodes=1, seeds=(0, seed), evaluate_every=1)
    actions = np.random.default_rng(0).integers(2, size=40).tolist()
    by_hand, in_run, evaluator = environment(seed=seed), made.environments[1], made.evaluators[1]
    for move in (None, *actions):
        one, *others = (each.reset() if move is None else each.step(move) for each in (by_hand, in_run, evaluator))
        assert to_bytes(others) == to_bytes([one, one])


def test_an_agent_learns_before_its_first_action_and_after_each_step():
    calls = []

    class Pupil(Scribe):
        def begin_episode(self, observations, progress):
            calls.append("begin_episode")

        def learn(self):
            calls.append("learn")

        def learn_online(self, active):
            calls.append(("learn_online", list(active)))

        def act(self, observations, active):
            calls.append("act")
            return super().act(observations, active)

        def observe(self, actions, timesteps, active):
            calls.append("observe")

    play_episode(Pupil(), [Fixed(length=length) for length in (1, 2)], progress=0.0)
    steps = [["act", "observe", ("learn_online", active)] for active in ([True, True], [False, True])]
    assert calls == ["begin_episode", "learn", *steps[0], *steps[1]]


def test_rows_tell_what_happened():
    agent = Scribe()
    environments = [Fixed(length=length) for length in (2, 4, 1)]

    class Counting(Judge):
        def episode(self, episode_return):
            super().episode(episode_return)
            return {"seen": len(self.returns)}

    judges = [Counting(environment) for environment in environments]
    progress = Progress(np.zeros(3, int))
    rows = [*train(agent, environments, judges, [7, 8, 9], 4, lambda episode: {}, progress)]
    assert (progress.episode, progress.steps.tolist()) == (4, [8, 16, 4])
    assert agent.began == [([2, 4, 1], progress) for progress in (0, 0.25, 0.5, 0.75)]
    assert len(rows) == 4
    assert rows[2] == [
        {"seed": seed, "episode": 3, "return": float(n), "length": n, "steps": 3 * n, "double": double, "seen": 3}
        for seed, n, double in ((7, 2, 10), (8, 4, 20), (9, 1, 30))
    ]


def test_the_run_can_stop_when_all_seeds_have_solved_their_task():
    class After(Judge):
        decides = True

        def episode(self, episode_return):
            super().episode(episode_return)
            if len(self.returns) == self.environment.length:
                self.solved_at = len(self.returns)
            return {}

    class Short(Fixed):
        judge = After

    for stop, expected in ((True, 5), (False, 9)):
        made = experiment({}, partial(Short, length=5), Scribe, episodes=9, stop_when_solved=stop)
        assert len(rows_of(made)) == 2 * expected
        assert made.is_over


def experiment(parts=PINS, environment=Walk, agent=Indexed, **settings):
    settings = {"episodes": 8, "seeds": (0, 3)} | settings
    return Experiment(environment, partial(agent, **parts), **settings)


def rows_of(made):
    return [row for rows in made.train() for row in rows]


@pytest.mark.parametrize("parts", [PINS, BSP], ids=["PINs", "BSP"])
@pytest.mark.parametrize("evaluation", [None, SampledArgmax, EpsilonGreedy])
def test_evaluation_does_not_disturb_training(parts, evaluation):
    parts = parts | {"acting": EpsilonGreedy}
    plain = rows_of(experiment(parts))
    evaluated = rows_of(experiment(parts | {"evaluation": evaluation}, evaluate_every=3))
    assert {row["episode"] for row in evaluated if "evaluation" in row} == {3, 6}
    assert [{name: value for name, value in row.items() if name != "evaluation"} for row in evaluated] == plain


def test_evaluation_plays_whole_episodes():
    rows = rows_of(experiment({}, partial(Fixed, length=4), Scribe, seeds=(0, 1, 2), evaluate_every=2, episodes=4))
    assert [row.get("evaluation") for row in rows[::3]] == [None, 4.0, None, 4.0]


def test_the_columns_are_those_of_the_rows():
    made = experiment(evaluate_every=1)
    assert {*rows_of(made)[-1], "seconds"} == set(made.columns)
    assert "evaluation" not in experiment().columns


def test_the_same_experiment_gives_the_same_rows():
    assert rows_of(experiment()) == rows_of(experiment())


def test_a_seed_of_an_experiment_is_the_same_in_other_company():
    alone = rows_of(experiment(seeds=(3,)))
    assert [row for row in rows_of(experiment(seeds=(5, 3, 0))) if row["seed"] == 3] == alone


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"episodes": 0}, "episodes must be at least 1, got 0"),
        ({"evaluate_every": 0}, "evaluate_every must be at least 1, got 0"),
        ({"threads": 0}, "threads must be at least 1, got 0"),
        ({"checkpoint_every": 0}, "checkpoint_every must be at least 1, got 0"),
        ({"checkpoint_minutes": -1.0}, "checkpoint_minutes must be None or at least 0, got -1.0"),
        ({"seeds": ()}, r"seeds must be different integers of at least 0 such as \(0, 1, 2\), got \(\)"),
        ({"seeds": (1, 1)}, r"seeds must be different integers .*, got \(1, 1\)"),
        ({"seeds": (0, -1)}, r"seeds must be different integers .*, got \(0, -1\)"),
        ({"device": "abacus"}, "device 'abacus' is not available: "),
        ({"device": "meta"}, "device 'meta' is not available: "),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        experiment(**settings)


def test_an_environment_without_discrete_actions_is_refused():
    class Steering(Walk):
        def action_spec(self):
            return specs.BoundedArray((2,), np.float32, -1, 1)

    with pytest.raises(ValueError, match="environment must have discrete actions"):
        experiment(environment=Steering)
