"""Reading the folder of a run."""

import math
import subprocess
import sys
from pathlib import Path

import pytest
from recording import COLUMNS, create, row

from explore._storage.run_folder import Run
from explore.errors import UserError


@pytest.fixture(autouse=True)
def working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_run_reads_back_as_it_was_recorded():
    writer = create("out")
    writer.add_rows([row(0, treasure=1.0), row(7, evaluation=0.25)])
    writer.finish("done", {"task": "t"})
    again = Run.open(Path("out"))
    assert again.info == writer.run.info
    assert again.config == "experiment.episodes = 3\n"
    assert again.summary == {"task": "t"}
    assert tuple(again.episodes) == COLUMNS
    assert again.episodes["seed"].tolist() == [0, 7]
    assert again.episodes["evaluation"].tolist() == pytest.approx([math.nan, 0.25], nan_ok=True)


def test_a_run_that_is_not_over_can_be_read():
    create("out")
    run = Run.open(Path("out"))
    assert run.status == "running"
    assert all(column.shape == (0,) for column in run.episodes.values())
    with pytest.raises(UserError, match=r"^out/summary.json is missing: the run is not over"):
        _ = run.summary


def test_a_folder_that_is_no_run_is_refused_with_the_nearest_that_is():
    create("runs/pins_cartpole")
    Path("runs/other").mkdir()
    with pytest.raises(
        UserError, match=r"^there is no run folder runs/pins_cartpol; did you mean runs/pins_cartpole\?$"
    ):
        Run.open(Path("runs/pins_cartpol"))
    with pytest.raises(UserError, match=r"^there is no run folder nowhere/x$"):
        Run.open(Path("nowhere/x"))
    with pytest.raises(UserError, match=r"^runs/other is not the folder of a run: it has no run.json$"):
        Run.open(Path("runs/other"))


@pytest.mark.parametrize(
    ("file", "content", "problem"),
    [
        ("run.json", b'{"format": 1', "out/run.json is damaged: Expecting"),
        ("run.json", b"[]", "out/run.json is damaged: it holds no JSON object"),
        ("run.json", b'{"format": 99}', "out/run.json has format 99, this version reads 3"),
        ("summary.json", b"", "out/summary.json is damaged: Expecting"),
        ("summary.json", b"\xff", "out/summary.json is damaged: 'utf-8' codec"),
        ("episodes.csv", b"", "out/episodes.csv is damaged: its columns are not"),
        ("episodes.csv", b"seed,episode\n", "out/episodes.csv is damaged: its columns are not"),
        ("episodes.csv", b"%b0,1,0.5", "out/episodes.csv is damaged: line 2 has 3 cells, not 10"),
        (
            "episodes.csv",
            b"%b0,1,x,,,,,,,\n",
            "out/episodes.csv is damaged: column return: could not convert",
        ),
        ("episodes.csv", b'%b0,1,"0', "out/episodes.csv is damaged: unexpected end of data"),
    ],
)
def test_a_damaged_file_is_named_in_one_line(file, content, problem):
    create("out").finish("done", {})
    Path("out", file).write_bytes(content.replace(b"%b", ",".join(COLUMNS).encode() + b"\n"))
    with pytest.raises(UserError) as caught:
        run = Run.open(Path("out"))
        _ = run.summary, run.episodes
    assert str(caught.value).startswith(problem)
    assert "\n" not in str(caught.value)


def test_reading_a_run_needs_neither_torch_nor_gin():
    program = "import sys, explore._storage.run_folder; sys.exit(bool({'torch', 'gin'} & sys.modules.keys()))"
    subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parents[2], check=True, timeout=60)
