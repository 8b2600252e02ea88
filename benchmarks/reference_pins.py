"""PINs in plain PyTorch, one seed, written straight from the paper: what `speed.py` measures against.

One network per module, one minibatch after the other, and every network a minibatch needs
evaluated for it.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

DISCOUNT, BETA, MASK_PROBABILITY, BATCH_SIZE, TARGET_PERIOD, CAPACITY = 0.99, 2.0, 0.5, 64, 10, 1_000_000


def mlp(inputs: int, hidden: Sequence[int], outputs: int) -> nn.Sequential:
    widths = [inputs, *hidden]
    layers = [m for i, o in zip(widths, hidden) for m in (nn.Linear(i, o), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(widths[-1], outputs))


class WithPrior(nn.Module):
    """A network plus β times a frozen random network of the same architecture."""

    def __init__(self, network: nn.Module, prior: nn.Module):
        super().__init__()
        self.network, self.prior = network, prior.requires_grad_(False)

    def forward(self, obs: Tensor) -> Tensor:
        return self.network(obs) + BETA * self.prior(obs)


class Replay:
    """Transitions (s, a, r, γ, s', M) in arrays."""

    def __init__(self, inputs: int, heads: int):
        self.obs = np.zeros((CAPACITY, inputs), np.float32)
        self.next_obs = np.zeros((CAPACITY, inputs), np.float32)
        self.action = np.zeros(CAPACITY, np.int64)
        self.reward = np.zeros(CAPACITY, np.float32)
        self.discount = np.zeros(CAPACITY, np.float32)
        self.mask = np.zeros((CAPACITY, heads), np.float32)
        self.added = 0

    def add(self, obs: np.ndarray, action: int, reward: float, discount: float, next_obs: np.ndarray) -> None:
        slot = self.added % CAPACITY
        self.obs[slot], self.action[slot], self.reward[slot] = obs.ravel(), action, reward
        self.discount[slot], self.next_obs[slot] = discount, next_obs.ravel()
        self.mask[slot] = np.random.random(self.mask.shape[1]) < MASK_PROBABILITY
        self.added += 1

    def sample(self) -> list[Tensor]:
        slots = np.random.randint(min(self.added, CAPACITY), size=BATCH_SIZE)
        arrays = (self.obs, self.action, self.reward, self.discount, self.next_obs, self.mask)
        return [torch.from_numpy(array[slots]) for array in arrays]


class PINs:
    """Mean network ν and uncertainty network m with U heads, each with its prior, target and optimiser."""

    def __init__(
        self,
        inputs: int,
        actions: int,
        mean_hidden: Sequence[int],
        scale_hidden: Sequence[int],
        heads: int,
        updates: int,
        sigma: float = 2.0,
    ):
        self.heads, self.updates, self.sigma, self.episodes = heads, updates, sigma, 0
        self.mean = WithPrior(mlp(inputs, mean_hidden, actions), mlp(inputs, mean_hidden, actions))
        scale, scale_prior = (
            nn.Sequential(mlp(inputs, scale_hidden, heads * actions), nn.Softplus(), nn.Unflatten(1, (heads, actions)))
            for _ in range(2)
        )
        self.scale = WithPrior(scale, scale_prior)
        self.mean_target, self.scale_target = copy.deepcopy(self.mean), copy.deepcopy(self.scale)
        self.mean_optimizer = torch.optim.Adam(self.mean.network.parameters(), lr=1e-3)
        self.scale_optimizer = torch.optim.Adam(self.scale.network.parameters(), lr=1e-3)
        self.replay = Replay(inputs, heads)

    def begin_episode(self) -> None:
        """Draws the index and learns."""
        self.z, self.head = np.random.randn(), np.random.randint(self.heads)
        for _ in range(self.updates if self.replay.added else 0):
            self.update(*self.replay.sample())
        self.episodes += 1
        if self.episodes % TARGET_PERIOD == 0:
            self.mean_target.load_state_dict(self.mean.state_dict())
            self.scale_target.load_state_dict(self.scale.state_dict())

    @torch.no_grad()
    def act(self, obs: np.ndarray) -> int:
        batch = torch.from_numpy(obs).float().reshape(1, -1)
        values = (self.mean(batch)[0] + self.z * self.scale(batch)[0, self.head]).numpy()
        return int(np.random.choice(np.flatnonzero(values == values.max())))

    def update(
        self, obs: Tensor, action: Tensor, reward: Tensor, discount: Tensor, next_obs: Tensor, mask: Tensor
    ) -> None:
        """One minibatch, each sample training one head drawn among the set bits of its mask."""
        sample = torch.arange(len(obs))
        head = (mask + torch.rand_like(mask)).argmax(1)
        with torch.no_grad():
            next_mean = self.mean_target(next_obs)
            next_action = next_mean.argmax(1)
            next_scale = self.scale_target(next_obs)[sample, head, next_action]
            mean_target = reward + DISCOUNT * discount * next_mean[sample, next_action]
            scale_target = self.sigma + DISCOUNT * discount * next_scale
        mean_loss = nn.functional.mse_loss(self.mean(obs)[sample, action], mean_target)
        self.mean_optimizer.zero_grad()
        mean_loss.backward()
        self.mean_optimizer.step()
        scale_loss = nn.functional.mse_loss(self.scale(obs)[sample, head, action], scale_target)
        self.scale_optimizer.zero_grad()
        scale_loss.backward()
        self.scale_optimizer.step()
