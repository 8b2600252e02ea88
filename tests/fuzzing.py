"""Ways to mangle files, and what must hold of a command that reads them.

What is mangled is drawn from seeds, so that a failure repeats. A checkpoint is mangled in two ways: as bytes, which
its checksum must notice, and as the tree it holds with the checksum made right again, as a stranger could do.
"""

import contextlib
import hashlib
import io
import json
import os
import signal
from pathlib import Path

import explore
from explore._cli.main import main
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
    *({"$same": 0}, {"$sequence": ["set", [0, 0]]}, {"$float": "nan"}, {"$fixed": ["x"]}, {"$object": ["X", {}]}),
    *(
        {"$tuple": ["tuple", []]},
        {"$array": {}},
        {"$state": ["X", {}]},
        {"$generator": ["RandomState", {}]},
        {"$dict": ["X", [], []]},
        nested(30),
    ),
    *(nested(400), {"$array": {"dtype": "<f4", "shape": [0], "chunks": []}}),
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
    return f"explore checkpoint 2\n{hashlib.sha256(content).hexdigest()}\n".encode() + content


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


def first_array(tree):
    return next(parent[key] for parent, key in _places(tree) if key == "$array")


def environment(tree):
    """The attributes of the first environment."""
    return tree["task"]["$object"][1]["environments"][0]["$object"][1]


def checksum(content):
    return hashlib.sha256(content).hexdigest()
