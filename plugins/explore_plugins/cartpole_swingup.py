"""Cartpole swing-up: bsuite's, with the paper's thresholds and its condition on the cart's speed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import dm_env
import numpy as np
from dm_env import specs

from explore import hookimpl
from explore.interfaces import Judge, Timesteps
from explore.streams import integer_seed
from explore.tasks import TaskDescription, Trace
from explore_plugins.bsuite_scores import GOOD_RETURN, PERFECT_RETURN, swingup_score

GRAVITY = 9.8
FORCE = 10.0
MASS_POLE = 0.1
MASS_TOTAL = 1.0 + MASS_POLE
LENGTH = 0.5  # half of the pole's
MOMENT = MASS_POLE * LENGTH


class CartpoleSwingupJudge(Judge):
    """Judges swing-up with bsuite's score of one height.

    Half of the score is the mean return as a share of 700, the other half is earned by one episode
    of more than 100, both within the first 1,000 episodes. bsuite does not say when a seed has
    solved the task: here it is at its first episode of more than 100.
    """

    columns = ("upright",)
    curve = ("return", "max")
    decides = True
    environment: CartpoleSwingup

    def episode(self, episode_return: float) -> dict[str, float]:
        super().episode(episode_return)
        if self.solved_at is None and episode_return > GOOD_RETURN:
            self.solved_at = len(self.returns)
        return {"upright": self.environment.upright}

    def summary(self) -> dict[str, Any]:
        return super().summary() | {"score": self.score(), "normalised_return": self.normalised_return()}

    def score(self) -> float | None:
        """bsuite's score, from 0 to 1; None before the first episode."""
        return swingup_score(self.returns, every_episode=True) if self.returns else None

    def normalised_return(self) -> float | None:
        """The mean return as a share of what is perfect in bsuite's eyes; None before the first episode."""
        return float(np.clip(np.mean(self.returns) / PERFECT_RETURN, 0, 1)) if self.returns else None


