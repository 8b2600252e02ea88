"""New plugins: the package of any slot works at once; bad names are refused in one line, and nothing is written."""

import errno
import inspect
import os
import runpy
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

from explore._cli.main import main
from explore._cli.new_plugin import new_plugin
from explore._storage import files
from explore.hooks import SLOTS


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def install(monkeypatch):
    """Makes a package known as an editable installation does: its folder is on the path, with its entry points."""

    def install(package):
        project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
        information = package / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
        entries = [f"{name} = {module}" for name, module in project["entry-points"]["explore"].items()]
        (information / "entry_points.txt").write_text("\n".join(["[explore]", *entries]))
        monkeypatch.syspath_prepend(package)

    return install


def written(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


# What is written works


@pytest.mark.parametrize("slot", SLOTS)
def test_the_component_is_found_and_its_tests_pass(folder, install, capsys, slot):
    assert main(["new-plugin", f"new-{slot}", "--slot", slot]) == 0
    install(folder / f"new-{slot}")
    assert main(["components", slot]) == 0
    assert f"{slot}.New{slot.capitalize()}" in capsys.readouterr().out
    for name, test in runpy.run_path(f"new-{slot}/tests/test_new_{slot}.py").items():
        if name.startswith("test_"):
            test(*[folder for _ in inspect.signature(test).parameters])  # one takes tmp_path
    assert capsys.readouterr().err == ""  # no note of a binding without effect


@pytest.mark.parametrize("slot", SLOTS)
def test_every_parameter_has_a_meaning(folder, capsys, slot):
    new_plugin("novelty", slot)
    assert main(["describe", f"{slot}.Novelty", "-p", "novelty/novelty.py"]) == 0
    _, table = capsys.readouterr().out.split("meaning")
    assert all(len(line.split()) > 4 for line in table.strip().splitlines())


def test_the_package_passes_ruff(folder):
    rules = ["--isolated", "--line-length=120"]
    for slot in SLOTS:
        new_plugin("novelty", slot, out=slot)
        for command in (["format", "--check"], ["check", "--select=B,E,F,I,N,RUF,SIM,UP,W", "--ignore=B905"]):
            done = subprocess.run([sys.executable, "-m", "ruff", *command, *rules], cwd=slot, capture_output=True)
            assert done.returncode == 0, done.stdout.decode()


def test_pip_installs_it_and_its_tests_pass(folder):
    """Into an environment of its own, in which everything of this one can be imported."""
    main(["new-plugin", "decay", "--slot", "schedule"])  # whose tests are quick
    venv.create("venv", symlinks=True)
    [packages] = Path("venv").glob("lib/*/site-packages")
    (packages / "everything.pth").write_text("\n".join(filter(os.path.isdir, sys.path)))

    def python(*words):
        command = [folder / "venv/bin/python", "-P", "-m", *words]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(command, cwd="decay", env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    python("pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--editable", ".")
    assert "2 passed in" in python("pytest")  # and no warnings
    assert "schedule.Decay" in python("explore", "components", "schedule")
    [line] = [line for line in python("explore", "plugins").splitlines() if line.startswith("decay ")]
    assert line.split() == ["decay", "entry", "point", "(decay", "0.1.0)", "0.1.0", "schedule.Decay"]


# What is said


def test_it_prints_the_files_and_the_next_commands(capsys):
    assert main(["new-plugin", "cosine-heads"]) == 0
    assert capsys.readouterr().out == (
        "cosine-heads/pyproject.toml\n"
        "cosine-heads/README.md\n"
        "cosine-heads/cosine_heads.py\n"
        "cosine-heads/cosine_heads.gin\n"
        "cosine-heads/tests/test_cosine_heads.py\n"
        "\n"
        "Next:\n"
        "  cd cosine-heads\n"
        "  pip install -e '.[test]'\n"
        "  pytest\n"
        "  explore components uncertainty\n"
        "  explore run cosine_heads.gin\n"
    )


def test_a_launcher_is_tried_with_a_sweep(capsys):
    assert main(["new-plugin", "cluster", "--slot", "launcher", "--out", "my plugins/cluster"]) == 0
    out = capsys.readouterr().out
    assert "  cd 'my plugins/cluster'\n" in out
    assert "explore sweep cluster.gin" in out
    assert "--launcher Cluster" in out


# Names


@pytest.mark.parametrize(
    ("name", "project", "module", "cls"),
    [
        ("cosine-heads", "cosine-heads", "cosine_heads", "CosineHeads"),
        ("cosine_heads", "cosine-heads", "cosine_heads", "CosineHeads"),
        ("CosineHeads", "cosine-heads", "cosine_heads", "CosineHeads"),
        ("Heads", "heads", "heads", "Heads"),
        ("heads2", "heads2", "heads2", "Heads2"),
        ("heads-2", "heads-2", "heads_2", "Heads2"),
        ("DQNHeads", "dqn-heads", "dqn_heads", "DQNHeads"),
        ("my-plugin-SLOT", "my-plugin-slot", "my_plugin_slot", "MyPluginSLOT"),  # as the templates' own
    ],
)
def test_a_name_may_be_written_in_several_ways(folder, name, project, module, cls):
    new_plugin(name)
    own = folder / project
    assert written(own) == sorted(
        ["README.md", f"{module}.gin", f"{module}.py", "pyproject.toml", f"tests/test_{module}.py"]
    )
    assert f"class {cls}(ScaleModule):" in (own / f"{module}.py").read_text()
    assert f"@uncertainty.{cls}\n" in (own / f"{module}.gin").read_text()
    assert f"from {module} import {cls}\n" in (own / "tests" / f"test_{module}.py").read_text()
    assert tomllib.loads((own / "pyproject.toml").read_text())["project"]["name"] == project


BAD_NAME = "cannot name a plugin; write words of letters and digits, such as cosine-heads"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([""], f"'' {BAD_NAME}"),
        (["2heads"], f"'2heads' {BAD_NAME}"),
        (["cosine heads"], f"'cosine heads' {BAD_NAME}"),
        (["cosine--heads"], f"'cosine--heads' {BAD_NAME}"),
        (["_heads"], f"'_heads' {BAD_NAME}"),
        (["../heads"], f"'../heads' {BAD_NAME}"),
        (["heads\n"], BAD_NAME),
        (["größe"], f"'größe' {BAD_NAME}"),
        (["class"], "'class' is a keyword of Python; choose another name"),
        (["none"], "'none' is a keyword of Python; choose another name"),
        (["torch"], "there is a module 'torch' already; choose another name"),
        (["json"], "there is a module 'json' already; choose another name"),
        (["winreg"], "there is a module 'winreg' already; choose another name"),  # on Windows
        (["explore-rl"], "there is a package 'explore-rl' already; choose another name"),
        (["explore-plugins"], "there is a module 'explore_plugins' already; choose another name"),
        (
            ["SoftplusHeads"],
            "uncertainty.SoftplusHeads is supplied by explore_plugins.softplus_heads (built in) already",
        ),
        (["mlp", "--slot", "value"], "value.MLP is supplied by explore_plugins.mean_net (built in) already"),
        (["MLP"], "its module needs the name MLP for something else; choose another name"),
        (["prior", "--slot", "prior"], "its module needs the name Prior for something else; choose another name"),
        (["heads", "--slot", "uncertanty"], "unknown slot 'uncertanty'; did you mean 'uncertainty'?"),
        (["heads", "--slot", "brain"], "unknown slot 'brain'; there are: agent, bonus, environment, "),
        (["heads", "-p", "nowhere.py"], "plugin nowhere.py: there is no such file"),
        (["x" * 300], "cannot write to xxx"),
    ],
)
def test_a_bad_name_is_refused_in_one_line_and_nothing_is_written(folder, capsys, words, expected):
    assert main(["new-plugin", *words]) == 2
    error = capsys.readouterr().err
    assert error.startswith("explore: error: ")
    assert expected in error
    assert error.count("\n") == 1
    assert list(folder.iterdir()) == []


