"""BSP_10 against bsuite's own JAX agent, `bsuite.baselines.jax.boot_dqn`, on Deep-sea.

    python benchmarks/boot_dqn.py [--size 20] [--seeds 5] [--repeats 30]

Both have 10 members with one hidden layer of 50 and a prior, batches of 64, masks of probability
0.5, and a target copied every 100 updates; both replays are filled before the clock starts. The two
take turns, a learning phase of 10 updates each, and figures are medians. bsuite's is timed by calls
of its `update`, which also stores a step; JAX is left at its defaults and may use all cores, explore
uses one thread.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from statistics import median

import numpy as np
from bsuite.environments.deep_sea import DeepSea
from rich.console import Console
from rich.table import Table

from explore._config.discovery import discover
from explore._config.gin_files import format_binding
from explore._running.experiment import load
from explore._running.loop import play_episode

try:
    import haiku as hk
    import jax
    import optax
    from bsuite.baselines.jax.boot_dqn.agent import BootstrappedDqn
except ImportError as error:
    print(f"boot_dqn.py: {error}; install what it measures with: pip install '.[benchmark]'", file=sys.stderr)
    sys.exit(2)

MEMBERS, HIDDEN, BATCH_SIZE, UPDATES, TARGET_PERIOD, PRIOR_SCALE = 10, 50, 64, 10, 10, 10.0
FILL = 100  # episodes

Phase = Callable[[], float]
"""Makes `UPDATES` updates and tells how many seconds one took per seed."""


def ours(size: int, seeds: int) -> Phase:
    bindings = {
        "environment.DeepSea.size": size,
        "experiment.seeds": tuple(range(seeds)),
        "uncertainty.Ensemble.size": MEMBERS,
        "value.MLP.hidden": (HIDDEN,),
        "prior.Additive.scale": PRIOR_SCALE,
        "agent.Indexed.batch_size": BATCH_SIZE,
        "agent.Indexed.batches_per_episode": UPDATES,
        "agent.Indexed.target_period": TARGET_PERIOD,
        "agent.Indexed.min_replay": 1,
    }
    experiment = load("bsp10_deep_sea", [format_binding(*pair) for pair in bindings.items()], discover()).build()
    agent, learning = experiment.agent, []
    learn = agent.learn

    def timed() -> None:
        began = time.perf_counter()
        learn()
        learning.append((time.perf_counter() - began) / UPDATES / seeds)

    agent.learn = timed

    def phase() -> float:
        play_episode(agent, experiment.environments, progress=0.5)
        return learning[-1]

    for _ in range(FILL):
        phase()
    return phase


def bsuites(size: int) -> Phase:
    environment = DeepSea(size, mapping_seed=0)
    actions = environment.action_spec()

    def network(inputs: jax.Array) -> jax.Array:
        net, prior = (hk.nets.MLP([HIDDEN, actions.num_values]) for _ in range(2))
        x = hk.Flatten()(inputs)
        return net(x) + PRIOR_SCALE * jax.lax.stop_gradient(prior(x))

    agent = BootstrappedDqn(
        obs_spec=environment.observation_spec(),
        action_spec=actions,
        network=network,
        num_ensemble=MEMBERS,
        batch_size=BATCH_SIZE,
        discount=0.99,
        replay_capacity=10_000,
        min_replay_size=FILL * size,
        sgd_period=1,
        target_update_period=TARGET_PERIOD * UPDATES,
        optimizer=optax.adam(1e-3),
        mask_prob=0.5,
        noise_scale=0.0,
    )
    timestep = environment.reset()

    def update() -> None:
        nonlocal timestep
        if timestep.last():
            timestep = environment.reset()
        action = np.random.randint(actions.num_values)
        following = environment.step(action)
        agent.update(timestep, action, following)
        timestep = following

    def phase() -> float:
        began = time.perf_counter()
        for _ in range(UPDATES):
            update()
        jax.block_until_ready([member.params for member in agent._ensemble])
        return (time.perf_counter() - began) / UPDATES

    for _ in range(FILL * size):
        update()
    return phase


def main() -> None:
    parser = argparse.ArgumentParser(description="BSP_10 against bsuite's JAX boot_dqn.")
    parser.add_argument("--size", type=int, default=20, help="of the Deep-sea (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=5, help="run together by explore (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=30, help="learning phases timed (default: %(default)s)")
    options = parser.parse_args()

    phases = {"bsuite": bsuites(options.size), "explore": ours(options.size, options.seeds)}
    for phase in phases.values():
        for _ in range(3):
            phase()
    rounds = [{name: phase() for name, phase in phases.items()} for _ in range(options.repeats)]
    cost = {name: median(seconds[name] for seconds in rounds) for name in phases}

    table = Table(title=f"Bootstrapped DQN with priors, {MEMBERS} members, Deep-sea N = {options.size}")
    table.add_column("")
    table.add_column("µs per update and seed", justify="right")
    table.add_row("bsuite's JAX boot_dqn, one seed", f"{cost['bsuite'] * 1e6:,.0f}")
    table.add_row(f"explore, {options.seeds} seeds together", f"{cost['explore'] * 1e6:,.0f}")
    table.add_row("ratio (goal: 40)", f"{cost['bsuite'] / cost['explore']:.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
