"""Pages and their pictures: what a reader sees, in light, dark and print, and that nothing is asked of the network."""

import io
import re
import zlib
from collections import Counter
from html.parser import HTMLParser

import matplotlib
import numpy as np
import pytest
from browser import look, needs_chromium
from PIL import Image

from explore._analysis.report import style
from explore._analysis.report.drawing import Picture, Section
from explore._analysis.report.page import content, document, page

HOSTILE = (
    "</title></style><script>document.title = 'taken'</script><img src=http://127.0.0.1:9/x> & \"quoted\" 'it' $x_"
)


def curve(label="size = 10", **series):
    """A line, its band and its traces, on a logarithmic axis."""
    with style.styled():
        figure, axes = style.new_figure()
        x = np.arange(1, 1001)
        axes.fill_between(x, x, 3 * x, **style.BAND)
        axes.plot(x, x, **style.TRACE)
        axes.plot(x, 2 * x, **(series or style.series(0)), markevery=200, label=label)
        axes.set_xscale("log")
        axes.set_xlabel("episode")
        axes.legend()
    return figure


def grid():
    with style.styled():
        figure, axes = style.new_figure(1, 2)
        for one in axes:
            one.imshow([[1.0, np.nan], [2.0, 3.0]])
    return figure


def sections():
    return [
        Section(
            "What was run",
            ["Two recipes.", "Five seeds each."],
            [["configuration", "score"], ["size = 10", "0.98 (0.96 to 1)"], ["size = 20", "-"]],
        ),
        Section("Learning", pictures=[Picture(curve(), "Return; 5 seeds."), Picture(grid(), "Visits; 1 seed.")]),
        Section("Learning", pictures=[Picture(curve(), "Seed 3 alone.", folded=True, name="Seed 3")]),
    ]


