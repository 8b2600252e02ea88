import errno
import fcntl
import os
import re
import signal
import subprocess

import pytest

from explore._storage import files
from explore._storage.files import Lock, is_locked
from explore.errors import UserError


class PowerCut(BaseException):
    pass


def points_of(action, monkeypatch):
    """The points that an action passes."""
    points = []
    with monkeypatch.context() as patch:
        patch.setattr(files, "crash_point", points.append)
        action()
    return points


def in_another_process(action):
    """Runs an action in a forked process, says when it is done, and waits there to be killed."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            action()
            os.write(writer, b"!")
            signal.pause()
        finally:
            os._exit(1)
    os.close(writer)
    assert os.read(reader, 1) == b"!"
    os.close(reader)
    return child


def kill(process):
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(files, "PATIENCE", 0.0)


def test_a_file_is_made_of_its_pieces_and_replaced_as_a_whole(tmp_path):
    path = tmp_path / "file"
    files.write(path, b"one", "två", memoryview(b"three"))
    assert path.read_bytes() == "onetvåthree".encode()
    files.write(path, "")
    assert path.read_bytes() == b""
    assert os.listdir(tmp_path) == ["file"]


def test_the_folder_is_synced_after_the_rename_which_comes_after_the_content(tmp_path, monkeypatch):
    assert points_of(lambda: files.write(tmp_path / "file", "new"), monkeypatch) == [
        "file: part open",
        "file: part written",
        "file: part synced",
        "file: renamed",
        "file: folder synced",
    ]


@pytest.mark.parametrize("trouble", [PowerCut(), KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left")])
def test_a_write_that_fails_anywhere_leaves_the_old_file_or_the_new_one(tmp_path, monkeypatch, trouble):
    path = tmp_path / "file"
    for k in range(5):
        path.write_text("old")
        passed = []

        def crash_point(point, k=k, passed=passed):
            passed.append(point)
            if len(passed) == k + 1:
                raise trouble

        monkeypatch.setattr(files, "crash_point", crash_point)
        with pytest.raises(type(trouble)):
            files.write(path, "new")
        assert path.read_text() == ("old" if k < 3 else "new")
        assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_call_of_the_system_that_fails_is_reported_and_leaves_no_part(tmp_path, monkeypatch, call):
    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError, match="No space left"):
        files.write(tmp_path / "file", "new")
    assert os.listdir(tmp_path) == []


def test_a_part_left_by_a_crash_is_replaced_and_not_followed_where_it_links(tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("precious")
    (tmp_path / "file.part").symlink_to(precious)
    files.write(tmp_path / "file", "new")
    assert precious.read_text() == "precious"
    assert sorted(os.listdir(tmp_path)) == ["file", "precious"]


def test_file_systems_that_cannot_sync_a_folder_do_without(tmp_path, monkeypatch):
    def fail(number):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", lambda descriptor: fail(errno.EINVAL))
    files.sync_folder(tmp_path)
    monkeypatch.setattr(os, "fsync", lambda descriptor: fail(errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        files.sync_folder(tmp_path)


def test_the_second_to_lock_a_folder_is_told_who_holds_it(tmp_path, impatient):
    expected = f"{tmp_path} is being run by process {os.getpid()} on {os.uname().nodename}; wait for it, or stop it"
    with Lock(tmp_path), pytest.raises(UserError, match=re.escape(expected)):
        Lock(tmp_path).acquire()


def test_a_lock_can_be_taken_again_after_its_release(tmp_path):
    lock = Lock(tmp_path)
    for _ in range(2):
        lock.acquire()
        assert is_locked(tmp_path)
        lock.release()
        lock.release()
        assert not is_locked(tmp_path)


def test_a_refused_lock_disturbs_neither_the_holder_nor_his_name(tmp_path, impatient):
    with Lock(tmp_path):
        before = (tmp_path / ".lock").read_bytes()
        refused = Lock(tmp_path)
        with pytest.raises(UserError):
            refused.acquire()
        refused.release()
        assert is_locked(tmp_path)
        assert (tmp_path / ".lock").read_bytes() == before


def test_a_lock_holds_across_processes_and_is_freed_when_the_holder_is_killed(tmp_path, impatient):
    holder = in_another_process(Lock(tmp_path).acquire)
    try:
        assert is_locked(tmp_path)
        with pytest.raises(UserError, match=f"by process {holder} on "):
            Lock(tmp_path).acquire()
    finally:
        kill(holder)
    assert not is_locked(tmp_path)
    with Lock(tmp_path):
        assert str(os.getpid()) in (tmp_path / ".lock").read_text()


def test_a_child_made_by_subprocess_does_not_keep_the_lock_of_a_holder_that_was_killed(tmp_path):
    (stdin, question), (answer, stdout) = os.pipe(), os.pipe()

    def hold():
        Lock(tmp_path).acquire()
        subprocess.Popen(["cat"], stdin=stdin, stdout=stdout, close_fds=False)

    kill(in_another_process(hold))
    assert not is_locked(tmp_path)
    os.write(question, b"alive")
    assert os.read(answer, 5) == b"alive"
    for descriptor in (stdin, question, answer, stdout):
        os.close(descriptor)


def test_a_released_lock_is_free_although_a_forked_child_lives_on(tmp_path):
    lock = Lock(tmp_path)
    lock.acquire()
    child = in_another_process(lambda: None)
    try:
        lock.release()
        assert not is_locked(tmp_path)
    finally:
        kill(child)


def test_a_reader_who_looks_at_the_lock_for_a_moment_does_not_stop_a_run(tmp_path, monkeypatch):
    (tmp_path / ".lock").touch()
    reader = os.open(tmp_path / ".lock", os.O_RDONLY)
    fcntl.flock(reader, fcntl.LOCK_SH)
    monkeypatch.setattr(files.time, "sleep", lambda seconds: fcntl.flock(reader, fcntl.LOCK_UN))
    with Lock(tmp_path):
        assert is_locked(tmp_path)
    os.close(reader)


def test_to_ask_for_a_lock_makes_no_file(tmp_path):
    assert not is_locked(tmp_path)
    assert not is_locked(tmp_path / "nowhere")
    assert os.listdir(tmp_path) == []


def test_a_folder_that_cannot_have_a_lock_is_an_error_of_the_system(tmp_path):
    with pytest.raises(FileNotFoundError):
        Lock(tmp_path / "nowhere").acquire()
    (tmp_path / ".lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError):
        Lock(tmp_path).acquire()
    assert not (tmp_path / "elsewhere").exists()


def test_a_lock_with_odd_content_is_still_a_lock(tmp_path, impatient):
    with Lock(tmp_path):
        for content in (b"", b"\xff\xfe", b"a b c\nd"):
            (tmp_path / ".lock").write_bytes(content)
            with pytest.raises(UserError, match="by another process; wait for it"):
                Lock(tmp_path).acquire()
