"""`explore sweep`: the grid and its names, what is refused, and cells that run, fail, crash, stop and go on."""

import io
import json
import re
import shutil
import signal
from pathlib import Path

import pytest
from explore_plugins import local_launcher
from forking import ForkedCommand, run_in_fork
from rich.console import Console
from sweeping import SIZES, TINY, bound, results, start, varied, write_plugin

import explore
from explore._cli.main import main
from explore._storage.files import Lock
from explore._storage.run_folder import Run
from explore._sweeps import progress as sweep_table
from explore._sweeps.grid import Sweep, read_sweep
from explore._sweeps.progress import CellState, Progress, draw_table, read_progress
from explore.errors import SweepFailed

TARGETS = "agent.Indexed.target = [@selection.MeanArgmax, @selection.SampledArgmax]"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty working folder; cells run in forks of this process, which is quicker."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(local_launcher, "Popen", ForkedCommand)
    return tmp_path


def names(*vary, recipes=("pins_deep_sea",)):
    return [cell.name for cell in Sweep(recipes, vary).cells()]


# The grid


def test_the_grid_is_every_recipe_with_every_value_of_all_that_varies():
    sweep = Sweep(("pins_deep_sea", "gin/bsp10_deep_sea.gin"), (SIZES, TARGETS), ("value.MLP.hidden = (16,)",), (0, 3))
    cells = sweep.cells()
    assert len(cells) == 8
    assert [cell.name for cell in cells[:3]] == [
        "pins_deep_sea,size=4,target=MeanArgmax",
        "pins_deep_sea,size=4,target=SampledArgmax",
        "pins_deep_sea,size=5,target=MeanArgmax",
    ]
    assert cells[-1].recipe == "gin/bsp10_deep_sea.gin"
    assert cells[-1].bindings == (
        "value.MLP.hidden = (16,)",
        "environment.DeepSea.size = 5",
        "agent.Indexed.target = @selection.SampledArgmax",
        "experiment.seeds = (0, 3)",
    )


def test_without_anything_that_varies_a_cell_is_called_after_its_recipe():
    assert names() == ["pins_deep_sea"]
    assert names(recipes=("pins_deep_sea", "dqn_deep_sea")) == ["pins_deep_sea", "dqn_deep_sea"]


def test_parameters_are_named_by_as_many_words_as_tell_them_apart():
    assert names(
        "value.MLP.hidden = [(8,)]", "uncertainty.SoftplusHeads.hidden = [(8, 4)]", "a/value.MLP.init = [1]"
    ) == ["MLP.hidden=8,SoftplusHeads.hidden=8_4,init=1"]
    assert names("a/value.MLP.init = [1]", "value.MLP.init = [2]") == ["a.value.MLP.init=1,value.MLP.init=2"]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ("[-0.5, 1e-4, None, True]", ["-0.5", "0.0001", "None", "True"]),
        ("['a b/c', '../x']", ["a_b_c", "x"]),
        ("[@schedule.Linear, 2]", ["Linear", "2"]),
    ],
)
def test_values_are_named_as_a_folder_can_be(values, expected):
    assert names(f"objective.X.sigma = {values}") == [f"sigma={text}" for text in expected]


@pytest.mark.parametrize("values", ["['a b', 'a/b']", "['x', 'X']", "['', '/']", f"['{'a' * 99}1', '{'a' * 99}2']"])
def test_values_too_long_or_too_much_alike_for_a_folder_get_a_hash(values):
    found = names(f"slot.Name.parameter = {values}")
    assert len({name.casefold() for name in found}) == 2
    assert all(re.fullmatch(r"parameter=[\w-]*[0-9a-f]{8}", name) and len(name) < 60 for name in found)


def test_a_name_made_of_many_parts_still_fits_a_folder():
    found = names(*(f"slot.Name.{letter * 30} = ['{letter * 30}', 1]" for letter in "abcd"))
    assert len(set(found)) == 16
    assert max(map(len, found)) <= 200


