"""What a component of each slot must be.

One idea carries the library: an **indexed value function** Q_i(s, a), a value for every state and
action given an index i drawn from a fixed distribution. Drawing i samples one plausible value
function. The core composes it from parts (`UncertaintyModule`s, the first of which holds the
value network), and every selection and objective works on the composition.

A component is a class. The core builds it; gin fills the parameters after the first. Values are
checked against the annotations of parameters (`heads: int`) before anything is built; what else is
wrong a component reports with a plain `ValueError("heads must be at least 1, got 0")`, and the core
adds where.

A component some of whose parameters may have no effect, given the others, can say so with a method
`unused_parameters() -> dict[str, str]`, which gives the reason of each: the user who bound one is told.

What a component keeps in its attributes is saved in checkpoints and put back when a run is resumed
(`explore._state` says what can be saved). One that keeps something else, or wants less to be saved,
has the methods `state_dict() -> dict` and `load_state_dict(state)`, as in torch.

Every tensor has a leading axis of lanes, one per seed. Shapes are written in terms of
`lanes`, `batch` (observations per lane), `draws` (indices per observation), `actions` and `size`
(the length of an index).
"""

from __future__ import annotations

import dm_env

from explore.interfaces.agent import Agent
from explore.interfaces.environment import Judge, Model, Timesteps
from explore.interfaces.index import (
    Gaussian,
    GaussianAtHead,
    IndexDistribution,
    Member,
    NoIndex,
    Sphere,
    WithMean,
)
from explore.interfaces.memory import Bits, Bonus, Memory, Network, Normals, Signs, Stored, Transitions
from explore.interfaces.networks import Prior, Spec, ValueNetwork
from explore.interfaces.objective import Objective, Phase, Schedule, as_schedule
from explore.interfaces.running import Launcher, News, Observer, Task
from explore.interfaces.selection import Beliefs, Conditional, Features, Index, Selection, argmax, select_actions
from explore.interfaces.uncertainty import Members, ScaleModule, UncertaintyModule, ValueWrapper
from explore.streams import Streams

BASE_CLASSES: dict[str, type] = {
    "value": ValueNetwork,
    "uncertainty": UncertaintyModule,
    "prior": Prior,
    "bonus": Bonus,
    "selection": Selection,
    "objective": Objective,
    "environment": dm_env.Environment,
    "agent": Agent,
    "schedule": Schedule,
    "observer": Observer,
    "launcher": Launcher,
}
"""Slot -> the base class of its components; `explore.hooks.SLOTS` names the hook of each."""

__all__ = [
    "BASE_CLASSES", "Agent", "Beliefs", "Bits", "Bonus", "Conditional", "Features", "Gaussian", "GaussianAtHead",
    "Index", "IndexDistribution", "Judge", "Launcher", "Member", "Members", "Memory", "Model", "Network", "News",
    "NoIndex", "Normals", "Objective", "Observer", "Phase", "Prior", "ScaleModule", "Schedule", "Selection", "Signs",
    "Spec", "Sphere", "Stored", "Streams", "Task", "Timesteps", "Transitions", "UncertaintyModule", "ValueNetwork",
    "ValueWrapper", "WithMean", "argmax", "as_schedule", "select_actions",
]  # fmt: skip
