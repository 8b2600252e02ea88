"""Mangled gin files, records and checkpoints: refused in one line, or run as if nothing had been done to them.

What is mangled is drawn from seeds, so that a failure repeats. A checkpoint is mangled in two ways: as bytes, which
its checksum must notice, and as the tree it holds with the checksum made right again, as a stranger could do.
"""

import contextlib
import hashlib
import io
import json
import os
import random
import shutil
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import explore
from explore._cli.main import main
from explore._config.gin_files import list_recipes
from explore._running import trainer
from explore._storage import checkpoints as checkpoint
from explore._storage.run_folder import Run
from explore.errors import UserError

SIZES = (
    "experiment.episodes = 2",
    "experiment.seeds = (0, 1)",
    "experiment.threads = 1",
    "environment.DeepSea.size = 3",
    "environment.CartpoleSwingup.max_time = 0.1",
    "agent.Indexed.batch_size = 4",
    "agent.Indexed.batches_per_episode = 1",
    "agent.Indexed.learn_every = None",
    "agent.Indexed.replay_capacity = 50",
    "agent.Indexed.min_replay = 2",
    "agent.Indexed.compile = False",
    "value.MLP.hidden = (8,)",
    "uncertainty.SoftplusHeads.hidden = (8,)",
    "uncertainty.SoftplusHeads.heads = 3",
    "uncertainty.Ensemble.size = 3",
    "objective.SampledTD.indices = 2",
    "selection.OptimisticArgmax.draws = 2",
)
"""Bound last, so that what is left valid is small and quick whatever a file says."""

BEFORE, AFTER = 4, 5
"""Episodes of the run that is mangled, and of the same when it is resumed."""
NEWEST, OLDER = "checkpoint/000000004.state", "checkpoint/000000002.state"
TINY = (
    *SIZES,
    "value.MLP.hidden = (16, 16)",
    "experiment.checkpoint_every = 2",
    "experiment.checkpoint_minutes = None",
)
CHUNK = 4096


@pytest.fixture(scope="module", autouse=True)
def steady():
    """What is mangled has the same length every time: no time passes. And small runs have chunks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "CHUNK", CHUNK)
        patch.setattr(trainer, "time", SimpleNamespace(perf_counter=lambda: 0.0))
        patch.setattr(sys, "argv", ["explore"])
        yield


class Hung(BaseException):
    """Nothing catches it on its way out."""


@contextlib.contextmanager
def at_most(seconds):
    """Raises `Hung` in what would wait for ever."""

    def give_up(*_):
        raise Hung

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(autouse=True)
def work(tmp_path_factory, monkeypatch):
    """An empty folder to work in, removed afterwards: there are hundreds."""
    folder = tmp_path_factory.mktemp("fuzz")
    monkeypatch.chdir(folder)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def made(steady, tmp_path_factory):
    """A finished run, which nobody may change."""
    folder = tmp_path_factory.mktemp("made") / "run"
    assert run("pins_deep_sea", *bound(*TINY, f"experiment.episodes = {BEFORE}"), "--out", folder) == (0, [])
    return folder


@pytest.fixture(scope="module")
def uninterrupted(steady, tmp_path_factory):
    """The same run with as many episodes as it has when it is resumed."""
    folder = tmp_path_factory.mktemp("uninterrupted") / "run"
    assert run("pins_deep_sea", *bound(*TINY, f"experiment.episodes = {AFTER}"), "--out", folder) == (0, [])
    return folder


@pytest.fixture
def copy(made, work):
    return shutil.copytree(made, work / "copy")


def bound(*bindings):
    return [word for binding in bindings for word in ("-b", binding)]


def run(*arguments):
    """The exit code of `explore run`, and the lines it says apart from those about bindings without effect."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        code = main(["run", *map(str, arguments), "--quiet"])
    return code, [line for line in said.getvalue().splitlines() if "has no effect in this run" not in line]


def orderly(code, lines):
    """Asserts that a command succeeded or was ended by one line that explains it; returns that line."""
    errors = [line for line in lines if not line.startswith("explore: note: ")]
    assert code in (0, 1, 2), lines
    assert len(errors) == (code != 0), lines
    assert all(line.startswith("explore: error: ") for line in errors), lines
    return "".join(errors)


def resume(folder):
    return run("--resume", folder, *bound(f"experiment.episodes = {AFTER}"))


