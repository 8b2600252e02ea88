"""The documentation is true: its plugins and commands run, and its tables list all there is.

`python tests/docs/test_docs.py` rewrites the table of parameters in `docs/reference/parameters.md`.
"""

import csv
import inspect
import os
import re
import shlex
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest

import explore
from explore import hooks, interfaces, testing
from explore._cli.main import main
from explore._config.configuration import ROOT, load
from explore._config.discovery import discover
from explore._config.gin_files import recipes
from explore._config.parameters import parameters
from explore._running.experiment import Experiment
from explore.hooks import SLOTS
from explore.interfaces import BASE_CLASSES

REPOSITORY = Path(__file__).parents[2]
DOCS = REPOSITORY / "docs"
PAGES = [*sorted(REPOSITORY.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
REFERENCE = [page for page in PAGES if DOCS / "reference" in page.parents]  # one page uses the files of another
RECIPES, FILES, HOOK_TABLE, PARAMETERS, DESIGN = (
    DOCS / f"{name}.md"
    for name in ("reference/gin", "reference/files", "reference/hooks", "reference/parameters", "concepts/architecture")
)
STORIES = [DOCS / "tutorial.md", DOCS / "howto" / "resume.md"]  # whose commands build on each other
TABLE = re.compile(r"(?<=<!-- parameters -->\n).*(?=<!-- end of parameters -->)", re.DOTALL)
BINDING = re.compile(r"`(?:-b )?\"?((?:\w+/)?(?:\w+\.)?\w+\.\w+ = [^`\"]+)\"?`")
MESSAGES = {"explore: note: ": 0, "explore: error: ": 2, "E  ": 1}  # how they begin, and with which code it ends
TINY = [
    "experiment.episodes = 4",
    "experiment.seeds = (0, 1)",
    "environment.DeepSea.size = 5",
    "environment.CartpoleSwingup.max_time = 0.1",
    "agent.Indexed.min_replay = 10",
    "agent.Indexed.batches_per_episode = 2",
]


def blocks(page, languages=r"\w*"):
    found = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    return [text for language, text in found if re.fullmatch(languages, language)]


def commands(page, kinds="explore run"):
    """The commands of some kinds in the blocks of a page, each with the messages it is said to end with."""
    for block in blocks(page, "sh|console|"):
        text = block.replace("\\\n", " ")
        for shown in re.split(rf"^(?:\$ )?(?=(?:{kinds})(?:\s|$))", text, flags=re.MULTILINE)[1:]:
            command, *printed = shown.splitlines()
            yield command, [line for line in printed if line.startswith(tuple(MESSAGES))]


def files(page):
    """The plugins and gin files of a page by their names, which their first lines give."""
    texts = [text for text in blocks(page, "python|gin") if re.match(r"# \w+\.(py|gin)\n", text)]
    return {text.splitlines()[0].removeprefix("# "): text for text in texts}


def write_files(pages, folder):
    """Writes the files of some pages, and returns their names."""
    texts = {name: text for page in pages for name, text in files(page).items()}
    for name, text in texts.items():
        (folder / name).write_text(text)
    return list(texts)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty working folder, but for the recipes."""
    (tmp_path / "gin").symlink_to(REPOSITORY / "gin")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def perform(folder, monkeypatch, capfd):
    """Runs a command, which must work, or end with the messages that are shown."""

    def pip(*_):
        install(tomllib.loads(Path("pyproject.toml").read_text()), monkeypatch)

    def explore(name, *words):
        if name in ("run", "sweep"):
            few = ["experiment.episodes = 6"] if "--resume" in words else TINY
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


def install(pyproject, monkeypatch):
    """What pip would do with a package in the working folder, as far as it matters to explore."""
    project = pyproject["project"]
    information = Path(f"{project['name'].replace('-', '_')}-{project['version']}.dist-info")
    information.mkdir()
    (information / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
    entries = [f"{name} = {module}" for name, module in project["entry-points"]["explore"].items()]
    (information / "entry_points.txt").write_text("\n".join(["[explore]", *entries]))
    monkeypatch.syspath_prepend(Path.cwd())
    monkeypatch.setenv("PYTHONPATH", str(Path.cwd()), prepend=os.pathsep)


# Everything shown is run


@pytest.mark.parametrize(
    ("page", "command", "messages"),
    [
        pytest.param(page, *shown, id=f"{page.stem}: {shown[0]}")
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


@pytest.mark.parametrize("page", STORIES, ids=lambda page: page.stem)
def test_the_commands_of_a_story_work_one_after_another(folder, perform, page):
    write_files([page], folder)
    for command, messages in commands(page, "explore|pytest|sed|cd|pip"):
        perform(command, messages)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_file_of_a_page_is_used_by_one_of_its_commands(page):
    used = " ".join(command for command, _ in commands(page, "explore|pytest"))
    assert [name for name in files(page) if name not in used] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_binding_in_the_text_is_one(folder, page):
    registry = discover([name for name in write_files([page], folder) if re.fullmatch(r"(?!test_)\w+\.py", name)])
    for binding in BINDING.findall(page.read_text()):
        load("pins_deep_sea", [binding], registry)


def test_the_example_of_a_logger_writes_its_file(folder):
    write_files(REFERENCE, folder)
    explore.run("pins_deep_sea", bindings=TINY, plugins=["news.py"], out="run", quiet=True)
    assert (folder / "run" / "records.jsonl").read_text().startswith('{"seed": 0, "episode": 1, "return": ')


def test_every_component_of_the_reference_keeps_the_promises_of_its_slot(folder):
    names = write_files(REFERENCE, folder)
    registry = discover([name for name in names if name.endswith(".py") and not name.startswith("test_")])
    for component in registry.components.values():
        if component.source != "built in" and component.slot != "launcher":  # which takes long
            takes = ["floats"] if component.name == "TanhNet" else ["integers", "floats"]
            options = testing.Options(observations=takes, compile=False)
            getattr(testing, f"check_{component.slot}")(component.cls, options)


def test_an_installed_package_needs_no_option(folder, monkeypatch, capsys):
    write_files(REFERENCE, folder)
    [pyproject] = [tomllib.loads(text) for page in REFERENCE for text in blocks(page, "toml")]
    install(pyproject, monkeypatch)
    assert main(["describe", "uncertainty.WideHeads"]) == 0
    assert "entry point (wide-heads 0.1.0)" in capsys.readouterr().out


def examples():
    """Each base class of `explore.interfaces` whose docstring has an example, with its code."""
    for base in vars(interfaces).values():
        if inspect.isclass(base) and "Example:\n" in (base.__doc__ or ""):
            yield base, textwrap.dedent(base.__doc__.split("Example:\n")[1]).strip()


USES = {
    "explore_value_networks": "agent.Indexed.value = {}",
    "explore_uncertainty_modules": "agent.Indexed.uncertainty = {}",
    "explore_priors": "agent.Indexed.prior = {}",
    "explore_selections": "agent.Indexed.acting = {}",
    "explore_schedules": "objective.WassersteinTD.sigma = {}",
    "explore_observers": "experiment.observers = [{}]",
}


@pytest.mark.parametrize(
    ("base", "example"),
    [
        pytest.param(*both, id=both[0].__name__)
        for both in examples()
        if both[0] is not interfaces.Launcher  # tests/test_launchers.py runs that one
    ],
)
def test_the_example_in_a_docstring_is_a_plugin(folder, base, example):
    slot, hook = next((slot, SLOTS[slot]) for slot, slot_base in BASE_CLASSES.items() if issubclass(base, slot_base))
    name = re.match(r"class (\w+)", example)[1]
    imports = "import torch\nimport explore.nn\nfrom explore.interfaces import *\nfrom explore.nn import softplus\n"
    imports += "from explore.streams import normal"
    returned = f"@explore.hookimpl\ndef {hook}():\n    return [{name}]"
    (folder / "example.py").write_text(f"{imports}\n\n{example}\n\n{returned}\n")
    bindings = [USES[hook].format(f"@{slot}.{name}"), *TINY]
    if base is interfaces.ValueWrapper:  # whose example has no scales
        bindings.append("agent.Indexed.objective = @objective.SampledTD")
    run = explore.run("pins_deep_sea", bindings=bindings, plugins=["example.py"], out="run", quiet=True)
    assert f"@{slot}.{name}" in run.config


# Everything there is, is documented


HOOKS = [name for name in vars(hooks) if name.startswith("explore_")]


@pytest.mark.parametrize("hook", HOOKS)
def test_every_hook_is_documented_and_implemented_by_an_example_that_is_run(hook):
    arguments = ", ".join(inspect.signature(getattr(hooks, hook)).parameters)
    assert f"| `{hook}({arguments})` |" in HOOK_TABLE.read_text()
    assert any(f"def {hook}({arguments}):" in block for page in REFERENCE for block in blocks(page, "python"))


@pytest.mark.parametrize("hook", HOOKS)
def test_every_hook_is_named_in_a_test(hook):
    assert any(hook in path.read_text() for path in Path(__file__).parents[1].rglob("test_*.py"))


def test_every_recipe_is_listed():
    listed = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| ", RECIPES.read_text().split("## Recipes")[1], re.MULTILINE)
    named = {name for cell in listed for name in re.findall(r"`(\w+)`", cell)}
    assert recipes().keys() - named == set()


def parameter_table():
    """All that gin can set, in the order of the slots."""
    found = sorted(discover().components.values(), key=lambda component: list(SLOTS).index(component.slot))
    selectors = {component.cls: component.selector for component in found}
    lines = ["| component | parameter | default | meaning |", "|---|---|---|---|"]
    for name, cls in [(ROOT, Experiment), *((component.selector, component.cls) for component in found)]:
        known = list(parameters(cls).values())
        for parameter in known:
            default = "required" if parameter.required else f"`{parameter.default!r}`"
            if parameter.default in selectors:
                default = f"`@{selectors[parameter.default]}`"
            owner = f"`{name}`" if parameter is known[0] else ""
            lines.append(f"| {owner} | `{parameter.name}` | {default} | {parameter.documentation} |")
        if not known:
            lines.append(f"| `{name}` | | | |")
    return "\n".join(lines) + "\n"


def test_the_table_of_parameters_is_complete():
    assert TABLE.search(PARAMETERS.read_text())[0] == parameter_table(), (
        "rewrite it with: python tests/docs/test_docs.py"
    )


def test_every_parameter_has_a_meaning():
    assert [line for line in parameter_table().splitlines() if line.endswith("|  |")] == []


def test_every_module_has_its_place_in_the_design():
    modules = [path.name for path in (REPOSITORY / "explore").glob("*.py") if not path.name.startswith("__")]
    modules += [f"{path.parent.name}/" for path in (REPOSITORY / "explore").glob("*/__init__.py")]
    assert [name for name in modules if f"`{name}`" not in DESIGN.read_text()] == []


def anchors(page):
    """What a link may name after #: the headings of a page, as GitHub writes them."""
    headings = re.findall(r"^#+ (.*)", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        path, _, anchor = link.partition("#")
        if "://" not in link:
            target = page.parent / path if path else page
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), link


if __name__ == "__main__":
    PARAMETERS.write_text(TABLE.sub(lambda _: parameter_table(), PARAMETERS.read_text()))
