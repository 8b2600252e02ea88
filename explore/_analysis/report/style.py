"""How all pictures look: on a light page, on a dark one, and printed in black and white.

A figure is drawn once, in `INK` on nothing; in the page `INK` is whatever colour the page's text has.
The colours of series can be seen on both pages; in print their dashes and markers tell them apart.
Text is shown as it is: a dollar sign begins no formula, since names may come from a stranger's files.

Settings of matplotlib are in `explore.mplstyle`; draw within `with styled():`, so that the user's own do
not matter. Nothing here outlives a call; pyplot is not used.
"""

from __future__ import annotations

import io
import re
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from xml.etree import ElementTree

import matplotlib
import numpy as np
from matplotlib import rc_params_from_file
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.image import imread, imsave
from matplotlib.text import Text
from matplotlib.ticker import LogFormatter

if TYPE_CHECKING:
    from explore._analysis.report.drawing import Picture

WIDTH, HEIGHT = 7.2, 3.2  # inches, of a figure as wide as the page
RC = rc_params_from_file(Path(__file__).with_name("explore.mplstyle"), use_default_template=True)
INK: str = RC["text.color"]
FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
COLOURS: list[str] = RC["axes.prop_cycle"].by_key()["color"]
"""After Okabe and Ito, all of a middle luminance: contrast of at least 3 with a white page and with a dark one."""
DASHES = (
    "-", (0, (5, 1.5)), (0, (1, 1)), (0, (6, 1.5, 1, 1.5)),
    (0, (3, 1)), (0, (8, 2, 1, 1, 1, 2)), (0, (10, 2)), (0, (2, 2)),
)  # fmt: skip
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
TRACE: dict[str, Any] = {"linewidth": 0.7, "alpha": 0.6, "marker": "", "linestyle": "-"}
"""Of a single seed, beside the line over seeds."""
BAND: dict[str, Any] = {"linewidth": 0, "alpha": 0.18}
"""Of an interval, for `fill_between`."""


@contextmanager
def styled() -> Iterator[None]:
    """Within it whatever is drawn looks as it should."""
    with matplotlib.rc_context({name: value for name, value in RC.items() if name != "backend"}):
        yield


def new_figure(
    rows: int = 1, columns: int = 1, width: float = WIDTH, height: float = HEIGHT, **options: Any
) -> tuple[Figure, Any]:
    """A figure of so many inches, and its axes: one, or an array of them; `options` are those of `Figure.subplots`."""
    with styled():
        figure = Figure(figsize=(width, height), layout="constrained")
        return figure, figure.subplots(rows, columns, **options)


def series(number: int) -> dict[str, Any]:
    """Colour, dashes and marker of one of several lines; after eight a colour comes back with others."""
    again = number + number // len(COLOURS)
    look = {"linestyle": DASHES[again % len(DASHES)], "marker": MARKERS[again % len(MARKERS)]}
    return {"color": COLOURS[number % len(COLOURS)], **look}


def svg(figure: Figure, label: str = "picture", prefix: str = "picture") -> str:
    """A figure for an HTML page, as wide as there is room; the same each time.

    `label` is read to those who do not see it. Ids begin with `prefix`, which is to be unique on the page.
    """
    text = io.StringIO()
    with _ready(figure):
        said: Any = dict.fromkeys(("Creator", "Date", "Format", "Type"))  # nothing: versions and times differ
        figure.savefig(text, format="svg", facecolor="none", metadata=said)
    root = ElementTree.fromstring(writable(text.getvalue()))
    _make_part_of_page(root, prefix)
    root.attrib = {
        "viewBox": root.attrib["viewBox"],
        "width": "100%",
        "role": "img",
        "aria-label": writable(label),
        "fill": "currentColor",  # of what matplotlib leaves black, which it does not say
        "stroke-linejoin": "round",
    }
    return ElementTree.tostring(root, encoding="unicode")


