"""The sections that plugins add to a report: those built in, then entry points of the group `explore.sections`."""

from __future__ import annotations

from typing import Any

from explore_plugins import BUILT_IN_SECTIONS

from explore._analysis.report.data import ReportData
from explore._analysis.report.drawing import Section
from explore._analysis.report.page import content
from explore._entry_points import Group
from explore._messages import note, to_one_line
from explore.errors import UserError


def _find_fault(section: Any) -> str | None:
    return None if callable(section) else "must be a function that takes the data of a report"


PLUGIN_SECTIONS = Group("explore.sections", "section", BUILT_IN_SECTIONS, _find_fault)


def draw_plugin_sections(data: ReportData) -> list[Section]:
    """Those with something to show; a broken one is named in a line on stderr, and does not stop the others."""
    entries, failures = PLUGIN_SECTIONS.find()
    sections = []
    for entry in entries.values():
        try:
            draw = PLUGIN_SECTIONS.load(entry)
        except UserError as error:
            failures.append(str(error))
            continue
        try:
            section = draw(data)
            if not isinstance(section, Section | None):
                raise TypeError(f"it must return a Section or None, got {section!r:.80}")
            if section is not None:
                content("", [section])  # what cannot be shown fails here, not when the page is written
                sections.append(section)
        except (Exception, SystemExit) as error:
            reason = to_one_line(f"{type(error).__name__}: {error}")
            failures.append(f"{PLUGIN_SECTIONS.describe(entry)} is left out: {reason}")
    for failure in failures:
        note(failure)
    return sections
