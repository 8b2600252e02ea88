"""Sections as one HTML file that needs nothing else: no network, no script, the same bytes each time.

It follows the reader's light or dark colours. Printed it is black on white; a folded picture stays
folded, and says so, since there may be dozens.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from string import Template

from explore._analysis.report.drawing import Picture, Section
from explore._analysis.report.style import FONTS, svg, writable

FOLDER = Path(__file__).parent
TEMPLATE = Template((FOLDER / "page.html").read_text(encoding="utf-8"))
STYLE = (FOLDER / "page.css").read_text(encoding="utf-8").replace("FONTS", FONTS)
NUMBER = re.compile(r"[-+−]?[\d.,]+(e[-+]?\d+)?( ?%| s)?", re.IGNORECASE)


def page(title: str, sections: Sequence[Section], *, subtitle: str = "") -> str:
    """The whole document."""
    return document(title, content(title, sections, subtitle=subtitle))


def document(title: str, shown: str, script: str = "") -> str:
    """A document that shows what `content` made. A script may ask the server that the page came from, no other."""
    allowed = ["default-src 'none'", "img-src data:", "style-src 'unsafe-inline'"]
    if script:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        allowed += [f"script-src 'sha256-{digest}'", "connect-src 'self'"]
    parts = {"policy": "; ".join(allowed), "title": _text(title), "style": STYLE, "shown": shown}
    return TEMPLATE.substitute(parts, script=f"<script>{script}</script>" if script else "")


def content(title: str, sections: Sequence[Section], *, subtitle: str = "") -> str:
    """What a page shows: its title, a table of contents and the sections."""
    names = _names(sections)
    parts = [f"<header>\n<h1>{_text(title)}</h1>\n"]
    parts += [f'<p class="subtitle">{_text(subtitle)}</p>\n'] if subtitle else []
    parts += ["</header>\n"]
    if len(sections) > 1:
        lines = [f'<li><a href="#{name}">{_text(one.title)}</a></li>\n' for name, one in zip(names, sections)]
        parts += ['<nav aria-label="Contents">\n<ol>\n', *lines, "</ol>\n</nav>\n"]
    number = 0
    for name, section in zip(names, sections):
        parts += [f'<section id="{name}">\n<h2>{_text(section.title)}</h2>\n']
        parts += [f"<p>{_text(paragraph)}</p>\n" for paragraph in section.text]
        parts += _table(section.table)
        for place, picture in enumerate(section.pictures, start=1):
            number += 1
            parts += _picture(picture, number, f"{name}.{place}")
        parts += ["</section>\n"]
    return "".join(parts)


def _names(sections: Sequence[Section]) -> list[str]:
    """For addresses within the page, made of titles; a picture's adds a dot, which no section's has."""
    names: list[str] = []
    for section in sections:
        name = plain = re.sub(r"[^a-z0-9]+", "-", section.title.lower())[:60].strip("-") or "section"
        number = 1
        while name in names:
            number += 1
            name = f"{plain}-{number}"
        names.append(name)
    return names


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    if not rows:
        return
    header, *body = rows
    numeric = [_is_numeric([row[column] for row in body if column < len(row)]) for column in range(len(header))]
    yield '<div class="wide scroll" tabindex="0" role="region" aria-label="Table">\n<table>\n<thead>\n'
    yield _row("th", header, numeric)
    yield "</thead>\n<tbody>\n"
    for row in body:
        yield _row("td", row, numeric)
    yield "</tbody>\n</table>\n</div>\n"


def _row(tag: str, cells: Sequence[str], numeric: Sequence[bool]) -> str:
    classes = [' class="number"' if right else "" for right in numeric]
    return f"<tr>{''.join(f'<{tag}{kind}>{_text(cell)}</{tag}>' for cell, kind in zip(cells, classes))}</tr>\n"


def _is_numeric(cells: Sequence[str]) -> bool:
    """Whether a column holds numbers, perhaps with an interval: `0.5 (0.3 to 0.7)`; a dash is an empty cell."""
    said = [cell for cell in cells if cell not in ("", "-", "–")]
    parts = [part for cell in said for part in re.sub(r"[()\[\]]|\bto\b", " ", cell).split()]
    return bool(said) and all(NUMBER.fullmatch(part) or part == "-" for part in parts)


def _picture(picture: Picture, number: int, name: str) -> Iterator[str]:
    image = svg(picture.figure, picture.name or picture.caption, name)
    figure = (
        f'<figure id="{name}">\n<div class="scroll">{image}</div>\n'
        f"<figcaption><b>Figure {number}.</b> {_text(picture.caption)}</figcaption>\n</figure>\n"
    )
    if picture.folded:
        summary = f"<summary>{_text(picture.name) or f'Figure {number}'}</summary>"
        figure = f"<details>\n{summary}\n{figure}</details>\n"
    yield figure


def _text(text: str) -> str:
    return html.escape(writable(text))
