"""From runs to sections with pictures: the report of finished runs, and the picture of one that is going.

All is read from the files of runs, and nothing of theirs is run.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from explore._analysis.groups import read_finished_runs, run_folders
from explore._analysis.report import tables
from explore._analysis.report.beliefs import draw_best_episodes, draw_maps
from explore._analysis.report.data import ReportData, gather, gather_running
from explore._analysis.report.drawing import Section
from explore._analysis.report.learning import draw_learning
from explore._analysis.report.methods import draw_aggregates, draw_costs
from explore._analysis.report.page import page
from explore._analysis.report.plugin_sections import draw_plugin_sections
from explore._analysis.report.solving import draw_solving
from explore._analysis.report.style import styled
from explore._storage import files
from explore._storage.run_folder import Run
from explore.errors import UserError


def report(folders: Sequence[str | Path], out: str | Path) -> Path:
    """Writes a page on the runs in these folders, each that of a run or of a sweep; raises `UserError`."""
    out = Path(out)
    _check_place(out)
    data = gather(*read_finished_runs(run_folders(folders)))
    if not data.results:
        reasons = f": {'; '.join(data.left_out)}" if data.left_out else ""
        hint = "; a run that is going can be seen with explore watch" if " is running" in reasons else ""
        raise UserError(f"there is no finished run to report on{reasons}{hint}")
    tasks = list(dict.fromkeys(result.configuration.task for result in data.results))
    title = f"Report on {' and '.join(tasks) if len(tasks) <= 3 else f'{len(tasks)} tasks'}"
    counts = {"configuration": len(data.results), "seed": sum(len(result.seeds) for result in data.results)}
    extent = ", ".join(f"{count} {name}{'s' if count > 1 else ''}" for name, count in counts.items()) + " in all"
    text = page(title, [*sections(data), tables.what_is_common(data)], subtitle=extent)
    try:
        files.write(out, text)
    except OSError as error:
        raise UserError(f"cannot write {out}: {error.strerror}") from error
    return out


def sections(data: ReportData) -> list[Section]:
    """A report, from what was run to what was believed; sections with nothing to show are left out."""
    with styled():
        shown = [tables.what_was_run(data), *tables.how_they_differ(data), *tables.scores(data), draw_learning(data)]
        shown += [*draw_plugin_sections(data), draw_solving(data), draw_aggregates(data), draw_costs(data)]
        shown += [draw_maps(data), draw_best_episodes(data)]
    return [section for section in shown if section]


def sections_of_run(run: Run) -> list[Section]:
    """A run as it is now, over or not: how far it is, how it learns, and what it believes; raises `UserError`."""
    data = gather_running(run)
    with styled():
        shown = [tables.progress(run, data), draw_learning(data), draw_maps(data), draw_best_episodes(data)]
    return [section for section in shown if section]


def _check_place(out: Path) -> None:
    """Raises `UserError` unless a file can be put there: said before the work is done."""
    if os.path.isdir(out):
        raise UserError(f"{out} is a folder; say which file to write, such as {out / 'report.html'}")
    if out.exists() and out.suffix not in (".html", ".htm"):
        raise UserError(f"{out} exists, and is no page; say which file to write, such as {out.with_suffix('.html')}")
    if not os.path.isdir(out.parent):
        raise UserError(f"there is no folder {out.parent} to write {out.name} to")
