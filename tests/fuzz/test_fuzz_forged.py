"""Checkpoints of a stranger, with other content and a checksum that is right, are refused or do no harm."""

import random

import pytest
from fuzzing import (
    CHUNK,
    NEWEST,
    OLDER,
    altered,
    at_most,
    checksum,
    environment,
    everything_in,
    first_array,
    orderly,
    readable,
    refused,
    reseal,
    resume,
    sealed_text,
)

from explore._storage.run_folder import Run

# A checkpoint of a stranger: other content, and a checksum that is right


@pytest.mark.parametrize("seed", range(60))
def test_an_altered_checkpoint_is_refused_and_left_alone_or_taken(copy, seed):
    """What is taken may be wrong about numbers, so only that the run ends in order can be claimed."""
    chance = random.Random(f"altered {seed}")
    reseal(copy / NEWEST, lambda tree: altered(tree, chance))
    (copy / OLDER).unlink()
    before = everything_in(copy)
    with at_most(20):
        code, lines = resume(copy)
    orderly(code, lines)
    assert code != 2 or everything_in(copy) == before
    if code == 0:
        assert Run.open(copy).status == "done"


@pytest.mark.parametrize("seed", range(30))
def test_the_agent_of_an_altered_checkpoint_is_loaded_or_refused(copy, seed):
    chance = random.Random(f"agent {seed}")
    reseal(copy / NEWEST, lambda tree: tree | {"agent": altered(tree["agent"], chance)})
    (copy / OLDER).unlink()
    readable(copy)


@pytest.mark.parametrize("name", ["../../../outside", "..", "/etc/passwd", "", "A" * 64, "a" * 63, "a" * 64 + "/", 7])
def test_a_chunk_has_no_name_but_a_checksum(forged, name):
    copy = forged(lambda tree: first_array(tree).update(chunks=[name]))
    (copy.parent / "outside").write_bytes(bytes(CHUNK))
    assert "a chunk's name is not a SHA-256" in refused(copy)
    readable(copy)


@pytest.mark.parametrize(
    "shape", [[2**40], [2**62, 4], [10**400], [0, 2**62, 2**62], [1] * 100, [-1], [2.0], [True], "9", [[1]], None]
)
def test_a_shape_that_does_not_fit_is_refused_before_anything_is_made_of_it(forged, shape):
    copy = forged(lambda tree: first_array(tree).update(shape=shape))
    assert "is damaged: an array" in refused(copy)
    readable(copy)


@pytest.mark.parametrize("dtype", ["|O", "|O8", "<V8", "|S5", "<M8[s]", "<f3", ">f4", "f4, f4", "", "<U99999999", 4])
def test_a_dtype_that_is_not_of_numbers_or_text_is_refused(forged, dtype):
    copy = forged(lambda tree: first_array(tree).update(dtype=dtype))
    assert "is damaged: an array" in refused(copy)


@pytest.mark.parametrize(
    "attribute",
    ["__class__", "__dict__", "__init__", "__getattr__", "reset", "step", "judge", "observation_spec", "close"],
)
@pytest.mark.parametrize("value", [0, {"$fixed": ["system"]}])
def test_no_method_or_class_can_be_put_on_an_object(forged, attribute, value):
    copy = forged(lambda tree: environment(tree).update({attribute: value}))
    assert "does not fit the configuration" in refused(copy)


@pytest.mark.parametrize(
    "thing",
    [
        {"$object": ["Popen", {"args": "touch marker"}]},
        {"$object": ["DeepSea", {}]},
        {"$object": ["Linear", {}]},
        {"$dict": ["Popen", [], []]},
        {"$sequence": ["Popen", []]},
        {"$state": ["Indexed", {}]},
        {"$fixed": ["system"]},
        {"$tuple": ["Popen", ["touch marker"]]},
        {"$step": "__class__"},
        {"$generator": ["Popen", {}]},
        {"$call": ["os.system", "touch marker"]},
        {"$object": ["DeepSea"]},
        {"$object": None},
        {"$same": 99},
        {"$same": [1]},
    ],
    ids=str,
)
def test_nothing_is_made_that_a_tree_names(forged, work, thing):
    copy = forged(lambda tree: environment(tree).update(_row=thing))
    assert "does not fit the configuration" in refused(copy)
    assert not (work / "marker").exists()


@pytest.mark.parametrize("episode", [-(2**63), -1, 0, 2, 5, 100, 10**400, 4.5, "4", None])
def test_the_progress_of_another_episode_is_refused(forged, episode):
    copy = forged(lambda tree: tree["progress"]["$object"][1].update(episode=episode))
    assert "does not fit the configuration" in refused(copy)


@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"$sequence":["set",', '{"$tuple":["tuple",'])
@pytest.mark.parametrize("depth", [300, 990, 200_000])
def test_a_checkpoint_that_is_too_deep_is_refused(copy, opening, depth):
    (copy / NEWEST).write_bytes(sealed_text(opening.encode() * depth))
    closed = {"[": "]", "{": "}"}
    closing = "".join(closed[letter] for letter in reversed(opening) if letter in closed)
    text = '{"agent":' + opening * depth + "0" + closing * depth + "}"
    (copy / OLDER).write_bytes(sealed_text(text.encode()))
    assert "cannot be used" in refused(copy)
    readable(copy)


@pytest.mark.parametrize("text", ["[" * 200_000, '{"a":' * 200_000, "9" * 5000, "NaN", "", "\0", '"\\ud800"', "{}"])
@pytest.mark.parametrize("name", ["run.json", "summary.json"])
def test_json_that_is_none_or_too_deep_is_refused(copy, name, text):
    (copy / name).write_text(text)
    readable(copy)
    if name == "run.json":
        assert f"{name} " in refused(copy)


@pytest.mark.parametrize("count", [0, 7, -4, 2**62, 10**30])
def test_a_checkpoint_that_is_wrong_about_its_rows_is_refused(forged, made, count):
    """With a checksum that fits: not whole rows, or more bytes than there can be."""
    content = (made / "episodes.csv").read_bytes()
    count = len(content) + count if count < 0 else count
    refused(forged(lambda tree: tree.update(rows={"bytes": count, "sha256": checksum(content[: min(count, 10**6)])})))


@pytest.mark.parametrize(
    "config",
    ["x = 1\nexperiment.seeds = %x", "a.b = b''", "a.b = " + "[" * 3000],
    ids=["macro", "bytes", "deep"],
)
def test_a_checkpoint_whose_configuration_is_none_is_refused(forged, config):
    refused(forged(lambda tree: tree.update(config=config)))


def test_a_state_that_makes_no_sense_ends_the_run_in_one_line(forged):
    orderly(*resume(forged(lambda tree: environment(tree).pop("size"))))