def test_recipes_of_one_name_in_two_folders_are_told_apart():
    assert len(set(names(recipes=("a/x.gin", "b/x.gin")))) == 2


def test_a_sweep_is_read_as_it_was_written(folder):
    sweep = Sweep(("pins_deep_sea", 'q"\\.gin'), (SIZES,), ("a.B.c = 'ä\x7f\n'",), (0, 2), ("p.py",))
    (folder / "x.toml").write_text(sweep.to_toml({"p.py": "digest"}))
    assert read_sweep(folder / "x.toml") == (sweep, {"p.py": "digest"})


def test_a_sweep_written_by_hand_takes_seeds_as_on_the_command_line(folder):
    (folder / "x.toml").write_text("recipes = ['pins_deep_sea']\nseeds = '0-2,7'\n")
    assert read_sweep(folder / "x.toml")[0] == Sweep(("pins_deep_sea",), seeds=(0, 1, 2, 7))


# What is refused, before anything is written


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (varied("environment.DeepSea.size = []"), "must bind one parameter to a list of values"),
        (varied("environment.DeepSea.size = 10"), "must bind one parameter to a list of values"),
        (
            varied("environment.DeepSea.size = (10, 20)"),
            "must bind one parameter to a list of values",
        ),
        (varied(""), "must bind one parameter to a list of values"),
        (varied("size = [1, 2]"), "must bind one parameter to a list of values"),
        (varied("environment.DeepSea.size = [4, 4]"), "4 is listed twice"),
        (varied("environment.DeepSea.size = [%n]"), "write the values themselves"),
        (varied("environment.DeepSea.size = [1"), "syntax error"),
        (varied(SIZES, "environment.DeepSea.size = [6]"), "environment.DeepSea.size is varied twice"),
        ([*varied(SIZES), "-b", "environment.DeepSea.size = 7"], 'is bound by -b "environment.DeepSea.size = 7" too'),
        ([*varied("experiment.seeds = [(0,), (1,)]"), "--seeds", "0-1"], "varied and set by --seeds too"),
        (varied("environment.DeepSee.size = [4, 5]"), "did you mean 'environment.DeepSea'?"),
        (varied("environment.DeepSea.sizes = [4, 5]"), "did you mean 'size'?"),
        (varied("environment.DeepSea.size = [4, 'five']"), "size must be an integer, got 'five'"),
        (varied("agent.Indexed.target = [@selection.MeanArgmx]"), "did you mean 'selection.MeanArgmax'?"),
        (varied("agent.Indexed.target = [@prior.Additive]"), "prior.Additive does not fit agent.Indexed.target"),
        (["-b", "value.MLP.hiden = (1,)"], "did you mean 'hidden'?"),
        (["--seeds", "0-x"], "is not a seed"),
        (["--jobs", "0"], "--jobs must be an integer of at least 1, got '0'"),
        (["--jobs", "many"], "--jobs must be an integer of at least 1, got 'many'"),
        (["--launcher", "locale"], "there is no such launcher; did you mean 'local'?"),
        (["--address", "here"], "launcher.Local has no parameter 'address'"),
        (["-b", "launcher.Local.jobs = 'two'"], "jobs must be an integer or None, got 'two'"),
        (["-b", "launcher.Ray.jobs = 2"], "the launcher is launcher.Local"),
        (["-p", "missing.py"], "plugin missing.py: there is no such file"),
        (varied(f"environment.DeepSea.size = {list(range(4, 70))}"), "the grid has 66 cells; add --yes if you mean it"),
    ],
)
def test_a_mistake_gets_one_line_and_nothing_is_written(folder, capsys, words, complaint):
    assert start(*words) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert complaint in line
    assert not any(folder.iterdir())


