"""Selections and objectives, tried once on made-up transitions, so that mistakes show before hours are spent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from explore._learning.learner import Learner, select_actions
from explore._learning.replay import Batch, Replay
from explore._values.parts import make_up_observations
from explore.errors import RunFailed
from explore.interfaces import Beliefs, Selection
from explore.streams import Generators, normal, stream, uniform


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
