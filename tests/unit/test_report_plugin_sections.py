"""Sections of plugins: where they come, and what happens to those that are broken."""

import re
import sys

import pytest
from recording import PINS, SEA, record

from explore._analysis.report import report

SECTIONS = """
from explore.reports import Picture, Section, new_figure

def good(data):
    return Section("Good", [f"{len(data.results)} result"], [["a"], ["b"]])

def silent(data):
    return None

def raises(data):
    return data.absent

def returns_text(data):
    return "a section"

def holds_a_number(data):
    return Section("Number", [], [["a"], [1]])

def cannot_be_drawn(data):
    figure, axes = new_figure()
    axes.plot([1, 2])
    axes.xaxis.set_major_formatter(lambda x, position: 1 / 0)
    return Section("Drawn", [], [], [Picture(figure, "1 seed")])

def ends(data):
    raise SystemExit("enough")
"""


@pytest.fixture
def write_report(tmp_path, monkeypatch, capsys):
    """Writes a report where a distribution adds these sections; returns its headings, and what is said on stderr."""

    def write(**sections):
        folder = tmp_path / "pictures-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: pictures\nVersion: 1.0\n")
        lines = [f"{name} = {value}" for name, value in sections.items()]
        (folder / "entry_points.txt").write_text("\n".join(["[explore.sections]", *lines]))
        (tmp_path / "some_sections.py").write_text(SECTIONS)
        monkeypatch.syspath_prepend(tmp_path)
        record(tmp_path / "run", SEA | PINS, [[0.0, 1.0]])
        page = report([tmp_path / "run"], tmp_path / "report.html").read_text()
        return re.findall("<h2>(.*?)</h2>", page), capsys.readouterr().err

    yield write
    sys.modules.pop("some_sections", None)


def test_a_section_comes_after_learning_and_one_with_nothing_to_show_is_left_out(write_report):
    titles, told = write_report(good="some_sections:good", silent="some_sections:silent")
    assert titles == ["What was run", "Scores: DeepSea", "Learning", "Good", "Configuration"]
    assert told == ""


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("absent:good", "cannot be loaded: ModuleNotFoundError: No module named 'absent'"),
        ("some_sections:absent", "cannot be loaded: AttributeError: "),
        ("some_sections:SECTIONS", "cannot be loaded: AttributeError: "),
        ("some_sections:__name__", "must be a function that takes the data of a report"),
        ("some_sections:raises", "is left out: AttributeError: 'ReportData' object has no attribute 'absent'"),
        ("some_sections:returns_text", "is left out: TypeError: it must return a Section or None, got 'a section'"),
        ("some_sections:holds_a_number", "is left out: "),
        ("some_sections:cannot_be_drawn", "is left out: ZeroDivisionError: "),
        ("some_sections:ends", "is left out: SystemExit: enough"),
    ],
)
def test_a_broken_section_is_named_in_a_line_and_does_not_stop_the_others(write_report, value, reason):
    titles, told = write_report(broken=value, good="some_sections:good")
    assert titles == ["What was run", "Scores: DeepSea", "Learning", "Good", "Configuration"]
    assert told.startswith(f"explore: note: the section broken of pictures 1.0 {reason}")
    assert told.count("\n") == 1