def test_a_mistake_in_what_varies_is_shown_where_it_is_written(capsys):
    assert start(*varied("environment.DeepSea.sizes = [4, 5]")) == 2
    assert '--vary "environment.DeepSea.sizes = [4, 5]": ' in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["pins_deep_see"], "did you mean 'pins_deep_sea'?"),
        (["pins_deep_sea", "pins_deep_sea"], "is named twice"),
        (["missing.toml"], "there is no sweep missing.toml"),
        (["pins_deep_sea", "x.toml"], "x.toml is a whole sweep; name it alone"),
    ],
)
def test_recipes_that_make_no_sweep_are_refused(capsys, words, complaint):
    assert start(recipes=words) == 2
    assert complaint in capsys.readouterr().err


def test_a_sweep_over_recipes_needs_a_folder(capsys):
    assert main(["sweep", "pins_deep_sea"]) == 2
    assert "--out DIR" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("recipes = 'x'", "recipes must be a list of strings"),
        ("recipes = [1]", "recipes must be a list of strings"),
        ("seeds = [0, 'x']", "seeds must be a string such as '0-4' or a list of integers"),
        ("seeds = 3", "seeds must be"),
        ("varied = []", "a sweep has no 'varied'; did you mean 'vary'?"),
        ("recipes = [", "cannot be read"),
        ("", "name a configuration to sweep over"),
    ],
)
def test_a_file_that_is_no_sweep_is_refused(folder, capsys, text, complaint):
    (folder / "x.toml").write_text(text)
    assert start(recipes=["x.toml"]) == 2
    assert complaint in capsys.readouterr().err
    assert not (folder / "out").exists()


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda out: out.write_text(""), "is something other than the folder of"),
        (lambda out: (out / "notes").mkdir(parents=True), "is something other than the folder of"),
        (
            lambda out: (out.mkdir(), (out / "run.json").write_text("{}")),
            "is something other than the folder of",
        ),
        (lambda out: (out.mkdir(), (out / "sweep.toml").write_text("recipes = []")), "holds another sweep"),
        (lambda out: (out.mkdir(), (out / "sweep.toml").write_text("=")), "cannot be read"),
    ],
)
def test_a_folder_that_holds_something_else_is_refused(folder, capsys, make, complaint):
    make(folder / "out")
    before = sorted(folder.rglob("*"))
    assert start() == 2
    assert complaint in capsys.readouterr().err
    assert sorted(folder.rglob("*")) == before


def test_two_sweeps_at_a_time_in_one_folder_are_refused(folder, capsys):
    (folder / "out").mkdir()
    with Lock(folder / "out"):
        assert start() == 2
    assert "is being run by process" in capsys.readouterr().err


# Sweeps that run


def test_a_cell_has_the_bytes_of_the_same_run_on_its_own(folder, capsys):
    assert start(*varied(SIZES, TARGETS), "--seeds", "0-1") == 0
    shown = capsys.readouterr().out
    assert "[0/4] size=4,target=MeanArgmax: running\n" in shown
    assert "size=5,target=SampledArgmax: done: 6/6 episodes, mean return of the last 100 -0.0" in shown
    assert shown.endswith("4 cells are done: out\n")
    alone = [*TINY, "environment.DeepSea.size = 5", "agent.Indexed.target = @selection.SampledArgmax"]
    explore.run("pins_deep_sea", bindings=alone, seeds=range(2), out="alone", quiet=True)
    assert results(folder / "out" / "size=5,target=SampledArgmax") == results(folder / "alone")


