"""Checkpoints that are damaged or forged are refused in one line."""

import errno
import hashlib
import json
import os
import random

import numpy as np
import pytest
from storing import CHUNK, an_array, assert_damaged, holds, loaded, named_by, noise, same, state_of, tree_after

from explore._storage import checkpoints as checkpoint
from explore._storage.checkpoints import Checkpoints, Damaged


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(checkpoint, "CHUNK", CHUNK)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "checkpoint"


def forge(folder, plain, blob=b"", line=b"explore checkpoint 2", episode=1):
    """A state whose checksum is right, whatever it holds."""
    manifest = plain if isinstance(plain, bytes) else json.dumps(plain).encode()
    content = manifest + b"\n" + blob
    folder.mkdir(exist_ok=True)
    digest = hashlib.sha256(content).hexdigest().encode()
    state_of(folder, episode).write_bytes(line + b"\n" + digest + b"\n" + content)


# Damage


def only_in_the_newer(folder):
    return named_by(state_of(folder, 2)) - named_by(state_of(folder, 1))


def test_a_flipped_bit_anywhere_is_noticed_and_the_older_state_still_reads(folder):
    checkpoints = Checkpoints(folder)
    for episode in (1, 2):
        checkpoints.write(episode, tree_after(episode))
    own = [folder / "chunks" / name for name in sorted(only_in_the_newer(folder))]
    assert own
    random.seed(1)
    for path in [state_of(folder, 2), *own]:
        content = path.read_bytes()
        for place in {0, 19, 20, 21, 84, 85, 86, len(content) - 1, *random.sample(range(len(content)), 100)}:
            path.write_bytes(content[:place] + bytes([content[place] ^ (1 << place % 8)]) + content[place + 1 :])
            assert_damaged(folder, 2, path.name)
            assert_damaged(folder, 2, path.name, checkpoints)
        path.write_bytes(content + b"\0")
        assert_damaged(folder, 2, path.name)
        assert holds(folder, 1)
        path.write_bytes(content)
        assert holds(folder, 2)


def test_a_file_cut_short_anywhere_is_noticed_and_the_older_state_still_reads(folder):
    for episode in (1, 2):
        Checkpoints(folder).write(episode, tree_after(episode))
    for path in (state_of(folder, 2), folder / "chunks" / min(only_in_the_newer(folder))):
        content = path.read_bytes()
        for length in {*range(100), len(content) - 1, *range(100, len(content), 97)}:
            path.write_bytes(content[:length])
            assert_damaged(folder, 2, path.name)
        assert holds(folder, 1)
        path.write_bytes(content)


@pytest.mark.parametrize("which", ["state", "chunk"])
@pytest.mark.parametrize("kind", ["missing", "folder", "link", "loop", "pipe"])
def test_what_is_not_a_file_is_not_read(folder, tmp_path, which, kind):
    Checkpoints(folder).write(1, tree_after(1))
    path = state_of(folder, 1) if which == "state" else next((folder / "chunks").iterdir())
    path.rename(tmp_path / "elsewhere")
    if kind == "folder":
        path.mkdir()
    elif kind == "link":
        path.symlink_to(tmp_path / "elsewhere")
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "pipe":
        os.mkfifo(path)
    assert_damaged(folder, 1, path.name + (" is missing" if kind == "missing" else ": it is not a file"))


def test_what_the_system_does_not_let_us_read_is_said_in_its_words(folder, monkeypatch):
    Checkpoints(folder).write(1, tree_after(1))

    def refuse(*_):
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        assert_damaged(folder, 1, "cannot read .*000000001.state: Permission denied")
    with monkeypatch.context() as patch:
        patch.setattr(os, "listdir", refuse)
        with pytest.raises(Damaged, match=r"cannot read .*checkpoint: Permission denied"):
            Checkpoints(folder).episodes()


def test_an_array_that_is_damaged_between_reading_and_loading_is_noticed(folder):
    checkpoints = Checkpoints(folder)
    checkpoints.write(1, noise(CHUNK + 5))
    stored = checkpoints.read(1)
    state_of(folder, 1).unlink()  # all of which has been read
    path = next((folder / "chunks").iterdir())
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    with pytest.raises(Damaged, match=path.name):
        np.asarray(stored)
    path.unlink()
    with pytest.raises(Damaged, match=f"{path.name} is missing"):
        np.asarray(stored)
    path.write_bytes(content)
    assert same(np.asarray(stored), noise(CHUNK + 5))


