"""Numbers that change over a run."""

from explore import hookimpl
from explore.interfaces import Schedule


class Constant(Schedule):
    """The same number throughout.

    Args:
      value: the number.
    """

    def __init__(self, value: float):
        self.value = value

    def __call__(self, progress: float) -> float:
        return self.value


class Linear(Schedule):
    """From one number to another in a straight line, and constant from then on.

    Args:
      start: the value at the first episode.
      end: the value in the end.
      until: the share of the run's episodes at which the end is reached.
    """

    def __init__(self, start: float, end: float, until: float = 1.0):
        if not 0 < until <= 1:
            raise ValueError(f"until must be above 0 and at most 1, got {until!r}")
        self.start, self.end, self.until = start, end, until

    def __call__(self, progress: float) -> float:
        return self.start + (self.end - self.start) * min(1.0, progress / self.until)


@hookimpl
def explore_schedules() -> list[type]:
    return [Constant, Linear]
