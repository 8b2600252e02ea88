import json
from pathlib import Path

import explore
from explore.testing import check_observer

from my_plugin import MyPlugin

RECIPE = Path(__file__).parent.parent / "my_plugin.gin"
SMALL = ["experiment.episodes = 5", "environment.DeepSea.size = 5", "agent.Indexed.min_replay = 10"]


def test_it_conforms():
    check_observer(MyPlugin)


def test_it_writes_down_what_it_sees(tmp_path):
    everything = [*SMALL, "observer.MyPlugin.level = -1.0"]
    run = explore.run(RECIPE, bindings=everything, seeds=[0, 1], out=tmp_path / "run", quiet=True)
    assert json.loads((run.folder / "my_plugin.json").read_text()) == {"0": 1, "1": 1}