@pytest.mark.parametrize(
    ("plain", "words"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        ("[]".encode("utf-16"), "not JSON"),
        (b"1" * 5000, "not JSON"),
        (b"[" * 100_000 + b"]" * 100_000, "too deep"),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, "too deep"),
        ({"$array": None}, "not described"),
        ({"$array": {}}, "not described"),
        (an_array(shape="2"), "not described"),
        (an_array(chunks=None), "not described"),
        (an_array(dtype=None), "not described"),
        (an_array(dtype="O"), "dtype"),
        (an_array(dtype="|O8"), "dtype"),
        (an_array(dtype="|V8"), "dtype"),
        (an_array(dtype="<M8[s]"), "dtype"),
        (an_array(dtype="<i3"), "dtype"),
        (an_array(dtype="<i8,<i8"), "dtype"),
        (an_array(dtype="(2,)<i4"), "dtype"),
        (an_array(dtype=">f4"), "dtype"),
        (an_array(dtype="<U0"), "dtype"),
        (an_array(dtype="<U99999999999"), "dtype"),
        (an_array(dtype="<f4\n"), "dtype"),
        (an_array(shape=[-2]), "natural"),
        (an_array(shape=[-1, -2]), "natural"),
        (an_array(shape=[2.0]), "natural"),
        (an_array(shape=[True, 2]), "natural"),
        (an_array(shape=["2"]), "natural"),
        (an_array(shape=[2] + [1] * 32), "natural"),
        (an_array(shape=[3]), "does not fit"),
        (an_array(shape=[10**4000]), "does not fit"),
        (an_array(shape=[2**62, 4]), "does not fit"),
        (an_array(shape=[0, 2**62, 2**62]), "too large"),
        (an_array(shape=[0, 2**70]), "too large"),
        (an_array(chunks=["../../etc/passwd"]), "name"),
        (an_array(chunks=["a" * 63]), "name"),
        (an_array(chunks=["a" * 64 + "\n"]), "name"),
        (an_array(chunks=["A" * 64]), "name"),
        (an_array(chunks=["/" * 64]), "name"),
        (an_array(chunks=[7]), "name"),
        (an_array(chunks=["a" * 64], shape=[2 + CHUNK // 4]), "a{64} is missing"),
        (an_array(chunks=["a" * 64]), "does not fit"),
        (an_array(dtype="<U2", shape=[1]), "dtype"),
    ],
    ids=lambda value: str(value)[:50] if isinstance(value, dict) else None,
)
def test_a_forged_state_is_refused(folder, plain, words):
    forge(folder, plain, blob=b"\xff" * 8)
    assert_damaged(folder, 1, words)


def test_bytes_that_are_no_bools_are_read_as_true(folder):
    content = b"\xff\x00" * (CHUNK // 2)
    name = hashlib.sha256(content).hexdigest()
    forge(folder, an_array(dtype="|b1", chunks=[name], shape=[CHUNK + 3]), blob=b"\x02\x00\x01")
    (folder / "chunks").mkdir()
    (folder / "chunks" / name).write_bytes(content)
    stored = np.asarray(Checkpoints(folder).read(1))
    assert same(stored, np.array([*[True, False] * (CHUNK // 2), True, False, True]))


def test_an_honest_forgery_is_read(folder):
    forge(folder, [an_array(), an_array(shape=[1, 2, 1])], blob=np.array([0.0, 0.0, 1.0, 2.0], "<f4").tobytes())
    assert same(loaded(Checkpoints(folder).read(1))[1], np.array([[[1.0], [2.0]]], "<f4"))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"explore checkpoint 1", "was written by another version: its format is 1, not 2"),
        (b"explore checkpoint 02", "another version"),
        (b"explore checkpoint \xd9\xa1", "does not begin like"),
        (b"explore checkpoint 2 ", "does not begin like"),
        (b"", "does not begin like"),
        (b"explore checkpoint " + b"1" * 500, "does not begin like"),
    ],
)
def test_other_formats_are_refused(folder, line, words):
    forge(folder, None, line=line)
    assert_damaged(folder, 1, words)


def test_random_edits_of_a_forged_manifest_are_read_or_damaged_and_nothing_else(folder):
    Checkpoints(folder).write(1, tree_after(1))
    _, _, manifest, blob = state_of(folder, 1).read_bytes().split(b"\n", 3)
    random.seed(2)
    alphabet = b'0123456789-.e[]{}",:$<|bUfO\xff\\u'
    for _ in range(1500):
        edited = bytearray(manifest)
        for _ in range(random.randint(1, 3)):
            place = random.randrange(len(edited))
            edited[place : place + random.randint(0, 2)] = random.choices(alphabet, k=random.randint(0, 2))
        forge(folder, bytes(edited), blob)
        try:
            loaded(Checkpoints(folder).read(1))
        except Damaged as error:
            assert "\n" not in str(error)