def refused(folder):
    """Resumes a run that must be refused and left alone; returns the error."""
    before = everything_in(folder)
    code, lines = resume(folder)
    error = orderly(code, lines)
    assert code == 2, lines
    assert everything_in(folder) == before
    return error


def readable(folder):
    """Asserts that all that a folder is asked for is there or refused with a `UserError`, and nothing is changed."""
    before = everything_in(folder)
    for ask in (
        lambda: explore.load_agent(folder),
        lambda: Run.open(folder).episodes,
        lambda: Run.open(folder).summary,
        lambda: Run.open(folder).config,
        lambda: Run.open(folder).status,
    ):
        with contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(UserError):
            ask()
    assert everything_in(folder) == before


def everything_in(folder):
    """All that a folder holds but its lock, by path."""
    return {
        path.relative_to(folder): os.readlink(path) if path.is_symlink() else path.is_file() and path.read_bytes()
        for path in folder.rglob("*")
        if path.name != ".lock"
    }


def rows(folder):
    """`episodes.csv` without its last column, the wall clock."""
    return [line.rpartition(b",")[0] for line in Path(folder, "episodes.csv").read_bytes().splitlines()]


# Mangling


def mangled(content, chance, tokens=()):
    """Bytes with one to three edits."""
    for _ in range(chance.choice((1, 1, 1, 2))):
        content = chance.choice(EDITS)(content, chance, tokens)
    return content


def _span(content, chance):
    start = chance.randrange(len(content) + 1)
    return start, min(len(content), start + chance.choice((1, 1, 2, 8, 40, 400)))


def _flip(content, chance, tokens):
    start, _ = _span(content[:-1], chance)
    flipped = bytes(byte ^ 1 << chance.randrange(8) for byte in content[start : start + 1])
    return content[:start] + flipped + content[start + 1 :]


def _delete(content, chance, tokens):
    start, end = _span(content, chance)
    return content[:start] + content[end:]


def _duplicate(content, chance, tokens):
    start, end = _span(content, chance)
    return content[:end] + content[start:end] + content[end:]


def _insert(content, chance, tokens):
    start, _ = _span(content, chance)
    return content[:start] + chance.choice(tokens or [b"\0", b"\xff", b"\n", b'"', b"9", b","]) + content[start:]


def _overwrite(content, chance, tokens):
    start, end = _span(content, chance)
    return content[:start] + chance.randbytes(end - start) + content[end:]


def _truncate(content, chance, tokens):
    return content[: chance.randrange(len(content) + 1)]


def _splice(content, chance, tokens):
    (start, end), (there, _) = _span(content, chance), _span(content, chance)
    return content[:there] + content[start:end] + content[there:]


def _swap_lines(content, chance, tokens):
    lines = content.split(b"\n")
    one, other = chance.randrange(len(lines)), chance.randrange(len(lines))
    lines[one], lines[other] = lines[other], lines[one]
    return b"\n".join(lines)


def _other_value(content, chance, tokens):
    """Another right-hand side for a line of gin."""
    lines = content.split(b"\n")
    bindings = [number for number, line in enumerate(lines) if b"=" in line]
    if not bindings:
        return content
    number = chance.choice(bindings)
    values = [*tokens, *(lines[other].partition(b"=")[2] for other in bindings)]
    lines[number] = lines[number].partition(b"=")[0] + b"= " + chance.choice(values)
    return b"\n".join(lines)


EDITS = [_flip, _delete, _duplicate, _insert, _overwrite, _truncate, _splice, _swap_lines, _other_value]


def nested(depth):
    tree = 0
    for _ in range(depth):
        tree = [tree]
    return tree


ODD = (
    *(None, True, False, 0, 1, -1, 2**31, 2**63, -(2**63), 2**64, 10**30, 10**400, 0.5, -0.0, 1e308, float("nan")),
    *("", "x", "\ud800", "\0", "../../etc/passwd", "a\nb", "9" * 5000, [], {}, [[]], {"": 0}, [None] * 70),
    *({"$same": 0}, {"$set": [0, 0]}, {"$float": "nan"}, {"$fixed": ["x"]}, {"$object": ["X", {}]}, {"$tuple": []}),
    *({"$array": {}}, {"$state": ["X", {}]}, {"$generator": ["RandomState", {}]}, {"$dict": ["X", []]}, nested(30)),
    *(nested(400), {"$array": {"dtype": "<f4", "shape": [0], "chunks": [], "tail": [0, 0]}}),
)


