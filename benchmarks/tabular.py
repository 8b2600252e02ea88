"""How fast tabular Wasserstein TD is: all MDPs as lanes of one program against a plain loop, one after another.

    python benchmarks/tabular.py [--mdps 200] [--episodes 2000] [--plain-mdps 2] [--plain-episodes 100]

Both play the MDPs of `gin/wtd_random_mdp.gin` and compute the exact regret of every episode. The plain
program is `examples/wtd.py`, a loop over (h, x, a); it plays fewer MDPs and episodes, and its time is
projected from these; that flatters it, for the more it has seen the longer its sums are.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from explore_plugins.random_mdp import RandomMDP

from examples.wtd import WTD
from explore._config.discovery import discover
from explore._config.gin_files import format_binding
from explore._running.experiment import load

GOAL = 50


def ours(mdps: int, episodes: int) -> float:
    """Seconds."""
    bindings = [format_binding("experiment.seeds", mdps), format_binding("experiment.episodes", episodes)]
    experiment = load("wtd_random_mdp", bindings, discover()).build()
    start = time.perf_counter()
    for _ in experiment.train():
        pass
    return time.perf_counter() - start


class Plain:
    """`examples/wtd.py` on one MDP, with exact regret."""

    def __init__(self, mdp: RandomMDP, rng: np.random.Generator):
        self.mdp, self.rng = mdp, rng
        horizon, states, actions, _ = mdp.outcomes.shape
        self.agent = WTD(horizon, states, actions, sigma=np.sqrt(3) * horizon, prior_mean=horizon, beta=3.0)
        model = mdp.true_model()
        self.transitions, self.rewards = model.transitions, model.rewards
        self.best = self.value(None)

    def value(self, values: np.ndarray | None) -> float:
        """What the greedy policy is worth in state 0; without values, the best policy."""
        horizon, states, actions = self.agent.shape
        later = np.zeros(states)
        for h in reversed(range(horizon)):
            now = np.zeros(states)
            for x in range(states):
                worth = [self.rewards[h, x, a] + self.transitions[h, x, a] @ later for a in range(actions)]
                now[x] = max(worth) if values is None else worth[values[h, x].argmax()]
            later = now
        return later[0]

    def episode(self) -> float:
        """Its regret."""
        horizon, states, _ = self.agent.shape
        self.agent.plan(self.rng.standard_normal(self.agent.shape))
        x = self.mdp.reset().observation % states
        for h in range(horizon):
            a = int(self.agent.act(h, x))
            timestep = self.mdp.step(a)
            x_next = timestep.observation % states
            self.agent.observe(h, x, a, timestep.reward, x_next)
            x = x_next
        return self.best - self.value(self.agent.q)


def plain(mdps: int, episodes: int) -> float:
    """Seconds."""
    start = time.perf_counter()
    for seed in range(mdps):
        agent = Plain(RandomMDP(seed), np.random.default_rng(seed))
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
    print(f"{mdps} MDPs, {episodes:,} episodes: {took:.1f} s")
    print(f"one after another: {projected:.0f} s, projected; {projected / took:.0f} times as long (goal {GOAL})")


if __name__ == "__main__":
    main()
