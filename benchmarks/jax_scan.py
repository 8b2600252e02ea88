"""The inner loop of PINs' updates against the fastest that can be written by hand: a jitted scan in JAX.

    python benchmarks/jax_scan.py [--seeds 1,5,20] [--repeats 30]

Networks and minibatches of Cartpole swing-up. The scan makes 100 bare updates of one seed: forward, losses, backward
and Adam, on minibatches, priors and targets that are there already. Of explore, the same part of a learning phase is
timed, and the whole phase, with sampling and targets. Both use one thread, and take turns.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from speed import CARTPOLE
from timing import take_turns, time_episodes

from explore._config.discovery import discover
from explore._config.gin_files import format_binding
from explore._running.experiment import load

try:
    import jax
    import jax.numpy as jnp
except ImportError as error:
    print(f"jax_scan.py: {error}; install what it measures with: pip install '.[benchmark]'", file=sys.stderr)
    sys.exit(2)

OBSERVATION, ACTIONS, HEADS, HIDDEN, BATCH_SIZE, UPDATES = 8, 3, 2, (50, 50, 50), 64, 100
RATE, BETA1, BETA2, EPSILON = 1e-3, 0.9, 0.999, 1e-8

Seconds = dict[str, float]
"""Of one update of one seed."""


def build_network(random: np.random.Generator, outputs: int) -> list[tuple[Any, Any]]:
    widths = [OBSERVATION, *HIDDEN, outputs]
    return [(jnp.asarray(random.normal(size=(a, b)) / a**0.5, jnp.float32), jnp.zeros(b)) for a, b in pairwise(widths)]


def evaluate(layers: list[tuple[Any, Any]], x: Any) -> Any:
    for weight, bias in layers[:-1]:
        x = jax.nn.relu(x @ weight + bias)
    weight, bias = layers[-1]
    return x @ weight + bias


def compute_loss(networks: dict[str, Any], minibatch: dict[str, Any]) -> Any:
    rows, action = jnp.arange(BATCH_SIZE), minibatch["action"]
    mean = evaluate(networks["mean"], minibatch["obs"])[rows, action] + minibatch["mean_prior"]
    scale = jax.nn.softplus(evaluate(networks["scale"], minibatch["obs"])).reshape(-1, ACTIONS, HEADS)[rows, action]
    errors = (scale + minibatch["scale_prior"] - minibatch["scale_target"])[rows, minibatch["head"]]
    return ((mean - minibatch["mean_target"]) ** 2).mean() + (errors**2).mean()


def update(state: tuple[Any, Any, Any, Any], minibatch: dict[str, Any]) -> tuple[Any, Any]:
    networks, mean, square, step = state
    loss, gradient = jax.value_and_grad(compute_loss)(networks, minibatch)
    step = step + 1
    mean = jax.tree.map(lambda m, g: BETA1 * m + (1 - BETA1) * g, mean, gradient)
    square = jax.tree.map(lambda v, g: BETA2 * v + (1 - BETA2) * g * g, square, gradient)
    size, scale = RATE / (1 - BETA1**step), 1 / (1 - BETA2**step)
    networks = jax.tree.map(lambda p, m, v: p - size * m / (jnp.sqrt(v * scale) + EPSILON), networks, mean, square)
    return (networks, mean, square, step), loss


def build_scan() -> Callable[[], Seconds]:
    random = np.random.default_rng(0)
    networks = {"mean": build_network(random, ACTIONS), "scale": build_network(random, ACTIONS * HEADS)}
    shapes = {
        "obs": (OBSERVATION,), "mean_prior": (), "mean_target": (), "scale_prior": (HEADS,), "scale_target": (HEADS,),
    }  # fmt: skip
    minibatches = {
        name: jnp.asarray(random.normal(size=(UPDATES, BATCH_SIZE, *shape)), jnp.float32)
        for name, shape in shapes.items()
    }
    for name, number in {"action": ACTIONS, "head": HEADS}.items():
        minibatches[name] = jnp.asarray(random.integers(number, size=(UPDATES, BATCH_SIZE)))
    zeros = jax.tree.map(jnp.zeros_like, networks)
    state = (networks, zeros, zeros, jnp.zeros(()))
    scan = jax.jit(partial(jax.lax.scan, update))

    def phase() -> Seconds:
        nonlocal state
        began = time.perf_counter()
        state, _ = jax.block_until_ready(scan(state, minibatches))
        return {"updates": (time.perf_counter() - began) / UPDATES}

    return phase


def build_ours(seeds: int) -> Callable[[], Seconds]:
    bindings = [
        *CARTPOLE.bindings,
        format_binding("experiment.seeds", tuple(range(seeds))),
        format_binding("agent.Indexed.batches_per_episode", UPDATES),
        format_binding("agent.Indexed.min_replay", 1),
    ]
    experiment = load(CARTPOLE.recipe, bindings, discover()).build()
    parts, seconds = experiment.agent.learner._parts, [0.0]
    steps = parts["updates"]

    def timed(*arguments: Any, **named: Any) -> Any:
        began = time.perf_counter()
        found = steps(*arguments, **named)
        seconds[0] = time.perf_counter() - began
        return found

    parts["updates"] = timed
    episode = time_episodes(experiment, UPDATES)
    return lambda: {"whole phase": episode().update, "updates": seconds[0] / UPDATES / seeds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="1,5,20", help="numbers of seeds run together (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=30, help="learning phases timed (default: %(default)s)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    counts = list(map(int, options.seeds.split(",")))
    contenders = {"jax": build_scan()} | {str(seeds): build_ours(seeds) for seeds in counts}
    rounds = take_turns(contenders, 5, options.repeats)
    scan = median(one["updates"] for one in rounds["jax"])
    table = Table(title=f"PINs on Cartpole swing-up: a JAX scan takes {scan * 1e6:.0f} µs per update")
    for column in ("explore, per seed", "updates [µs]", "of JAX (goal ≤ 1)", "whole phase [µs]", "of JAX (goal ≤ 1.3)"):
        table.add_column(column.replace("[", r"\["), justify="right")
    for seeds in counts:
        row = [f"{seeds} seed{'s' if seeds > 1 else ''}"]
        for what in ("updates", "whole phase"):
            seconds = median(one[what] for one in rounds[str(seeds)])
            row += [f"{seconds * 1e6:.0f}", f"{seconds / scan:.2f}"]
        table.add_row(*row)
    Console().print(table)


if __name__ == "__main__":
    main()