def altered(tree, chance):
    """A copy of plain data with one to three places changed."""
    tree = {"root": json.loads(json.dumps(tree))}
    for _ in range(chance.choice((1, 1, 2, 3))):
        places = [*_places(tree)]
        parent, key = chance.choice(places)
        there, at = chance.choice(places)
        change = chance.randrange(6)
        if change == 0 and parent is not tree:
            del parent[key]
        elif change == 1:
            parent[key] = json.loads(json.dumps(there[at]))
        elif change == 2:
            parent[key] = [parent[key]]
        elif change == 3 and isinstance(parent[key], int | float):
            parent[key] = chance.choice((parent[key] + 1, -parent[key], parent[key] * 1000, float(parent[key]), 0))
        elif change == 4 and isinstance(parent, dict) and parent is not tree:
            parent[chance.choice(("__class__", "state_dict", "$same", "x", "train"))] = parent[key]
        else:
            parent[key] = chance.choice(ODD)
    return tree["root"]


def _places(tree):
    """Every place in plain data: what holds it, and its key or number there."""
    stack = [tree]
    while stack:
        parent = stack.pop()
        for key, value in parent.items() if isinstance(parent, dict) else enumerate(parent):
            yield parent, key
            if isinstance(value, dict | list):
                stack.append(value)


def as_json(tree):
    return json.dumps(tree).encode()


def opened(content):
    """The tree of a state file, and its blob."""
    _, _, manifest, blob = content.split(b"\n", 3)
    return json.loads(manifest), blob


def sealed(tree, blob):
    """A state file with a checksum that is right."""
    return sealed_text(as_json(tree), blob)


def sealed_text(manifest, blob=b""):
    content = manifest + b"\n" + blob
    return f"explore checkpoint 1\n{hashlib.sha256(content).hexdigest()}\n".encode() + content


# gin files

GIN = [
    token.encode("utf-8", "surrogatepass")
    for token in (
        *("@", "%", "()", "(", ")", "[", "]", "{", "}", "'", '"', '"""', "\\", "\\\n", "#", "=", ":", ",", ";", "/"),
        *("\0", "\t", "\r", "\f", "\n", "\n  ", "\n\n", "\ufeff", "é", "𝔘", "\u2028", "\ud800", "-", "+", "*", "~"),
        *("None", "True", "nan", "1e999", "-1", "0", "0.5", "1_0", "0x", "007", "1j", "2**70", "9" * 5000, "1e-400"),
        *("''", "b'x'", "f'x'", "'\\ud800'", "'\\0'", "...", "(1,)", "{}", "{1: 2}", "{[]: 1}", "{None: @value.MLP}"),
        *("import os\n", "import os.path as p\n", "from os import path\n", "include 'pins_deep_sea.gin'\n"),
        *("include 'mine.gin'\n", "include '/'\n", "include '\\0'\n", "include\n", "experiment.", "experiment:\n"),
        *("@a/value.MLP", "@selection.Boltzmann", "@uncertainty.Ensemble", "@prior.NoPrior()", "@experiment", "%m"),
        *("m = %m\n", "m = [%n, %n]\n", "a/b/", "@objective.SampledTD", "@environment.CartpoleSwingup", "9" * 400),
        *("@schedule.Linear", "@selection.EpsilonGreedy", "@uncertainty.Deterministic", "[" * 150, "[" * 3000),
        *("-" * 5000, "(" * 90 + ")" * 90, "1 " * 3, "lambda: 0", "__import__('os')", "'" + "x" * 9000 + "'"),
    )
]


def gin_texts():
    """Recipes to mangle, as they are and with what they include written out."""
    found = list_recipes()
    names = ("pins_deep_sea", "bsp5_deep_sea", "dqn_cartpole")
    texts = {name: found[name].read_bytes() for name in names}
    whole = found["deep_sea"].read_bytes() + texts["pins_deep_sea"].replace(b"include 'deep_sea.gin'\n", b"")
    return {**texts, "whole": whole}


@pytest.mark.parametrize("seed", range(75))
@pytest.mark.parametrize("recipe", gin_texts())
def test_a_mangled_gin_file_is_run_or_refused_in_one_line(work, recipe, seed):
    content = mangled(gin_texts()[recipe], random.Random(f"{recipe} {seed}"), GIN)
    (work / "mine.gin").write_bytes(content)
    code, lines = run("mine.gin", *bound(*SIZES), "--out", "out")
    orderly(code, lines)
    assert (code == 2) == (os.listdir(work) == ["mine.gin"])


