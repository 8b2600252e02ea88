"""Whether a state could be put back, asked when it is saved rather than when it is too late.

What is put back must find, on newly built objects, an object of its own class in its place. The
skeleton of a state is what is left of it without data: which objects there are, and where.
"""

from __future__ import annotations

from typing import Any

from explore._state.walk import Tree, Unsavable, live_class


def skeleton(tree: Tree) -> Tree:
    """The places of objects in a tree."""
    if isinstance(tree, dict):
        return {key: skeleton(entry) for key, entry in tree.items()}
    if isinstance(tree, list):
        return [skeleton(entry) for entry in tree]
    return tree if isinstance(tree, str) else None


def check_fits(tree: Tree, fresh: Tree, name: str) -> None:
    """Raises `Unsavable` if a tree could not be put back on what has this skeleton when it is newly built."""
    called, there = live_class(tree), live_class(fresh)
    if called and called != there:
        raise Unsavable(
            f"{name} holds a {called} where a newly built one has {f'a {there}' if there else 'none'}, so it could "
            "not be put back; give whatever holds it state_dict and load_state_dict"
        )
    old = _list_entries(fresh)
    for key, entry in _list_entries(tree).items():
        check_fits(entry, old.get(key), f"{name}.{key}" if isinstance(key, str) and key[:1] != "$" else name)


def _list_entries(tree: Tree) -> dict[Any, Tree]:
    """By key or place; and a dict that is written as pairs by its own keys."""
    if isinstance(tree, dict) and isinstance(content := tree.get("$dict"), list) and isinstance(content[-1], list):
        return {repr(key): value for key, value in content[-1]}
    return dict(enumerate(tree)) if isinstance(tree, list) else tree if isinstance(tree, dict) else {}
