import io
import re
import sys
from functools import partial

import pluggy
import pytest
from explore_plugins import display as explore_display
from rich.console import Console

from explore import hooks
from explore._running.summary import summarise
from explore._storage.episodes_csv import episode_columns
from explore._storage.run_folder import Run
from explore._storage.run_writer import RunWriter
from explore.interfaces import Judge
from explore.tasks import Column, TaskDescription

TREASURES = (Column("treasure", "treasures", "sum"), Column("treasure", "first treasure", "first"))
AGENT = ("index", "mean_loss", "uncertainty_loss", "uncertainty")


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Clock:
    """Time that passes only when told to."""

    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture(autouse=True)
def surroundings(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setattr(explore_display, "perf_counter", clock := Clock())
    return clock


@pytest.fixture
def terminal(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(explore_display, "Console", partial(Console, file=terminal))
    return terminal


@pytest.fixture
def show(tmp_path, clock):
    """Plays a run to the plugin through its hooks; all seeds get the same returns."""
    manager = pluggy.PluginManager("explore")
    manager.add_hookspecs(hooks)
    manager.register(explore_display)
    manager.check_pending()

    def show(returns, *, seeds=2, episodes=None, seconds=0.1, treasure=False, status="done", quiet=False):
        writer = RunWriter.create(
            tmp_path / "out",
            name="pins",
            config="",
            task=TaskDescription(name="DeepSea", curve=("return", "sum"), columns=TREASURES if treasure else ()),
            columns=episode_columns(AGENT, ("treasure",) if treasure else ()),
            seeds=list(range(seeds)),
            episodes=episodes or len(returns),
            versions={},
            plugins=[],
            quiet=quiet,
        )
        run, judges = writer.run, {seed: Judge(None) for seed in range(seeds)}
        manager.hook.explore_run_started(run=run)
        for episode, value in enumerate(returns, start=1):
            clock.now += seconds
            rows = []
            for seed, judge in judges.items():
                judge.episode(value)
                row = {"seed": seed, "episode": episode, "return": value, "steps": 10 * episode}
                row |= {
                    "index": "z=1.5 head=3",
                    "mean_loss": 0.25,
                    "uncertainty_loss": None,
                    "uncertainty": 0.75,
                }
                rows.append(row | ({"treasure": value > 0} if treasure else {}))
            manager.hook.explore_episode_finished(run=run, rows=rows)
        summary = summarise(judges, task="t", steps=0)
        writer.finish(status, summary)
        manager.hook.explore_run_finished(run=run, summary=summary)

    return show


def frames(terminal):
    """The successive pictures on the terminal, without colours; the last is the final summary."""
    pictures = re.split(r"(?:\x1b\[2K|\x1b\[1A|\r)+", terminal.getvalue())
    return [re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]", "", picture) for picture in pictures if "episodes" in picture]


def test_a_quiet_run_prints_nothing(show, capsys):
    show([1.0], quiet=True)
    assert capsys.readouterr() == ("", "")


# Not a terminal


def test_a_pipe_gets_a_line_at_the_first_episode_and_at_every_tenth(show, capsys):
    show([0.0] * 200, seconds=0.001)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("episode")]
    assert [int(re.match(r"episode (\d+)/200", line)[1]) for line in lines] == [1, *range(20, 201, 20)]


def test_a_pipe_gets_a_line_every_ten_seconds(show, capsys):
    show([0.0] * 35, episodes=1000, seconds=1.0)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("episode")]
    assert [line.split("/")[0] for line in lines] == ["episode 1", "episode 11", "episode 21", "episode 31"]


def test_a_line_tells_time_returns_treasures_and_losses(show, capsys):
    show([0.0, 1.0], episodes=20, seconds=50.0, treasure=True)
    assert capsys.readouterr().out.splitlines()[1] == (
        "episode 2/20 (10%) 1:40, 15:00 left | mean of last 100 0.5 0.5 | best 1 1 | treasures 1 1 | first treasure 2 2"
        " | mean loss 0.25 | uncertainty loss -"
    )


