"""Runs whose files are mangled, and a folder to work in."""

import shutil
import sys
from types import SimpleNamespace

import pytest
from fuzzing import AFTER, BEFORE, CHUNK, NEWEST, OLDER, TINY, bound, reseal, run

from explore._running import trainer
from explore._storage import checkpoints as checkpoint


@pytest.fixture(scope="module", autouse=True)
def steady():
    """What is mangled has the same length every time: no time passes. And small runs have chunks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "CHUNK", CHUNK)
        patch.setattr(trainer, "time", SimpleNamespace(perf_counter=lambda: 0.0))
        patch.setattr(sys, "argv", ["explore"])
        yield


@pytest.fixture(autouse=True)
def work(tmp_path_factory, monkeypatch):
    """An empty folder to work in, removed afterwards: there are hundreds."""
    folder = tmp_path_factory.mktemp("fuzz")
    monkeypatch.chdir(folder)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def made(steady, tmp_path_factory):
    """A finished run, which nobody may change."""
    folder = tmp_path_factory.mktemp("made") / "run"
    assert run("pins_deep_sea", *bound(*TINY, f"experiment.episodes = {BEFORE}"), "--out", folder) == (0, [])
    return folder


@pytest.fixture(scope="module")
def uninterrupted(steady, tmp_path_factory):
    """The same run with as many episodes as it has when it is resumed."""
    folder = tmp_path_factory.mktemp("uninterrupted") / "run"
    assert run("pins_deep_sea", *bound(*TINY, f"experiment.episodes = {AFTER}"), "--out", folder) == (0, [])
    return folder


@pytest.fixture
def copy(made, work):
    return shutil.copytree(made, work / "copy")


@pytest.fixture
def forged(copy):
    """Changes the tree of the only checkpoint of a run, in place, and makes its checksum right."""

    def forge(change):
        def changed(tree):
            change(tree)
            return tree

        reseal(copy / NEWEST, changed)
        (copy / OLDER).unlink()
        return copy

    return forge