# A finished run, one of its files mangled


def mangle(path, chance):
    path.write_bytes(mangled(path.read_bytes(), chance))


def alter(path, chance):
    """Changes JSON as JSON."""
    path.write_bytes(as_json(altered(json.loads(path.read_bytes()), chance)))


def reseal(path, change):
    """Changes the tree of a checkpoint and makes its checksum right."""
    tree, blob = opened(path.read_bytes())
    path.write_bytes(sealed(change(tree), blob))


def goes_on_or_is_refused(folder, uninterrupted):
    """Asserts that a run becomes the uninterrupted one, or is refused and left as it is."""
    readable(folder)
    before = everything_in(folder)
    code, lines = resume(folder)
    orderly(code, lines)
    if code == 0:
        assert rows(folder) == rows(uninterrupted)
        assert Run.open(folder).summary == Run.open(uninterrupted).summary
    else:
        assert code == 2, lines
        assert everything_in(folder) == before


@pytest.mark.parametrize("seed", range(16))
@pytest.mark.parametrize("name", ["episodes.csv", "run.json", "config.gin", NEWEST])
def test_a_run_with_a_mangled_file_goes_on_the_same_or_is_refused(copy, uninterrupted, name, seed):
    mangle(copy / name, random.Random(f"{name} {seed}"))
    goes_on_or_is_refused(copy, uninterrupted)


@pytest.mark.parametrize("seed", range(12))
def test_a_run_with_a_mangled_chunk_goes_on_the_same_or_is_refused(copy, uninterrupted, seed):
    chance = random.Random(f"chunk {seed}")
    mangle(chance.choice(sorted((copy / "checkpoint/chunks").iterdir())), chance)
    goes_on_or_is_refused(copy, uninterrupted)


@pytest.mark.parametrize("seed", range(30))
def test_a_run_with_other_things_in_its_run_json_goes_on_the_same_or_is_refused(copy, uninterrupted, seed):
    alter(copy / "run.json", random.Random(f"run.json {seed}"))
    goes_on_or_is_refused(copy, uninterrupted)


@pytest.mark.parametrize("seed", range(50))
@pytest.mark.parametrize("change", [mangle, alter])
def test_a_mangled_summary_is_read_or_refused(copy, change, seed):
    change(copy / "summary.json", random.Random(f"summary.json {seed}"))
    with contextlib.suppress(UserError):
        assert isinstance(Run.open(copy).summary, dict)


@pytest.mark.parametrize("seed", range(5))
def test_a_mangled_summary_does_not_matter_to_a_run_that_goes_on(copy, uninterrupted, seed):
    mangle(copy / "summary.json", random.Random(f"summary.json {seed}"))
    orderly(*resume(copy))
    assert Run.open(copy).summary == Run.open(uninterrupted).summary


@pytest.mark.parametrize("seed", range(100))
def test_mangled_rows_are_read_or_refused(copy, seed):
    mangle(copy / "episodes.csv", random.Random(f"rows {seed}"))
    with contextlib.suppress(UserError):
        assert list(Run.open(copy).episodes) == Run.open(copy).info["columns"]


@pytest.mark.parametrize("seed", range(40))
def test_a_damaged_newest_checkpoint_never_counts(copy, seed):
    """Its checksum is wrong, so the run has only the older one, which is whole."""
    chance = random.Random(f"damage {seed}")
    content = (copy / NEWEST).read_bytes()
    while (damaged := mangled(content, chance)) == content:
        pass
    (copy / NEWEST).write_bytes(damaged)
    with pytest.raises(checkpoint.Damaged):
        Run.open(copy).checkpoints.read(BEFORE)
    Run.open(copy).checkpoints.read(2)


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


@pytest.fixture
def forged(copy):
    """Changes the tree of the only checkpoint of a run, in place, and makes its checksum right."""

    def forge(change):
        def changed(tree):
            change(tree)
            return tree

        reseal(copy / NEWEST, changed)
        (copy / OLDER).unlink()
        return copy

    return forge


def first_array(tree):
    return next(parent[key] for parent, key in _places(tree) if key == "$array")


