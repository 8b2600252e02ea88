"""What sections of reports are made with; those of plugins are found by entry points of the group `explore.sections`.

A section is a function from the runs of a report to a `Section`, or None if it has nothing to show:

    # lengths.py                                        # pyproject.toml
    from explore import reports                         [project.entry-points."explore.sections"]
                                                        lengths = "lengths:draw_lengths"
    def draw_lengths(data):
        rows = [[result.setting, result.method, str(sum(map(len, result.columns["episode"])))]
                for result in data.results]
        return reports.Section("Lengths", [], [["setting", "method", "episodes"], *rows])

`explore report` imports the module, so import nothing in it that takes long, such as torch: a section reads
what runs have written, and runs nothing of theirs. Commands that read runs may use this module as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from explore._analysis.groups import Configuration, read_finished_runs, run_folders
from explore._analysis.report.data import Columns, Curve, ReportData, Result
from explore._analysis.report.drawing import (
    Picture,
    Section,
    describe_seeds,
    draw_band,
    draw_line,
    label_outer,
    legend,
    panels,
)
from explore._analysis.report.solving import draw_solving
from explore._analysis.report.style import INK, new_figure, series
from explore._analysis.statistics import Band, Interval, mean_band, mean_interval, resample_means, share_interval
from explore._config.gin_files import read_bindings
from explore._storage.files import write_all as write_files
from explore._storage.run_folder import Run

__all__ = [
    "INK",
    "Band",
    "Columns",
    "Configuration",
    "Curve",
    "Interval",
    "Picture",
    "ReportData",
    "Result",
    "Section",
    "describe_seeds",
    "draw_band",
    "draw_line",
    "draw_solving",
    "finished_runs",
    "label_outer",
    "legend",
    "mean_band",
    "mean_interval",
    "new_figure",
    "panels",
    "read_bindings",
    "resample_means",
    "series",
    "share_interval",
    "write_files",
]


def finished_runs(folders: Iterable[str | Path]) -> tuple[list[Run], list[str]]:
    """The runs in these folders, of runs or of sweeps, that are done and whole, and a line about each of the others.

    Raises `explore.errors.UserError` if a folder holds no run.
    """
    return read_finished_runs(run_folders(folders))
