"""A bonus from visits that fade."""

import torch
from explore import hookimpl
from explore.interfaces import Bonus
from explore.nn import apply_elementwise, zeros


class MyPlugin(Bonus):
    """1 / (1 + visits), in which a visit counts for less the longer ago it was. For one-hot observations.

    Args:
      memory: what is left of a visit after a transition, from 0 to 1; 1: visits never fade.
    """

    def __init__(self, spec, memory: float = 0.999):
        super().__init__()
        if not 0 <= memory <= 1:
            raise ValueError(f"memory must be between 0 and 1, got {memory!r}")
        self.memory, self.actions = memory, spec.num_actions
        self.register_buffer("visits", zeros(int(spec.observation.num_values) * spec.num_actions))

    def observe(self, transitions):  # `there` is 0 where a lane has no more transitions
        self.visits *= apply_elementwise(lambda n: self.memory**n, transitions.there.sum(1, keepdim=True))
        self.visits.scatter_add_(1, transitions.obs * self.actions + transitions.action, transitions.there)

    def forward(self, obs):  # [lanes, batch] -> [lanes, batch, actions], never negative
        visits = self.visits.unflatten(1, (-1, self.actions))[torch.arange(len(obs)).unsqueeze(1), obs]
        return 1 / (1 + visits)


@hookimpl
def explore_bonuses():
    return [MyPlugin]
