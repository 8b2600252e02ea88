"""Temporal differences that outliers do not rule."""

from explore import hookimpl
from explore.interfaces import Objective
from torch.nn.functional import huber_loss


class MyPlugin(Objective):
    """Temporal differences at random indices under the Huber loss.

    Args:
      delta: the error from which on the loss no longer grows as its square.
      draws: indices drawn for each transition.
    """

    losses = ("loss",)

    def __init__(self, delta: float = 1.0, draws: int = 4):
        if not delta > 0:
            raise ValueError(f"delta must be above 0, got {delta!r}")
        if draws < 1:
            raise ValueError(f"draws must be at least 1, got {draws!r}")
        self.delta, self.draws = delta, draws

    def prepare(self, phase):
        index = phase.function.indexer.draw(phase.generators, phase.reward.shape[1], self.draws)
        values = phase.function.values(phase.next_features, index)  # [lanes, batch, draws, actions]
        action = phase.select(index).expand(values.shape[:-1])
        bootstrap = values.gather(-1, action.unsqueeze(-1)).squeeze(-1)
        return {"index": index, "target": phase.reward.unsqueeze(-1) + phase.discount.unsqueeze(-1) * bootstrap}

    def loss(self, function, features, prepared):
        values = function.values(features, prepared["index"]).squeeze(-1)  # [lanes, batch, draws]
        error = huber_loss(values, prepared["target"], reduction="none", delta=self.delta)
        return {"loss": error.mean((1, 2))}  # [lanes]


@hookimpl
def explore_objectives():
    return [MyPlugin]
