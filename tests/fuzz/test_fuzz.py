"""Mangled gin files, records and checkpoints: refused in one line, or run as if nothing had been done to them."""

import contextlib
import os
import random

import pytest
from fuzzing import BEFORE, NEWEST, SIZES, alter, bound, goes_on_or_is_refused, mangle, mangled, orderly, resume, run

from explore._config.gin_files import list_recipes
from explore._storage import checkpoints as checkpoint
from explore._storage.run_folder import Run
from explore.errors import UserError

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
