from pathlib import Path

import explore
from explore.testing import check_environment

from my_plugin import MyPlugin

RECIPE = Path(__file__).parent.parent / "my_plugin.gin"
SMALL = ["experiment.episodes = 5", "environment.MyPlugin.length = 4", "agent.Indexed.min_replay = 10"]


def test_it_conforms():
    check_environment(MyPlugin)


def test_agents_train_on_it(tmp_path):
    run = explore.run(RECIPE, bindings=SMALL, seeds=[0, 1], out=tmp_path / "run", quiet=True)
    assert run.status == "done"
    assert set(run.episodes["goal"]) <= {0, 1}
