"""Tensors in mappings, sequences and dataclasses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from torch import Tensor


def map_tensors(tree: Any, function: Callable[[Tensor], Any]) -> Any:
    """The same tree with what the function gives in place of each tensor."""
    if isinstance(tree, Tensor):
        return function(tree)
    if isinstance(tree, Mapping):
        return {name: map_tensors(one, function) for name, one in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(map_tensors(one, function) for one in tree)
    if is_dataclass(tree) and not isinstance(tree, type):
        return replace(tree, **{one.name: map_tensors(getattr(tree, one.name), function) for one in fields(tree)})
    return tree


def flatten(tree: Any) -> tuple[list[Tensor], Any]:
    """The tensors of a tree in order, and the tree, to `rebuild` it with others."""
    found: list[Tensor] = []
    map_tensors(tree, found.append)
    return found, tree


def rebuild(form: Any, tensors: Sequence[Tensor]) -> Any:
    """The tree with other tensors in place of its own."""
    rest: Iterator[Tensor] = iter(tensors)
    return map_tensors(form, lambda _: next(rest))
