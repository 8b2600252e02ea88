import errno
import hashlib
import json
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from explore._storage import checkpoints as checkpoint
from explore._storage import files
from explore._storage.checkpoints import Checkpoints, Damaged, StoredArray

CHUNK = 4096  # in these tests, which are about small files


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(checkpoint, "CHUNK", CHUNK)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "checkpoint"


class PowerCut(BaseException):
    pass


def noise(size, seed=0):
    return np.random.default_rng(seed).integers(256, size=size, dtype=np.uint8)


def tree_after(episode):
    """A run's state: a replay buffer that grows, weights that change, and a few words."""
    return {
        "episode": episode,
        "replay": noise(5 * CHUNK)[: CHUNK + 10 * episode],
        "weights": noise(2 * CHUNK + 100, seed=episode).view("<f4"),
        "judge": [None, True, 0.1, {"$tuple": ["solved", -3]}],
    }


def loaded(tree):
    if isinstance(tree, list):
        return [loaded(entry) for entry in tree]
    if isinstance(tree, dict):
        return {key: loaded(entry) for key, entry in tree.items()}
    return np.asarray(tree) if isinstance(tree, StoredArray) else tree


def same(one, other):
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    return type(one) is type(other) and one == other


def holds(folder, episode):
    return same(loaded(Checkpoints(folder).read(episode)), tree_after(episode))


def state_of(folder, episode):
    return folder / f"{episode:09d}.state"


def files_in(folder):
    """Name -> when it was written, and where it lies on the disk: what changes if a file is written again."""
    found = {path: path.stat() for path in folder.rglob("*") if path.is_file()}
    return {str(path.relative_to(folder)): (info.st_mtime_ns, info.st_ino) for path, info in found.items()}


def named_by(*states):
    """The chunks that states name."""
    manifests = [json.loads(state.read_bytes().split(b"\n")[2]) for state in states]

    def names(plain):
        if isinstance(plain, dict) and "$array" in plain:
            return set(plain["$array"]["chunks"])
        entries = plain.values() if isinstance(plain, dict) else plain if isinstance(plain, list) else []
        return set().union(*map(names, entries))

    return set().union(*map(names, manifests))


def is_tidy(folder):
    """No file that is half written, and no chunk that no state names."""
    chunks = {path.name for path in (folder / "chunks").iterdir()}
    return chunks == named_by(*folder.glob("*.state")) and not list(folder.glob("*.part"))


def assert_damaged(folder, episode, words="", checkpoints=None):
    with pytest.raises(Damaged, match=words) as caught:
        (checkpoints or Checkpoints(folder)).read(episode)
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)


def forge(folder, plain, blob=b"", line=b"explore checkpoint 2", episode=1):
    """A state whose checksum is right, whatever it holds."""
    manifest = plain if isinstance(plain, bytes) else json.dumps(plain).encode()
    content = manifest + b"\n" + blob
    folder.mkdir(exist_ok=True)
    digest = hashlib.sha256(content).hexdigest().encode()
    state_of(folder, episode).write_bytes(line + b"\n" + digest + b"\n" + content)


def an_array(**changes):
    return {"$array": {"dtype": "<f4", "shape": [2], "chunks": [], "tail": [0, 8]} | changes}


# Round trips