def test_only_what_is_missing_runs_by_the_same_command_and_by_the_file(folder, capsys):
    """Also: from Python, and with the file of a sweep."""
    (folder / "mine.toml").write_text(Sweep(("pins_deep_sea",), (SIZES,), TINY).to_toml())
    runs = explore.sweep("mine.toml", quiet=True)
    assert list(runs) == ["size=4", "size=5"]
    assert {run.status for run in runs.values()} == {"done"}
    there = Path("sweeps/mine")
    assert runs["size=4"].folder == there / "size=4"
    shutil.rmtree(there / "size=5")
    before = (there / "size=4" / "run.json").stat().st_mtime_ns
    assert main(["sweep", str(there / "sweep.toml")]) == 0
    told = capsys.readouterr()
    assert "note: 1 of 2 cells are done already" in told.err
    assert "size=4" not in told.out
    assert Run.open(there / "size=5").status == "done"
    assert start(*varied(SIZES), out=str(there)) == 0
    assert (there / "size=4" / "run.json").stat().st_mtime_ns == before
    assert start(*varied(SIZES), "--seeds", "0-1", out=str(there)) == 2
    assert "holds another sweep (--seeds differ)" in capsys.readouterr().err


def test_a_recipe_edited_since_is_refused(folder, capsys):
    (folder / "mine.gin").write_text("include 'pins_deep_sea.gin'\nenvironment.DeepSea.size = 4\n")
    assert start(recipes=["mine.gin"], out="out") == 0
    (folder / "mine.gin").write_text("# as before\ninclude 'pins_deep_sea.gin'\nenvironment.DeepSea.size = 4\n")
    assert start(recipes=["mine.gin"], out="out") == 0
    (folder / "mine.gin").write_text("include 'pins_deep_sea.gin'\nenvironment.DeepSea.size = 5\n")
    assert start(recipes=["mine.gin"], out="out") == 2
    assert "out was made with another mine.gin, edited since" in capsys.readouterr().err


def test_a_binding_without_effect_is_noted_once(folder, capsys):
    assert start(*varied("uncertainty.Ensemble.size = [2, 3]"), *bound("environment.DeepSea.size = 4")) == 0
    notes = [line for line in capsys.readouterr().err.splitlines() if "has no effect" in line]
    assert len(notes) == 2
    [recorded] = Run.open(folder / "out" / "size=2").info["notes"]
    assert f"explore: note: {recorded}" in notes


def test_a_cell_that_fails_does_not_stop_the_others_and_is_tried_again(folder, capsys):
    write_plugin(
        "moody.py",
        """
        from pathlib import Path

        from explore import hookimpl

        @hookimpl
        def explore_episode_finished(run, rows):
            if run.folder.name == "size=4" and rows[0]["episode"] == 3 and not Path("calm").exists():
                raise ValueError("not today")
        """,
    )
    words = [*varied(SIZES), "-p", "moody.py", "--jobs", "1"]
    assert start(*words) == 3
    told = capsys.readouterr()
    assert "[1/2] size=4: failed (explore_episode_finished of plugin moody raises ValueError: not today" in told.out
    assert "note: failed: size=4  explore_episode_finished of plugin moody" in told.err
    assert "error: 1 of 2 cells failed, 1 are done; to try those again: explore sweep out/sweep.toml" in told.err
    assert Run.open(folder / "out" / "size=5").status == "done"
    with pytest.raises(SweepFailed):
        explore.sweep("out/sweep.toml", quiet=True)
    (folder / "calm").touch()
    assert main(["sweep", "out/sweep.toml", "--quiet"]) == 0


def test_a_cell_that_is_killed_goes_on_from_its_checkpoint(folder, capsys):
    write_plugin(
        "deadly.py",
        """
        import os
        import signal

        from explore import hookimpl

        @hookimpl
        def explore_episode_finished(run, rows):
            if run.folder.name == "size=4" and rows[0]["episode"] == 4 and not run.resumed_after:
                os.kill(os.getpid(), signal.SIGKILL)
        """,
    )
    assert start(*varied(SIZES), "-p", "deadly.py") == 0
    assert "size=4: running (killed, begins again (1 of 2))" in capsys.readouterr().out
    info = json.loads((folder / "out" / "size=4" / "run.json").read_text())
    assert [resumed["after_episode"] for resumed in info["resumed"]] == [1]
    explore.run("pins_deep_sea", bindings=[*TINY, "environment.DeepSea.size = 4"], out="alone", quiet=True)
    assert results(folder / "out" / "size=4")[:2] == results(folder / "alone")[:2]


