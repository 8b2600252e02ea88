"""What is installed away from a checkout is complete: recipes, built-in plugins, templates and the kit."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from explore_plugins import BUILT_INS

REPOSITORY = Path(__file__).parents[2]
TINY = ["experiment.episodes = 3", "experiment.seeds = (0, 1)", "environment.DeepSea.size = 5"]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Runs Python in an empty folder, with the unpacked wheel before everything else."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=REPOSITORY, check=True, capture_output=True)
    [wheel] = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    (folder / "empty").mkdir()

    def run(*words):
        environment = {**os.environ, "PYTHONPATH": str(folder / "site"), "PYTHONDONTWRITEBYTECODE": "1"}
        ended = subprocess.run(
            [sys.executable, *words], cwd=folder / "empty", env=environment, capture_output=True, text=True, timeout=120
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    return run


def test_everything_comes_from_the_wheel(installed):
    folders = installed("-c", "import explore, explore_plugins as d; print(explore.__file__, d.__file__)").split()
    assert len(folders) == 2 and all("/wheel" in folder and "/site/" in folder for folder in folders)


def test_the_source_of_the_kernels_is_in_the_wheel(installed):
    there = installed("-c", "from explore._native.library import SOURCE; print(SOURCE, SOURCE.is_file())")
    assert "/site/" in there and there.split()[1] == "True"


def test_without_a_compiler_pytorch_runs_it_and_says_why(installed, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    bindings = [word for binding in TINY for word in ("-b", binding)]
    installed("-m", "explore", "run", "hyperagent_deep_sea", *bindings, "--quiet", "--out", "without")
    shown = installed("-c", "import json; print(json.load(open('without/run.json')).get('execution'))")
    assert "PyTorch" in shown and "there is no C++ compiler (no-such-compiler)" in shown


def test_a_recipe_is_run_by_its_name(installed):
    bindings = [word for binding in TINY for word in ("-b", binding)]
    installed("-m", "explore", "run", "hyperagent_deep_sea", *bindings, "--quiet", "--out", "run")
    assert "run " in installed("-m", "explore", "compare", "run")


def test_every_built_in_plugin_loads(installed):
    shown = installed("-m", "explore", "plugins")
    assert "failed" not in shown
    assert [name for name in BUILT_INS if name not in shown.split()] == []


def test_a_plugin_is_begun_and_checked(installed):
    assert "new_heads.py" in installed("-m", "explore", "new-plugin", "new-heads")
    check = "from explore.testing import Options, check_uncertainty; from new_heads import NewHeads; "
    installed("-c", f"import sys; sys.path.insert(0, 'new-heads'); {check}check_uncertainty(NewHeads, Options())")