@pytest.mark.parametrize(
    "array",
    [
        *(np.arange(7).astype(kind) for kind in "?bBhHiIlLqQefdgFDG"),
        np.arange(7, dtype=">i4"),
        np.array(-2.5),
        np.array(True),
        np.zeros(0),
        np.zeros((3, 0, 2), np.int8),
        np.array([np.nan, np.inf, -0.0, 5e-324]),
        np.arange(CHUNK),
        np.arange(CHUNK // 8),
        np.arange(CHUNK // 8 + 1),
        np.asfortranarray(np.arange(10000).reshape(100, 100)),
        np.arange(10000)[::-3],
        np.arange(12000).reshape(3, 100, 40)[:, :77],
        np.arange(12000).reshape(3, 100, 40)[1, :77],
        np.arange(12000).reshape(3, 100, 40).transpose(2, 0, 1),
        np.broadcast_to(np.float32(3), (50, 70)),
    ],
    ids=lambda array: f"{array.dtype.str}{list(array.shape)}",
)
def test_an_array_is_read_as_it_was_written(folder, array):
    Checkpoints(folder).write(1, array)
    stored = Checkpoints(folder).read(1)
    expected = array.astype(array.dtype.newbyteorder("<"))
    assert (stored.dtype, stored.shape) == (expected.dtype, array.shape)
    assert same(np.asarray(stored), np.ascontiguousarray(expected).reshape(array.shape))


@pytest.mark.parametrize(
    "tree",
    [
        None,
        True,
        -(2**200),
        0.1,
        -0.0,
        "a\nb\0\ud800Ω",
        [],
        {},
        [[1, 1.0, True], {"": None, "$tuple": [], "$": {"$same": 3}}],
        {"b": 1, "a": [np.arange(3), {"deep": np.eye(2)}]},
    ],
)
def test_a_tree_is_read_as_it_was_written(folder, tree):
    Checkpoints(folder).write(1, tree)
    assert same(loaded(Checkpoints(folder).read(1)), tree)


def test_an_array_of_several_real_chunks_is_read_as_it_was_written(folder, monkeypatch):
    monkeypatch.undo()
    array = noise(3 * checkpoint.CHUNK + 12345)
    Checkpoints(folder).write(1, array)
    assert len(list((folder / "chunks").iterdir())) == 3
    assert same(np.asarray(Checkpoints(folder).read(1)), array)


def test_numpy_gets_the_type_it_asks_for_and_an_array_of_its_own(folder):
    checkpoints = Checkpoints(folder)
    checkpoints.write(1, np.arange(3))
    stored = checkpoints.read(1)
    assert np.asarray(stored, np.float32).dtype == np.float32
    one, other = np.array(stored), np.asarray(stored)
    one += 1
    assert other.tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="copy"):
        stored.__array__(copy=False)


@pytest.mark.parametrize(
    "thing",
    [
        {1, 2},
        b"bytes",
        1j,
        float("nan"),
        float("inf"),
        np.float32(1),
        np.array([None]),
        np.array(["2020"], "M8[s]"),
        np.zeros(2, [("a", "i4")]),
        10**5000,
    ],
    ids=lambda thing: type(thing).__name__,
)
def test_what_is_no_tree_is_refused_and_nothing_of_it_stays(folder, thing):
    checkpoints = Checkpoints(folder)
    checkpoints.write(1, tree_after(1))
    before = files_in(folder)
    with pytest.raises((TypeError, ValueError)):
        checkpoints.write(2, [noise(2 * CHUNK, seed=7), thing])
    assert files_in(folder) == before


def test_the_same_tree_makes_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        Checkpoints(tmp_path / name / "checkpoint").write(7, tree_after(7))
    one, two = (
        {path.name: path.read_bytes() for path in (tmp_path / name).rglob("*") if path.is_file()}
        for name in ("one", "two")
    )
    assert one == two


def test_the_format_is_the_documented_one(folder):
    checkpoints = Checkpoints(folder)
    checkpoints.write(3, {"a": np.arange(3, dtype="<i2"), "b": np.zeros(CHUNK + 2, np.int8)})
    first, checksum, rest = state_of(folder, 3).read_bytes().split(b"\n", 2)
    manifest, blob = rest.split(b"\n", 1)
    zeros = hashlib.sha256(bytes(CHUNK)).hexdigest()
    assert first == b"explore checkpoint 2"
    assert checksum.decode() == hashlib.sha256(rest).hexdigest()
    assert json.loads(manifest) == {
        "a": {"$array": {"dtype": "<i2", "shape": [3], "chunks": [], "tail": [0, 6]}},
        "b": {"$array": {"dtype": "|i1", "shape": [CHUNK + 2], "chunks": [zeros], "tail": [6, 2]}},
    }
    assert blob == b"\0\0\1\0\2\0" + b"\0\0"
    assert (folder / "chunks" / zeros).read_bytes() == bytes(CHUNK)


# What is written again, kept and removed


def test_nothing_is_written_before_the_first_checkpoint(folder):
    checkpoints = Checkpoints(folder)
    assert checkpoints.episodes() == []
    checkpoints.remove_after(0)
    assert_damaged(folder, 1, "is missing", checkpoints)
    assert not folder.exists()


@pytest.mark.parametrize("fresh", [False, True], ids=["same process", "resumed"])
def test_what_was_appended_to_is_not_written_again(folder, fresh):
    replay = noise(11 * CHUNK)
    checkpoints = Checkpoints(folder)
    checkpoints.write(1, replay[: 10 * CHUNK + 100])
    before = files_in(folder)
    assert len(before) == 11
    (Checkpoints(folder) if fresh else checkpoints).write(2, replay[: 10 * CHUNK + 200])
    after = files_in(folder)
    assert before.items() <= after.items()
    assert after.keys() - before.keys() == {"000000002.state"}


def test_only_the_chunk_that_changed_is_written_again(folder):
    checkpoints = Checkpoints(folder)
    replay = noise(10 * CHUNK)
    checkpoints.write(1, replay)
    before = files_in(folder)
    replay[4 * CHUNK + 5] ^= 1
    checkpoints.write(2, replay)
    assert len(files_in(folder).keys() - before.keys()) == 2
    assert same(np.asarray(checkpoints.read(2)), replay)


def test_equal_chunks_are_kept_once(folder):
    Checkpoints(folder).write(1, [np.zeros(20 * CHUNK, np.int8), np.zeros(3 * CHUNK)])
    assert len(files_in(folder)) == 2


def test_two_states_are_kept_and_the_chunks_they_name(folder):
    checkpoints = Checkpoints(folder)
    for episode in (10, 20, 30, 400):
        checkpoints.write(episode, tree_after(episode))
        assert is_tidy(folder)
    assert checkpoints.episodes() == Checkpoints(folder).episodes() == [400, 30]
    assert holds(folder, 400)
    assert holds(folder, 30)


def test_a_resumed_run_keeps_two_states_too(folder):
    for episode in (10, 20, 30, 40):
        Checkpoints(folder).write(episode, tree_after(episode))
        assert is_tidy(folder)
    assert Checkpoints(folder).episodes() == [40, 30]
    assert holds(folder, 40)
    assert holds(folder, 30)


def test_episodes_are_ordered_as_numbers(folder):
    checkpoints = Checkpoints(folder)
    for episode in (999_999_999, 1_000_000_000):
        checkpoints.write(episode, tree_after(1))
    assert checkpoints.episodes() == [1_000_000_000, 999_999_999]


def test_other_files_in_the_folder_are_left_alone(folder):
    others = [
        "agent.npz",
        "notes.state",
        "1.state",
        "0000000007.state",
        "note.part",
        "chunks/notes",
        f"chunks/{'A' * 64}",
    ]
    (folder / "chunks").mkdir(parents=True)
    for name in others:
        (folder / name).write_text(name)
    (folder / "000000003.state").mkdir()
    (folder / "chunks" / ("a" * 64)).mkdir()
    checkpoints = Checkpoints(folder)
    for episode in (10, 20, 30):
        checkpoints.write(episode, tree_after(episode))
    checkpoints.remove_after(0)
    assert checkpoints.episodes() == [3]
    assert files_in(folder).keys() == set(others)


def test_a_state_may_be_written_again(folder):
    checkpoints = Checkpoints(folder)
    checkpoints.write(1, tree_after(5))
    checkpoints.write(1, tree_after(1))
    assert checkpoints.episodes() == [1]
    assert holds(folder, 1)
    assert is_tidy(folder)


def test_what_was_after_the_resumed_episode_can_be_forgotten(folder):
    for episode in (10, 20):
        Checkpoints(folder).write(episode, tree_after(episode))
    Checkpoints(folder).remove_after(20)
    assert Checkpoints(folder).episodes() == [20, 10]
    Checkpoints(folder).remove_after(10)
    assert Checkpoints(folder).episodes() == [10]
    assert holds(folder, 10)
    assert is_tidy(folder)


def test_a_state_that_is_written_is_the_newest(folder):
    for episode in (10, 20, 15):
        Checkpoints(folder).write(episode, tree_after(episode))
    assert Checkpoints(folder).episodes() == [15, 10]
    assert is_tidy(folder)


def test_a_damaged_state_is_not_counted_among_the_two(folder):
    for episode in (10, 20):
        Checkpoints(folder).write(episode, tree_after(episode))
    state_of(folder, 20).write_bytes(b"damaged")
    Checkpoints(folder).write(30, tree_after(30))
    assert Checkpoints(folder).episodes() == [30, 10]
    assert holds(folder, 10)
    assert is_tidy(folder)


def test_the_chunks_of_a_state_written_before_are_kept_even_if_its_file_is_damaged_since(folder):
    checkpoints = Checkpoints(folder)
    checkpoints.write(10, tree_after(10))
    content = state_of(folder, 10).read_bytes()
    state_of(folder, 10).write_bytes(b"damaged")
    checkpoints.write(20, tree_after(20))
    state_of(folder, 10).write_bytes(content)
    assert holds(folder, 10)


@pytest.mark.parametrize("damage", ["content", "length", "link", "gone"])
def test_a_chunk_that_was_damaged_is_written_anew_when_the_run_comes_to_it_again(folder, tmp_path, damage):
    Checkpoints(folder).write(10, tree_after(10))
    chunk = sorted((folder / "chunks").iterdir())[0]
    content = chunk.read_bytes()
    if damage == "content":
        chunk.write_bytes(bytes(CHUNK))
    elif damage == "length":
        chunk.write_bytes(content + b"more")
    else:
        chunk.unlink()
    if damage == "link":
        (tmp_path / "elsewhere").write_bytes(content)
        chunk.symlink_to(tmp_path / "elsewhere")
    assert_damaged(folder, 10, chunk.name)
    Checkpoints(folder).write(10, tree_after(10))
    assert holds(folder, 10)


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
        (an_array(tail=[0]), "not described"),
        (an_array(tail={"0": 0, "1": 8}), "not described"),
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
        (an_array(tail=[-8, 8]), "natural"),
        (an_array(tail=[0.0, 8]), "natural"),
        (an_array(tail=[8, -8]), "natural"),
        (an_array(tail=[1, 8]), "does not fit"),
        (an_array(tail=[10**30, 0], shape=[0]), "does not fit"),
        (an_array(tail=[0, 10**15], shape=[10**15 // 4]), "does not fit"),
        (an_array(shape=[3]), "does not fit"),
        (an_array(shape=[]), "does not fit"),
        (an_array(shape=[10**4000]), "does not fit"),
        (an_array(shape=[2**62, 4]), "does not fit"),
        (an_array(tail=[0, 7]), "does not fit"),
        (an_array(shape=[0]), "does not fit"),
        (an_array(shape=[0, 2**62, 2**62], tail=[0, 0]), "too large"),
        (an_array(shape=[0, 2**70], tail=[0, 0]), "too large"),
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
    forge(folder, an_array(dtype="|b1", chunks=[name], shape=[CHUNK + 3], tail=[0, 3]), blob=b"\x02\x00\x01")
    (folder / "chunks").mkdir()
    (folder / "chunks" / name).write_bytes(content)
    stored = np.asarray(Checkpoints(folder).read(1))
    assert same(stored, np.array([*[True, False] * (CHUNK // 2), True, False, True]))


def test_an_honest_forgery_is_read(folder):
    forge(folder, [an_array(), an_array(shape=[1, 2, 1])], blob=np.array([1.0, 2.0], "<f4").tobytes())
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
