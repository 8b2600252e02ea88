"""The pages form a site that builds without a warning; links lead somewhere; pages are short."""

import importlib
import re
import subprocess
import sys

import pytest
from pages import BLOCK, DOCS, PAGES, PUBLIC_MODULES, REFERENCE, REPOSITORY, title
from sphinx.util.inventory import InventoryFile

MOST_WORDS = 1500  # of a page that is read from top to bottom


def test_the_site_builds_without_a_warning_and_holds_every_page_and_public_name(tmp_path):
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", DOCS, tmp_path]
    built = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY)
    assert built.returncode == 0, built.stderr
    contents = (tmp_path / "index.html").read_text()
    pages = [page.relative_to(DOCS).with_suffix(".html") for page in DOCS.rglob("*.md") if page.name != "index.md"]
    assert [page for page in pages if f'href="{page}"' not in contents] == []
    with (tmp_path / "objects.inv").open("rb") as file:
        documented = InventoryFile.load(file, "", lambda uri, name: name)
    names = {name for kind, entries in documented.items() if kind.startswith("py:") for name in entries}
    modules = [importlib.import_module(name) for name in PUBLIC_MODULES]
    public = {f"{module.__name__}.{name}" for module in modules for name in getattr(module, "__all__", ())}
    assert public - names - {"explore.__version__"} == set()


@pytest.mark.parametrize("page", [page for page in DOCS.rglob("*.md") if page not in REFERENCE], ids=title)
def test_a_page_is_short_unless_it_is_for_looking_things_up(page):
    words = len(BLOCK.sub("", page.read_text()).split())
    assert words <= MOST_WORDS


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
