"""Small runs, played twice in different circumstances: a seed alone and in company, in one go and resumed."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from explore._learning.preflight import make_up_observations
from explore._running.experiment import Experiment
from explore._running.preflight import preflight
from explore._running.visits import beliefs
from explore._storage.checkpoints import Checkpoints
from explore.interfaces import Spec
from explore.streams import stream
from explore.testing.promises import Subject, difference, join_names

SEED, COMPANIES = 3, ((9, 3), (0, 1, 2, 3, 4, 5, 6))
EPISODES, CUT = 6, 3

Row = dict[str, Any]


def experiment(environment: Any, agent: Any, seeds: Sequence[int]) -> Experiment:
    return Experiment(environment, agent, EPISODES, seeds, evaluate_every=2)


def check_company(subject: Subject, environment: Any, agent: Any) -> None:
    """A seed gives the same episodes, and believes the same in the end, whichever seeds run beside it."""
    alone, believed = _live(environment, agent, [SEED])
    for company in COMPANIES:
        rows, beliefs_there = _live(environment, agent, company)
        where = _first_difference(alone, rows) or difference(believed, beliefs_there)
        subject.require(
            not where,
            f"gives seed {SEED} other results beside seeds {join_names(company)} than alone ({where})",
            "nothing may be computed or kept across the first axis, and a lane that waits (its generator is None, or "
            "it is not active) must draw no random numbers",
        )


def check_resume(subject: Subject, environment: Any, agent: Any) -> None:
    """Six episodes in one go are three, a checkpoint, and three more with everything newly built."""
    with subject.attempt("when a run is to be resumed"):
        whole = experiment(environment, agent, (0, 1))
        rows = [row for new in whole.train() for row in new]
        first = experiment(environment, agent, (0, 1))
        preflight(first)
        parts = [row for new in islice(first.train(), CUT) for row in new]
        second = experiment(environment, agent, (0, 1))
        with tempfile.TemporaryDirectory() as folder:
            checkpoints = Checkpoints(Path(folder))
            checkpoints.write(CUT, first.state_dict())
            second.load_state_dict(checkpoints.read(CUT))
        parts += [row for new in second.train() for row in new]
        where = _first_difference(rows, parts) or difference(whole.state_dict(), second.state_dict())
    subject.require(
        not where,
        f"does not go on as it would have after a run is resumed from a checkpoint ({where})",
        "keep what changes in plain attributes, not in closures, classes or modules, or write state_dict and "
        "load_state_dict",
    )


def _live(environment: Any, agent: Any, seeds: Sequence[int]) -> tuple[list[Row], dict[str, np.ndarray]]:
    """The rows of one of the seeds, and what it believes in the end."""
    run = experiment(environment, agent, seeds)
    rows = [row for new in run.train() for row in new if row["seed"] == SEED]
    spec = Spec(run.environments[0].observation_spec(), 0)
    observations = make_up_observations(spec, [stream(seed, "made up") for seed in seeds], 5).numpy()
    found = beliefs(run.agent, observations)
    return rows, {name: array[list(seeds).index(SEED)] for name, array in found.items()}


def _first_difference(rows: Sequence[Row], others: Sequence[Row]) -> str:
    """Where two runs first differ, in words; "" if nowhere."""
    for one, other in zip(rows, others, strict=True):
        for column in {**one, **other}:
            a, b = one.get(column), other.get(column)
            if repr(a) != repr(b):
                return f"{column} of episode {one['episode']} is {b!r}, not {a!r}"
    return ""
