"""How fast tabular Wasserstein TD is: all MDPs as lanes of one program against a plain loop, one after another.

    python benchmarks/tabular.py [--mdps 200] [--episodes 2000] [--plain-mdps 2] [--plain-episodes 100]

Both play the MDPs of `gin/wtd_random_mdp.gin` and compute the exact regret of every episode. The plain
program is as one would write it from the paper, a loop over (h, x, a) with numpy's means; it plays
fewer MDPs and episodes, and its time is projected from these; that flatters it, for the more it has seen
the longer its sums are.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from explore_plugins.random_mdp import RandomMDP

from explore._config.discovery import discover
from explore._config.gin_files import format_binding
from explore._running.experiment import load
from explore.streams import integer_seed

GOAL = 60.0  # seconds, of 200 MDPs and 2,000 episodes
RATIO = 10.0


def ours(mdps: int, episodes: int) -> float:
    """Seconds."""
    bindings = [format_binding("experiment.seeds", mdps), format_binding("experiment.episodes", episodes)]
    experiment = load("wtd_random_mdp", bindings, discover()).build()
    start = time.perf_counter()
    for _ in experiment.train():
        pass
    return time.perf_counter() - start


class Plain:
    """Algorithm 1 on one MDP."""

    def __init__(self, mdp: RandomMDP, rng: np.random.Generator):
        self.mdp, self.rng = mdp, rng
        self.horizon, self.states, self.actions, _ = mdp.outcomes.shape
        self.sigma, self.prior_mean, self.beta = np.sqrt(3) * self.horizon, self.horizon, 3.0
        self.prior_sigma = self.sigma / np.sqrt(self.beta)
        places = np.ndindex(self.horizon, self.states, self.actions)
        self.seen: dict[tuple[int, ...], list[tuple[float, int]]] = {place: [] for place in places}
        model = mdp.true_model()
        self.transitions, self.rewards = model.transitions, model.rewards
        self.best = self.value(None)

    def value(self, values: np.ndarray | None) -> float:
        """What the greedy policy is worth in state 0; without values, the best policy."""
        later = np.zeros(self.states)
        for h in reversed(range(self.horizon)):
            now = np.zeros(self.states)
            for x in range(self.states):
                worth = [self.rewards[h, x, a] + self.transitions[h, x, a] @ later for a in range(self.actions)]
                now[x] = max(worth) if values is None else worth[values[h, x].argmax()]
            later = now
        return later[0]

    def plan(self) -> np.ndarray:
        z = self.rng.standard_normal((self.horizon, self.states, self.actions))
        values = np.zeros((self.horizon + 1, self.states, self.actions))
        for h in reversed(range(self.horizon)):
            later = values[h + 1].max(-1)
            for x in range(self.states):
                for a in range(self.actions):
                    outcomes = self.seen[h, x, a]
                    n = len(outcomes)
                    targets = sum(reward + later[following] for reward, following in outcomes)
                    nu = (targets + self.beta * self.prior_mean) / (n + self.beta)
                    m = (np.sqrt(n) * self.sigma + self.beta * self.prior_sigma) / (n + self.beta)
                    values[h, x, a] = nu + m * z[h, x, a]
        return values

    def episode(self) -> float:
        """Its regret."""
        values = self.plan()
        timestep = self.mdp.reset()
        for h in range(self.horizon):
            x = timestep.observation % self.states
            a = int(values[h, x].argmax())
            timestep = self.mdp.step(a)
            self.seen[h, x, a].append((timestep.reward, timestep.observation % self.states))
        return self.best - self.value(values)


def plain(mdps: int, episodes: int) -> float:
    """Seconds."""
    start = time.perf_counter()
    for seed in range(mdps):
        agent = Plain(RandomMDP(integer_seed(seed, "environment")), np.random.default_rng(seed))
        for _ in range(episodes):
            agent.episode()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed of tabular Wasserstein TD against a plain loop.")
    for name, default in {"mdps": 200, "episodes": 2000, "plain-mdps": 2, "plain-episodes": 100}.items():
        parser.add_argument(f"--{name}", type=int, default=default, help="default: %(default)s")
    options = parser.parse_args()
    torch.set_num_threads(1)

    mdps, episodes, few = options.mdps, options.episodes, options.plain_mdps * options.plain_episodes
    projected = plain(options.plain_mdps, options.plain_episodes) * mdps * episodes / few
    took = ours(mdps, episodes)
    print(f"{mdps} MDPs, {episodes:,} episodes: {took:.1f} s (goal {GOAL:g})")
    print(f"one after another: {projected:.0f} s, projected; {projected / took:.0f} times as long (goal {RATIO:g})")


if __name__ == "__main__":
    main()
