"""A third party's grid world: the page's code, with its own pictures, numbers, section and command."""

import io
import json
import re
import tomllib
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from pages import DOCS, REPOSITORY, blocks, commands, install, write_files

import explore
from explore._cli.main import main

PAGE = DOCS / "howto" / "own_environment.md"
SMALL = [
    "experiment.environment = @environment.GridWorld", "environment.GridWorld.size = 3", "experiment.episodes = 60",
    "agent.Indexed.min_replay = 10", "agent.Indexed.batches_per_episode = 2", "selection.EpsilonGreedy.epsilon = 0.8",
]  # fmt: skip


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    """A run in the working folder of the page's files, and what was shown while it went; its package is installed."""
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as shown:
        patch.chdir(tmp_path_factory.mktemp("grid"))
        write_files([PAGE], Path.cwd())
        install(*map(tomllib.loads, blocks(PAGE, "toml")), patch)
        run = explore.run("dqn_deep_sea", bindings=SMALL, seeds=(0, 1), out="runs/grid")
        yield run, shown.getvalue()


@pytest.fixture
def page(grid, capsys):
    """The report on it."""
    assert main(["report", "runs/grid", "--out", "grid.html"]) == 0
    assert capsys.readouterr().err == ""
    return Path("grid.html").read_text()


def test_it_has_maps_of_its_own_with_its_marker(grid, page):
    run, _ = grid
    visits = run.snapshots.read(60)["visits"]
    assert visits.shape == (2, 3, 3)
    assert (visits[:, 1, :2] == -1).all() and (visits[:, 1, 2] >= 0).all()
    assert visits[:, 0, 0].min() > 0
    assert "A star marks: goal." in page
    assert "The wall is grey." in page


def test_its_curve_and_what_solves_it_are_in_the_report(page):
    for words in ("cumulative goal", "share of seeds solved", "ten episodes in a row reached the goal"):
        assert words in page


def test_its_score_is_compared(grid, page, capsys):
    run, _ = grid
    assert main(["compare", "runs/grid", "--json"]) == 0
    [row] = json.loads(capsys.readouterr().out)["configurations"]
    scores = [seed["score"] for seed in run.summary["seeds"].values()]
    assert row["score"][1] == pytest.approx(sum(scores) / 2)
    assert "Score (GridWorld): the share of all episodes that reached the goal." in page


def test_its_columns_are_displayed(grid):
    run, shown = grid
    goals = [int(run.episodes["goal"][run.episodes["seed"] == seed].sum()) for seed in (0, 1)]
    assert min(goals) > 0
    assert f"| goals {goals[0]} {goals[1]} |" in shown
    assert "| first goal " in shown


def test_its_section_is_in_the_report_after_learning(grid, page):
    run, _ = grid
    titles = re.findall("<h2>(.*?)</h2>", page)
    assert titles[titles.index("Learning") + 1] == "Goals"
    assert "Goals reached so far, 2 seeds. " in page
    assert page.count("<svg") > 3
    first = int(run.episodes["goal"][run.episodes["seed"] == 0].sum())
    assert f'<td class="number">0</td><td class="number">{first}</td>' in page


def test_its_command_reads_runs(grid, capsys):
    run, _ = grid
    [command] = [text for text, _ in commands(PAGE, "explore goals")]
    assert main(command.split()[1:]) == 0
    first, second = capsys.readouterr().out.splitlines()
    reached = [round(60 * seed["score"]) for seed in run.summary["seeds"].values()]
    assert first == f"grid, seed 0: {reached[0]} of 60 episodes"
    assert second == f"grid, seed 1: {reached[1]} of 60 episodes"


def test_its_package_is_listed(grid, capsys):
    assert main(["plugins"]) == 0
    told = capsys.readouterr().out
    assert "commands of plugins: export-bsuite, goals\n" in told
    assert "sections of reports by plugins: regret, goals\n" in told
    assert "environment.GridWorld" in told


def test_nothing_in_the_core_knows_it():
    core = [path for path in (REPOSITORY / "explore").rglob("*.py") if "templates" not in path.parts]
    assert [path for path in core if re.search(r"grid.?world", path.read_text(), re.IGNORECASE)] == []
