"""`explore run --resume` refuses what would break its promise, and names it."""

import json
import os
import textwrap
from itertools import pairwise
from pathlib import Path

import pytest
from resuming import GIVEN, STOPPING, bound, errors, outcome, plugin, resume, start, start_and_stop, stopping

from explore._native import library
from explore._native.library import SETTING
from explore._native.operations import HANDLERS
from explore._running import provenance
from explore._storage.files import Lock
from explore._storage.run_folder import Run


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def kernels(monkeypatch):
    """The variant of the kernels on this machine."""
    monkeypatch.delenv(SETTING, raising=False)
    try:
        return library.load_library().variant
    except library.NotAvailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def stopped():
    """A run of 3 of its 6 episodes."""
    return start_and_stop()


def test_another_configuration_is_named_and_refused(stopped, capsys):
    before = contents()
    assert resume(*GIVEN, *bound("agent.Indexed.learning_rate = 0.5", "experiment.threads = 2")) == 2
    [line] = errors(capsys)
    assert "agent.Indexed.learning_rate = 0.001 (now 0.5)" in line
    assert "experiment.threads = 1 (now 2)" in line
    assert line.endswith("Undo that, or resume it all the same with --force")
    assert contents() == before


def test_an_edited_configuration_is_named_and_refused(stopped, capsys):
    text = Path("out/config.gin").read_text()
    Path("out/config.gin").write_text(text.replace("discount            = 0.99", "discount = 0.5"))
    assert text != Path("out/config.gin").read_text()
    assert resume(*GIVEN) == 2
    assert "agent.Indexed.discount = 0.99 (now 0.5)" in errors(capsys)[0]


def test_another_version_of_torch_is_named_and_refused(stopped, capsys, monkeypatch):
    version = provenance.metadata.version
    monkeypatch.setattr(provenance.metadata, "version", lambda name: "3.0" if name == "torch" else version(name))
    assert resume(*GIVEN) == 2
    assert f"torch {version('torch')} (now 3.0)" in errors(capsys)[0]


def test_edited_code_of_explore_is_named_and_refused(stopped, capsys, monkeypatch):
    monkeypatch.setattr(provenance, "_digest_own_code", lambda: "other")
    assert resume(*GIVEN) == 2
    assert "it was made with explore (edited since)" in errors(capsys)[0]


def test_another_processor_is_named_and_refused(stopped, capsys, monkeypatch):
    monkeypatch.setattr(provenance, "machine", lambda: "abacus")
    assert resume(*GIVEN) == 2
    assert "(now abacus)" in errors(capsys)[0]


@pytest.fixture
def execute(monkeypatch):
    """Chooses what executes agents, as a new process would."""

    def execute(setting):
        monkeypatch.setenv(SETTING, setting)
        library.find_fill.cache_clear()

    yield execute
    library.find_fill.cache_clear()


