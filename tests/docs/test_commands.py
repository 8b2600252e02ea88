"""The documentation is true: its files, commands and bindings are run."""

import csv
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from pages import (
    DOCS,
    MESSAGES,
    PAGES,
    REFERENCE,
    STORIES,
    TINY,
    blocks,
    commands,
    files,
    install,
    title,
    write_files,
    write_plugins,
)

from explore._cli.main import main
from explore._config.discovery import discover
from explore._running.experiment import load

RECIPES, FILES = (DOCS / "reference" / f"{name}.md" for name in ("gin", "files"))
BINDING = re.compile(r"`(?:-b )?\"?(?!self\.)((?:\w+/)?(?:\w+\.)?\w+\.\w+ = [^`\"]+)\"?`")


@pytest.fixture
def perform(folder, monkeypatch, capfd, forked_cells):
    """Runs a command, which must work, or end with the messages that are shown."""

    def pip(*_):
        install(tomllib.loads(Path("pyproject.toml").read_text()), monkeypatch)

    def explore(name, *words):
        if name in ("run", "sweep", "resume"):
            few = ["experiment.episodes = 6"] if "--resume" in words or name == "resume" else TINY
            words += ("--quiet", *(f"-b{binding}" for binding in few))
        return main([name, *words])

    def perform(command, messages):
        program, *words = shlex.split(command, comments=True)
        known = {"explore": explore, "cd": monkeypatch.chdir, "pip": pip}
        code = known[program](*words) if program in known else subprocess.run(command, shell=True).returncode
        told = "".join(capfd.readouterr()).splitlines()
        codes = [exit_code for start, exit_code in MESSAGES.items() for line in messages if line.startswith(start)]
        assert (code or 0) == max(codes, default=0), told
        assert set(messages) <= set(told)

    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    return perform


@pytest.mark.parametrize(
    ("page", "command", "messages"),
    [
        pytest.param(page, *shown, id=f"{title(page)}: {shown[0]}")
        for page in PAGES
        if page not in STORIES
        for shown in commands(page, "explore run|explore new-plugin|pytest")
    ],
)
def test_a_command_does_what_its_page_says(folder, perform, page, command, messages):
    write_files(REFERENCE if page in REFERENCE else [page], folder)
    perform(command, messages)
    for rows in folder.glob("runs/*/episodes.csv") if page == RECIPES else ():
        with rows.open() as file:
            columns = next(csv.reader(file))
        assert [name for name in columns if f"| `{name}` |" not in FILES.read_text()] == []


@pytest.mark.parametrize("page", STORIES, ids=title)
def test_the_commands_of_a_story_work_one_after_another(folder, perform, page):
    write_files([page], folder)
    for command, messages in commands(page, "explore|pytest|sed|cd|pip"):
        perform(command, messages)


@pytest.mark.parametrize("page", PAGES, ids=title)
def test_every_file_of_a_page_is_used_by_one_of_its_commands(page):
    used = " ".join(command for command, _ in commands(page, "explore|pytest"))
    assert [name for name in files(page) if name not in used and Path(name).stem not in used.split()] == []


@pytest.mark.parametrize("page", PAGES, ids=title)
def test_every_binding_in_the_text_is_one(folder, page):
    registry = discover(write_plugins([page], folder))
    for binding in BINDING.findall(page.read_text()):
        load("pins_deep_sea", [binding], registry)


def test_an_installed_package_needs_no_option(folder, monkeypatch, capsys):
    write_files(REFERENCE, folder)
    install(*map(tomllib.loads, blocks(DOCS / "reference" / "plugins.md", "toml")), monkeypatch)
    assert main(["describe", "uncertainty.WideHeads"]) == 0
    assert "entry point (wide-heads 0.1.0)" in capsys.readouterr().out


def test_an_installed_package_adds_a_command(folder, monkeypatch, capsys):
    page = DOCS / "reference" / "commands.md"
    write_files([page], folder)
    [entry_points] = map(tomllib.loads, blocks(page, "toml"))
    install({"project": {"name": "hello", "version": "1.0"} | entry_points["project"]}, monkeypatch)
    [command] = [text for text, _ in commands(page, "explore hello")]
    assert main(shlex.split(command)[1:]) == 0
    assert capsys.readouterr().out == "Hello World!\n"


def test_the_code_for_notebooks_runs_from_top_to_bottom(folder, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "agg")
    program = "\n".join(blocks(DOCS / "howto" / "notebooks.md", "python"))
    subprocess.run([sys.executable, "-c", program], check=True)
