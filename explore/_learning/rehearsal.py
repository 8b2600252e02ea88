"""What is tried once before a run, so that mistakes show before hours are spent on it.

`rehearse` tries selections and objectives on made-up transitions; `rehearse_resume` tries whether an
environment whose state is put back on a new one goes on the same, as a run that is resumed needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, SupportsFloat

import dm_env
import numpy as np
import torch
from torch import Tensor

from explore._learning.learner import Learner, select_actions
from explore._learning.replay import Batch, Replay
from explore._state import Misfit, Unsavable, capture, restore
from explore._values.parts import make_up_observations
from explore.errors import RunFailed, UserError
from explore.interfaces import Beliefs, Selection
from explore.streams import Generators, global_generators, normal, stream, uniform

ADVICE = "; give it state_dict and load_state_dict"
STEPS, MOST_STEPS = 100, 1100  # an environment plays so many steps and on to the end of the episode, or at most these


@torch.no_grad()
def rehearse(learner: Learner, selections: Sequence[Selection], replay: Replay) -> None:
    """Raises `ValueError` with the name of a selection or objective that fails or gives what it should not."""
    function, rows = learner.function, 4
    generators = [stream(seed, "rehearsal") for seed in function.seeds]
    obs = make_up_observations(function.spec, generators, rows).to(function.device)
    features = function.acting_features(obs[:, :1])
    for selection in selections:
        beliefs = Beliefs(function, features, function.draw(generators, 1, 1), generators, 0.0)
        _try(type(selection).__name__, select_actions, selection, beliefs, 1)
    batch = make_up_batch(obs, generators, replay, function.spec.num_actions)
    found = _try(type(learner.objective).__name__, learner.evaluate_losses, batch, generators)
    name, expected = type(learner.objective).__name__, list(learner.objective.losses)
    if list(found) != expected:
        raise ValueError(f"{name} gives the losses {list(found)}, but names {expected} in its `losses`")
    for loss, tensor in found.items():
        if list(tensor.shape) != [len(function.seeds)]:
            raise ValueError(
                f"{name} gives {loss} of shape {list(tensor.shape)}, expected [lanes] = {[len(function.seeds)]}"
            )


def _try(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except (ValueError, RunFailed):
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ValueError(f"{name} fails on made-up transitions: {reason}") from error


def make_up_batch(obs: Tensor, generators: Generators, replay: Replay, actions: int) -> Batch:
    """Transitions between observations `[lanes, batch, ...]`, of the shape that this replay gives."""
    rows = obs.shape[1]
    return Batch(
        obs=obs,
        action=(uniform(generators, rows) * actions).long(),
        reward=normal(generators, rows),
        discount=torch.ones(len(generators), rows),
        next_obs=obs.flip(1),
        mask=torch.ones(len(generators), rows, replay.mask.shape[2]),
        noise=normal(generators, rows, replay.noise.shape[2]),
        prior=normal(generators, rows, *replay.prior.shape[2:]).abs(),
        next_prior=normal(generators, rows, *replay.prior.shape[2:]).abs(),
    )


def rehearse_resume(build: Callable[[], dm_env.Environment], name: str) -> None:
    """Raises `Unsavable` unless an environment, put back onto a new one, goes on as if nothing had happened.

    That is tried once: state that nobody can see, such as a counter of the class or in a closure,
    shows only in what the environment does.
    """
    generators = global_generators()
    before = capture(generators, "the global generators")
    try:
        _play_twice(build, name, generators)
    finally:
        restore(generators, before, "the global generators")


def _play_twice(build: Callable[[], dm_env.Environment], name: str, generators: dict[str, Any]) -> None:
    policy = np.random.default_rng(0)
    first = build()
    actions = first.action_spec().num_values
    _, _, over = _played(first, policy, actions, over=True)
    if not over:
        return  # its episodes are long, and checkpoints are taken between episodes
    tree, globally = capture(first, name), capture(generators, "the global generators")
    try:
        second = restore(build(), tree, name)
    except Misfit as misfit:
        raise Unsavable(str(misfit)) from misfit
    restore(generators, globally, "the global generators")
    moves, expected, _ = _played(first, policy, actions, over)
    restore(generators, globally, "the global generators")
    try:
        same = all(seen(_moved(second, move)) == known for move, known in zip(moves, expected))
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise Unsavable(f"{name} does not go on after it is put back ({reason}){ADVICE}") from error
    if not same:
        raise Unsavable(f"{name} does not go on the same after it is put back on a newly built one{ADVICE}")


def _played(
    environment: dm_env.Environment, policy: np.random.Generator, actions: int, over: bool
) -> tuple[list[int | None], list[Any], bool]:
    """Plays to the end of an episode: the moves (None resets), what was seen, and whether it is over."""
    moves: list[int | None] = []
    sights: list[Any] = []
    while True:
        moves.append(None if over else int(policy.integers(actions)))
        timestep = _moved(environment, moves[-1])
        sights.append(seen(timestep))
        over = timestep.last()
        if (over and len(moves) >= STEPS) or len(moves) >= MOST_STEPS:
            return moves, sights, over


def _moved(environment: dm_env.Environment, move: int | None) -> dm_env.TimeStep:
    """Moves it, and raises `UserError` if what comes of it is no timestep that fits its specs."""
    timestep = environment.reset() if move is None else environment.step(move)
    name, method = f"environment.{type(environment).__name__}", "reset" if move is None else "step"
    if not isinstance(timestep, dm_env.TimeStep):
        wanted = "a dm_env.TimeStep, as dm_env.restart, transition and termination make them"
        raise UserError(f"{name}.{method} must return {wanted}, got {type(timestep).__name__}")
    spec, observation = environment.observation_spec(), np.asarray(timestep.observation)
    if observation.shape != spec.shape:
        raise UserError(f"{name} observes shape {list(observation.shape)}, its spec says {list(spec.shape)}")
    if isinstance(spec, dm_env.specs.DiscreteArray) and not 0 <= observation < spec.num_values:
        raise UserError(f"{name} observes {observation}, its spec says from 0 to {spec.num_values - 1}")
    if move is not None and not (isinstance(timestep.reward, SupportsFloat) and np.isfinite(float(timestep.reward))):
        raise UserError(f"{name} gives the reward {timestep.reward!r}, which is no finite number")
    return timestep


def seen(value: Any) -> Any:
    """What can be compared bit for bit, and does not change when the environment goes on."""
    if isinstance(value, dict):
        return {key: seen(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [seen(entry) for entry in value]
    array = np.array(value)
    if array.dtype.hasobject:
        return repr(value)
    if array.dtype.kind in "fc":
        array[np.isnan(array)] = np.nan  # which has many forms
    return array.dtype.str, array.shape, array.tobytes()
