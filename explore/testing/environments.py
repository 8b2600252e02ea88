"""The check of an environment and of its judge."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import dm_env
import numpy as np

from explore._running.lanes import find_batch_form, step_one_by_one
from explore._running.preflight import check_environment_resumes, to_bytes
from explore._state import capture
from explore.interfaces import Judge, Timesteps
from explore.testing import toy
from explore.testing.lives import check_resume, experiment
from explore.testing.promises import STANDARD, Options, Subject, difference, shorten_traceback, try_component

EPISODES = 3
MOST_STEPS = 20_000  # of an episode
LARGE_SEED = 2**70


@shorten_traceback
def check_environment(cls: type[dm_env.Environment], options: Options = STANDARD, /, **parameters: Any) -> None:
    """Raises `Nonconformance` unless an environment, and its judge if it has one, keep all promises of their slot."""
    with try_component("environment", cls, parameters) as subject:
        with subject.attempt("when it is built and played"):
            _check_specs(subject, subject.build(seed=1))
            played = _play_in_turn(subject, [subject.build(seed=1)])
            _check_seed(subject, played)
            _check_model(subject, subject.build(seed=1), played)
            environment = subject.build(seed=1)
            _check_judge(subject, environment, getattr(environment, "judge", Judge)(environment))
            check_environment_resumes(lambda: subject.build(seed=1), subject.name)
        with subject.attempt(f"when its seed is as large as {LARGE_SEED}"):
            subject.build(seed=LARGE_SEED)
        with subject.attempt("when lanes are stepped in one call"):
            _check_batch_form(subject)
        with subject.attempt("in an experiment"):
            experiment(subject.build, toy.Dice, (0, 1))
        check_resume(subject, subject.build, toy.Dice)


def _check_specs(subject: Subject, environment: dm_env.Environment) -> None:
    actions, observations = environment.action_spec(), environment.observation_spec()
    subject.require(
        isinstance(actions, dm_env.specs.DiscreteArray), f"has actions {actions!r}", "they must be a DiscreteArray"
    )
    subject.require(
        isinstance(observations, dm_env.specs.Array),
        f"has observations {observations!r}",
        "they must be one dm_env.specs.Array; flatten those that are nested",
    )


def _play_in_turn(subject: Subject, environments: Sequence[dm_env.Environment]) -> list[list[dm_env.TimeStep]]:
    """Some episodes of the first of several environments, which are played step by step in turn."""
    policies = [np.random.default_rng(number) for number in range(len(environments))]
    actions = environments[0].action_spec().num_values
    first, *others = environments
    episodes = []
    for other in others:
        other.reset()
    for _ in range(EPISODES):
        episode = [first.reset()]
        while not episode[-1].last():
            subject.require(
                len(episode) <= MOST_STEPS,
                f"does not end an episode within {MOST_STEPS:,} steps",
                "end it with dm_env.termination, or cut it with dm_env.truncation",
            )
            episode.append(first.step(int(policies[0].integers(actions))))
            _check_timestep(subject, first, episode[-1])
            for other, policy in zip(others, policies[1:]):
                if other.step(int(policy.integers(actions))).last():
                    other.reset()
        subject.require(
            episode[0].first() and episode[0].reward is None,
            "does not begin an episode with a first step when it is reset",
            "reset must return dm_env.restart(observation)",
        )
        subject.require(
            all(timestep.mid() for timestep in episode[1:-1]),
            "begins another episode before the last one has ended",
            "step must return dm_env.transition, termination or truncation",
        )
        _check_observation(subject, first, episode[0])
        episodes.append(episode)
    return episodes


def _check_timestep(subject: Subject, environment: dm_env.Environment, timestep: dm_env.TimeStep) -> None:
    _check_observation(subject, environment, timestep)
    reward, discount = timestep.reward, timestep.discount
    numbers = all(number is not None and np.ndim(number) == 0 for number in (reward, discount))
    subject.require(numbers and math.isfinite(reward), f"gives the reward {reward!r}", "it must be a finite number")
    low, high = (
        getattr(environment.reward_spec(), end, bound) for end, bound in (("minimum", -np.inf), ("maximum", np.inf))
    )
    subject.require(
        bool(low - 1e-6 <= reward <= high + 1e-6),
        f"gives a reward of {reward}, which its reward_spec does not allow",
        f"it says from {low} to {high}; say what holds, or leave reward_spec out",
    )
    subject.require(
        0 <= discount <= 1, f"gives the discount {discount!r}", "it must be from 0 to 1, and is 0 after a terminal step"
    )


def _check_observation(subject: Subject, environment: dm_env.Environment, timestep: dm_env.TimeStep) -> None:
    spec = environment.observation_spec()
    try:
        spec.validate(np.asarray(timestep.observation))
    except ValueError as error:
        subject.require(
            False, f"gives an observation that its observation_spec does not allow ({error})", "change either"
        )
    subject.require(
        bool(np.isfinite(timestep.observation).all()),
        "gives an observation that is not finite",
        "networks need numbers",
    )


def _check_seed(subject: Subject, played: Any) -> None:
    again = _play_in_turn(subject, [subject.build(seed=1)])
    subject.require(
        to_bytes(played) == to_bytes(again),
        "gives other episodes for the same seed and actions",
        "`seed` must be all that its randomness comes from: np.random.default_rng(seed)",
    )
    beside = _play_in_turn(subject, [subject.build(seed=number) for number in (1, 2, 3)])
    subject.require(
        to_bytes(played) == to_bytes(beside),
        "gives other episodes for the same seed while environments of other seeds are played",
        "keep what changes in attributes of the object, not in its class or module",
    )


def _check_batch_form(subject: Subject) -> None:
    """Whichever lanes `step_lanes` is told to step, it does what `step` does in each of them."""
    single, batch = ([subject.build(seed=seed) for seed in (1, 2, 3)] for _ in range(2))
    step_lanes, random = find_batch_form(batch), np.random.default_rng(0)
    if step_lanes is None:
        return
    actions_there = single[0].action_spec().num_values
    for _ in range(EPISODES):
        expected, found = _reset(single), _reset(batch)
        going_on = [*range(len(single))]
        while going_on:
            lanes = [lane for lane in going_on if random.random() < 0.9]
            actions = random.integers(actions_there, size=len(single)).tolist()
            step_one_by_one(single, actions, lanes, expected)
            step_lanes(batch, actions, lanes, found)
            wrong = [name for name, array in vars(expected).items() if to_bytes(array) != to_bytes(vars(found)[name])]
            subject.require(
                not wrong,
                f"gives other {' and '.join(wrong)} when lanes are stepped in one call",
                "step_lanes must write what step gives into the rows of `lanes`, and touch no others; let both call "
                "the same code",
            )
            going_on = [lane for lane in going_on if not expected.last[lane]]
        where = [difference(*(capture(one, subject.name) for one in pair)) for pair in zip(single, batch)]
        subject.require(
            not any(where),
            f"is in another state after step_lanes than after step ({next(filter(None, where), '')})",
            "keep what an environment knows in its object, where its judge and checkpoints look for it",
        )


def _reset(environments: Sequence[dm_env.Environment]) -> Timesteps:
    """Timesteps of lanes that go on."""
    one_hot = isinstance(environments[0].observation_spec(), dm_env.specs.DiscreteArray)
    observations = [environment.reset().observation for environment in environments]
    count = len(environments)
    return Timesteps(
        np.array(observations, np.int64 if one_hot else np.float32),
        np.zeros(count),
        np.ones(count),
        np.zeros(count, bool),
    )


def _check_model(subject: Subject, environment: Any, played: Sequence[Sequence[dm_env.TimeStep]]) -> None:
    """What is seen is where the model says that it is."""
    if not hasattr(environment, "true_model"):
        return
    model = environment.true_model()
    for episode in played:
        subject.require(
            len(episode) == len(model.observations) + 1,
            f"has an episode of {len(episode) - 1} steps, but a model of {len(model.observations)} stages",
            "true_model is for environments whose episodes pass one stage per step",
        )
        for stage, (timestep, states) in enumerate(zip(episode, model.observations)):
            subject.require(
                int(timestep.observation) in states,
                f"shows observation {timestep.observation} at stage {stage}, where its true_model has none",
                "`observations` of the model must hold the numbers of what is seen at each stage",
            )


def _check_judge(subject: Subject, environment: dm_env.Environment, judge: Judge) -> None:
    with subject.attempt(f"when {type(judge).__name__} judges it"):
        _check_summary(subject, judge, "before the first episode")
        for episode in range(EPISODES):
            earned = sum(float(timestep.reward) for timestep in _play_once(environment, episode))
            found = judge.episode(earned)
            subject.require(
                isinstance(found, dict) and tuple(found) == tuple(judge.columns),
                f"has a judge that gives the columns {_keys(found)} of an episode, but names {list(judge.columns)}",
                "Judge.episode must return a dict with what `columns` names, in this order",
            )
        _check_summary(subject, judge, "in the end")
    solved = judge.solved_at
    subject.require(
        solved is None or (judge.decides and isinstance(solved, int) and 1 <= solved <= EPISODES),
        f"has a judge with solved_at = {solved!r} and decides = {judge.decides}",
        "solved_at is None or an episode counted from 1, and a judge that may set it says decides = True",
    )


def _keys(found: Any) -> Any:
    return list(found) if isinstance(found, dict) else found


def _play_once(environment: dm_env.Environment, number: int) -> list[dm_env.TimeStep]:
    """The steps of an episode but the first."""
    policy, actions = np.random.default_rng(number), environment.action_spec().num_values
    timesteps = []
    timestep = environment.reset()
    while not timestep.last():
        timestep = environment.step(int(policy.integers(actions)))
        timesteps.append(timestep)
    return timesteps


def _check_summary(subject: Subject, judge: Judge, when: str) -> None:
    summary = judge.summary()
    try:
        json.dumps(summary, default=lambda number: number.item())
    except (TypeError, ValueError, AttributeError) as error:
        subject.require(
            False, f"has a judge whose summary JSON cannot hold ({error})", "keep to numbers, texts and None"
        )
    for key in ("score", "normalised_return"):
        value = summary.get(key)
        subject.require(
            value is None or 0 <= value <= 1,
            f"has a judge with {key} = {value!r} {when}",
            "it must be from 0 to 1, or None",
        )
