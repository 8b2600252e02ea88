"""Layers with a lane axis: the networks of all seeds (and ensemble members) as one batch.

They look like torch's. Weights are `[lanes, inputs, outputs]`, and one `baddbmm` computes a layer
for all lanes. How many lanes there are, and from which random streams they are initialised, is
said by the `lanes` context the core builds networks in, so a component never mentions it:

    MLP(spec.observation, (50, 50), spec.num_actions)

`per_lane` lifts an ordinary `torch.nn.Module` instead.
"""

from explore.nn.context import generators, lanes
from explore.nn.initialisers import check_init
from explore.nn.layers import MLP, LaneLayer, Linear, apply_hidden, count_parameters, num_features, zeros
from explore.nn.lifting import per_lane
from explore.nn.rounding import apply_elementwise, evaluate_in_chunks, exact, find_safe_rows, pad_rows, softplus

__all__ = [
    "MLP", "LaneLayer", "Linear", "apply_elementwise", "apply_hidden", "check_init",
    "count_parameters", "evaluate_in_chunks", "exact", "find_safe_rows", "generators", "lanes", "num_features",
    "pad_rows", "per_lane", "softplus", "zeros",
]  # fmt: skip
