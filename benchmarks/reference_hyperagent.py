"""HyperAgent in plain PyTorch, one seed at a time, as one would write it from the paper; for `hyperagent.py`."""

from __future__ import annotations

import dm_env
import numpy as np
import torch
from torch import Tensor, nn

D, DRAWS, BATCH, SCALE, DISCOUNT, CLIP, TARGET_PERIOD = 4, 20, 128, 10.0, 0.99, 10.0, 4


class Hypernet(nn.Module):
    """h(s)·(A z + c) for every action."""

    def __init__(self, inputs: int, actions: int, unit: bool):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        for layer in self.body[::2]:
            nn.init.xavier_normal_(layer.weight)
            nn.init.zeros_(layer.bias)
        self.a = nn.Parameter(nn.init.xavier_normal_(torch.empty(64 * actions, D)))
        self.c = nn.Parameter(nn.init.xavier_normal_(torch.empty(actions, 64)).flatten())
        if unit:
            with torch.no_grad():
                self.a /= self.a.norm(dim=1, keepdim=True)
                self.c /= self.c.norm()

    def forward(self, obs: Tensor, z: Tensor) -> Tensor:
        """`obs [batch, inputs]`, `z [batch, draws, d]` -> `[batch, draws, actions]`"""
        weights = (z @ self.a.T + self.c).unflatten(-1, (-1, 64))  # [batch, draws, actions, 64]
        return torch.einsum("bh,bnah->bna", self.body(obs), weights)


class Agent(nn.Module):
    def __init__(self, inputs: int, actions: int):
        super().__init__()
        self.trained, self.prior = (
            Hypernet(inputs, actions, False),
            Hypernet(inputs, actions, True).requires_grad_(False),
        )

    def forward(self, obs: Tensor, z: Tensor) -> Tensor:
        with torch.no_grad():
            prior = self.prior(obs, z)
        return self.trained(obs, z) + SCALE * prior


class HyperAgent:
    """One seed on an environment of bsuite, with one update per step."""

    def __init__(self, environment: dm_env.Environment, capacity: int = 1_000_000):
        self.environment = environment
        inputs = int(np.prod(environment.observation_spec().shape))
        self.actions = environment.action_spec().num_values
        self.agent, self.target = Agent(inputs, self.actions), Agent(inputs, self.actions)
        self.target.load_state_dict(self.agent.state_dict())
        parameters = list(self.agent.trained.parameters())
        self.parameters, self.adam = parameters, torch.optim.Adam(parameters, 1e-3, eps=1.5e-4)
        self.replay: list[tuple[np.ndarray, int, float, float, np.ndarray]] = []
        self.updates = 0

    def episode(self) -> None:
        z, timestep = _sphere(1, 1), self.environment.reset()
        while not timestep.last():
            if np.random.random() < 1 - DISCOUNT:
                z = _sphere(1, 1)
            obs = timestep.observation.reshape(-1).astype(np.float32)
            with torch.no_grad():
                action = int(self.agent(torch.from_numpy(obs)[None], z).argmax())
            timestep = self.environment.step(action)
            following = timestep.observation.reshape(-1).astype(np.float32)
            self.replay.append((obs, action, timestep.reward, timestep.discount, following))
            if len(self.replay) >= BATCH:
                self.update()

    def update(self) -> None:
        rows = [self.replay[i] for i in np.random.randint(len(self.replay), size=BATCH)]
        obs, action, reward, discount, following = (torch.from_numpy(np.array(column)) for column in zip(*rows))
        z = _sphere(BATCH, 1)
        with torch.no_grad():
            best = self.agent(following, z).argmax(-1, keepdim=True)
            bootstrap = self.target(following, z).gather(-1, best).squeeze(-1)  # [batch, 1]
            y = reward.float()[:, None] + DISCOUNT * discount.float()[:, None] * bootstrap
        values = self.agent(obs, _sphere(BATCH, DRAWS))
        values = values.gather(-1, action[:, None, None].expand(-1, DRAWS, 1)).squeeze(-1)
        self.adam.zero_grad()
        (values - y).square().mean().backward()
        nn.utils.clip_grad_norm_(self.parameters, CLIP)
        self.adam.step()
        self.updates += 1
        if self.updates % TARGET_PERIOD == 0:
            self.target.load_state_dict(self.agent.state_dict())


def _sphere(*shape: int) -> Tensor:
    z = torch.randn(*shape, D)
    return z / z.norm(dim=-1, keepdim=True)
