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
import subprocess
import sys
from pathlib import Path

import pytest

import explore
from explore import checkpoint
from explore.cli import main
from explore.errors import RunFailed, UserError
from explore.gin_files import recipes
from explore.record import Run

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

BEFORE, AFTER = 4, 6
"""Episodes of the run that is mangled, and of the same when it is resumed."""


def bound(*bindings):
    return [word for binding in bindings for word in ("-b", binding)]


def command(*arguments):
    """The exit code of a command, what it says, and the error among that; fails on all but an orderly end."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        code = main(["run", *map(str, arguments), "--quiet"])
    lines = said.getvalue().splitlines()
    errors = [line.removeprefix("explore: error: ") for line in lines if line.startswith("explore: error: ")]
    strange = [line for line in lines if not line.startswith(("explore: error: ", "explore: note: "))]
    assert code in (0, 1, 2), said.getvalue()
    assert not strange, said.getvalue()
    assert len(errors) == (code != 0), said.getvalue()
    return code, (*errors, "")[0]


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
    for _ in range(chance.choice((1, 1, 2, 3))):
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
    *({"$same": 0}, {"$shared": [0, 0]}, {"$float": "nan"}, {"$fixed": "x"}, {"$object": ["X", {}]}, {"$tuple": []}),
    *({"$array": {}}, {"$state": ["X", {}]}, {"$generator": ["RandomState", {}]}, {"$int": "ff"}, nested(30)),
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
        *("@", "%", "()", "(", ")", "[", "]", "{", "}", "'", '"', '"""', "\\", "\\\n", "#", "=", ":", ",", ";", "/", "."),
        *("\0", "\t", "\r", "\f", "\n", "\n  ", "\n\n", "\ufeff", "é", "𝔘", "\u2028", "\ud800", "-", "+", "*", "~"),
        *("None", "True", "nan", "1e999", "-1", "0", "0.5", "1_0", "0x", "007", "1j", "2**70", "9" * 5000, "1e-400"),
        *("''", "b'x'", "f'x'", "'\\ud800'", "'\\0'", "...", "()", "(1,)", "{}", "{1: 2}", "{[]: 1}", "{None: @value.MLP}"),
        *("import os\n", "import os.path as p\n", "from os import path\n", "include 'pins_deep_sea.gin'\n"),
        *("include 'mine.gin'\n", "include '/'\n", "include '\\0'\n", "include\n", "experiment.", "experiment:\n"),
        *("@a/value.MLP", "@selection.Boltzmann", "@uncertainty.Ensemble", "@prior.NoPrior()", "@experiment", "%m"),
        *("m = %m\n", "m = [%n, %n]\n", "a/b/", "@objective.SampledTD", "@schedule.Linear", "@environment.CartpoleSwingup"),
        *("@environment.Bsuite", "@selection.EpsilonGreedy", "@uncertainty.Deterministic", "[" * 150, "[" * 3000),
        *("-" * 5000, "(" * 90 + ")" * 90, "1 " * 3, "lambda: 0", "__import__('os')", "'" + "x" * 9000 + "'"),
    )
]


def gin_texts():
    """Recipes to mangle, as they are and with what they include written out."""
    found = recipes()
    names = ("pins_deep_sea", "bsp5_deep_sea", "dqn_cartpole")
    texts = {name: found[name].read_bytes() for name in names}
    whole = found["deep_sea"].read_bytes() + texts["pins_deep_sea"].replace(b"include 'deep_sea.gin'\n", b"")
    return {**texts, "whole": whole}
