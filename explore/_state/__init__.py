"""The state of live objects as plain data, and back onto freshly built ones.

A run that resumes builds everything from its configuration and then puts the state back in place,
because closures and other objects may hold what is restored. So a tree of state needs to say what
changes, never how to make an object: no class named in a tree is ever instantiated, and a tree from
a stranger can raise nothing worse than `Misfit` or be wrong about values.

A tree is None, a bool, an int, a finite float, a str, a list, a dict with str keys, or an array; all
else is a dict of one key that starts with "$":

    $int $float $complex $bytes $range    values that JSON has no word for
    $scalar                               a number of numpy, as an array of no dimensions
    $numbers $scalars                     a long list of equal type, of Python's or of numpy's numbers
    $tuple $size $named $enum             (torch's sizes, namedtuples and members of enumerations)
    $dict $mapping $deque $set $frozenset
    $tensor $generator                    torch's tensors, anybody's random generators
    $object $module $state                attributes, those of a torch module, what `state_dict` gave
    $fixed                                what the configuration fixes: functions, classes, specs, ...
    $shared $same                         a thing met more than once, and each later meeting

`kinds` tells them apart, `generators` knows the state of random generators, `capture` and `restore`
are the two directions, and `skeleton` sees in advance whether the way back is open.
"""

from explore._state.capture import capture
from explore._state.kinds import Misfit, Tree, Unsavable
from explore._state.restore import restore, restore_data
from explore._state.skeleton import check_fits, skeleton

__all__ = ["Misfit", "Tree", "Unsavable", "capture", "check_fits", "restore", "restore_data", "skeleton"]
