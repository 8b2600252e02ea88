"""Runs that die at a chosen moment, in children of this process, and what must hold of the folders they leave.

A child is forked, so that torch is imported once, and is killed by its own hand: at every moment that
it passes (a point of writing, a call of the agent, ...) it asks a `Blow` whether this is the one.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from explore_plugins.bsuite import Bsuite
from explore_plugins.cartpole_swingup import CartpoleSwingup
from explore_plugins.deep_sea import DeepSea
from explore_plugins.indexed_agent import Indexed

from explore._cli import main as cli
from explore._learning.learner import Learner
from explore._running.experiment import Experiment
from explore._storage import files
from explore._storage.checkpoints import StoredArray
from explore._storage.episodes_csv import format_rows
from explore._storage.run_folder import Run
from explore._storage.run_writer import RunWriter

CALLS = (
    (Bsuite, "step"),
    (CartpoleSwingup, "step_lanes"),
    (DeepSea, "step_lanes"),
    *((Indexed, name) for name in ("begin_episode", "learn", "act", "observe", "learn_online", "begin_evaluation")),
    *((Experiment, name) for name in ("state_dict", "load_state_dict")),
    *((RunWriter, name) for name in ("resume", "add_rows")),
    (Learner, "_update"),
)
"""Methods before and after which there is a moment."""

ENDS = {
    -signal.SIGKILL: ["killed", "interrupted", "done"],  # the others: killed after its end
    128 + signal.SIGTERM: ["interrupted"],
    128 + signal.SIGINT: ["interrupted"],
}
"""How a child may end that was struck, and what its run is then."""

RESUMED = " (resumed)"
"""The end of the name of a moment in a run that was there already."""

MISSING = object()
"""Stands for an entry that one of two trees lacks."""

Blow = Callable[[str], int | None]
"""Given the moment that is passed, the signal to send, or None."""


@dataclass(frozen=True)
class Task:
    name: str
    recipe: str
    bindings: tuple[str, ...]


def spare(moment: str) -> None:
    """Does no harm."""


def at(number: int, among: str = "", sent: int = signal.SIGKILL) -> Blow:
    """Strikes at the n-th moment whose name begins like this."""
    left = number

    def blow(moment: str) -> int | None:
        nonlocal left
        left -= moment.startswith(among)
        return sent if left == 0 and moment.startswith(among) else None

    return blow


def in_turn(*blows: Blow) -> Blow:
    """Lets each of them strike."""
    return lambda moment: max((number for blow in blows if (number := blow(moment)) is not None), default=None)


def at_new_points(seen: set[tuple[str, int]], sort: Callable[[str, int], tuple[str, int]]) -> Blow:
    """Strikes at the first point of writing of a sort not in `seen`; the n-th time in a process may be a sort too."""
    passed: Counter[str] = Counter()

    def blow(moment: str) -> int | None:
        if not moment.startswith("point"):
            return None
        passed[moment] += 1
        return None if sort(moment, passed[moment]) in seen else signal.SIGKILL

    return blow


def held(number: int, place: Path) -> Blow:
    """Waits before the n-th rows are written until there is a file PLACE/sent: so long the run cannot end."""
    here, parent = at(number, "call before RunWriter.add_rows"), os.getpid()

    def blow(moment: str) -> None:
        if here(moment) is not None:
            (place / "held").touch()
            while not (place / "sent").exists() and os.getppid() == parent:
                time.sleep(0.001)

    return blow


@dataclass
class History:
    """A run that is begun, killed and resumed over and over; all the time it must keep to its uninterrupted twin."""

    task: Task
    place: Path
    twin: Outcome | None = None
    struck: list[str] = field(default_factory=list)  # the moments, in order

    def __post_init__(self) -> None:
        self.place.mkdir(parents=True)
        self.folder = self.place / "run"
        self.log = self.place / "log"

    def live(self, blow: Blow = spare, command: Sequence[str] = ()) -> int:
        """Begins the run or goes on with it, in a child; returns the code that this ends with, the folder checked."""
        return self.ended(self.begin(blow, command))

    def begin(self, blow: Blow, command: Sequence[str] = ()) -> int:
        """The child that begins the run or goes on with it, by a command other than the usual if one is given."""
        bindings = [word for binding in self.task.bindings for word in ("-b", binding)]
        usual = ["run", self.task.recipe, *bindings, "--out", str(self.folder), "--resume"]
        resumed = RESUMED if (self.folder / "run.json").exists() else ""

        def passed(moment: str) -> None:
            number = blow(moment + resumed)
            if number is not None:
                (self.place / "moment").write_text(moment + resumed)
                os.kill(os.getpid(), number)

        def work() -> int:
            watch(passed)
            return cli.main([*(command or usual), "--quiet"])

        return fork(work, self.log)

    def ended(self, child: int) -> int:
        """Waits for a child to end, checks the folder, and returns the exit code."""
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        with suppress(FileNotFoundError):
            self.struck.append((self.place / "moment").read_text())
            (self.place / "moment").unlink()
        assert code in (0, *ENDS), f"ended with {code}: {self}"
        self._check_folder(code)
        return code

    def strike_from_outside(self, number: int, rows: int, hold: int) -> int:
        """Sends a signal once there are so many rows, to a child that cannot end before its `hold`-th episode."""
        held_now, sent = self.place / "held", self.place / "sent"
        child = self.begin(held(hold, self.place))
        while _is_alive(child) and not held_now.exists() and count_rows(self.folder) < rows:
            time.sleep(0.001)
        os.kill(child, number)
        sent.touch()
        code = self.ended(child)
        for path in (held_now, sent):
            path.unlink(missing_ok=True)
        self.struck.append(f"outside: {signal.Signals(number).name}")
        return code

    def moments(self) -> list[str]:
        """Those that the run passes if nobody strikes. It is done then."""
        path = self.place / "moments"
        with path.open("w", buffering=1) as file:
            assert self.live(lambda moment: print(moment, file=file)) == 0, self
        return path.read_text().splitlines()

    def check_end(self) -> None:
        """The run ended as its twin did; then its files may go."""
        assert self.twin is not None
        outcome = Outcome.of(self.folder)
        assert outcome.rows == self.twin.rows, f"other rows: {self}"
        assert outcome.summary == self.twin.summary, f"another summary: {self}"
        assert outcome.config == self.twin.config, f"another configuration: {self}"
        assert outcome.snapshots == self.twin.snapshots, f"other snapshots: {self}"
        different = [*differences(outcome.state, self.twin.state)]
        assert not different, f"another final state, at {different[:5]}: {self}"
        shutil.rmtree(self.place)

    def _check_folder(self, code: int) -> None:
        """What holds of a folder whenever nobody runs it, after this exit code."""
        for path in self.folder.glob("*.json"):
            json.loads(path.read_text())
        if code < 0 and not (self.folder / "run.json").exists():
            return
        run = Run.open(self.folder)
        assert run.status in {0: ["done"], **ENDS}[code], f"{run}: {self}"
        episodes, seeds = run.checkpoints.episodes(), len(run.info["seeds"])
        for episode in episodes:
            run.checkpoints.read(episode)
        assert len(run.episodes["episode"]) >= seeds * max(episodes, default=0), f"rows are lost: {self}"
        if self.twin is not None:
            rows = whole_rows(self.folder)
            assert rows == self.twin.rows[: len(rows)], f"other rows on the way: {self}"

    def __str__(self) -> str:
        printed = self.log.read_text()[-2000:] if self.log.exists() else ""
        return f"{self.task.name}, struck at {self.struck}\n{printed}"


@dataclass
class Outcome:
    """All of a run that must not depend on its having been interrupted."""

    rows: list[bytes]
    summary: bytes
    config: bytes
    snapshots: dict[str, bytes]
    state: Any

    @classmethod
    def of(cls, folder: Path) -> Outcome:
        run = Run.open(folder)
        assert run.status == "done"
        state = loaded(run.checkpoints.read(max(run.checkpoints.episodes())))
        del state["rows"]  # a checksum of the wall clock, too
        summary, config = ((folder / name).read_bytes() for name in ("summary.json", "config.gin"))
        snapshots = {path.name: path.read_bytes() for path in (folder / "snapshots").iterdir()}
        return cls(whole_rows(folder), summary, config, snapshots, state)


def fork(work: Callable[[], int], log: Path) -> int:
    """The process that does the work and ends with the exit code that it returns; what it prints is logged."""
    child = os.fork()
    return child or _work_and_exit(work, log)


def _work_and_exit(work: Callable[[], int], log: Path) -> NoReturn:
    code = 99
    try:
        sys.stdout = sys.stderr = log.open("a", buffering=1)
        for descriptor in (1, 2):
            os.dup2(sys.stdout.fileno(), descriptor)
        torch.set_num_threads(1)
        os.fsync = lambda descriptor: None  # type: ignore[assignment]  # only a power cut needs it, and it is slow
        code = work()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def watch(passed: Callable[[str], None]) -> None:
    """Has every moment of this process told; their names begin with "point" in writing, with "call" elsewhere."""
    files.crash_point = lambda point: passed(f"point {generic(point)}")
    for cls, name in CALLS:
        _tell_calls(cls, name, passed)
    add_rows = RunWriter.add_rows

    @wraps(add_rows)
    def torn(writer: RunWriter, rows: Any) -> None:
        path, text = writer.episodes.path, format_rows(writer.episodes.columns, rows).encode()
        size = path.stat().st_size
        with path.open("r+b", buffering=0) as file:
            file.seek(size)
            file.write(text[: len(text) * 2 // 3])
            passed("call amid RunWriter.add_rows")
            file.truncate(size)
        add_rows(writer, rows)

    RunWriter.add_rows = torn  # type: ignore[method-assign]


def _tell_calls(cls: type, name: str, passed: Callable[[str], None]) -> None:
    method = getattr(cls, name)

    @wraps(method)
    def told(*args: Any, **kwargs: Any) -> Any:
        passed(f"call before {cls.__name__}.{name}")
        result = method(*args, **kwargs)
        passed(f"call after {cls.__name__}.{name}")
        return result

    setattr(cls, name, told)


def generic(point: str) -> str:
    """A point of writing without the content that names a chunk."""
    return re.sub(r"[0-9a-f]{64}", "chunk", point)


def kind(moment: str) -> str:
    """A moment without the number of the episode."""
    return re.sub(r"\d{9}", "N", moment)


def once_each(moment: str, time: int) -> tuple[str, int]:
    """Every point as a sort of its own; a resumed run writes JSON and CSV files again, for reasons of its own."""
    if ".json" in moment or ".csv" in moment:
        return moment, time
    return moment.removesuffix(RESUMED), 1


def once_of_a_kind(moment: str, time: int) -> tuple[str, int]:
    """The same points of all episodes as one sort."""
    return once_each(kind(moment), time)


def once_of_a_step(moment: str, time: int) -> tuple[str, int]:
    """The same steps of all files as one sort, in a run that was there already as another."""
    resumed = RESUMED if moment.endswith(RESUMED) else ""
    return kind(moment).removesuffix(RESUMED).rpartition(": ")[2] + resumed, 1


def _is_alive(child: int) -> bool:
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


def count_rows(folder: Path) -> int:
    """Rows of `episodes.csv`, if that is there already."""
    try:
        return max(0, len(whole_rows(folder)) - 1)
    except FileNotFoundError:
        return 0


def whole_rows(folder: Path) -> list[bytes]:
    """The rows of `episodes.csv` without the wall clock and what is torn."""
    content = (folder / "episodes.csv").read_bytes()
    return [line.rpartition(b",")[0] for line in content[: content.rfind(b"\n") + 1].splitlines()]


def loaded(tree: Any) -> Any:
    """A checkpoint's tree with its arrays in memory."""
    if isinstance(tree, dict):
        return {key: loaded(entry) for key, entry in tree.items()}
    if isinstance(tree, list):
        return [loaded(entry) for entry in tree]
    return np.asarray(tree) if isinstance(tree, StoredArray) else tree


def differences(one: Any, other: Any, where: str = "state") -> Iterator[str]:
    """Where two trees are not the same to the bit."""
    if isinstance(one, list) and isinstance(other, list):
        one, other = dict(enumerate(one)), dict(enumerate(other))
    if isinstance(one, dict) and isinstance(other, dict):
        for key in one.keys() | other.keys():
            yield from differences(one.get(key, MISSING), other.get(key, MISSING), f"{where}.{key}")
    elif _to_bits(one) != _to_bits(other):
        yield where


def _to_bits(leaf: Any) -> Any:
    return (leaf.dtype, leaf.shape, leaf.tobytes()) if isinstance(leaf, np.ndarray) else (type(leaf), leaf)
