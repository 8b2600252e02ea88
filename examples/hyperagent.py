"""HyperAgent on Deep-sea (Li et al. 2024, https://arxiv.org/abs/2402.10228), whole, in plain PyTorch.

    python examples/hyperagent.py [--size 10] [--seeds 5] [--episodes 500]

The value function is Q_z(s, a) = <h(s), A_a z + c_a> + β <h0(s), A0_a z + c0_a>: a hypermodel A z + c gives the last
layer's weights on the features h; h0, A0 and c0 stay as they were drawn. The index z is uniform on the unit sphere,
drawn for each episode, and again at a step with probability 1 - γ. 5 of 5 seeds learn, in one or two minutes.
"""

import argparse
import copy

import torch
from torch import nn

DISCOUNT, LEARNING_RATE, EPSILON, BATCH_SIZE, TARGET_PERIOD = 0.99, 1e-3, 1.5e-4, 128, 4
BETA, DIMENSION, HIDDEN, DRAWS, LONGEST_GRADIENT, CAPACITY = 10.0, 4, 64, 20, 10.0, 100_000


class DeepSea:
    """A diver sinks one row per step, to the left or to the right; only all the way right lies the treasure."""

    def __init__(self, size):
        self.size, self.one_hot = size, torch.eye(size * size)
        self.right = torch.randint(2, (size, size)).tolist()  # which action means right in which cell
        self.rewards = [-0.01 / size] * (size - 1) + [1.0]  # of moves to the right along the diagonal

    def reset(self):
        self.row = self.column = 0
        return self.one_hot[0]

    def step(self, action):
        right = action == self.right[self.row][self.column]
        reward = self.rewards[self.row] if right and self.row == self.column else 0.0
        self.row, self.column = self.row + 1, max(self.column + (1 if right else -1), 0)
        return self.one_hot[min(self.row * self.size + self.column, self.size**2 - 1)], reward, self.row == self.size


class Buffer:
    """The latest transitions (s, a, r, γ, s'): γ is 0 where s' is terminal."""

    def __init__(self, inputs):
        self.steps, self.columns = 0, [torch.empty(CAPACITY, *shape) for shape in ((inputs,), (), (), (), (inputs,))]

    def add(self, *transition):
        for column, value in zip(self.columns, transition):
            column[self.steps % CAPACITY] = value
        self.steps += 1

    def sample_minibatch(self):
        rows = torch.randint(min(self.steps, CAPACITY), (BATCH_SIZE,))
        return [column[rows] for column in self.columns]


def sample_sphere(*shape):
    return nn.functional.normalize(torch.randn(*shape, DIMENSION), dim=-1)


class Hypermodel(nn.Module):
    """<h(s), A_a z + c_a>: observations [batch, inputs] at indices [batch, draws, d] -> [batch, draws, actions]."""

    def __init__(self, inputs, actions):
        super().__init__()
        self.h = nn.Sequential(nn.Linear(inputs, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU())
        for layer in self.h[::2]:
            nn.init.xavier_normal_(layer.weight)
            nn.init.zeros_(layer.bias)
        self.A = nn.Parameter(nn.init.xavier_normal_(torch.empty(actions * HIDDEN, DIMENSION)))
        self.c = nn.Parameter(nn.init.xavier_normal_(torch.empty(actions, HIDDEN)).flatten())

    def forward(self, s, z):
        weights = (z @ self.A.T + self.c).unflatten(-1, (-1, HIDDEN))  # [batch, draws, actions, hidden]
        return torch.einsum("bh,bnah->bna", self.h(s), weights)


class WithPrior(nn.Module):
    """A hypermodel that is trained plus β times one that is not: the rows of A0 have length 1, and c0 as a whole."""

    def __init__(self, inputs, actions):
        super().__init__()
        self.network, self.prior = Hypermodel(inputs, actions), Hypermodel(inputs, actions).requires_grad_(False)
        self.prior.A /= self.prior.A.norm(dim=1, keepdim=True)
        self.prior.c /= self.prior.c.norm()

    def forward(self, s, z):
        return self.network(s, z) + BETA * self.prior(s, z)


class HyperAgent:
    def __init__(self, inputs, actions):
        self.buffer, self.q = Buffer(inputs), WithPrior(inputs, actions)
        self.q_target = copy.deepcopy(self.q)
        self.adam = torch.optim.Adam(self.q.network.parameters(), LEARNING_RATE, eps=EPSILON, fused=True)

    @torch.no_grad()
    def act(self, s):
        return self.q(s[None], self.z).argmax().item()

    def learn_from_buffer(self):
        self.update(*self.buffer.sample_minibatch(), sample_sphere(BATCH_SIZE, DRAWS), sample_sphere(BATCH_SIZE, 1))
        if self.buffer.steps % TARGET_PERIOD == 0:
            self.q_target.load_state_dict(self.q.state_dict())

    def update(self, s, a, r, discount, s_next, z, z_next):
        """Matches the values at z [batch, draws, d] to a target at an index of its own, z_next [batch, 1, d]."""
        with torch.no_grad():
            a_next = self.q(s_next, z_next).argmax(2, keepdim=True)  # double Q-learning
            goal = r[:, None] + DISCOUNT * discount[:, None] * self.q_target(s_next, z_next).gather(2, a_next)[..., 0]
        values = self.q(s, z)[torch.arange(len(s)), :, a.long()]  # [batch, draws]
        loss = (values - goal).square().mean()
        self.adam.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.q.network.parameters(), LONGEST_GRADIENT)
        self.adam.step()
        return loss


def live(agent, environment, episodes):
    """Lives so many episodes; tells after which of them 50 of the last 100 had found the treasure, or None."""
    treasures = []
    for episode in range(1, episodes + 1):
        agent.z = sample_sphere(1, 1)
        s, done = environment.reset(), False
        while not done:
            a = agent.act(s)
            s_next, r, done = environment.step(a)
            agent.buffer.add(s, a, r, 1.0 - done, s_next)
            if agent.buffer.steps >= BATCH_SIZE:
                agent.learn_from_buffer()
            if torch.rand(()) < 1 - DISCOUNT:
                agent.z = sample_sphere(1, 1)
            s = s_next
        treasures.append(r > 0.5)
        if sum(treasures[-100:]) >= 50:
            return episode


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="HyperAgent on Deep-sea, one seed after another.")
    for name, default in {"size": 10, "seeds": 5, "episodes": 500}.items():
        parser.add_argument(f"--{name}", type=int, default=default, help="default: %(default)s")
    options = parser.parse_args()
    torch.set_num_threads(1)
    learned = 0
    for seed in range(options.seeds):
        torch.manual_seed(seed)
        episode = live(HyperAgent(options.size**2, actions=2), DeepSea(options.size), options.episodes)
        learned += episode is not None
        print(f"seed {seed}:", f"learned after {episode} episodes" if episode else "not learned", flush=True)
    print(f"learned Deep-sea N = {options.size} in {learned} of {options.seeds} seeds")
