from pathlib import Path

import explore
from explore.testing import Options, check_bonus

from my_plugin import MyPlugin

RECIPE = Path(__file__).parent.parent / "my_plugin.gin"
SMALL = ["experiment.episodes = 5", "environment.DeepSea.size = 5", "agent.Indexed.min_replay = 10"]


def test_it_conforms():
    check_bonus(MyPlugin, Options(observations=["integers"]))


def test_it_trains(tmp_path):
    run = explore.run(RECIPE, bindings=SMALL, seeds=[0, 1], out=tmp_path / "run", quiet=True)
    assert run.status == "done"
    assert "@bonus.MyPlugin" in run.config
