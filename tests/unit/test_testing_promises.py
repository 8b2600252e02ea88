"""What all checks share: options, parameters, where a failure is shown, and that nothing else changes."""

import random
import traceback
from functools import partial

import numpy as np
import pytest
import torch
from dm_env import specs
from explore_plugins.deep_sea import DeepSea
from explore_plugins.mean_net import MLP
from sample_components import QUICK, DrawsGlobally, FloatsOnly, MixesLanes, Net

from explore.testing import Nonconformance, Options, check_environment, check_value


class Fails(Net):
    def forward(self, obs):
        raise TypeError("no")


def test_a_partial_of_a_class_is_a_component_too():
    check_environment(partial(DeepSea, size=4), deterministic=False)


def test_an_error_shows_where_the_component_failed_and_no_frames_of_the_check():
    def frames(cls):
        with pytest.raises(Nonconformance) as caught:
            check_value(cls, QUICK)
        cause = caught.value.__cause__
        return [entry.name for entry in caught.traceback[1:]], cause and cause.__traceback__

    assert frames(MixesLanes) == (["checked"], None)
    own, cause = frames(Fails)
    assert own == ["checked"]
    assert traceback.extract_tb(cause)[-1].name == "forward"


def test_a_component_need_not_take_every_observation():
    check_value(FloatsOnly, Options(observations=["floats"]))
    check_value(Net, Options(observations=[specs.Array((3, 1, 2), np.float32)]))


def test_observations_of_an_unknown_kind_are_refused():
    with pytest.raises(ValueError, match="observations must be some of integers, floats or specs, got "):
        Options(observations=["images"])


def test_an_unknown_parameter_is_reported():
    with pytest.raises(Nonconformance, match="MLP has no parameter 'widht': it has hidden, init"):
        check_value(MLP, widht=3)


def test_a_check_leaves_global_generators_as_they_were():
    torch.set_num_threads(1)
    before = random.getstate(), np.random.get_state()[1].tobytes(), torch.get_rng_state().numpy().tobytes()
    check_value(Net, QUICK)
    with pytest.raises(Nonconformance):
        check_value(DrawsGlobally, QUICK)
    assert before == (random.getstate(), np.random.get_state()[1].tobytes(), torch.get_rng_state().numpy().tobytes())
