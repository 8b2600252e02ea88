"""Milestones of a run."""

import json

from explore import hookimpl
from explore.interfaces import Observer


class MyPlugin(Observer):
    """Writes down in which episode each seed first earned so much: my_plugin.json in the run's folder.

    Args:
      level: the return to reach.
    """

    def __init__(self, level: float = 0.5):
        self.level = level

    def run_started(self, run):
        self.first = {}
        earlier = run.episodes  # none, unless the run goes on
        self.episode_finished(run, [dict(zip(earlier, cells)) for cells in zip(*earlier.values())])

    def episode_finished(self, run, rows):
        for row in rows:
            if row["return"] >= self.level:
                self.first.setdefault(int(row["seed"]), int(row["episode"]))

    def run_finished(self, run, summary):
        (run.folder / "my_plugin.json").write_text(json.dumps(self.first))


@hookimpl
def explore_observers():
    return [MyPlugin]
