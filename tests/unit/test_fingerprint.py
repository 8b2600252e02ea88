"""Whether the code of a plugin is still what it was."""

import importlib
import sys

import pytest

from explore._running.provenance import fingerprint


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Writes files of a package called `mine` (or beside it) and returns the digest of a module of it, loaded anew."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(name, files):
        for file, text in files.items():
            path = tmp_path / file
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        for module in [known for known in sys.modules if known.partition(".")[0] in ("mine", "plugin", "scales")]:
            del sys.modules[module]
        importlib.invalidate_caches()
        return fingerprint(importlib.import_module(name))

    return write


def test_it_is_of_a_file_and_of_what_it_imports(load):
    files = {"plugin.py": "import os\nimport scales\n", "scales.py": "import sys\n", "other.py": "X = 1\n"}
    before = load("plugin", files)
    assert load("plugin", files) == before
    assert load("plugin", {"other.py": "X = 2\n"}) == before
    assert load("plugin", {"scales.py": "import sys  # \n"}) != before


def test_it_is_of_all_of_a_package(load):
    files = {
        "mine/__init__.py": "from .heads import X\n",
        "mine/heads.py": "from mine import scales as s\nX = s.Y\n",
        "mine/scales.py": "Y = 1\n",
        "beside.py": "Z = 1\n",
    }
    before = load("mine.heads", files)
    assert load("mine.heads", {"beside.py": "Z = 2\n"}) == before
    assert load("mine.heads", {"mine/scales.py": "Y = 2\n"}) != before


def test_what_lies_beside_an_installed_file_is_not_its_own(tmp_path, monkeypatch):
    place = tmp_path / "site-packages"
    place.mkdir()
    monkeypatch.syspath_prepend(place)
    digests = []
    for text in ("X = 1\n", "X = 2\n"):
        (place / "lonely.py").write_text("import crowd\n")
        (place / "crowd.py").write_text(text)
        for name in ("lonely", "crowd"):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        digests.append(fingerprint(importlib.import_module("lonely")))
    assert digests[0] == digests[1]
    (place / "lonely.py").write_text("import crowd  #\n")
    assert fingerprint(sys.modules["lonely"]) != digests[0]


def test_what_has_no_file_has_none():
    assert fingerprint(object()) is None
