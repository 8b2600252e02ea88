"""BSP_K on Deep-sea: bootstrapped DQN with randomized prior functions (Osband et al., https://arxiv.org/abs/1806.03335),
with the settings of the PINs paper (https://arxiv.org/abs/1912.10577, section "Deep-sea"), whole, in plain PyTorch.

    python examples/bsp.py [--size 10] [--seeds 5] [--episodes 1500]

The value function is Q_k(s, a) = (f_k + β p_k)(s, a): K independent networks f_k are trained, each on the transitions
that its bootstrap mask lets through, and their priors p_k stay as they were drawn. The index is the member k, drawn
for each episode, and held to its end.

All of 5 seeds learn N = 10 within 700 episodes, in about a minute.
"""

import argparse
import copy

import torch
from torch import nn

DISCOUNT, LEARNING_RATE, BATCH_SIZE, BATCHES, TARGET_PERIOD = 0.99, 1e-3, 64, 10, 10
BETA, MASK_PROBABILITY = 10.0, 0.5
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
    """The latest transitions (s, a, r, γ, s', M): γ is 0 where s' is terminal; M is the bootstrap mask of K bits."""

    def __init__(self, inputs, members):
        self.columns = [torch.empty(CAPACITY, *shape) for shape in ((inputs,), (), (), (), (inputs,), (members,))]
        self.members, self.steps = members, 0

    def add(self, s, a, r, discount, s_next):
        mask = (torch.rand(self.members) < MASK_PROBABILITY).float()
        for column, value in zip(self.columns, (s, a, r, discount, s_next, mask)):
            column[self.steps % CAPACITY] = value
        self.steps += 1

    def sample_minibatch(self):
        rows = torch.randint(min(self.steps, CAPACITY), (BATCH_SIZE,))
        return [column[rows] for column in self.columns]


class Members(nn.Module):
    """K networks with one hidden layer, evaluated together: [batch, inputs] -> [K, batch, actions]."""

    def __init__(self, members, inputs, hidden, actions):
        super().__init__()
        self.weight_1, self.weight_2 = (
            nn.Parameter(torch.stack([nn.init.xavier_uniform_(torch.empty(i, o)) for _ in range(members)]))
            for i, o in ((inputs, hidden), (hidden, actions))
        )
        self.bias_1, self.bias_2 = (nn.Parameter(torch.zeros(members, 1, width)) for width in (hidden, actions))

    def forward(self, s):
        return torch.relu(s @ self.weight_1 + self.bias_1) @ self.weight_2 + self.bias_2


class WithPrior(nn.Module):
    """Networks that are trained plus β times others of the same architecture that are not."""

    def __init__(self, *sizes):
        super().__init__()
        self.network, self.prior = Members(*sizes), Members(*sizes).requires_grad_(False)

    def forward(self, s):
        return self.network(s) + BETA * self.prior(s)


class BSP:
    def __init__(self, inputs, actions, hidden=50, members=10):
        self.members, self.phases, self.buffer = members, 0, Buffer(inputs, members)
        self.f = WithPrior(members, inputs, hidden, actions)
        self.f_target = copy.deepcopy(self.f)
        self.adam = torch.optim.Adam(self.f.network.parameters(), LEARNING_RATE, fused=True)

    def sample_index(self):
        self.k = torch.randint(self.members, ()).item()

    @torch.no_grad()
    def act(self, s):
        return self.f(s[None])[self.k, 0].argmax().item()

    def learn_from_buffer(self):
        for _ in range(BATCHES):
            self.update(*self.buffer.sample_minibatch())
        self.phases += 1
        if self.phases % TARGET_PERIOD == 0:
            self.f_target.load_state_dict(self.f.state_dict())

    def update(self, s, a, r, discount, s_next, mask):
        """Every member learns from those transitions of the minibatch whose mask has its bit."""
        with torch.no_grad():
            goal = r + DISCOUNT * discount * self.f_target(s_next).amax(2)  # each member's own best action
        values = self.f(s)[:, torch.arange(len(s)), a.long()]  # [K, batch]
        loss = (mask.T * (values - goal).square()).sum(0).mean()
        self.adam.zero_grad()
        loss.backward()  # of the sum: no member shares a parameter with another
        self.adam.step()
        return loss


def live(agent, environment, episodes):
    """Lives so many episodes; tells after which of them 50 of the last 100 had found the treasure, or None."""
    treasures = []
    for episode in range(1, episodes + 1):
        agent.sample_index()
        if agent.buffer.steps >= MIN_STEPS:
            agent.learn_from_buffer()
        s, done = environment.reset(), False
        while not done:
            a = agent.act(s)
            s_next, r, done = environment.step(a)
            agent.buffer.add(s, a, r, 1.0 - done, s_next)
            s = s_next
        treasures.append(r > 0.5)
        if sum(treasures[-100:]) >= 50:
            return episode


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="BSP_10 on Deep-sea, one seed after another.")
    for name, default in {"size": 10, "seeds": 5, "episodes": 1500}.items():
        parser.add_argument(f"--{name}", type=int, default=default, help="default: %(default)s")
    options = parser.parse_args()
    torch.set_num_threads(1)
    learned = 0
    for seed in range(options.seeds):
        torch.manual_seed(seed)
        episode = live(BSP(options.size**2, actions=2), DeepSea(options.size), options.episodes)
        learned += episode is not None
        print(f"seed {seed}:", f"learned after {episode} episodes" if episode else "not learned", flush=True)
    print(f"learned Deep-sea N = {options.size} in {learned} of {options.seeds} seeds")
