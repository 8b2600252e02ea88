"""Trees that are written as checkpoints, and what is found in the folder afterwards."""

import json

import numpy as np
import pytest

from explore._storage.checkpoints import Checkpoints, Damaged, StoredArray

CHUNK = 4096  # in these tests, which are about small files


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


def an_array(**changes):
    return {"$array": {"dtype": "<f4", "shape": [2], "chunks": []} | changes}