def test_a_cell_that_is_killed_every_time_is_given_up(capsys):
    write_plugin(
        "deadly.py",
        """
        import os
        import signal

        from explore import hookimpl

        @hookimpl
        def explore_run_started(run):
            print("again", file=open("tries", "a"))
            os.kill(os.getpid(), signal.SIGKILL)
        """,
    )
    assert start("-p", "deadly.py") == 3
    assert "killed by SIGKILL, again and again" in capsys.readouterr().err
    assert Path("tries").read_text() == "again\n" * 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_sweep_that_is_stopped_saves_its_cells_and_goes_on_to_the_same_end(folder, capsys, number):
    """The cell itself sends the signal to the sweep, and waits for the one that it gets in turn."""
    write_plugin(
        "stopping.py",
        f"""
        import os
        import signal

        from explore import hookimpl

        @hookimpl
        def explore_episode_finished(run, rows):
            if run.folder.name == "size=4" and rows[0]["episode"] == 3 and not run.resumed_after:
                signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
                os.kill(os.getppid(), {int(number)})
                signal.sigwait([signal.SIGTERM])
                signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
                os.kill(os.getpid(), signal.SIGTERM)
        """,
    )
    words = [*varied("environment.DeepSea.size = [4, 5]"), "-p", "stopping.py", "--jobs", "1"]
    stopped = run_in_fork("sweep", "pins_deep_sea", *bound(*TINY), "--out", "out", *words)
    assert stopped.returncode == 128 + number
    assert "interrupted: 0 of 2 cells are done; to resume: explore sweep out/sweep.toml --jobs 1" in stopped.stderr
    assert "[1/2] size=4: interrupted: 3/6 episodes" in stopped.stdout
    assert Run.open(folder / "out" / "size=4").status == "interrupted"
    assert not (folder / "out" / "size=5").exists()
    assert main(["sweep", "out/sweep.toml", "--jobs", "2", "--quiet"]) == 0
    explore.run("pins_deep_sea", bindings=[*TINY, "environment.DeepSea.size = 4"], out="alone", quiet=True)
    assert results(folder / "out" / "size=4")[:2] == results(folder / "alone")[:2]


# The table


def test_progress_is_read_from_the_end_of_a_long_file(folder, monkeypatch):
    rows = [
        f"{seed},{episode},{episode % 7 + seed},1,1,x,{episode / 10}" for episode in range(1, 301) for seed in (0, 1)
    ]
    (folder / "episodes.csv").write_text("\n".join(["seed,episode,return,length,steps,index,seconds", *rows, "0,301,"]))
    expected = sum(episode % 7 + 0.5 for episode in range(201, 301)) / 100
    assert read_progress(folder / "episodes.csv") == Progress(300, pytest.approx(expected), 30.0)
    monkeypatch.setattr(sweep_table, "TAIL", 30)
    assert read_progress(folder / "episodes.csv").episode == 300


def test_a_run_without_episodes_has_no_progress(folder):
    (folder / "episodes.csv").write_text("seed,episode,return,length,steps,seconds\n")
    assert read_progress(folder / "episodes.csv") is None


def test_a_live_table_shows_every_cell_or_those_that_matter(folder):
    console = Console(width=80, height=8, file=io.StringIO())
    states = [CellState(f"size={n}", folder / f"{n}", "done", progress=Progress(7, 0.25, 61)) for n in range(9)]
    states[8].state = "running"
    console.print(draw_table(states, console.height))
    shown = console.file.getvalue()
    assert re.search(r"size=8 +running +7/0 +0.25 +0:01:01", shown)
    assert "1 running, 8 done" in shown
    assert "size=7" not in shown