class CartpoleSwingup(dm_env.Environment):
    """bsuite's Cartpole swing-up, step for step.

    The pole hangs down from a cart that can be pushed left, not at all, or right. A step with the
    pole upright and slow and the cart central earns 1; a push costs. An episode ends at the end of
    the track or of the time, which is part of the observation. The defaults are those of the
    paper's public code; its text also asks for a slow cart (`x_dot_threshold = 1.0`).

    Args:
        height_threshold: reward only where the cosine of the pole's angle is above this.
        theta_dot_threshold: reward only where the pole's angular speed is below this.
        x_reward_threshold: reward only where the cart is nearer than this to the middle.
        x_dot_threshold: reward only where the cart's speed is below this; None for no condition.
        move_cost: the cost of a push.
        x_threshold: the episode ends where the cart is farther than this from the middle.
        timescale: seconds per step.
        max_time: seconds per episode.
        init_range: the state starts within this of hanging at rest in the middle.
    """

    judge = CartpoleSwingupJudge

    def __init__(
        self,
        seed: int,
        height_threshold: float = 0.95,
        theta_dot_threshold: float = 1.0,
        x_reward_threshold: float = 1.0,
        x_dot_threshold: float | None = None,
        move_cost: float = 0.05,
        x_threshold: float = 5.0,
        timescale: float = 0.01,
        max_time: float = 10.0,
        init_range: float = 0.05,
    ):
        if not height_threshold < 1:
            raise ValueError(f"height_threshold must be below 1, got {height_threshold!r}")
        for name, value in {
            "theta_dot_threshold": theta_dot_threshold,
            "x_reward_threshold": x_reward_threshold,
            "x_threshold": x_threshold,
            "timescale": timescale,
            "max_time": max_time,
        }.items():
            if not 0 < value < math.inf:
                raise ValueError(f"{name} must be above 0 and finite, got {value!r}")
        if x_dot_threshold is not None and not x_dot_threshold > 0:
            raise ValueError(f"x_dot_threshold must be None or above 0, got {x_dot_threshold!r}")
        for name, value in {"move_cost": move_cost, "init_range": init_range}.items():
            if not 0 <= value < math.inf:
                raise ValueError(f"{name} must be at least 0 and finite, got {value!r}")
        self._height_threshold = height_threshold
        self._theta_dot_threshold = theta_dot_threshold
        self._x_reward_threshold = x_reward_threshold
        self._x_dot_threshold = math.inf if x_dot_threshold is None else x_dot_threshold
        self._move_cost = move_cost
        self._x_threshold = x_threshold
        self._timescale = timescale
        self._max_time = max_time
        self._init_range = init_range
        self.upright = 0  # steps of this episode that were rewarded
        self._rng = np.random.RandomState(integer_seed(seed, "environment"))
        self._over = True

    def reset(self) -> dm_env.TimeStep:
        x, x_dot, theta, theta_dot = self._rng.uniform(-self._init_range, self._init_range, 4).tolist()
        self._x, self._x_dot, self._theta_dot, self._time = x, x_dot, theta_dot, 0.0
        self._theta = theta = math.pi + theta
        self._sin, self._cos = math.sin(theta), math.cos(theta)
        self._over = False
        self.upright = 0
        return dm_env.restart(np.array((self._numbers(),), np.float32))

    def step(self, action: int) -> dm_env.TimeStep:
        if self._over:
            return self.reset()
        reward = self._push(action)
        end = dm_env.termination if self._over else dm_env.transition
        return end(reward, np.array((self._numbers(),), np.float32))

    @staticmethod
    def step_lanes(
        environments: Sequence[CartpoleSwingup], actions: Sequence[int], lanes: Sequence[int], timesteps: Timesteps
    ) -> None:
        observations, rewards = timesteps.observations, timesteps.rewards
        for lane in lanes:
            environment = environments[lane]
            rewards[lane] = environment._push(actions[lane])
            observations[lane, 0] = environment._numbers()
            if environment._over:
                timesteps.end(lane)

    def _push(self, action: int) -> float:
        """A step, one of Euler's in the equations of motion, in bsuite's order of operations; returns the reward."""
        x_dot, theta_dot, sin, cos, dt = self._x_dot, self._theta_dot, self._sin, self._cos, self._timescale
        direction = int(action) - 1
        push = (FORCE * direction + MOMENT * theta_dot**2 * sin) / MASS_TOTAL
        theta_acc = (GRAVITY * sin - cos * push) / (LENGTH * (4 / 3 - MASS_POLE * cos**2 / MASS_TOTAL))
        self._x = x = self._x + dt * x_dot
        self._x_dot = x_dot = x_dot + dt * (push - MOMENT * theta_acc * cos / MASS_TOTAL)
        self._theta = theta = (self._theta + dt * theta_dot) % (2 * math.pi)
        self._theta_dot = theta_dot = theta_dot + dt * theta_acc
        self._sin, self._cos = math.sin(theta), math.cos(theta)
        self._time += dt
        self._over = self._time > self._max_time or abs(x) > self._x_threshold
        upright = (
            self._cos > self._height_threshold
            and abs(theta_dot) < self._theta_dot_threshold
            and abs(x) < self._x_reward_threshold
            and abs(x_dot) < self._x_dot_threshold
        )
        self.upright += upright
        return float(upright) - self._move_cost * abs(direction)

    def _numbers(self) -> tuple[float, ...]:
        """The observation."""
        return (
            self._x / self._x_threshold,
            self._x_dot / self._x_threshold,
            self._sin,
            self._cos,
            self._theta_dot,
            self._time / self._max_time,
            1.0 if abs(self._x) < self._x_reward_threshold else -1.0,
            1.0 if abs(self._theta_dot) < self._theta_dot_threshold else -1.0,
        )

    def describe_task(self) -> TaskDescription:
        return TaskDescription(
            score=f"half the mean return as a share of {PERFECT_RETURN}, half for one episode of more than "
            f"{GOOD_RETURN} (bsuite's score of one height)",
            solved=f"the first episode with a return of more than {GOOD_RETURN}",
            curve_note="The paper's figure of swing-up shows the standard deviation over seeds instead.",
            traces=(Trace("height of the pole, cos θ", 3, low=-1, high=1),),
        )

    def observation_spec(self) -> specs.Array:
        return specs.Array((1, 8), np.float32, name="state")

    def action_spec(self) -> specs.DiscreteArray:
        return specs.DiscreteArray(3, name="action")


@hookimpl
def explore_environments() -> list[type]:
    return [CartpoleSwingup]
