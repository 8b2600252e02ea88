"""Sections as one HTML file that needs nothing else: no network, no script, the same bytes each time.

It follows the reader's light or dark colours. Printed it is black on white; a folded picture stays
folded, and says so, since there may be dozens: whoever wants it on paper opens it first.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Iterator, Sequence

from explore._analysis.report.section import Picture, Section
from explore._analysis.report.style import FONTS, svg, writable

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
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{"; ".join(allowed)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{_text(title)}</title>
<link rel="icon" href="data:,">
<style>{STYLE}</style>
</head>
<body>
<main>
{shown}</main>
{f"<script>{script}</script>" if script else ""}</body>
</html>
"""


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


STYLE = f"""
:root {{
  color-scheme: light dark;
  --paper: #fdfcfa; --ink: #1b1c1e; --quiet: #62656a; --rule: #d9d6cf; --link: #0b5c8f;
  --sans: {FONTS};
}}
@media (prefers-color-scheme: dark) {{
  :root {{ --paper: #16181b; --ink: #dcdad5; --quiet: #9b9c9d; --rule: #393b3f; --link: #7fbde6; }}
}}
@media print {{
  :root {{ color-scheme: light; --paper: #fff; --ink: #000; --quiet: #333; --rule: #999; --link: #000; }}
}}
* {{ box-sizing: border-box; }}
html {{ background: var(--paper); color: var(--ink); -webkit-text-size-adjust: 100%; }}
body {{
  margin: 0; padding: 3.5rem 1.25rem 6rem;
  font: 1.0625rem/1.6 Charter, "Bitstream Charter", "Iowan Old Style", "Palatino Linotype", Palatino, Georgia, serif;
}}
main {{ max-width: 46rem; margin: 0 auto; }}
h1, h2, p, li, figcaption, summary {{ overflow-wrap: anywhere; }}
h1 {{ font-size: 2rem; line-height: 1.2; font-weight: 600; margin: 0; text-wrap: balance; }}
h2 {{ font-size: 1.3rem; line-height: 1.3; font-weight: 600; margin: 0 0 .6rem; text-wrap: balance; }}
p {{ margin: 0 0 .9rem; max-width: 40rem; text-wrap: pretty; hanging-punctuation: first; }}
a {{ color: var(--link); text-decoration-thickness: 1px; text-underline-offset: .15em; }}
.subtitle {{ color: var(--quiet); margin: .6rem 0 0; }}
header {{ margin-bottom: 2rem; }}
nav {{ font: .875rem/1.5 var(--sans); border-block: 1px solid var(--rule); padding: .75rem 0; }}
nav ol {{ margin: 0; padding: 0; list-style: none; display: flex; flex-wrap: wrap; gap: .2rem 1.5rem; }}
nav a {{ text-decoration: none; }}
nav a:hover {{ text-decoration: underline; }}
section {{ margin-top: 3.25rem; scroll-margin-top: 1rem; }}
.scroll {{
  overflow-x: auto;
  background:
    linear-gradient(to right, var(--paper) 40%, transparent) 0 / 3rem 100% no-repeat local,
    linear-gradient(to left, var(--paper) 40%, transparent) 100% / 3rem 100% no-repeat local,
    linear-gradient(to right, var(--rule), transparent) 0 / .75rem 100% no-repeat scroll,
    linear-gradient(to left, var(--rule), transparent) 100% / .75rem 100% no-repeat scroll;
}}
.wide {{ margin: 1.25rem calc(50% - min(50vw - 1.25rem, 36rem)) 1.25rem 0; }}
table {{
  border-collapse: collapse; min-width: min(46rem, 100%);
  font: .8125rem/1.4 var(--sans); font-variant-numeric: tabular-nums lining-nums;
  border-block: 2px solid var(--ink);
}}
th {{ font-weight: 600; text-align: left; vertical-align: bottom; border-bottom: 1px solid var(--ink); }}
th, td {{ padding: .4rem 1.25rem .4rem 0; }}
th:last-child, td:last-child {{ padding-right: 0; }}
td {{ vertical-align: top; max-width: 24rem; overflow-wrap: anywhere; }}
td:not(.number) {{ min-width: 7rem; }}
tbody tr + tr td {{ border-top: 1px solid var(--rule); }}
.number {{ text-align: right; white-space: nowrap; }}
th.number {{ white-space: normal; }}
figure {{ margin: 1.75rem 0; }}
figure svg {{ display: block; min-width: 34rem; height: auto; }}
figcaption {{ font: .8125rem/1.5 var(--sans); color: var(--quiet); margin-top: .6rem; max-width: 44rem; }}
figcaption b {{ color: var(--ink); font-weight: 600; }}
details {{ border-top: 1px solid var(--rule); }}
details:last-of-type {{ border-bottom: 1px solid var(--rule); }}
details figure {{ margin: .75rem 0 1.5rem; }}
summary {{ font: .875rem/1.5 var(--sans); padding: .55rem 0; cursor: pointer; }}
summary:hover {{ color: var(--link); }}
:focus-visible {{ outline: 2px solid var(--link); outline-offset: 3px; }}
.notice {{
  position: fixed; inset: auto 0 0; margin: 0; padding: .6rem 1.25rem; max-width: none; text-align: center;
  font: .875rem/1.5 var(--sans); background: var(--ink); color: var(--paper);
}}
@media print {{
  @page {{ margin: 18mm 16mm; }}
  body {{ padding: 0; font-size: 10.5pt; }}
  main, p, figcaption {{ max-width: none; }}
  nav, .notice {{ display: none; }}
  .scroll {{ overflow: visible; background: none; }}
  .wide {{ margin-right: 0; }}
  table {{ font-size: 8pt; min-width: 100%; }}
  th, td {{ padding-right: .6rem; }}
  td:not(.number) {{ min-width: 0; }}
  .number {{ white-space: normal; overflow-wrap: normal; }}
  figure svg {{ min-width: 0; }}
  section {{ margin-top: 2rem; }}
  h2, summary {{ break-after: avoid; }}
  figure, tr, details {{ break-inside: avoid; }}
  details:not([open]) summary::after {{ content: " (folded: open it to print it)"; color: var(--quiet); }}
}}
"""
