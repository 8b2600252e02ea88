"""`explore doctor` says what is installed and what executes agents, and finds what is wrong."""

import json
import re
import sys

import numpy as np
import pytest

from explore._cli import doctor
from explore._cli.main import main
from explore._config.discovery import Failure, discover
from explore._native import library
from explore._native.operations import HANDLERS

CHECKS = ["versions", "plugins", "processor", "compiler", "kernels", "exactness", "speed"]


@pytest.fixture(autouse=True)
def settings(monkeypatch):
    """Those of a machine where nothing is set, and small agents."""
    for name in (library.SETTING, "CXX"):
        monkeypatch.delenv(name, raising=False)
    for name, few in (("EPISODES", 6), ("REPEATS", 1), ("UPDATES", 2)):
        monkeypatch.setattr(doctor, name, few)
    library._load.cache_clear()
    yield
    library._load.cache_clear()


@pytest.fixture
def no_compiler(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.fixture
def ask(capsys):
    """What it answers as JSON, and the code that it ends with."""

    def ask(*options):
        code = main(["doctor", "--json", *options])
        return json.loads(capsys.readouterr().out), code

    return ask


def test_a_line_for_each_check_says_what_there_is(kernels, capsys):
    assert main(["doctor"]) == 0
    *lines, empty, last = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [[check, "ok"] for check in CHECKS]
    assert len({re.match(r"\w+ +ok +", line).end() for line in lines}) == 1  # aligned
    details = dict(zip(CHECKS, lines))
    assert f"Python {sys.version.split()[0]}, torch" in details["versions"]
    assert f"numpy {np.__version__}" in details["versions"]
    assert f"{kernels}, in {library.find_cache()}" in details["kernels"]
    assert "the same with the kernels as with PyTorch" in details["exactness"]
    assert re.search(r"[\d.]+ ms .*, [\d.]+ ms with PyTorch: [\d.]+ times", details["speed"])
    assert (empty, last) == ("", "all is well")


def test_scripts_get_the_same_as_json(kernels, ask):
    answer, code = ask()
    assert code == 0 and answer["well"]
    assert [*answer["checks"]] == CHECKS
    assert {check["result"] for check in answer["checks"].values()} == {"ok"}


def test_all_is_well_without_a_compiler(no_compiler, ask):
    answer, code = ask()
    assert code == 0 and answer["well"]
    checks = answer["checks"]
    assert checks["compiler"]["result"] == checks["kernels"]["result"] == "note"
    assert "there is no C++ compiler (g++, clang++, c++); install one" in checks["compiler"]["details"]
    assert "PyTorch does their work: there is no C++ compiler" in checks["kernels"]["details"]
    assert "kernels" not in checks["exactness"]["details"]
    assert "with PyTorch" in checks["speed"]["details"]


def test_all_is_well_with_kernels_switched_off(monkeypatch, ask):
    monkeypatch.setenv(library.SETTING, "off")
    answer, code = ask()
    assert code == 0
    assert answer["checks"]["kernels"] == {
        "result": "note",
        "details": "none, PyTorch does their work: EXPLORE_KERNELS=off is set",
    }


@pytest.mark.slow
def test_a_cache_that_cannot_be_written_is_told(kernels, monkeypatch, tmp_path, ask):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(library.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv(library.SETTING, "portable")
    library._load.cache_clear()
    answer, code = ask()
    assert code == 0
    found = answer["checks"]["kernels"]
    assert found["result"] == "note"
    assert re.search(r"portable, in .*, built in [\d.]+ s; nothing can be written to .*file", found["details"])


def test_a_compiler_that_does_not_work_is_found(monkeypatch, tmp_path, ask, capsys):
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho 'error: out of patience' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    answer, code = ask()
    assert code == 1 and not answer["well"]
    assert answer["checks"]["compiler"] == {
        "result": "failed",
        "details": f"{broken} failed: error: out of patience",
    }
    assert answer["checks"]["kernels"]["result"] == "failed"


def test_a_setting_that_does_not_exist_is_found(monkeypatch, ask):
    monkeypatch.setenv(library.SETTING, "abacus")
    answer, code = ask()
    assert code == 1
    assert "EXPLORE_KERNELS must be auto, off, " in answer["checks"]["kernels"]["details"]


def test_a_broken_plugin_is_found(monkeypatch, ask):
    registry = discover()
    registry.failed.append(Failure("scales", "entry point (scales 1.0)", "there is no module 'fish'"))
    monkeypatch.setattr(doctor, "discover", lambda plugins: registry)
    answer, code = ask()
    assert code == 1
    assert answer["checks"]["plugins"]["result"] == "failed"
    assert answer["checks"]["plugins"]["details"].endswith(
        " built in; plugin scales (entry point (scales 1.0)) is left out: there is no module 'fish'"
    )


def test_plugins_that_are_asked_for_are_listed_or_refused(monkeypatch, tmp_path, ask, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("from explore import hookimpl\n\n@hookimpl\ndef explore_run_started(run): ...\n")
    answer, code = ask("-p", "mine.py")
    assert code == 0
    assert "; mine " in answer["checks"]["plugins"]["details"]
    assert main(["doctor", "-p", "yours.py"]) == 2
    assert capsys.readouterr().err == "explore: error: plugin yours.py: there is no such file; there are: mine.py\n"


def test_kernels_that_compute_something_else_are_found(kernels, monkeypatch, ask, capsys):
    answers = iter(range(100))
    monkeypatch.setattr(doctor, "_ask", lambda agent: np.full((2, 3, 1, 1), next(answers)))
    answer, code = ask()
    assert code == 1
    details = answer["checks"]["exactness"]["details"]
    assert "PINs: a seed learns something else beside others than alone" in details
    assert "a hypermodel: the kernels learn something else than PyTorch" in details


def test_what_the_kernels_leave_to_pytorch_is_found(kernels, monkeypatch, ask):
    for name in ("softplus", "log1p"):  # and what PyTorch would put in its place
        monkeypatch.delitem(HANDLERS, name)
    answer, code = ask()
    assert code == 1
    assert "PINs: PyTorch for updates: the kernels have no log1p" in answer["checks"]["exactness"]["details"]


def test_a_check_that_fails_is_told_in_a_line(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "machine", lambda: 1 / 0)
    assert main(["doctor"]) == 1
    told = capsys.readouterr()
    assert "processor  failed     ZeroDivisionError: division by zero\n" in told.out
    assert told.err == "explore: error: not all is well: processor\n"


def test_a_package_that_cannot_be_imported_is_told_in_a_line(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "explore._cli.doctor", None)
    assert main(["doctor"]) == 1
    assert capsys.readouterr().err.startswith("explore: error: explore cannot be imported: ModuleNotFoundError: ")