def png(pictures: Sequence[Picture], title: str = "") -> bytes:
    """Pictures with their captions, one below the other, on white."""
    strips = [_pixels(_words(title, size=11))] if title else []
    for picture in pictures:
        strips += [_pixels(picture.figure), _pixels(_words(picture.caption, size=8))]
    widest = max(strip.shape[1] for strip in strips)
    rows = [np.pad(s, ((0, 0), (0, widest - s.shape[1]), (0, 0)), constant_values=255) for s in strips]
    page = np.pad(np.concatenate(rows), ((24, 24), (24, 24), (0, 0)), constant_values=255)
    file, nothing = io.BytesIO(), cast(Any, {"Software": None})
    imsave(file, page, format="png", metadata=nothing)
    return file.getvalue()


def writable(text: str) -> str:
    """Without what XML or UTF-8 cannot hold. Pages and pictures see to it; only names beside ticks need it before."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)


PNG_DPI = 144
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_REFERENCE = re.compile(r"(url\(#|^#)([^)]+)")
_TOO_FINE = re.compile(r"(\.\d\d)\d+")
_BLACK = re.compile(rf"({INK}|#000000)(?=;|$)")


@contextmanager
def _ready(figure: Figure) -> Iterator[None]:
    """Within it a figure can be drawn, wherever its parts were made."""
    with styled(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)  # the reader's browser may have it
        for axis in figure.findobj(Axis):
            _write_powers_plainly(axis)
        for text in figure.findobj(Text):
            text.set_parse_math(False)
            text.set_text(writable(text.get_text()))
        yield


class _Powers(LogFormatter):
    """1,000 rather than a formula."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        if not super().__call__(x, pos):
            return ""
        return f"{x:,.0f}" if 1 <= x < 1e6 else f"{x:.3g}"


def _write_powers_plainly(axis: Any) -> None:
    if axis.get_scale() != "log":
        return
    for ticks in (axis.major, axis.minor):
        if isinstance(ticks.formatter, LogFormatter):
            formatter = _Powers(axis.get_transform().base, ticks.formatter.labelOnlyBase)
            (axis.set_major_formatter if ticks is axis.major else axis.set_minor_formatter)(formatter)


def _make_part_of_page(root: ElementTree.Element, prefix: str) -> None:
    """Leaves what is needed within HTML: no namespaces, no styles for the page, only ids that are referred to."""
    values = [value for element in root.iter() for value in element.attrib.values()]
    used = {found[2] for value in values for found in _REFERENCE.finditer(value)}
    for parent in root.iter():
        for child in [child for child in parent if child.tag.endswith(("}metadata", "}style"))]:
            parent.remove(child)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        attributes = {name.rpartition("}")[2]: value for name, value in element.attrib.items()}
        if attributes.get("id") in used:
            attributes["id"] = f"{prefix}-{attributes['id']}"
        else:
            attributes.pop("id", None)
        if element.tag != "text":
            element.text = None
        element.tail = None
        element.attrib = {name: _for_page(name, value, prefix) for name, value in attributes.items()}


def _for_page(name: str, value: str, prefix: str) -> str:
    if name == "d":
        return _TOO_FINE.sub(r"\1", " ".join(value.split()))
    if name in ("href", "clip-path", "style"):
        value = _REFERENCE.sub(rf"\1{prefix}-\2", value)
    if name == "style":
        return re.sub("'DejaVu Sans'[^;]*", FONTS, _BLACK.sub("currentColor", value))
    return value


def _words(text: str, size: float) -> Figure:
    """A figure of some lines of text as wide as the page."""
    lines = textwrap.wrap(text, int(WIDTH * 130 / size)) or [""]
    with styled():
        figure = Figure(figsize=(WIDTH, (len(lines) * 1.45 + 1.5) * size / 72))
        figure.text(0.02, 1 - 0.5 * size / 72 / figure.get_figheight(), "\n".join(lines), va="top", fontsize=size)
    return figure


def _pixels(figure: Figure) -> np.ndarray:
    """`[rows, columns, 3]`"""
    file = io.BytesIO()
    with _ready(figure):
        figure.savefig(file, format="png", dpi=PNG_DPI, facecolor="white")
    file.seek(0)
    return np.round(imread(file)[..., :3] * 255).astype(np.uint8)
