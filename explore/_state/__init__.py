"""The state of live objects as plain data, and back onto freshly built ones.

A run that resumes builds everything from its configuration and then puts the state back in place,
because closures and other objects may hold what is restored. So a tree of state says what changes,
never how to make an object: no class named in a tree is ever instantiated, and a tree from a
stranger can raise nothing worse than `Misfit` or be wrong about values.

A tree is None, a bool, an int, a finite float, a str, a list, a dict with str keys, or an array;
anything else is a dict of one key that starts with "$", which names a row of the table in `kinds`.

`kinds` has a row for each kind of thing: how it is recognised, written and read. `plain`, `arrays`,
`generators` and `objects` hold these functions, a writer and its reader side by side. `walk` leads
them through things and trees; `skeleton` sees in advance whether a state could be put back.
"""

from explore._state.kinds import capture, restore
from explore._state.skeleton import check_fits, skeleton
from explore._state.walk import Misfit, Tree, Unsavable

__all__ = ["Misfit", "Tree", "Unsavable", "capture", "check_fits", "restore", "skeleton"]
