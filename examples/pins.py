"""PINs on Deep-sea: Algorithms 2 and 3 of "Parameterized Indexed Value Function for Efficient Exploration in
Reinforcement Learning" (Tan, Xiong and Dwaracherla, https://arxiv.org/abs/1912.10577), whole, in plain PyTorch.

    python examples/pins.py [--size 10] [--seeds 5] [--episodes 1500]

The value function is Q_z(s, a) = (ν + β1 ν̄)(s, a) + (m^u + β2 m̄^u)(s, a) z. A mean network ν and an uncertainty
network m with U heads are trained; their priors ν̄ and m̄ stay as they were drawn. One index z and one head u are
drawn for each episode, and held to its end. Comments name the algorithms' lines. 3 or 4 of 5 seeds learn, in minutes.
"""

import argparse
import copy
from itertools import pairwise

import torch
from torch import nn
from torch.nn.functional import mse_loss

DISCOUNT, LEARNING_RATE, BATCH_SIZE, BATCHES, TARGET_PERIOD = 0.99, 1e-3, 64, 10, 10
BETA_1, BETA_2, SIGMA, MASK_PROBABILITY = 2.0, 2.0, 2.0, 0.5
MIN_STEPS, CAPACITY = 2_000, 100_000  # stored before learning starts, and kept


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
    """The latest transitions (s, a, r, γ, s', M): γ is 0 where s' is terminal; M is the bootstrap mask of U bits."""

    def __init__(self, inputs, heads):
        self.columns = [torch.empty(CAPACITY, *shape) for shape in ((inputs,), (), (), (), (inputs,), (heads,))]
        self.heads, self.steps = heads, 0

    def add(self, s, a, r, discount, s_next):
        mask = (torch.rand(self.heads) < MASK_PROBABILITY).float()
        for column, value in zip(self.columns, (s, a, r, discount, s_next, mask)):
            column[self.steps % CAPACITY] = value
        self.steps += 1

    def sample_minibatch(self):
        rows = torch.randint(min(self.steps, CAPACITY), (BATCH_SIZE,))
        return [column[rows] for column in self.columns]


def mlp(*widths):
    layers = [layer for i, o in pairwise(widths) for layer in (nn.Linear(i, o), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


class WithPrior(nn.Module):
    """A network that is trained plus β times another of the same architecture that is not."""

    def __init__(self, build, beta):
        super().__init__()
        self.network, self.prior, self.beta = build(), build().requires_grad_(False), beta

    def forward(self, s):
        return self.network(s) + self.beta * self.prior(s)


class PINs:
    def __init__(self, inputs, actions, mean_hidden=(300,), uncertainty_hidden=(512,), heads=10):
        self.heads, self.phases, self.buffer = heads, 0, Buffer(inputs, heads)
        self.nu = WithPrior(lambda: mlp(inputs, *mean_hidden, actions), BETA_1)
        as_heads = nn.Softplus(), nn.Unflatten(1, (heads, actions))
        self.m = WithPrior(lambda: nn.Sequential(mlp(inputs, *uncertainty_hidden, heads * actions), *as_heads), BETA_2)
        self.nu_target, self.m_target = copy.deepcopy(self.nu), copy.deepcopy(self.m)
        trained = [*self.nu.network.parameters(), *self.m.network.parameters()]
        self.adam = torch.optim.Adam(trained, LEARNING_RATE, fused=True)

    def sample_index(self):
        self.z, self.u = torch.randn(()), torch.randint(self.heads, ())

    @torch.no_grad()
    def act(self, s):
        values = self.nu(s[None])[0] + self.m(s[None])[0, self.u] * self.z  # Q_z of the episode's head
        return values.argmax().item()

    def learn_from_buffer(self, batches=BATCHES):
        for _ in range(batches):  # Algorithm 3, line 1
            self.update(*self.buffer.sample_minibatch(), torch.rand(BATCH_SIZE, self.heads))  # line 2
        self.phases += 1
        if self.phases % TARGET_PERIOD == 0:
            self.nu_target.load_state_dict(self.nu.state_dict())
            self.m_target.load_state_dict(self.m.state_dict())

    def update(self, s, a, r, discount, s_next, mask, keys):
        """Lines 3 to 8 on one minibatch; the largest of the uniform `keys` picks the head among those with a bit."""
        i, a = torch.arange(len(s)), a.long()
        with torch.no_grad():
            nu_next, m_next = self.nu_target(s_next), self.m_target(s_next)
            a_bar = nu_next.argmax(1)  # line 3
            u = (mask + keys).argmax(1)  # line 5
            nu_goal = r + DISCOUNT * discount * nu_next[i, a_bar]
            m_goal = SIGMA + DISCOUNT * discount * m_next[i, u, a_bar]
        nu_loss = mse_loss(self.nu(s)[i, a], nu_goal)  # line 4
        m_loss = mse_loss(self.m(s)[i, u, a], m_goal)  # line 6
        self.adam.zero_grad()
        (nu_loss + m_loss).backward()  # no parameter is in both
        self.adam.step()  # lines 7 and 8
        return nu_loss, m_loss


def live(agent, environment, episodes):
    """Algorithm 2, live_IS; tells after which episode 50 of the last 100 had found the treasure, or None."""
    treasures = []
    for episode in range(1, episodes + 1):  # line 1
        agent.sample_index()  # line 2
        if agent.buffer.steps >= MIN_STEPS:
            agent.learn_from_buffer()  # line 3
        s, done = environment.reset(), False  # line 4
        while not done:  # line 5
            a = agent.act(s)  # line 6
            s_next, r, done = environment.step(a)  # line 7
            agent.buffer.add(s, a, r, 1.0 - done, s_next)  # line 9
            s = s_next
        treasures.append(r > 0.5)
        if sum(treasures[-100:]) >= 50:
            return episode


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="PINs on Deep-sea, one seed after another.")
    for name, default in {"size": 10, "seeds": 5, "episodes": 1500}.items():
        parser.add_argument(f"--{name}", type=int, default=default, help="default: %(default)s")
    options = parser.parse_args()
    torch.set_num_threads(1)
    learned = 0
    for seed in range(options.seeds):
        torch.manual_seed(seed)
        episode = live(PINs(options.size**2, actions=2), DeepSea(options.size), options.episodes)
        learned += episode is not None
        print(f"seed {seed}:", f"learned after {episode} episodes" if episode else "not learned", flush=True)
    print(f"learned Deep-sea N = {options.size} in {learned} of {options.seeds} seeds")
