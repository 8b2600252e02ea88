"""The check of an agent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from explore._learning.preflight import make_up_observations
from explore._running.experiment import Experiment
from explore._running.loop import evaluate_episode, play_episode
from explore._state import Tree, capture
from explore.interfaces import Agent, Spec
from explore.streams import Streams, stream
from explore.testing import toy
from explore.testing.lives import check_company, check_resume, experiment
from explore.testing.promises import (
    STANDARD,
    Options,
    Subject,
    difference,
    join_names,
    shorten_traceback,
    try_component,
)


@shorten_traceback
def check_agent(cls: type[Agent], options: Options = STANDARD, /, **parameters: Any) -> None:
    """Raises `Nonconformance` unless an agent keeps all promises of its slot.

    It is tried in toy environments with observations of either kind, one of them with a `true_model`, as far
    as it accepts them; or in `options.environments`.
    """
    with try_component("agent", cls, parameters) as subject:
        for environment in _list_accepted(subject, options):
            with subject.attempt("in a run"):
                _check_steps(subject, environment)
                _check_columns(subject, environment)
                _check_beliefs(subject, environment)
                check_company(subject, environment, subject.build)
            check_resume(subject, environment, subject.build)


def _list_accepted(subject: Subject, options: Options) -> Iterator[Any]:
    """The environments that the agent's constructor does not refuse with a `ValueError`."""
    walks = [partial(toy.Walk, spec=spec) for spec in options.specs()]
    staged = partial(toy.part("environment.RandomMDP"), states=3, actions=2, horizon=4)
    reason, found = "", False
    for environment in options.environments or [*walks, staged]:
        try:
            experiment(environment, subject.build, (0, 1))
        except ValueError as refusal:
            reason = str(refusal)
            continue
        found = True
        yield environment
    subject.require(
        found, f"accepts none of the environments ({reason})", "name one that it does with Options(environments=[...])"
    )


def _build(subject: Subject, environment: Any, seeds: Sequence[int]) -> tuple[Any, list[Any], Streams]:
    """An agent with its environments, and the streams that it was given."""
    run, streams = experiment(environment, subject.build, seeds), Streams(seeds)
    first = run.environments[0]
    stages = first.true_model().observations if hasattr(first, "true_model") else None
    spec = Spec(first.observation_spec(), int(first.action_spec().num_values), first.reward_spec(), stages)
    return subject.build(spec, streams, torch.device("cpu")), run.environments, streams


def _check_steps(subject: Subject, environment: Any) -> None:
    """An action for each lane, and nothing drawn for a lane that waits."""
    seeds = (0, 1, 2)
    agent, environments, streams = _build(subject, environment, seeds)
    actions_there = environments[0].action_spec().num_values

    def acting(method: Any) -> Any:
        def act(observations: np.ndarray, active: Sequence[bool]) -> Sequence[int]:
            before = _read_streams(streams)
            method(observations, [False, *active[1:]])  # once more than it is asked for: the first lane waits
            used = [
                name
                for name, state in _read_streams(streams).items()
                if difference(state, _read_stream_before(before, name, seeds[0]))
            ]
            subject.require(
                not used,
                f"draws from the stream {join_names(used)} of a seed that waits",
                "draw nothing for lanes that are not active",
            )
            actions = method(observations, active)
            subject.require(
                len(actions) == len(seeds) and all(_is_action(action, actions_there) for action in actions),
                f"acts with {actions!r} in {len(seeds)} lanes with {actions_there} actions",
                "act and evaluate must return an integer from 0 on for every lane",
            )
            return actions

        return act

    agent.act, agent.evaluate = acting(agent.act), acting(agent.evaluate)
    for progress in (0.0, 0.5):
        play_episode(agent, environments, progress)
        evaluate_episode(agent, environments)


def _is_action(action: Any, actions: int) -> bool:
    return isinstance(action, int | np.integer) and not isinstance(action, bool) and 0 <= int(action) < actions


def _read_streams(streams: Streams) -> dict[str, Tree]:
    """How far the streams of the first lane have come."""
    return {name: capture(lanes[0], name) for name, lanes in streams.state_dict().items()}


def _read_stream_before(before: dict[str, Tree], name: str, seed: int) -> Tree:
    """How far a stream had come, which may be new."""
    return before.get(name) or capture(dict(stream(seed, name).bit_generator.state), name)


def _check_columns(subject: Subject, environment: Any) -> None:
    run = experiment(environment, subject.build, (0, 1))
    next(run.train())
    metrics = run.agent.metrics()
    subject.require(
        tuple(metrics) == tuple(run.agent.columns),
        f"gives the metrics {list(metrics)}, but names the columns {list(run.agent.columns)}",
        "metrics must return a dict with what `columns` names, in this order",
    )
    for name, column in metrics.items():
        subject.require(
            len(column) == 2, f"gives {len(column)} entries of {name} for 2 seeds", "give one for each lane"
        )
    cost = run.agent.cost()
    subject.require(
        all(isinstance(number, int) for number in cost.values()), f"has the cost {cost}", "it must be integers"
    )


def _check_beliefs(subject: Subject, environment: Any) -> None:
    """Asking for beliefs and policies changes nothing; policies are probabilities."""
    unasked, asked = (experiment(environment, subject.build, (0, 1)) for _ in range(2))
    expected = [row for rows in unasked.train() for row in rows]
    found = []
    for rows in asked.train():
        found += rows
        _ask(subject, asked)
    subject.require(
        repr(found) == repr(expected),
        "goes on otherwise once it was asked for beliefs or its policy",
        "let neither change anything or draw from a stream that acting or learning draws from",
    )


def _ask(subject: Subject, run: Experiment) -> None:
    first = run.environments[0]
    spec = Spec(first.observation_spec(), 0)
    run.agent.beliefs(make_up_observations(spec, Streams(run.seeds)["made up"], 3).numpy())
    if run.regret is None:
        return
    numbers = first.true_model().observations
    policy = np.asarray(run.agent.policy(numbers[numbers >= 0]))
    subject.require(
        policy.shape == (len(run.seeds), (numbers >= 0).sum(), first.action_spec().num_values)
        and np.allclose(policy.sum(-1), 1)
        and policy.min() >= 0,
        f"has a policy of shape {[*policy.shape]} that is no probability of each action",
        "it must be [lanes, batch, actions], at least 0 and sum to 1",
    )
