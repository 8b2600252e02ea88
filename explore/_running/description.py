"""What a run records of its task: what the environment describes, completed and checked against the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import dm_env
import numpy as np

from explore._running.visits import belief_map
from explore.interfaces import Judge
from explore.tasks import CURVES, TaskDescription


def describe(environment: dm_env.Environment, judge: Judge, columns: Sequence[str]) -> TaskDescription:
    """Raises `ValueError` if the description names what a run with these columns of `episodes.csv` does not have."""
    kind = type(environment).__name__
    told = environment.describe_task() if hasattr(environment, "describe_task") else TaskDescription()
    if not isinstance(told, TaskDescription):
        raise ValueError(f"describe_task() of {kind} must return a TaskDescription, got {told!r:.80}")
    column, how = judge.curve
    if column not in columns or column == "evaluation" or how not in CURVES:
        wanted = f"a column of episodes.csv that every episode has and one of {CURVES}"
        raise ValueError(f"curve of {type(judge).__name__} must be {wanted}, got {column, how}")
    places = belief_map(environment)
    shape = None if places is None else (places.shape[0], places.shape[1])
    numbers = np.prod(environment.observation_spec().shape, dtype=int)
    for trace in told.traces:
        if trace.index >= numbers:
            raise ValueError(f"describe_task() of {kind} has {trace}, but an observation is {numbers} numbers")
    for shown in told.columns:
        if shown.name not in columns:
            raise ValueError(f"describe_task() of {kind} has {shown}, but episodes.csv has no such column")
    if told.markers and places is None:
        raise ValueError(f"describe_task() of {kind} has markers, but the environment has no belief_map()")
    name = getattr(environment, "task", kind)
    return replace(told, name=name, curve=(column, how), map_shape=shape)