class Elements(HTMLParser):
    """The elements of a document: `(tag, attributes)` in order."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))

    def attributes(self, name):
        return [attributes[name] for _, attributes in self.found if name in attributes]


@pytest.fixture
def saved(tmp_path):
    def save(text):
        path = tmp_path / "page.html"
        path.write_text(text)
        return path.as_uri()

    return save


def luminance(colour):
    """As in WCAG 2: 0 is black, 1 is white."""
    parts = np.array(colour[:3], dtype=float)
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4) @ (0.2126, 0.7152, 0.0722)


def contrast(one, other):
    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


@needs_chromium
def test_a_reader_sees_headings_text_tables_captions_and_the_words_in_pictures(saved):
    seen = look(saved(page("Targets", sections(), subtitle="30 runs")))
    words = ["Targets", "30 runs", "What was run", "Two recipes.", "0.98 (0.96 to 1)", "Return; 5 seeds.", "Seed 3"]
    for word in [*words, "episode", "size = 10", "1,000"]:  # the last three in a picture
        assert word in seen.text.splitlines()
    assert seen.dom.count("<svg") == 3
    assert seen.console == []


@needs_chromium
def test_a_page_asks_for_nothing(saved):
    text = page("Targets", sections())
    assert look(saved(text)).requests == []
    assert all(
        address.startswith(("#", "data:")) for name in ("href", "src") for address in Elements(text).attributes(name)
    )


@needs_chromium
def test_whatever_a_page_asks_for_is_seen(saved):
    """Without which the test above says nothing."""
    image, host = "http://127.0.0.1:9/x.png", "http://elsewhere.example"
    seen = look(saved(f'<link rel="preconnect" href="{host}"><img src="{image}"><script>console.error("oh")</script>'))
    assert {image, host} <= {*seen.requests}
    assert seen.console == ["oh"]


@needs_chromium
def test_nothing_that_slips_into_a_page_is_loaded_or_run(saved):
    slipped = (
        '<img src="http://127.0.0.1:9/x"><iframe src="http://127.0.0.1:9/y"></iframe>'
        '<script>document.title = "taken"</script>'
    )
    seen = look(saved(document("Targets", slipped)))
    assert seen.requests == []
    assert "<title>Targets</title>" in seen.dom
    assert sum("Content Security Policy" in line for line in seen.console) >= 2


@needs_chromium
def test_hostile_text_is_shown_as_it_is(saved):
    picture = Picture(curve(label=HOSTILE), HOSTILE, folded=True, name=HOSTILE)
    hostile = Section(HOSTILE, [HOSTILE], [[HOSTILE], [HOSTILE]], [picture])
    seen = look(saved(page(HOSTILE, [hostile, hostile], subtitle=HOSTILE)))
    assert seen.text.count(HOSTILE) == 2 + 2 * 8  # of each section: contents, heading, text, 2 cells, 3 of the picture
    assert {tag for tag, _ in Elements(seen.dom).found}.isdisjoint({"script", "img"})
    assert seen.requests == seen.console == []


@pytest.mark.parametrize("text", ["\x00\x1b[31m", "\ud800", "$\\frac{", "$$", "名前", "￾"])
def test_no_text_breaks_a_page(text):
    written = page(text, [Section(text, [text], [[text], [text]], [Picture(curve(label=text), text)])])
    assert "<svg" in written.encode().decode()
    style.png([Picture(curve(label=text), text)], text)
    figure, axes = style.new_figure()
    axes.text(0, 0, text)  # by somebody who has not read how to draw
    axes.set_yticks([0], [style.writable(text)])
    assert "<svg" in style.svg(figure)


@needs_chromium
def test_a_very_long_name_does_not_widen_the_page(saved, tmp_path):
    long = "x" * 3000
    section = Section(long, [long], [[long, "n"], [long, "1"]], [Picture(curve(), long, folded=True, name=long)])
    narrow = tmp_path / "narrow.png"
    look(saved(page(long, [section, section])), width=600, height=4000, screenshot=narrow)
    pixels = np.asarray(Image.open(narrow).convert("L"))
    assert np.ptp(pixels[:, -12:]) == 0  # the margin on the right is empty


def test_ids_are_unique_and_whatever_is_referred_to_is_there():
    hatched, axes = style.new_figure()
    axes.bar([0], [1], hatch="//")
    figures = [curve(), curve(), grid(), hatched]
    same = Section("Same", pictures=[Picture(figure, "One.", folded=True) for figure in figures])
    text = page("Targets", [same, same, Section("Same 2"), Section("Same.1"), Section(""), Section("!")])
    ids = Elements(text).attributes("id")
    assert [name for name, count in Counter(ids).items() if count > 1] == []
    referred = {found for pair in re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', text) for found in pair if found}
    assert len(referred) > 6
    assert referred <= {*ids}


def test_the_same_sections_give_the_same_bytes():
    assert page("Targets", sections()) == page("Targets", sections())
    assert style.png(sections()[1].pictures) == style.png(sections()[1].pictures)


def test_settings_of_the_user_do_not_matter_and_stay():
    expected = style.svg(curve()), style.png([Picture(grid(), "Visits.")])
    settings = {
        "xtick.direction": "in",
        "lines.linewidth": 9,
        "font.size": 30,
        "axes.facecolor": "red",
        "svg.fonttype": "path",
        "axes.grid": False,
    }
    with matplotlib.rc_context(settings):
        assert (style.svg(curve()), style.png([Picture(grid(), "Visits.")])) == expected
        assert {name: matplotlib.rcParams[name] for name in settings} == settings


def test_a_picture_has_no_colour_of_ink_or_paper_of_its_own():
    text = style.svg(curve(), label='"what" it shows')
    assert "currentColor" in text
    assert not re.search(f"{style.INK}|#000000|#ffffff|black|white", text)
    assert 'aria-label="&quot;what&quot; it shows"' in text
    assert not re.search(r"<\?xml|<!DOCTYPE|<style|<metadata|xmlns", text)


def test_a_cell_of_a_map_is_a_pixel_of_an_image_within_the_page():
    images = [attributes for tag, attributes in Elements(style.svg(grid())).found if tag == "image"]
    assert len(images) == 2
    for image in images:
        assert image["href"].startswith("data:image/png;base64,")
        assert "pixelated" in image["style"]
        assert len(image["href"]) < 1000


def test_series_are_told_apart_on_both_pages_and_without_colour():
    known = [style.series(number) for number in range(8)]
    for how in ("color", "linestyle", "marker"):
        assert len({one[how] for one in known}) == 8
    for one in known:
        colour = matplotlib.colors.to_rgb(one["color"])
        assert contrast(colour, (1, 1, 1)) >= 3
        assert contrast(colour, matplotlib.colors.to_rgb("#16181b")) >= 3
    looks = [tuple(map(str, style.series(number).values())) for number in range(24)]
    assert len(set(looks)) == 24 and looks[8][0] == looks[0][0]  # a colour comes back, a look does not


def test_darker_is_less_on_a_map_in_grey_as_well():
    steps = [luminance(colour) for colour in matplotlib.colormaps[style.RC["image.cmap"]](np.linspace(0, 1, 64))]
    assert (np.diff(steps) > 0).all()


@needs_chromium
def test_ink_can_be_read_on_a_light_page_and_on_a_dark_one(saved, tmp_path):
    """Of a page with a picture only: paper is its most common colour, ink the one that differs most."""
    address = saved(document("Targets", f"<figure>{style.svg(curve())}</figure>"))
    papers = []
    for dark in (False, True):
        look(address, dark=dark, screenshot=tmp_path / "shot.png")
        pixels = np.asarray(Image.open(tmp_path / "shot.png").convert("RGB")).reshape(-1, 3)
        colours, counts = np.unique(pixels, axis=0, return_counts=True)
        papers.append(colours[counts.argmax()] / 255)
        assert max(contrast(colour / 255, papers[-1]) for colour in colours) > 10
    assert luminance(papers[0]) > 0.9
    assert luminance(papers[1]) < 0.02


@needs_chromium
@pytest.mark.parametrize("dark", [False, True])
def test_on_paper_it_is_black_on_white(saved, tmp_path, dark):
    """Text and rules are of no colour at all, as those on the screen are not quite."""
    look(saved(page("Targets", sections())), dark=dark, pdf=tmp_path / "page.pdf")
    used = {colour for colour in colours_of((tmp_path / "page.pdf").read_bytes()) if len({*colour}) == 1}
    series = matplotlib.colors.to_rgb(style.series(0)["color"])
    assert {(0, 0, 0), (1, 1, 1)} <= used
    coloured = colours_of((tmp_path / "page.pdf").read_bytes()) - used
    assert coloured and all(np.allclose(colour, series, atol=0.01) for colour in coloured)


def colours_of(pdf):
    """Whatever lines and areas of a PDF are drawn in: its operators rg and RG, in compressed streams."""
    found = set()
    for stream in re.findall(rb"/FlateDecode.*?stream\r?\n(.*?)\r?\nendstream", pdf, re.DOTALL):
        for colour in re.findall(rb"([\d.]+) ([\d.]+) ([\d.]+) (?:rg|RG)\b", zlib.decompress(stream)):
            found.add(tuple(map(float, colour)))
    return found


def test_columns_of_numbers_are_aligned_to_the_right():
    table = [["name", "score", "p", "none"], ["1 thing", "1,234 (5e-3 to -)", "-", "-"], ["b", "-0.5", "12%", ""]]
    cells = [
        attributes.get("class")
        for tag, attributes in Elements(content("", [Section("T", (), table)])).found
        if tag in ("th", "td")
    ]
    assert cells == [None, "number", "number", None] * 3


@needs_chromium
def test_a_folded_picture_is_shown_on_demand(saved):
    address = saved(page("Targets", sections()))
    for asked, attributes in [("", {}), ("#learning-2.1", {"open": ""})]:  # Chromium unfolds what an address points to
        elements = Elements(look(address + asked).dom).found
        folds = [number for number, (tag, _) in enumerate(elements) if tag == "details"]
        assert [elements[number][1] for number in folds] == [attributes]
        assert elements[folds[0] + 2] == ("figure", {"id": "learning-2.1"})


def test_a_png_has_all_pictures_on_white():
    one = Image.open(io.BytesIO(style.png([Picture(curve(), "Return; 5 seeds.")])))
    two = Image.open(
        io.BytesIO(style.png([Picture(curve(), "Return; 5 seeds."), Picture(grid(), "Visits. " * 60)], "run"))
    )
    assert two.width == one.width
    assert two.height > 2 * one.height
    assert one.convert("RGB").getpixel((0, 0)) == (255, 255, 255)
