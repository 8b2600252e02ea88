"""Exponential decay, or growth."""

import math

from explore import hookimpl
from explore.interfaces import Schedule


class MyPlugin(Schedule):
    """From one number to another, by the same factor in every episode.

    Args:
      start: the value at the first episode.
      end: the value in the end.
    """

    def __init__(self, start: float = 2.0, end: float = 0.5):
        for name, value in (("start", start), ("end", end)):
            if not 0 < value < math.inf:
                raise ValueError(f"{name} must be above 0 and finite, got {value!r}")
        self.start, self.end = start, end

    def __call__(self, progress):
        return self.start * (self.end / self.start) ** progress


@hookimpl
def explore_schedules():
    return [MyPlugin]