def contents(folder="out"):
    return {path: path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


def test_pytorch_does_not_go_on_where_kernels_began(stopped, kernels, execute, capsys):
    before = contents()
    execute("off")
    assert resume(*GIVEN) == 2
    assert contents() == before
    assert errors(capsys) == [
        "explore: error: out cannot be resumed exactly: it was made with native kernels (now PyTorch: "
        "EXPLORE_KERNELS=off is set). Undo that, or resume it all the same with --force"
    ]
    assert resume(*GIVEN, "--force") == 0
    assert Run.open(Path("out")).execution == "PyTorch: EXPLORE_KERNELS=off is set"
    assert "explore: note: pins_deep_sea runs with PyTorch: EXPLORE_KERNELS=off is set" in capsys.readouterr().err


def test_kernels_do_not_go_on_where_pytorch_began(kernels, execute, capsys):
    execute("off")
    assert start("--quiet", out="whole") == 0
    start_and_stop()
    before = contents()
    execute("auto")
    assert resume(*GIVEN) == 2
    assert errors(capsys) == [
        "explore: error: out cannot be resumed exactly: it was made with PyTorch (now native kernels). Undo that, or "
        "resume it all the same with --force"
    ]
    assert contents() == before
    execute("off")
    assert resume(*GIVEN) == 0
    assert outcome("out") == outcome("whole")


def test_a_lost_compiler_is_named_and_refused(stopped, kernels, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(library, "find_compiler", lambda: lose("there is no C++ compiler (g++)"))
    library._load.cache_clear()
    assert resume(*GIVEN) == 2
    assert "(now PyTorch: there is no C++ compiler (g++))" in errors(capsys)[0]
    library._load.cache_clear()


def lose(reason):
    raise library.NotAvailable(reason)


def test_parts_that_pytorch_executes_are_a_difference(stopped, kernels, capsys, monkeypatch):
    for name in ("softplus", "log1p"):  # and what PyTorch would put in its place
        monkeypatch.delitem(HANDLERS, name)
    assert resume(*GIVEN) == 2
    [line] = errors(capsys)
    assert "it was made with native kernels (now native kernels; PyTorch for " in line
    assert "PyTorch for updates: the kernels have no log1p" in line


@pytest.mark.parametrize("recipe", ["pins_deep_sea", "hyperagent_deep_sea"])
def test_variants_of_the_kernels_are_one_path(recipe, kernels, execute):
    variants = [*library.VARIANTS][[*library.VARIANTS].index(kernels) :]
    assert start("--quiet", recipe=recipe, out="whole") == 0
    for before, after in pairwise([*variants, kernels]):
        execute(before)
        assert start("--quiet", *stopping(), recipe=recipe, out=before) == 130
        execute(after)
        assert resume(*GIVEN, out=before) == 0
        assert Run.open(Path(before)).info["execution"] == {"native kernels": after}
        assert outcome(before) == outcome("whole")


def test_an_edited_plugin_is_named_and_refused(stopped, capsys):
    with open("stopping.py", "a") as file:
        file.write("# now in better style\n")
    assert resume(*GIVEN) == 2
    assert "plugin stopping (edited since)" in errors(capsys)[0]


def test_code_that_a_plugin_imports_is_part_of_it(capsys, monkeypatch):
    monkeypatch.syspath_prepend(Path.cwd())
    Path("scales_of_mine.py").write_text("SCALE = 1.0\n")
    Path("unrelated_of_mine.py").write_text("")
    options = plugin("import scales_of_mine\n" + textwrap.dedent(STOPPING.format(episode=3, signal="SIGINT")))
    assert start("--quiet", *options) == 130
    Path("unrelated_of_mine.py").write_text("# changed")
    Path("scales_of_mine.py").write_text("SCALE = 2.0\n")
    assert resume(*options) == 2
    assert "plugin mine (edited since)" in errors(capsys)[0]


def test_a_plugin_must_be_given_again(stopped, capsys):
    assert resume() == 2
    assert errors(capsys) == ["explore: error: out was made with the plugin stopping; add -p stopping.py"]


def test_force_goes_on_and_is_recorded(stopped):
    assert resume(*GIVEN, "--force", *bound("agent.Indexed.learning_rate = 0.5")) == 0
    run = Run.open(Path("out"))
    assert run.info["resumed"][0]["forced"] == ["agent.Indexed.learning_rate = 0.001 (now 0.5)"]
    assert "learning_rate       = 0.5" in run.config
    assert len(run.episodes["seed"]) == 12


def test_even_force_cannot_put_a_state_where_it_does_not_fit(stopped, capsys):
    for binding in ("value.MLP.hidden = (8,)", "experiment.seeds = (0, 1, 2)", "environment.DeepSea.size = 5"):
        assert resume(*GIVEN, "--force", *bound(binding)) == 2
        assert "the checkpoint of episode 3 in out does not fit the configuration: " in errors(capsys)[0]
    assert resume(*GIVEN, "--force", *bound("experiment.evaluate_every = 2")) == 2
    assert "out cannot be resumed: episodes.csv would have other columns" in errors(capsys)[0]
    assert resume(*GIVEN) == 0


def test_episodes_that_are_over_cannot_be_taken_back(stopped, capsys):
    assert resume(*GIVEN, *bound("experiment.episodes = 2")) == 2
    assert "out has 3 episodes already, experiment.episodes = 2" in errors(capsys)[0]


def test_a_folder_with_a_run_is_not_overwritten(stopped, capsys):
    assert start("--quiet") == 2
    assert errors(capsys) == [
        "explore: error: out holds a run already; resume it with --resume, or choose another with --out"
    ]


def test_of_two_that_begin_at_once_one_is_refused(monkeypatch, capsys):
    acquire = Lock.acquire

    def late(lock):
        monkeypatch.setattr(Lock, "acquire", acquire)
        assert start("--quiet", out=str(lock.folder)) == 0  # in the moment before we have the lock
        acquire(lock)

    monkeypatch.setattr(Lock, "acquire", late)
    assert start("--quiet", bindings=["experiment.seeds = (5,)"]) == 2
    assert "out holds a run already" in errors(capsys)[0]
    assert Run.open(Path("out")).info["seeds"] == [0, 1]
    monkeypatch.setattr(Lock, "acquire", late)
    assert start("--quiet", "--resume", out="other") == 0
    assert "other is done, with 6 episodes" in capsys.readouterr().err


def test_two_processes_cannot_run_in_one_folder(stopped, capsys):
    with Lock(Path("out")):
        assert resume(*GIVEN) == 2
        assert f"out is being run by process {os.getpid()}" in errors(capsys)[0]
        assert Run.open(Path("out")).status == "interrupted"
    assert resume(*GIVEN) == 0


def test_a_run_that_is_going_is_running_and_one_that_was_killed_is_not(stopped):
    info = json.loads(Path("out/run.json").read_text())
    Path("out/run.json").write_text(json.dumps(info | {"status": "running"}))
    assert Run.open(Path("out")).status == "killed"
    with Lock(Path("out")):
        assert Run.open(Path("out")).status == "running"
