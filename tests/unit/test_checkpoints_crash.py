"""Whatever interrupts the writing of a checkpoint, a whole one remains."""

import errno
import os
import shutil
import signal
import stat
import subprocess
import sys
import textwrap

import pytest
from storing import CHUNK, files_in, holds, is_tidy, loaded, same, tree_after

from explore._storage import checkpoints as checkpoint
from explore._storage import files
from explore._storage.checkpoints import Checkpoints


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(checkpoint, "CHUNK", CHUNK)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "checkpoint"


class PowerCut(BaseException):
    pass


# Power cuts and full disks


def prepared(place):
    """A folder with two states and what a third will need: it changes some chunks and leaves others."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    checkpoints = Checkpoints(place / "checkpoint")
    for episode in (100, 200):
        checkpoints.write(episode, tree_after(episode))
    return checkpoints


def points_of(checkpoints, monkeypatch):
    """The points that a third write passes."""
    points = []
    with monkeypatch.context() as patch:
        patch.setattr(files, "crash_point", points.append)
        checkpoints.write(300, tree_after(300))
    return points


def assert_recovers(folder):
    """Whatever happened in writing 300: a new process finds a state that is whole, and can go on from it."""
    checkpoints = Checkpoints(folder)
    newest, *older = checkpoints.episodes()
    assert newest in (200, 300)
    assert holds(folder, newest)
    assert older
    assert holds(folder, older[0])
    checkpoints.read(newest)
    checkpoints.write(newest + 100, tree_after(newest + 100))
    assert checkpoints.episodes() == [newest + 100, newest]
    assert holds(folder, newest + 100)
    assert holds(folder, newest)
    assert is_tidy(folder)


def raising_at(k, trouble):
    passed = []

    def crash_point(point):
        passed.append(point)
        if len(passed) == k + 1:
            raise trouble

    return crash_point


def dying_at(k):
    passed = []

    def crash_point(point):
        passed.append(point)
        if len(passed) == k + 1:
            os.kill(os.getpid(), signal.SIGKILL)

    return crash_point


def test_a_write_passes_all_the_points_that_the_next_tests_cut_at(tmp_path, monkeypatch):
    points = points_of(prepared(tmp_path / "run"), monkeypatch)
    kinds = [point.split()[-1] for point in points]
    assert kinds.index("removed") > points.index("000000300.state: folder synced") > points.index("chunks synced")
    assert sum(point.endswith("part synced") for point in points) > 2
    assert {"open", "written", "synced", "renamed", "removed"} == set(kinds)
    assert "000000100.state removed" in points


def calls_of(action, monkeypatch):
    """The calls of the system by which an action changes what is on the disk, and the names they are about."""
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("the names of open files can be asked for on Linux only")
    calls = []

    def noting(call, name):
        real = getattr(os, call)

        def noted(*arguments, **options):
            calls.append((call, os.path.basename(name(*arguments))))
            return real(*arguments, **options)

        return noted

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", noting("fsync", lambda descriptor: os.readlink(f"/proc/self/fd/{descriptor}")))
        patch.setattr(os, "replace", noting("replace", lambda part, path: path))
        patch.setattr(os, "unlink", noting("unlink", lambda path: path))
        patch.setattr(os, "mkdir", noting("mkdir", lambda path, mode: path))
        action()
    return [(call, name) for call, name in calls if call != "unlink" or not name.endswith(".part")]


def test_content_is_on_the_disk_before_its_name_and_all_of_it_before_anything_is_removed(tmp_path, monkeypatch):
    checkpoints = prepared(tmp_path / "run")
    calls = calls_of(lambda: checkpoints.write(300, tree_after(300)), monkeypatch)
    *chunks, state = [name for call, name in calls if call == "replace"]
    assert state == "000000300.state"
    expected = [step for chunk in chunks for step in (("fsync", f"{chunk}.part"), ("replace", chunk))]
    expected += [("fsync", "chunks"), ("fsync", f"{state}.part"), ("replace", state), ("fsync", "checkpoint")]
    assert calls[: len(expected)] == expected
    assert calls[len(expected)] == ("unlink", "000000100.state")
    assert {call for call, _ in calls[len(expected) :]} == {"unlink"}


def test_new_folders_are_on_the_disk_before_what_is_in_them(tmp_path, monkeypatch):
    (tmp_path / "run").mkdir()
    calls = calls_of(lambda: Checkpoints(tmp_path / "run" / "checkpoint").write(1, tree_after(1)), monkeypatch)
    assert calls[:4] == [("mkdir", "checkpoint"), ("fsync", "run"), ("mkdir", "chunks"), ("fsync", "checkpoint")]


def test_what_is_forgotten_is_gone_from_the_disk(tmp_path, monkeypatch):
    checkpoints = prepared(tmp_path / "run")
    calls = calls_of(lambda: checkpoints.remove_after(100), monkeypatch)
    assert (calls[0], calls[-1]) == (("unlink", "000000200.state"), ("fsync", "checkpoint"))


def test_after_an_interruption_at_any_point_the_new_state_or_the_last_is_whole(tmp_path, monkeypatch):
    run = tmp_path / "run"
    for k in range(len(points_of(prepared(run), monkeypatch))):
        checkpoints = prepared(run)
        with monkeypatch.context() as patch, pytest.raises(PowerCut):
            patch.setattr(files, "crash_point", raising_at(k, PowerCut()))
            checkpoints.write(300, tree_after(300))
        assert_recovers(run / "checkpoint")


def test_after_a_kill_at_any_point_the_new_state_or_the_last_is_whole(tmp_path, monkeypatch):
    run = tmp_path / "run"
    found = set()
    for k in range(len(points_of(prepared(run), monkeypatch))):
        checkpoints = prepared(run)
        child = os.fork()
        if not child:
            files.crash_point = dying_at(k)
            try:
                checkpoints.write(300, tree_after(300))
            finally:
                os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        found.add(Checkpoints(run / "checkpoint").episodes()[0])
        assert_recovers(run / "checkpoint")
    assert found == {200, 300}


def test_after_a_kill_at_any_point_of_the_first_write_there_is_a_whole_state_or_none(tmp_path, monkeypatch):
    points = []
    with monkeypatch.context() as patch:
        patch.setattr(files, "crash_point", points.append)
        Checkpoints(tmp_path / "checkpoint").write(1, tree_after(1))
    for k in range(len(points)):
        shutil.rmtree(tmp_path / "checkpoint")
        child = os.fork()
        if not child:
            files.crash_point = dying_at(k)
            try:
                Checkpoints(tmp_path / "checkpoint").write(1, tree_after(1))
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        checkpoints = Checkpoints(tmp_path / "checkpoint")
        assert all(holds(tmp_path / "checkpoint", episode) for episode in checkpoints.episodes())
        checkpoints.write(2, tree_after(2))
        assert holds(tmp_path / "checkpoint", 2)
        assert is_tidy(tmp_path / "checkpoint")


def test_after_a_failure_at_any_point_the_others_are_as_they_were_and_nothing_half_written_stays(tmp_path, monkeypatch):
    run = tmp_path / "run"
    points = points_of(prepared(run), monkeypatch)
    for k in range(points.index("000000300.state: folder synced") + 1):
        checkpoints = prepared(run)
        before = files_in(run)
        with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
            patch.setattr(files, "crash_point", raising_at(k, OSError(errno.ENOSPC, "No space left on device")))
            checkpoints.write(300, tree_after(300))
        assert before.items() <= files_in(run).items()
        assert is_tidy(run / "checkpoint")
        checkpoints.write(300, tree_after(300))
        assert checkpoints.episodes() == [300, 200]
        assert_recovers(run / "checkpoint")


@pytest.mark.parametrize("call", ["open", "fsync", "replace", "unlink", "mkdir"])
@pytest.mark.parametrize("again", [False, True], ids=["once", "from then on"])
def test_whichever_call_of_the_system_fails_the_last_two_states_stay(tmp_path, monkeypatch, call, again):
    run = tmp_path / "run"
    real = getattr(os, call)
    for k in range(1000):
        checkpoints = prepared(run)
        calls = 0

        def failing(*arguments, k=k, **options):
            nonlocal calls
            calls += 1
            if calls == k + 1 or (again and calls > k):
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(*arguments, **options)

        with monkeypatch.context() as patch:
            patch.setattr(os, call, failing)
            try:
                checkpoints.write(300, tree_after(300))
            except OSError as error:
                assert error.errno == errno.ENOSPC
        if calls <= k:
            return
        assert checkpoints.episodes()[-2:] in ([200, 100], [300, 200])
        if not again:
            assert is_tidy(run / "checkpoint") or call == "unlink"
        assert_recovers(run / "checkpoint")
    pytest.fail("it never succeeds")


def test_a_state_that_is_written_again_is_whole_after_a_kill_at_any_point(tmp_path, monkeypatch):
    """As by a run that was resumed from it and interrupted at once, with something changed."""
    run = tmp_path / "run"
    new = tree_after(300) | {"episode": 200}
    points = []
    checkpoints = prepared(run)
    with monkeypatch.context() as patch:
        patch.setattr(files, "crash_point", points.append)
        checkpoints.write(200, new)
    for k in range(len(points)):
        checkpoints = prepared(run)
        with monkeypatch.context() as patch, pytest.raises(PowerCut):
            patch.setattr(files, "crash_point", raising_at(k, PowerCut()))
            checkpoints.write(200, new)
        found = loaded(Checkpoints(run / "checkpoint").read(200))
        assert same(found, new) or same(found, tree_after(200))
        assert is_tidy(run / "checkpoint") or "removed" in points[k]


def test_what_a_crash_left_makes_room_when_a_write_fails(tmp_path, monkeypatch):
    checkpoints = prepared(tmp_path / "run")
    orphan = checkpoints.chunks / ("a" * 64)
    orphan.write_bytes(bytes(CHUNK))
    orphan.with_name(orphan.name + ".part").touch()
    (checkpoints.folder / "000000300.state.part").touch()
    with monkeypatch.context() as patch, pytest.raises(OSError):
        patch.setattr(files, "crash_point", raising_at(0, OSError(errno.ENOSPC, "No space left on device")))
        checkpoints.write(300, tree_after(300))
    assert is_tidy(checkpoints.folder)


FULL_DISK = """
    import os, sys
    from pathlib import Path
    import numpy as np
    from explore._storage.checkpoints import Checkpoints

    run = Path(sys.argv[1])
    noise = np.random.default_rng(0).bytes(8 * 2**20)
    tree = lambda episode, size: {"episode": episode, "replay": np.frombuffer(noise, np.uint8)[:size]}
    checkpoints = Checkpoints(run / "checkpoint")
    checkpoints.write(1, tree(1, 2_000_000))
    checkpoints.write(2, tree(2, 2_500_000))
    before = sorted(path.name for path in run.rglob("*"))
    free = os.statvfs(run).f_bfree
    for size in range(4_500_000, 8_000_000, 250_000):
        try:
            checkpoints.write(3, tree(3, size))
        except OSError as error:
            assert error.strerror == "No space left on device", error
        else:
            raise AssertionError("there was room")
        assert sorted(path.name for path in run.rglob("*")) == before
        assert os.statvfs(run).f_bfree == free
    for episode, size in ((2, 2_500_000), (1, 2_000_000)):
        assert bytes(np.asarray(Checkpoints(run / "checkpoint").read(episode)["replay"])) == noise[:size]
    checkpoints.write(3, tree(3, 2_600_000))
    assert checkpoints.episodes() == [3, 2]
    print("whole")
"""


def test_on_a_disk_that_is_full_the_last_two_states_stay(tmp_path):
    def in_small_disk(*command):
        mount = 'mount -t tmpfs -o size=4m none "$0" && exec "$@"'
        return subprocess.run(
            ["unshare", "-rm", "sh", "-c", mount, str(tmp_path), *command], capture_output=True, text=True
        )

    if not shutil.which("unshare") or in_small_disk("true").returncode:
        pytest.skip("no disk can be mounted here")
    done = in_small_disk(sys.executable, "-c", textwrap.dedent(FULL_DISK), str(tmp_path))
    assert done.stdout == "whole\n", done.stderr


def test_files_are_readable_by_whom_the_user_allows(folder):
    mask = os.umask(0o022)
    try:
        Checkpoints(folder).write(1, tree_after(1))
    finally:
        os.umask(mask)
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*") if path.is_file()} == {0o644}
