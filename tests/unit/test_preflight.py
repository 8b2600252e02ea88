"""What a plugin's environment or agent gets wrong is told, with its name, before a run."""

import contextlib
import math
import random
from functools import partial

import dm_env
import numpy as np
import pytest
import torch
from building import CELLS, Walk
from dm_env import specs
from stateful import ENVIRONMENTS, Holder

from explore._running.preflight import check_environment_resumes
from explore._state import Unsavable
from explore.errors import UserError


class Gym(Walk):
    def step(self, action):
        return np.zeros((2, 2)), 1.0, False, {}


class Flat(Walk):
    def reset(self):
        return dm_env.restart(np.zeros(4, np.float32))


class Outside(Walk):
    def _observation(self):
        return np.int32(9)


class Unpaid(Walk):
    def step(self, action):
        return super().step(action)._replace(reward=None)


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        (Gym, r"environment\.Gym\.step must return a dm_env\.TimeStep, .*, got tuple"),
        (Flat, r"environment\.Flat observes shape \[4\], its spec says \[2, 2\]"),
        (partial(Outside, spec=CELLS), r"environment\.Outside observes 9, its spec says from 0 to 8"),
        (Unpaid, r"environment\.Unpaid gives the reward None, which is not a finite number"),
    ],
)
def test_an_environment_that_breaks_its_contract_is_told_how(environment, message):
    with pytest.raises(UserError, match=message):
        check_environment_resumes(lambda: environment(seed=0), "environment.Some")


@pytest.mark.parametrize("build", ENVIRONMENTS.values(), ids=ENVIRONMENTS)
def test_environments_pass_the_rehearsal(build):
    check_environment_resumes(build, "environment")


class Corridor(dm_env.Environment):
    """Third parties derive from this: five steps, the observation is what `look` says."""

    def __init__(self) -> None:
        self.time = 0

    def reset(self) -> dm_env.TimeStep:
        self.time = 0
        return dm_env.restart(np.float32(self.look()))

    def step(self, action: int) -> dm_env.TimeStep:
        self.time += 1
        make = dm_env.termination if self.time == 5 else dm_env.transition
        return make(1.0, np.float32(self.look()))

    def look(self) -> float:
        return self.time

    def observation_spec(self) -> specs.Array:
        return specs.Array((), np.float32)

    def action_spec(self) -> specs.DiscreteArray:
        return specs.DiscreteArray(2)


class WithGenerator(Corridor):
    def __init__(self) -> None:
        super().__init__()
        self.moves = (n for n in range(10**6))

    def look(self) -> float:
        return next(self.moves)


class DrawsGlobally(Corridor):
    def look(self) -> float:
        return np.random.rand() + random.random() + torch.rand(()).item()


class CountsInItsClass(Corridor):
    looks = 0

    def look(self) -> float:
        type(self).looks += 1
        return self.looks


class CountsInAClosure(Corridor):
    def __init__(self) -> None:
        super().__init__()
        looks = 0

        def look() -> float:
            nonlocal looks
            looks += 1
            return looks

        self.look = look  # type: ignore[method-assign]


class BuildsABoard(Corridor):
    board: Holder | None = None

    def reset(self) -> dm_env.TimeStep:
        self.board = Holder(looks=0)
        return super().reset()

    def look(self) -> float:
        assert self.board is not None
        self.board.looks += 1
        return self.board.looks


class SavesItsBoard(BuildsABoard):
    def state_dict(self) -> dict[str, int]:
        assert self.board is not None
        return {"looks": self.board.looks, "time": self.time}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.board, self.time = Holder(looks=state["looks"]), state["time"]


class ForgetsItsTime(Corridor):
    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def look(self) -> float:
        self.total += 1
        return self.total

    def state_dict(self) -> dict[str, int]:
        return {}

    def load_state_dict(self, state: dict[str, int]) -> None: ...


class FailsWhenPutBack(ForgetsItsTime):
    def load_state_dict(self, state: dict[str, int]) -> None:
        del self.total


class SeesNothingButNaN(Corridor):
    def look(self) -> float:
        return math.nan


@pytest.mark.parametrize("build", [Corridor, DrawsGlobally, SavesItsBoard, SeesNothingButNaN])
def test_third_parties_that_can_be_resumed(build):
    check_environment_resumes(build, "environment")


@pytest.mark.parametrize(
    "build, message",
    [
        (
            WithGenerator,
            r"^environment\.moves is a generator, which cannot be saved; give the object that holds it state_dict",
        ),
        (CountsInItsClass, "^environment does not continue the same when its state is restored .*; give it state_dict"),
        (CountsInAClosure, "^environment does not continue the same when its state is restored .*; give it state_dict"),
        (ForgetsItsTime, "^environment does not continue the same when its state is restored"),
        (
            FailsWhenPutBack,
            r"^environment does not continue after its state is restored \(AttributeError: .*; give it state_dict",
        ),
        (
            BuildsABoard,
            r"^environment\.board holds a Holder that a newly built one does not have; give the object that",
        ),
    ],
)
def test_third_parties_that_cannot_be_resumed(build, message):
    with pytest.raises(Unsavable, match=message):
        check_environment_resumes(build, "environment")


@pytest.mark.parametrize("build", [DrawsGlobally, WithGenerator])
def test_the_rehearsal_leaves_the_global_generators_as_they_were(build):
    def states():
        _, words, *rest = np.random.get_state()
        return words.tolist(), rest, random.getstate(), torch.get_rng_state().tolist()

    before = states()
    with contextlib.suppress(Unsavable):
        check_environment_resumes(build, "environment")
    assert states() == before
