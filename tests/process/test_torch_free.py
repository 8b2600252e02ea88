"""Reading files needs no torch and no scipy, which take longer to import than all else that these commands do."""

import os
import subprocess
import sys

import pytest

import explore


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two small runs."""
    folder = tmp_path_factory.mktemp("runs")
    bindings = ["experiment.episodes = 3", "environment.DeepSea.size = 3"]
    for name in ("pins_deep_sea", "psrl_deep_sea"):
        explore.run(name, bindings=bindings, seeds=(0, 1), out=folder / name, quiet=True)
    return folder


@pytest.mark.parametrize(
    "command",
    [
        ["--help"],
        ["compare", "pins_deep_sea", "psrl_deep_sea"],
        ["report", "pins_deep_sea", "psrl_deep_sea", "--out", "report.html"],
        ["watch", "pins_deep_sea", "--once", "--out", "watch.png"],
        ["recipes"],
        ["reproduce"],
        ["export-bsuite", "--help"],
    ],
    ids=lambda command: command[0],
)
def test_commands_that_read_import_no_torch_and_no_scipy(folder, command):
    code = (
        "import sys\nfrom explore._cli.main import main\n"
        "try:\n    code = main(sys.argv[1:])\nexcept SystemExit as end:\n    code = end.code\n"
        "assert not code\n"
        "assert not {'torch', 'scipy'} & sys.modules.keys(), 'torch or scipy is imported'\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code, *command], env=environment, cwd=folder, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
