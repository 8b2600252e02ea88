"""The state of live objects as plain data, and back onto freshly built ones.

A run that resumes builds everything from its configuration and then puts the state back in place,
because closures and other objects may hold what is restored. So a tree of state says what changes,
never how to make an object: no class named in a tree is ever instantiated, and a tree from a
stranger can raise nothing worse than `Misfit` or be wrong about values.

A tree is None, a bool, an int, a finite float, a str, a list, a dict with str keys, or an array;
anything else is a dict of one key that starts with "$", which names a row of the table of kinds in `walk`.
"""

from explore._state.tree import Misfit, Tree, Unsavable, check_fits, skeleton
from explore._state.walk import capture, restore

__all__ = ["Misfit", "Tree", "Unsavable", "capture", "check_fits", "restore", "skeleton"]
