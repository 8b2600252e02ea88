"""What an experiment of `explore reproduce` is; those of plugins are found by the hook `explore_experiments`.

A plugin brings a paper of its own: its recipes are gin files beside the module.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from explore.reports import ReportData, Section

__all__ = ["Experiment", "Grid"]


@dataclass(frozen=True)
class Grid:
    """Recipes times the values of all that varies, in the words of `explore sweep`.

    Args:
      recipes: names of recipes, or paths of gin files.
      vary: parameters with lists of values, such as "environment.DeepSea.size = [10, 20]".
      bind: bindings of all cells, such as "experiment.episodes = 1000".
    """

    recipes: Sequence[str]
    vary: Sequence[str] = ()
    bind: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in ("recipes", "vary", "bind"):
            texts = getattr(self, name)
            if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
                raise ValueError(f"{name} must be a list of strings, got {texts!r}")
        if not self.recipes:
            raise ValueError("recipes must name at least one")


@dataclass(frozen=True)
class Experiment:
    """A figure or a table of a paper: what is run for it, and how it is drawn.

    Args:
      name: what it is called after `explore reproduce`.
      claim: what it is to show, in a sentence.
      grids: what is run, by names for their folders.
      draw: makes a section of a report, with pictures and a table, from the runs. Import what takes
        long, such as `explore.reports`, within it.
      core_hours: about what all of it takes on one core.
      labels: what methods are called in pictures, by the part of a cell's name that tells them apart: the
        name of a recipe, or `parameter=value`.
      seeds: that are run if no others are asked for.
      scaled: whole numbers that `--scale` shrinks.

    Example:
      import explore
      from explore.experiments import Experiment, Grid

      def draw_solved(data):
          from explore.reports import Section

          shares = [f"{result.configuration.survival().unsolved[-1]:.0%}" for result in data.results]
          return Section("Small seas", [], [["method", "unsolved"], *zip(data.methods, shares)])

      SMALL = Experiment(
          name="small-seas",
          claim="PINs solve a sea of 5 rows, and DQN does not need to explore to do so, either.",
          grids={"methods": Grid(["pins_deep_sea", "dqn_deep_sea"], bind=["environment.DeepSea.size = 5"])},
          draw=draw_solved,
          core_hours=0.1,
          labels={"pins_deep_sea": "PINs", "dqn_deep_sea": "DQN"},
          scaled=["experiment.episodes", "agent.Indexed.min_replay"],
      )

      @explore.hookimpl
      def explore_experiments():
          return [SMALL]
    """

    name: str
    claim: str
    grids: Mapping[str, Grid]
    draw: Callable[[ReportData], Section]
    core_hours: float
    labels: Mapping[str, str] = field(default_factory=dict)
    seeds: Sequence[int] = range(5)
    scaled: Sequence[str] = ("experiment.episodes",)

    def __post_init__(self) -> None:
        for name in (self.name, *self.grids):
            if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
                raise ValueError(f"name {name!r} must be lower-case words joined by hyphens, such as deep-sea")
        if not self.grids or not all(isinstance(grid, Grid) for grid in self.grids.values()):
            raise ValueError(f"grids of {self.name} must be at least one Grid, by name")
        if not callable(self.draw):
            raise ValueError(f"draw of {self.name} must be a function from ReportData to Section")
        if isinstance(self.scaled, str):
            raise ValueError(f"scaled of {self.name} must be a list of parameters")
