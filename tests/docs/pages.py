"""The pages of the documentation, and what is in them: code blocks, commands, files."""

import os
import pkgutil
import re
from pathlib import Path

import explore

REPOSITORY = Path(__file__).parents[2]
DOCS = REPOSITORY / "docs"
PAGES = [*sorted(REPOSITORY.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
REFERENCE = [page for page in PAGES if DOCS / "reference" in page.parents]  # one page uses the files of another
STORIES = [DOCS / "tutorial.md", DOCS / "howto" / "resume.md"]  # whose commands build on each other
PUBLIC_MODULES = ["explore", *(f"explore.{m.name}" for m in pkgutil.iter_modules(explore.__path__) if m.name[0] != "_")]
MESSAGES = {"explore: note: ": 0, "explore: error: ": 2, "E  ": 1}  # how they begin, and with which code it ends
TINY = [
    "experiment.episodes = 4",
    "experiment.seeds = (0, 1)",
    "environment.DeepSea.size = 5",
    "environment.CartpoleSwingup.max_time = 0.1",
    "agent.Indexed.min_replay = 10",
    "agent.Indexed.batches_per_episode = 2",
]
BLOCK = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


def title(page):
    """What a test calls a page."""
    return str(page.relative_to(REPOSITORY).with_suffix("")).removeprefix("docs/")


def blocks(page, languages=r"\w*"):
    """The code blocks of a page in some languages."""
    found = re.findall(r"^```([^\n`]*)\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
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


def write_plugins(pages, folder):
    """Writes the files of some pages, and returns the names of the plugins among them."""
    return [name for name in write_files(pages, folder) if "@hookimpl" in (folder / name).read_text()]


def install(pyproject, monkeypatch):
    """What pip would do with a package in the working folder, as far as it matters to explore."""
    project = pyproject["project"]
    information = Path(f"{project['name'].replace('-', '_')}-{project['version']}.dist-info")
    information.mkdir()
    (information / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
    entries = [
        line
        for group, points in project["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {target}" for name, target in points.items()))
    ]
    (information / "entry_points.txt").write_text("\n".join(entries))
    monkeypatch.syspath_prepend(Path.cwd())
    monkeypatch.setenv("PYTHONPATH", str(Path.cwd()), prepend=os.pathsep)
