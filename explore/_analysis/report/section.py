"""What a page is made of: sections of text, a table and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure


@dataclass
class Picture:
    """A figure and what must be said with it."""

    figure: Figure  # made with `explore._analysis.report.style`, never pyplot
    caption: str  # says how many seeds, and whatever was smoothed
    folded: bool = False  # shown on demand only
    name: str = ""  # what a folded one is called


@dataclass
class Section:
    """A part of a page with a heading of its own."""

    title: str
    text: Sequence[str] = ()  # paragraphs
    table: Sequence[Sequence[str]] = ()  # header first
    pictures: Sequence[Picture] = ()