def environment(tree):
    """The attributes of the first environment."""
    return tree["task"]["$object"][1]["environments"][0]["$object"][1]


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
        {"$dict": ["Popen", []]},
        {"$state": ["Indexed", {}]},
        {"$fixed": ["system"]},
        {"$named": ["Popen", ["touch marker"]]},
        {"$enum": ["StepType", "__class__"]},
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


@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"$set":[0,', '{"$tuple":['])
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


# Code that comes with a folder is not run

EVIL = "from pathlib import Path\nPath('marker').touch()\n"


def test_an_import_in_the_configuration_of_a_run_is_refused(copy, work, monkeypatch):
    (work / "evil_of_fuzz.py").write_text(EVIL)
    monkeypatch.syspath_prepend(work)
    (copy / "config.gin").write_text("import evil_of_fuzz\n" + (copy / "config.gin").read_text())
    assert "'import evil_of_fuzz' would run code" in refused(copy)
    with pytest.raises(UserError, match="would run code"):
        explore.load_agent(copy)
    assert not (work / "marker").exists()


def test_an_import_in_the_configuration_of_a_checkpoint_is_not_run(forged, work, monkeypatch):
    (work / "evil_of_fuzz.py").write_text(EVIL)
    monkeypatch.syspath_prepend(work)
    copy = forged(lambda tree: tree.update(config="import evil_of_fuzz\n" + tree["config"]))
    orderly(*resume(copy))
    assert not (work / "marker").exists()


@pytest.mark.parametrize("source", ["evil_of_fuzz.py", "evil_of_fuzz", "entry point (evil 1.0)", "built in", None])
def test_a_plugin_that_a_folder_names_is_not_loaded(copy, work, monkeypatch, source):
    (work / "evil_of_fuzz.py").write_text(EVIL)
    monkeypatch.syspath_prepend(work)
    info = json.loads((copy / "run.json").read_text())
    info["plugins"].append({"name": "evil_of_fuzz", "version": "", "source": source, "sha256": ""})
    (copy / "run.json").write_text(json.dumps(info))
    readable(copy)
    orderly(*resume(copy))
    assert not (work / "marker").exists()


def test_a_plugin_that_a_folder_names_is_asked_for(copy, work):
    info = json.loads((copy / "run.json").read_text())
    info["plugins"].append({"name": "evil", "version": "", "source": "evil.py", "sha256": ""})
    (copy / "run.json").write_text(json.dumps(info))
    assert "was made with the plugin evil; add -p evil.py" in refused(copy)


# Links, folders and pipes where files should be


def test_a_checkpoint_that_is_a_link_does_not_count(copy, made, uninterrupted):
    (copy / NEWEST).unlink()
    (copy / NEWEST).symlink_to(made / NEWEST)
    before = everything_in(made)
    goes_on_or_is_refused(copy, uninterrupted)
    assert rows(copy) == rows(uninterrupted)
    assert everything_in(made) == before


def test_a_chunk_that_is_a_link_does_not_count(copy, made):
    for chunk in (copy / "checkpoint/chunks").iterdir():
        chunk.unlink()
        chunk.symlink_to(made / "checkpoint/chunks" / chunk.name)
    assert "it is not a file" in refused(copy)


@pytest.mark.parametrize("name", ["run.json", "config.gin", "summary.json"])
def test_a_file_that_is_a_link_is_replaced_and_what_it_leads_to_left_alone(copy, made, name):
    (copy / name).unlink()
    (copy / name).symlink_to(made / name)
    before = everything_in(made)
    orderly(*resume(copy))
    assert everything_in(made) == before


@pytest.mark.parametrize("make", [Path.touch, lambda path: path.symlink_to(path)], ids=["file", "loop"])
def test_a_folder_of_checkpoints_that_is_none_is_refused(copy, make):
    shutil.rmtree(copy / "checkpoint")
    make(copy / "checkpoint")
    readable(copy)
    line = refused(copy)
    assert "cannot read" in line or "is a link to elsewhere" in line


PLACES = {"pipe": os.mkfifo, "folder": os.mkdir, "loop": lambda path: path.symlink_to(path)}


@pytest.mark.parametrize(
    ("name", "place"),
    [
        *((name, place) for name in (NEWEST, ".lock", "checkpoint/chunks") for place in PLACES),
        *(
            (name, place)
            for name in ("run.json", "config.gin", "episodes.csv", "summary.json")
            for place in ("folder", "loop")
        ),
    ],
)
def test_what_is_not_a_file_is_passed_over_or_refused(copy, name, place):
    if (copy / name).is_dir():
        shutil.rmtree(copy / name)
    else:
        (copy / name).unlink()
    PLACES[place](copy / name)
    with at_most(20):
        readable(copy)
        orderly(*resume(copy))


# What the fuzz has found, each in its smallest form


HUGE = "1" + "0" * 400


@pytest.mark.parametrize(
    "binding",
    [
        "experiment.seeds = {[]: 1}",
        "experiment.seeds = b'x'",
        "experiment.episodes = 1j",
        "experiment.seeds = " + "[" * 3000,
        f"include '{'x' * 5000}'",
        f"objective.WassersteinTD.sigma = {HUGE}",
        f"prior.Additive.scale = {HUGE}",
        f"agent.Indexed.learning_rate = {HUGE}",
        f"experiment.checkpoint_minutes = {HUGE}",
    ],
    ids=lambda binding: binding[:40],
)
def test_values_that_are_none_are_refused(work, binding):
    (work / "mine.gin").write_text(f"include 'pins_deep_sea.gin'\n{binding}\n")
    sizes = [size for size in SIZES if not size.startswith("experiment.seeds")]
    code, lines = run("mine.gin", *bound(*sizes), "--out", "out")
    orderly(code, lines)
    assert code == 2


@pytest.mark.parametrize(
    "arguments",
    [["x" * 5000], ["pins_deep_sea", "--out", "o\0"], ["pins_deep_sea", "--seeds", "9" * 5000]],
    ids=["long name", "zero byte", "long seed"],
)
def test_arguments_that_nothing_can_be_called_by_are_refused(arguments):
    orderly(*run(*arguments, *bound(*SIZES)))


@pytest.mark.parametrize(
    "more",
    [{"plugins": [{"name": [], "source": "x"}]}, {"x": nested(700)}],
    ids=["plugin without a name", "deep"],
)
def test_a_run_json_of_the_wrong_form_is_refused(copy, more):
    info = json.loads((copy / "run.json").read_text()) | more
    (copy / "run.json").write_text(json.dumps(info))
    before = everything_in(copy)
    code, lines = resume(copy)
    orderly(code, lines)
    assert code == 0 or everything_in(copy) == before


def test_a_link_is_no_lock(copy):
    info = json.loads((copy / "run.json").read_text()) | {"status": "running"}
    (copy / "run.json").write_text(json.dumps(info))
    (copy / ".lock").unlink()
    (copy / ".lock").symlink_to("nowhere")
    assert Run.open(copy).status == "killed"


@pytest.mark.parametrize(
    ("name", "ask"),
    [
        ("run.json", lambda copy: Run.open(copy)),
        ("config.gin", lambda copy: Run.open(copy).config),
        ("summary.json", lambda copy: Run.open(copy).summary),
        ("episodes.csv", lambda copy: Run.open(copy).episodes),
        ("episodes.csv", resume),
    ],
)
def test_no_pipe_is_waited_for(copy, name, ask):
    (copy / name).unlink()
    os.mkfifo(copy / name)
    with at_most(0.5), contextlib.suppress(UserError):
        ask(copy)


def checksum(content):
    return hashlib.sha256(content).hexdigest()


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


def test_rows_that_are_a_link_to_a_file_of_the_user_are_left_alone(forged, work):
    copy = forged(lambda tree: tree.update(rows={"bytes": 0, "sha256": checksum(b"")}))
    (work / "precious").write_text("precious")
    (copy / "episodes.csv").unlink()
    (copy / "episodes.csv").symlink_to(work / "precious")
    resume(copy)
    assert (work / "precious").read_text() == "precious"


def test_chunks_that_are_a_link_to_a_folder_of_the_user_are_left_alone(copy, work):
    precious = shutil.copytree(copy / "checkpoint/chunks", work / "elsewhere") / ("a" * 64)
    precious.write_text("precious")
    shutil.rmtree(copy / "checkpoint/chunks")
    (copy / "checkpoint/chunks").symlink_to(work / "elsewhere")
    resume(copy)
    assert precious.exists()


def test_a_state_that_makes_no_sense_ends_the_run_in_one_line(forged):
    orderly(*resume(forged(lambda tree: environment(tree).pop("size"))))
