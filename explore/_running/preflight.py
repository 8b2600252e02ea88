"""What is tried before a run, so that mistakes show before hours are spent.

Components of an agent are tried when it is built, see `explore._learning.preflight`; here the agent and the
environments are tried for what a run asks of them: beliefs for pictures, and a state that can be put back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, SupportsFloat

import dm_env
import numpy as np

from explore._config.discovery import Registry
from explore._config.tracebacks import plugin_errors
from explore._learning.preflight import make_up_observations
from explore._running.experiment import Experiment, preserve_generators
from explore._running.visits import beliefs
from explore._state import Misfit, Unsavable, capture, restore
from explore.errors import UserError
from explore.streams import Streams, global_generators

ADVICE = "; give it state_dict and load_state_dict"
STEPS, MOST_STEPS = 100, 1100  # an environment plays so many steps and on to the end of the episode, or at most these


def preflight(experiment: Experiment) -> None:
    """Raises `UserError`, or `Unsavable` if the experiment, newly built, could not be resumed exactly."""
    check_beliefs(experiment)
    if experiment.has_checkpoints:
        experiment.record_skeleton()
        name = f"environment.{type(experiment.environments[0]).__name__}"
        check_environment_resumes(lambda: experiment.build_environment(experiment.seeds[0]), name)


def try_before_run(experiment: Experiment, registry: Registry) -> None:
    """Has `preflight` try an experiment; says what to do about what fails, and in whose plugin."""
    try:
        with plugin_errors(registry):
            preflight(experiment)
    except Unsavable as error:
        settings = {"minutes": experiment.checkpoint_minutes, "every": experiment.checkpoint_every}
        off = [f'-b "experiment.checkpoint_{name} = None"' for name, value in settings.items() if value is not None]
        raise UserError(f"{error}; or do without checkpoints: {' '.join(off)}") from error


def check_beliefs(experiment: Experiment) -> None:
    """Raises `UserError` unless the agent's beliefs can be recorded."""
    observations = make_up_observations(experiment.spec, Streams(experiment.seeds)["check"], 2).numpy()
    try:
        beliefs(experiment.agent, observations)
    except ValueError as error:
        raise UserError(str(error)) from error


@preserve_generators()
def check_environment_resumes(build: Callable[[], dm_env.Environment], name: str) -> None:
    """Raises `Unsavable` unless a new environment, given the state of another, continues as that one does.

    It is played, since state that cannot be seen, such as a counter of the class or in a closure, shows
    only in what the environment does. Raises `UserError` if a timestep breaks the environment's own specs.
    """
    policy = np.random.default_rng(0)
    first = build()
    actions = first.action_spec().num_values
    _, _, over = _play(first, policy, actions, over=True)
    if not over:
        return  # its episodes are long, and checkpoints are taken between episodes
    tree, generators = capture(first, name), capture(global_generators(), "the global generators")
    try:
        second = restore(build(), tree, name)
    except Misfit as misfit:
        raise Unsavable(str(misfit)) from misfit
    restore(global_generators(), generators, "the global generators")
    moves, expected, _ = _play(first, policy, actions, over)
    restore(global_generators(), generators, "the global generators")
    try:
        same = all(to_bytes(_move(second, move)) == known for move, known in zip(moves, expected))
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise Unsavable(f"{name} does not continue after its state is restored ({reason}){ADVICE}") from error
    if not same:
        raise Unsavable(f"{name} does not continue the same when its state is restored on a new one{ADVICE}")


def _play(
    environment: dm_env.Environment, policy: np.random.Generator, actions: int, over: bool
) -> tuple[list[int | None], list[Any], bool]:
    """Plays to the end of an episode: the moves (None resets), the timesteps, and whether it is over."""
    moves: list[int | None] = []
    timesteps: list[Any] = []
    while True:
        moves.append(None if over else int(policy.integers(actions)))
        timestep = _move(environment, moves[-1])
        timesteps.append(to_bytes(timestep))
        over = timestep.last()
        if (over and len(moves) >= STEPS) or len(moves) >= MOST_STEPS:
            return moves, timesteps, over


def _move(environment: dm_env.Environment, move: int | None) -> dm_env.TimeStep:
    """Resets or steps it; raises `UserError` unless it returns a timestep that fits its specs."""
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
        raise UserError(f"{name} gives the reward {timestep.reward!r}, which is not a finite number")
    return timestep


def to_bytes(value: Any) -> Any:
    """A copy that can be compared to the bit, and does not change when the environment goes on."""
    if isinstance(value, dict):
        return {key: to_bytes(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [to_bytes(entry) for entry in value]
    array = np.array(value)
    if array.dtype.hasobject:
        return repr(value)
    if array.dtype.kind in "fc":
        array[np.isnan(array)] = np.nan  # which has many forms
    return array.dtype.str, array.shape, array.tobytes()