def test_the_name_of_an_installed_component_is_taken(folder, install, capsys):
    new_plugin("installed-heads")
    install(folder / "installed-heads")
    assert main(["new-plugin", "InstalledHeads", "--out", "other"]) == 2
    owner = "installed_heads (entry point (installed-heads 0.1.0))"
    assert f"uncertainty.InstalledHeads is supplied by {owner} already" in capsys.readouterr().err
    assert main(["new-plugin", "InstalledHeads", "--slot", "prior", "--out", "other"]) == 2
    assert "another plugin is already called 'installed_heads'" in capsys.readouterr().err
    assert not Path("other").exists()


# Writing


def test_existing_files_are_left_alone(folder, capsys):
    Path("heads").mkdir()
    Path("file").write_text("mine")
    Path("link").symlink_to("nowhere")
    before = sorted(folder.iterdir())
    for words in (["heads"], ["other", "--out", "heads"], ["heads", "--out", "file"], ["heads", "--out", "link"]):
        assert main(["new-plugin", *words]) == 2
        assert (
            capsys.readouterr().err == f"explore: error: {words[-1]} exists already; choose another folder with --out\n"
        )
    assert main(["new-plugin", "heads", "--out", "file/heads"]) == 2
    assert capsys.readouterr().err.startswith("explore: error: cannot write to file/heads: Not a directory;")
    assert sorted(folder.iterdir()) == before
    assert Path("file").read_text() == "mine"
    assert list(Path("heads").iterdir()) == []


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device"),
            2,
            "error: cannot write to new/heads: No space left on device",
        ),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_nothing_is_left_behind_when_writing_fails(folder, capsys, monkeypatch, error, code, line):
    def fail(point):
        if point == "test_heads.py: part written":
            assert "pyproject.toml" in os.listdir("new/heads")
            raise error

    monkeypatch.setattr(files, "crash_point", fail)
    assert main(["new-plugin", "heads", "--out", "new/heads"]) == code
    assert capsys.readouterr().err.startswith(f"explore: {line}")
    assert list(folder.iterdir()) == []
