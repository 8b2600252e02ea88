"""Folders of a stranger: code that comes with them is not run, and links and pipes are not followed."""

import contextlib
import json
import os
import shutil
from pathlib import Path

import pytest
from fuzzing import (
    NEWEST,
    at_most,
    checksum,
    everything_in,
    goes_on_or_is_refused,
    nested,
    orderly,
    readable,
    refused,
    resume,
    rows,
)

import explore
from explore._storage.run_folder import Run
from explore.errors import UserError

# Code that comes with a folder is not run

EVIL = "from pathlib import Path\nPath('marker').touch()\n"


def test_an_import_in_the_configuration_of_a_run_is_refused(copy, work, monkeypatch):
    (work / "evil_of_fuzz.py").write_text(EVIL)
    monkeypatch.syspath_prepend(work)
    (copy / "config.gin").write_text("import evil_of_fuzz\n" + (copy / "config.gin").read_text())
    assert "'import evil_of_fuzz' would run code" in refused(copy)
    with pytest.raises(UserError, match="would run code"):
        explore.load_agent(copy)
    assert not (work / "marker").exists()


def test_an_import_in_the_configuration_of_a_checkpoint_is_not_run(forged, work, monkeypatch):
    (work / "evil_of_fuzz.py").write_text(EVIL)
    monkeypatch.syspath_prepend(work)
    copy = forged(lambda tree: tree.update(config="import evil_of_fuzz\n" + tree["config"]))
    orderly(*resume(copy))
    assert not (work / "marker").exists()


@pytest.mark.parametrize("source", ["evil_of_fuzz.py", "evil_of_fuzz", "entry point (evil 1.0)", "built in", None])
def test_a_plugin_that_a_folder_names_is_not_loaded(copy, work, monkeypatch, source):
    (work / "evil_of_fuzz.py").write_text(EVIL)
    monkeypatch.syspath_prepend(work)
    info = json.loads((copy / "run.json").read_text())
    info["plugins"].append({"name": "evil_of_fuzz", "version": "", "source": source, "sha256": ""})
    (copy / "run.json").write_text(json.dumps(info))
    readable(copy)
    orderly(*resume(copy))
    assert not (work / "marker").exists()


def test_a_plugin_that_a_folder_names_is_asked_for(copy, work):
    info = json.loads((copy / "run.json").read_text())
    info["plugins"].append({"name": "evil", "version": "", "source": "evil.py", "sha256": ""})
    (copy / "run.json").write_text(json.dumps(info))
    assert "was made with the plugin evil; add -p evil.py" in refused(copy)


# Links, folders and pipes where files should be


def test_a_checkpoint_that_is_a_link_does_not_count(copy, made, uninterrupted):
    (copy / NEWEST).unlink()
    (copy / NEWEST).symlink_to(made / NEWEST)
    before = everything_in(made)
    goes_on_or_is_refused(copy, uninterrupted)
    assert rows(copy) == rows(uninterrupted)
    assert everything_in(made) == before


def test_a_chunk_that_is_a_link_does_not_count(copy, made):
    for chunk in (copy / "checkpoint/chunks").iterdir():
        chunk.unlink()
        chunk.symlink_to(made / "checkpoint/chunks" / chunk.name)
    assert "it is not a file" in refused(copy)


@pytest.mark.parametrize("name", ["run.json", "config.gin", "summary.json"])
def test_a_file_that_is_a_link_is_replaced_and_what_it_leads_to_left_alone(copy, made, name):
    (copy / name).unlink()
    (copy / name).symlink_to(made / name)
    before = everything_in(made)
    orderly(*resume(copy))
    assert everything_in(made) == before


@pytest.mark.parametrize("make", [Path.touch, lambda path: path.symlink_to(path)], ids=["file", "loop"])
def test_a_folder_of_checkpoints_that_is_none_is_refused(copy, make):
    shutil.rmtree(copy / "checkpoint")
    make(copy / "checkpoint")
    readable(copy)
    line = refused(copy)
    assert "cannot read" in line or "is a link to elsewhere" in line


PLACES = {"pipe": os.mkfifo, "folder": os.mkdir, "loop": lambda path: path.symlink_to(path)}


@pytest.mark.parametrize(
    ("name", "place"),
    [
        *((name, place) for name in (NEWEST, ".lock", "checkpoint/chunks") for place in PLACES),
        *(
            (name, place)
            for name in ("run.json", "config.gin", "episodes.csv", "summary.json")
            for place in ("folder", "loop")
        ),
    ],
)
def test_what_is_not_a_file_is_passed_over_or_refused(copy, name, place):
    if (copy / name).is_dir():
        shutil.rmtree(copy / name)
    else:
        (copy / name).unlink()
    PLACES[place](copy / name)
    with at_most(20):
        readable(copy)
        orderly(*resume(copy))


@pytest.mark.parametrize(
    "more",
    [{"plugins": [{"name": [], "source": "x"}]}, {"x": nested(700)}],
    ids=["plugin without a name", "deep"],
)
def test_a_run_json_of_the_wrong_form_is_refused(copy, more):
    info = json.loads((copy / "run.json").read_text()) | more
    (copy / "run.json").write_text(json.dumps(info))
    before = everything_in(copy)
    code, lines = resume(copy)
    orderly(code, lines)
    assert code == 0 or everything_in(copy) == before


def test_a_link_is_no_lock(copy):
    info = json.loads((copy / "run.json").read_text()) | {"status": "running"}
    (copy / "run.json").write_text(json.dumps(info))
    (copy / ".lock").unlink()
    (copy / ".lock").symlink_to("nowhere")
    assert Run.open(copy).status == "killed"


@pytest.mark.parametrize(
    ("name", "ask"),
    [
        ("run.json", lambda copy: Run.open(copy)),
        ("config.gin", lambda copy: Run.open(copy).config),
        ("summary.json", lambda copy: Run.open(copy).summary),
        ("episodes.csv", lambda copy: Run.open(copy).episodes),
        ("episodes.csv", resume),
    ],
)
def test_no_pipe_is_waited_for(copy, name, ask):
    (copy / name).unlink()
    os.mkfifo(copy / name)
    with at_most(10), contextlib.suppress(UserError):
        ask(copy)


def test_rows_that_are_a_link_to_a_file_of_the_user_are_left_alone(forged, work):
    copy = forged(lambda tree: tree.update(rows={"bytes": 0, "sha256": checksum(b"")}))
    (work / "precious").write_text("precious")
    (copy / "episodes.csv").unlink()
    (copy / "episodes.csv").symlink_to(work / "precious")
    resume(copy)
    assert (work / "precious").read_text() == "precious"


def test_chunks_that_are_a_link_to_a_folder_of_the_user_are_left_alone(copy, work):
    precious = shutil.copytree(copy / "checkpoint/chunks", work / "elsewhere") / ("a" * 64)
    precious.write_text("precious")
    shutil.rmtree(copy / "checkpoint/chunks")
    (copy / "checkpoint/chunks").symlink_to(work / "elsewhere")
    resume(copy)
    assert precious.exists()
