"""The check of a selection."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from explore._learning.preflight import make_up_observations
from explore._values.indexed_value import IndexedValue
from explore.interfaces import Beliefs, Index, Selection, Spec, select_actions
from explore.streams import Generators, stream
from explore.testing import toy
from explore.testing.lives import COMPANIES, SEED, check_company, check_resume
from explore.testing.promises import (
    LANES_APART,
    STANDARD,
    Options,
    Subject,
    join_names,
    shorten_traceback,
    try_component,
)

PROGRESS = (0.0, 0.5, 1.0)
WAITING = "draw with explore.streams.uniform, normal or integers, which leave lanes out whose generator is None"


@shorten_traceback
def check_selection(cls: type[Selection], options: Options = STANDARD, /, **parameters: Any) -> None:
    """Raises `Nonconformance` unless a selection keeps all promises of its slot.

    It is tried in acting, targets and evaluation, on PINs, an ensemble and a single value function, or on
    `options.agent["uncertainty"]`.
    """
    with try_component("selection", cls, parameters) as subject:
        modules = {"PINs": toy.pins(), "an ensemble": toy.bsp()}
        modules["a single value function"] = toy.bsp() | {"uncertainty": toy.part("uncertainty.Deterministic")}
        if "uncertainty" in options.agent:
            modules = {"the module given": toy.bsp()}
        uses = {use: subject.build for use in ("acting", "target", "evaluation")}
        for name, parts in modules.items():
            for spec in options.specs():
                together = parts | options.agent | uses
                with subject.attempt(f"on {name}"):
                    _check_choices(subject, spec, together)
                    walk, agent = partial(toy.Walk, spec=spec), toy.indexed(**together)
                    check_company(subject, walk, agent)
                check_resume(subject, walk, agent)


def _check_choices(subject: Subject, spec: Spec, parts: dict[str, Any]) -> None:
    alone = _choices(subject, spec, (SEED,), parts)
    for company in COMPANIES:
        together, lane = _choices(subject, spec, company, parts), company.index(SEED)
        subject.require(
            all(torch.equal(one[0], other[lane]) for one, other in zip(alone, together)),
            f"picks other actions for seed {SEED} beside seeds {join_names(company)} than alone",
            f"{LANES_APART}, and {WAITING}",
        )
        awake = [seed if seed == SEED else None for seed in company]
        with subject.attempt("where a generator is None, as of a lane that waits"):
            waiting = _choices(subject, spec, company, parts, awake)
        subject.require(
            all(torch.equal(one[0], other[lane]) for one, other in zip(alone, waiting)),
            f"picks other actions for seed {SEED} while other seeds wait",
            WAITING,
        )


def _choices(
    subject: Subject, spec: Spec, seeds: tuple[int, ...], parts: dict[str, Any], awake: Any = None
) -> list[Tensor]:
    """The actions picked in acting and in targets, in turn, from one stream for each seed."""
    function = IndexedValue(spec, seeds, parts["value"], [parts["uncertainty"]], parts["prior"]())
    made_up = [stream(seed, "made up") for seed in seeds]
    generators: Generators = [None if seed is None else stream(seed, "selecting") for seed in awake or seeds]
    selection, found = subject.build(), []
    for progress in PROGRESS:
        for batch in (1, 5):
            obs = make_up_observations(spec, made_up, batch)
            features = function.acting_features(obs)
            bits = [torch.ones(len(seeds), batch, one.bits) for one in function.indexer.distributions]
            to_learn, _ = function.indexer.draw_to_learn(made_up, bits, 1)
            indices: list[tuple[Index, int]] = [
                (function.indexer.draw(made_up, 1, 1), 1),  # held for an episode
                (function.indexer.draw(made_up, batch, 2), 2),
                (to_learn, to_learn[0].shape[2]),
            ]
            for index, draws in indices:
                actions = select_actions(selection, Beliefs(function, features, index, generators, progress), draws)
                _check_actions(subject, actions, function)
                found.append(actions)
    return found


def _check_actions(subject: Subject, actions: Tensor, function: IndexedValue) -> None:
    subject.require(
        not actions.is_floating_point() and actions.dtype != torch.bool,
        f"selects actions of type {actions.dtype}",
        "they must be integers, such as argmax gives",
    )
    low, high = int(actions.min()), int(actions.max())
    subject.require(
        low >= 0 and high < function.spec.num_actions,
        f"selects action {high if low >= 0 else low} of {function.spec.num_actions}",
        "actions are numbered from 0; their number is beliefs.function.spec.num_actions",
    )
