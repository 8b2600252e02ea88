"""Whether a state could be put back, asked when it is saved rather than when it is too late.

What is put back must find, on newly built objects, an object of its own class in its place. The
skeleton of a state is what is left of it without data: which objects there are, and where.
"""

from __future__ import annotations

from typing import Any

from explore._state.kinds import KNOWN, Tree, Unsavable

LIVE = ("$object", "$module", "$state", "$fixed", "$named", "$enum")


def skeleton(tree: Tree) -> Tree:
    """The places of objects in a tree."""
    if isinstance(tree, dict):
        return {key: entry if key == "$fixed" else skeleton(entry) for key, entry in tree.items()}
    if isinstance(tree, list):
        return [skeleton(entry) for entry in tree]
    return tree if isinstance(tree, str) else None


def check_fits(tree: Tree, fresh: Tree, name: str) -> None:
    """Raises `Unsavable` if a tree could not be put back on what has this skeleton when it is newly built."""
    tree, fresh = _inside(tree), _inside(fresh)
    if isinstance(tree, dict):
        for key, entry in tree.items():
            there = fresh.get(key) if isinstance(fresh, dict) else None
            if key in LIVE:
                _check_class(_class(entry), _class(there), name)
            if key in LIVE and isinstance(entry, list):
                check_fits(entry[1:], there[1:] if isinstance(there, list) else None, name)
            else:
                check_fits(entry, there, name if key.startswith("$") else f"{name}.{key}")
    elif isinstance(tree, list):
        for place, entry in enumerate(tree):
            there = fresh[place] if isinstance(fresh, list) and place < len(fresh) else None
            check_fits(entry, there, name)


def _inside(tree: Tree) -> Tree:
    """Without what does not matter here: numbers of shared things, and the pairs that a dict is written as."""
    while isinstance(tree, dict) and "$shared" in tree:
        tree = tree["$shared"][1]
    if isinstance(tree, dict) and isinstance(pairs := tree.get("$dict"), list):
        return {key if isinstance(key, str) else repr(key): value for key, value in pairs}
    return tree


def _class(content: Any) -> str | None:
    return content[0] if isinstance(content, list) else content


def _check_class(found: str | None, fresh: str | None, name: str) -> None:
    if found != fresh and found not in KNOWN:
        has = f"has a {fresh}" if fresh else "has none"
        raise Unsavable(
            f"{name} holds a {found} where a newly built one {has}, so it could not be put back; "
            "give whatever holds it state_dict and load_state_dict"
        )
