"""Checkpoints are read as they were written, and what has not changed is not written again."""

import hashlib
import json

import numpy as np
import pytest
from storing import CHUNK, assert_damaged, files_in, holds, is_tidy, loaded, noise, same, state_of, tree_after

from explore._storage import checkpoints as checkpoint
from explore._storage.checkpoints import Checkpoints


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(checkpoint, "CHUNK", CHUNK)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "checkpoint"


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
        "a": {"$array": {"dtype": "<i2", "shape": [3], "chunks": []}},
        "b": {"$array": {"dtype": "|i1", "shape": [CHUNK + 2], "chunks": [zeros]}},
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
