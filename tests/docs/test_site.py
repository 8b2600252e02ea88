"""The pages form a site that builds without a warning; links lead somewhere; pages are short."""

import re
import subprocess
import sys

import pytest
from pages import BLOCK, DOCS, PAGES, REFERENCE, REPOSITORY, title

MOST_WORDS = 1500  # of a page that is read from top to bottom


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the site, as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", DOCS, folder]
    built = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY)
    assert built.returncode == 0, built.stderr
    return folder


def test_the_site_builds_without_a_warning(site):
    assert (site / "index.html").exists()


def test_every_page_is_reached_from_the_contents(site):
    contents = (site / "index.html").read_text()
    for page in DOCS.rglob("*.md"):
        assert f'href="{page.relative_to(DOCS).with_suffix(".html")}"' in contents or page.name == "index.md"


@pytest.mark.parametrize("page", [page for page in DOCS.rglob("*.md") if page not in REFERENCE], ids=title)
def test_a_page_is_short_unless_it_is_for_looking_things_up(page):
    words = len(BLOCK.sub("", page.read_text()).split())
    assert words <= MOST_WORDS or page.name == "results.md"


def anchors(page):
    """What a link may name after #: the headings of a page, as GitHub writes them."""
    headings = re.findall(r"^#+ (.*)", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=title)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        path, _, anchor = link.partition("#")
        if "://" not in link:
            target = page.parent / path if path else page
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), link
