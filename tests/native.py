"""Functions executed by the kernels, beside the same in PyTorch."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor

from explore._native import library
from explore._native.function import NativeFunction
from explore._native.library import SETTING, VARIANTS, NotAvailable, choose_variant, load_library
from explore._native.program import choose_lanes

__all__ = [
    "Function", "compute", "draw", "gradients", "list_variants", "load_variants", "numbers", "reference",
    "run", "run_in_variants", "use",
]  # fmt: skip

Function = Callable[..., Tensor]


def list_variants() -> list[str]:
    """Those that this processor can run, the portable one last; none without kernels."""
    try:
        names = list(VARIANTS)
        return names[names.index(choose_variant()) :]
    except NotAvailable:
        return []


def use(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is recorded from now on is executed by this variant of the kernels."""
    monkeypatch.setenv(SETTING, variant)
    assert load_library().variant == variant


def numbers(seed: int, *shape: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def run(function: Callable[..., Sequence[Tensor]], *arguments: Tensor) -> list[Tensor]:
    """What the kernels make of a function whose arguments are those of one lane, `[1, ...]`."""
    native = NativeFunction(lambda *given: [one[None] for one in function(*given)], arguments)
    return [one[0, 0] for one in native(arguments, choose_lanes((0,)), 1)]


def compute(function: Function, *arguments: Tensor) -> Tensor:
    """The same for a function that gives one tensor."""
    return run(lambda *given: [function(*given)], *arguments)[0]


def gradients(function: Function) -> Callable[..., list[Tensor]]:
    """A function that gives the output of another and the gradients of its sum, weighted, by each float argument."""

    def compute_all(*arguments: Tensor) -> list[Tensor]:
        given = [one.detach().requires_grad_() if one.is_floating_point() else one for one in arguments]
        leaves = [one for one in given if one.requires_grad]
        out = function(*given)
        weights = torch.linspace(0.5, 1.5, out.numel(), dtype=out.dtype).view(out.shape)
        return [out.detach(), *torch.autograd.grad(out, leaves, weights)]

    return compute_all


def reference(function: Callable[..., Sequence[Tensor]], *arguments: Tensor) -> list[Tensor]:
    """What PyTorch makes of it in double precision."""
    return list(function(*(one.double() if one.is_floating_point() else one for one in arguments)))


@cache
def load_variants() -> dict[str, library.Library]:
    return {name: library._require(name) for name in list_variants()}


def run_in_variants(function: Callable[..., Sequence[Tensor]], *arguments: Tensor) -> list[list[bytes]]:
    """What each variant makes of a function, to the bit; what is no number has the same bits."""
    native = NativeFunction(lambda *given: [one[None] for one in function(*given)], arguments)
    results = []
    for variant in load_variants().values():
        native._program._run = variant.run
        found = native(arguments, choose_lanes((0,)), 1)
        results.append([one.nan_to_num(nan=-1e30).numpy().tobytes() for one in found])
    return results


def draw(kind: str, keys: Sequence[int], count: int, variant: library.Library | None = None) -> np.ndarray:
    """Numbers that the kernels make of keys, `[keys, count]`; `kind` is uniform or normal."""
    out = np.full((len(keys), count), -7, np.float32)
    given, wanted = np.array(keys, np.uint64), np.ones(len(keys), bool)
    pointers = (ctypes.c_void_p(one.ctypes.data) for one in (out, given, wanted))
    first, *rest = pointers
    (variant or load_library()).fill(first, len(keys), count, *rest, kind == "normal")
    return out
