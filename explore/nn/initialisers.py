"""How the weights and biases of a layer are drawn."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np


def _torch_default(rng: np.random.Generator, fan_in: int, fan_out: int) -> tuple[np.ndarray, np.ndarray]:
    bound = 1 / math.sqrt(fan_in)
    return rng.uniform(-bound, bound, (fan_in, fan_out)), rng.uniform(-bound, bound, fan_out)


def _glorot_uniform(rng: np.random.Generator, fan_in: int, fan_out: int) -> tuple[np.ndarray, np.ndarray]:
    bound = math.sqrt(6 / (fan_in + fan_out))
    return rng.uniform(-bound, bound, (fan_in, fan_out)), np.zeros(fan_out)


def _glorot_normal(rng: np.random.Generator, fan_in: int, fan_out: int) -> tuple[np.ndarray, np.ndarray]:
    return rng.normal(0, math.sqrt(2 / (fan_in + fan_out)), (fan_in, fan_out)), np.zeros(fan_out)


def _he_normal(rng: np.random.Generator, fan_in: int, fan_out: int) -> tuple[np.ndarray, np.ndarray]:
    return rng.normal(0, math.sqrt(2 / fan_in), (fan_in, fan_out)), np.zeros(fan_out)


def _truncated_normal(rng: np.random.Generator, fan_in: int, fan_out: int) -> tuple[np.ndarray, np.ndarray]:
    weight = rng.standard_normal((fan_in, fan_out))
    while (outside := np.abs(weight) > 2).any():
        weight[outside] = rng.standard_normal(int(outside.sum()))
    return weight / math.sqrt(fan_in), np.zeros(fan_out)


INITIALISERS: dict[str, Callable[[np.random.Generator, int, int], tuple[np.ndarray, np.ndarray]]] = {
    "torch": _torch_default,
    "glorot_uniform": _glorot_uniform,
    "glorot_normal": _glorot_normal,
    "he_normal": _he_normal,
    "truncated_normal": _truncated_normal,
}
"""Name -> weight `[inputs, outputs]` and bias `[outputs]` of one lane.

`torch` is torch.nn.Linear's own; `truncated_normal` is that of Haiku and Sonnet (bsuite's agents).
"""


def check_init(init: str | None, optional: bool = False) -> None:
    """Raises `ValueError` unless `init` names an initialiser (or is None where that is allowed)."""
    if not (init in INITIALISERS or (optional and init is None)):
        raise ValueError(f"init must be one of {', '.join(INITIALISERS)}, got {init!r}")
