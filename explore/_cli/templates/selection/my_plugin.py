"""Optimism in the face of uncertainty."""

from explore import hookimpl
from explore.interfaces import Schedule, Selection, as_schedule


class MyPlugin(Selection):
    """The action with the highest upper confidence bound, mean + bonus x standard deviation.

    Args:
      bonus: standard deviations added to the mean: a number or a schedule.
    """

    def __init__(self, bonus: float | type[Schedule] = 1.0):
        self.bonus = as_schedule(bonus, "bonus", minimum=0)

    def scores(self, beliefs):  # [lanes, batch, 1, actions]
        return beliefs.mean() + self.bonus(beliefs.progress) * beliefs.std()


@hookimpl
def explore_selections():
    return [MyPlugin]
