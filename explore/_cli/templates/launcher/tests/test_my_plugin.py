from pathlib import Path

import explore
from explore.testing import check_launcher

from my_plugin import MyPlugin

RECIPE = Path(__file__).parent.parent / "my_plugin.gin"
SMALL = ["experiment.episodes = 5", "experiment.seeds = (0, 1)", "agent.Indexed.min_replay = 10"]
SIZES = "environment.DeepSea.size = [4, 5]"


def test_it_conforms():
    check_launcher(MyPlugin)


def test_it_runs_a_sweep(tmp_path):
    out = tmp_path / "sweep"
    runs = explore.sweep(RECIPE, vary=[SIZES], bindings=SMALL, launcher="MyPlugin", out=out, quiet=True)
    assert [run.status for run in runs.values()] == ["done", "done"]