def test_a_pipe_gets_no_escape_codes_even_if_colour_is_forced(show, capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    show([0.0] * 20)
    out = capsys.readouterr().out
    assert out.count("episode ") >= 10
    assert "\x1b" not in out


def test_lines_name_at_most_twelve_seeds(show, capsys):
    show([1.0], seeds=20)
    assert "| best 1 1 1 1 1 1 1 1 1 1 1 1 ... |" in capsys.readouterr().out


# A terminal


def test_a_terminal_shows_progress_and_a_row_per_seed(show, terminal):
    show([5.0, *[1.0] * 98, 3.0], episodes=200, seconds=0.3)
    picture = frames(terminal)[-2].splitlines()
    assert re.fullmatch(r"pins  \S+  100/200 episodes  30 s, 30 s left  67 steps/s", picture[0].strip())
    rows = [line.split() for line in picture if re.match(r" +[01] ", line)]
    assert rows == [[seed, "3", "1.06", "5", "5", "0.25", "-", "0.75"] for seed in "01"]


def test_the_mean_and_the_best_of_100_forget_what_is_older(clock):
    seed = explore_display.Seed([])
    for episode in range(1, 151):
        seed.add({"episode": episode, "return": 9.0 if episode == 1 else float(episode > 100)})
    assert seed.cells() == {"return": "1", "mean\nof 100": "0.5", "best": "9", "best\nof 100": "1"}


def test_treasures_are_counted_from_the_first(show, terminal):
    show([0.0, 0.0, 1.0, 0.0, 1.0], treasure=True, seconds=1.0)
    last, second = (re.search("^ +0 .*", frames(terminal)[place], re.MULTILINE)[0].split() for place in (-2, 2))
    assert last[4:6] == ["2", "3"]
    assert second[4:6] == ["0", "-"]


def test_a_terminal_is_redrawn_at_most_four_times_a_second(show, terminal):
    show([0.0] * 1000, seconds=0.001)
    drawn = [picture for picture in frames(terminal) if "steps/s" in picture]
    assert 3 <= len(drawn) <= 5


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_the_table_shows_the_columns_that_fit(show, terminal, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    show([0.123456] * 3)
    table = frames(terminal)[-2].splitlines()[1:]
    assert max(map(len, table)) <= width
    assert not any("\N{HORIZONTAL ELLIPSIS}" in line for line in table)
    assert ("uncertainty" in "".join(table)) == (width >= 60)
    assert ("head=3" in "".join(table)) == (width >= 120)


@pytest.mark.parametrize(("height", "rows"), [(24, 12), (10, 4)])
def test_many_seeds_do_not_flood_the_terminal(show, terminal, monkeypatch, height, rows):
    monkeypatch.setenv("LINES", str(height))
    show([0.0] * 3, seeds=20)
    picture = frames(terminal)[-2]
    assert len(re.findall(r"^ +\d+ ", picture, re.MULTILINE)) == rows
    assert f"and {20 - rows} more" in picture
    assert len(picture.rstrip().splitlines()) < height


@pytest.mark.parametrize("status", ["done", "interrupted", "failed"])
def test_the_terminal_is_restored_however_the_run_ends(show, terminal, status):
    stdout = sys.stdout
    show([0.0] * 3, episodes=10, status=status)
    out = terminal.getvalue()
    assert out.index("\x1b[?25l") < out.rindex("\x1b[?25h")  # the cursor, hidden and shown again
    assert sys.stdout is stdout
    assert frames(terminal)[-1].startswith(f"{status} after 3 of 10 episodes")
    assert explore_display.displays == {}


def test_a_run_interrupted_before_its_first_episode_ends_tidily(show, terminal):
    show([], episodes=10, status="interrupted")
    assert frames(terminal)[-1].startswith("interrupted after 0 of 10 episodes in 0 s: ")


def test_no_color_is_respected(show, terminal, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    show([0.0] * 3)
    assert not re.search(r"\x1b\[[0-9;]*\b(3[0-8]|9[0-7])\b[0-9;]*m", terminal.getvalue())


# The end


def test_the_end_says_what_each_seed_achieved_and_where_the_run_is(tmp_path, capsys):
    info = {"name": "pins", "status": "done", "seeds": [0, 4], "episodes": 3, "columns": []}
    run = Run(tmp_path / "out", info | {"task": TaskDescription(columns=TREASURES).to_json()})
    seeds = {
        "0": {"best_of_last_100": 0.99, "solved_at": 12},
        "4": {"best_of_last_100": -0.01, "solved_at": None},
    }
    explore_display.explore_run_started(run)
    explore_display.displays[run].seeds[0].add({"episode": 7, "return": 1.0, "treasure": 1})
    overall = {"share_solved": 0.5, "median_solved_at": None}
    explore_display.explore_run_finished(run, {"seeds": seeds, "overall": overall})
    assert capsys.readouterr().out.splitlines() == [
        f"done after 0 of 3 episodes in 0 s: {tmp_path / 'out'}",
        "1 of 2 seeds solved the task",
        "  seed 0: best of the last 100 0.99, solved at 12, first treasure at 7",
        "  seed 4: best of the last 100 -0.01",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.6, "1:00"), (370, "6:10"), (3599.9, "1:00:00"), (3723, "1:02:03")]
)
def test_times_read_as_on_a_clock(seconds, text):
    assert explore_display.clock(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.99, "0.99"),
        (1234.5, "1234"),
        (-0.0012345, "-0.00123"),
        (None, "-"),
        (float("nan"), "-"),
        ("z=1", "z=1"),
    ],
)
def test_numbers_are_short(value, text):
    assert explore_display.number(value) == text
