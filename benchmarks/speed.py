"""How fast PINs learn and act: all seeds as one batch against plain PyTorch, one seed after another.

    python benchmarks/speed.py [--seeds 1,5,20] [--repeats 15]

An episode is a learning phase (sampling, targets, optimiser) and then its steps (acting, environment,
storing), which are timed apart. Contenders take turns episode by episode, so that a noisy machine
disturbs all of them alike, and figures are medians. Plain PyTorch is `examples/pins.py`.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

import dm_env
import numpy as np
import torch
from bsuite.environments.deep_sea import DeepSea
from bsuite.experiments.cartpole_swingup.cartpole_swingup import CartpoleSwingup
from rich.console import Console
from rich.table import Table

from examples import pins
from explore._config.discovery import Registry, discover
from explore._config.gin_files import format_binding
from explore._running.experiment import load
from explore._running.loop import play_episode


class Cost(NamedTuple):
    """Of one seed, in seconds."""

    update: float
    step: float


Episode = Callable[[], Cost]
"""Plays an episode and tells what it cost."""

PLAIN = "plain PyTorch,\none seed after another"
PAPERS_CODE = Cost(1.9e-3, 390e-6)  # measured once on such a machine; a step is 350 µs, and 40 µs to store it


@dataclass(frozen=True)
class Task:
    title: str
    recipe: str
    bindings: Sequence[str]
    updates: int  # in a learning phase
    warm_up: int  # episodes that fill the replay
    environment: Callable[[], dm_env.Environment]  # bsuite's
    networks: dict[str, Any]  # of the recipe, for the plain implementation
    goals: dict[str, Cost]  # for 5 seeds, by contender


FAR = 1e9  # the track's end, so that every episode runs to the time limit

CARTPOLE = Task(
    title="Cartpole swing-up",
    recipe="pins_cartpole",
    bindings=[format_binding("environment.CartpoleSwingup.x_threshold", FAR)],
    updates=100,
    warm_up=5,
    environment=lambda: CartpoleSwingup(height_threshold=0.95, move_cost=0.05, x_threshold=FAR),
    networks={"mean_hidden": (50, 50, 50), "uncertainty_hidden": (50, 50, 50), "heads": 2},
    goals={"1 seed": 10, "5 seeds": 22, "20 seeds": 25},
)
DEEP_SEA = Task(
    title="Deep-sea, N = 30",
    recipe="pins_deep_sea",
    bindings=[format_binding("environment.DeepSea.size", 30)],
    updates=10,
    warm_up=50,
    environment=lambda: DeepSea(30, mapping_seed=0),
    networks={"mean_hidden": (300,), "uncertainty_hidden": (512,), "heads": 10},
    goals={"5 seeds": 30},
)


def ours(task: Task, seeds: int, registry: Registry) -> Episode:
    bindings = [
        *task.bindings,
        format_binding("experiment.seeds", tuple(range(seeds))),
        format_binding("agent.Indexed.batches_per_episode", task.updates),
        format_binding("agent.Indexed.min_replay", 1),  # every episode timed is one with learning
    ]
    experiment = load(task.recipe, bindings, registry).build()
    agent, marks = experiment.agent, []
    learn = agent.learn

    def timed() -> None:
        marks.append(time.perf_counter())
        learn()
        marks.append(time.perf_counter())

    agent.learn = timed

    def episode() -> Cost:
        marks.clear()
        lanes = play_episode(agent, experiment.environments, progress=0.5)
        began, learned, ended = *marks, time.perf_counter()
        return Cost((learned - began) / task.updates / seeds, (ended - learned) / lanes.lengths.sum())

    return episode


def plain(task: Task) -> Episode:
    environment = task.environment()
    inputs = int(np.prod(environment.observation_spec().shape))
    agent = pins.PINs(inputs, environment.action_spec().num_values, **task.networks)

    def episode() -> Cost:
        timestep, steps = environment.reset(), 0
        s = as_tensor(timestep)
        began = time.perf_counter()
        agent.sample_index()
        if agent.buffer.steps:
            agent.learn_from_buffer(task.updates)
        learned = time.perf_counter()
        while not timestep.last():
            a = agent.act(s)
            timestep = environment.step(a)
            s_next = as_tensor(timestep)
            agent.buffer.add(s, a, timestep.reward, timestep.discount, s_next)
            s, steps = s_next, steps + 1
        return Cost((learned - began) / task.updates, (time.perf_counter() - learned) / steps)

    return episode


def as_tensor(timestep: dm_env.TimeStep) -> torch.Tensor:
    """The observation as an example takes it."""
    return torch.from_numpy(timestep.observation.ravel().astype(np.float32))


def measure(contenders: dict[str, Episode], warm_up: int, repeats: int) -> dict[str, Cost]:
    for episode in contenders.values():
        for _ in range(warm_up):
            episode()
    costs: dict[str, list[Cost]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, episode in contenders.items():
            costs[name].append(episode())
    return {name: Cost(*map(median, zip(*measured))) for name, measured in costs.items()}


def table(task: Task, costs: dict[str, Cost]) -> Table:
    table = Table(title=f"PINs on {task.title}, per seed", title_justify="left")
    table.add_column("", no_wrap=True)
    for column in ("update [ms]", "ratio", "goal", "step [µs]", "ratio", "goal"):
        table.add_column(column.replace("[", r"\["), justify="right")
    slow = costs[PLAIN]
    for name, cost in costs.items():
        goal = task.goals.get(name, Cost(math.inf, math.inf))
        table.add_row(
            name,
            f"{cost.update * 1e3:.3f}", f"{slow.update / cost.update:.1f}", at_most(goal.update * 1e3),
            f"{cost.step * 1e6:.0f}", f"{slow.step / cost.step:.1f}", at_most(goal.step * 1e6),
        )  # fmt: skip
    return table


def at_most(goal: float) -> str:
    return "" if math.isinf(goal) else f"≤ {goal:g}"


def whole_run(name: str, costs: dict[str, Cost]) -> str:
    """The paper's run of 5 seeds, projected: 3,000 episodes of 100 updates and 1,000 steps."""
    ours, plain, papers = (
        5 * 3000 * (100 * cost.update + 1000 * cost.step) / 3600 for cost in (costs[name], costs[PLAIN], PAPERS_CODE)
    )
    return (
        f"5 seeds of 3,000 episodes: {name} {ours:.2f} h; plain PyTorch {plain:.2f} h, {plain / ours:.1f} times as "
        f"long; the paper's code, by figures from a quiet machine, {papers:.2f} h, {papers / ours:.1f} times (goal: 8)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed of PINs against plain PyTorch.")
    parser.add_argument("--seeds", default="1,5,20", help="numbers of seeds run together (default: %(default)s)")
    parser.add_argument("--compile", action="store_true", help="measure compile = True as well")
    parser.add_argument("--repeats", type=int, default=15, help="episodes timed (default: %(default)s)")
    options = parser.parse_args()
    counts = [int(number) for number in options.seeds.split(",")]

    torch.set_num_threads(1)
    console, registry = Console(), discover()
    for task in (CARTPOLE, DEEP_SEA):
        contenders = {PLAIN: plain(task)}
        for seeds in counts:
            name = f"{seeds} seed{'s' if seeds > 1 else ''}"
            contenders[name] = ours(task, seeds, False, registry)
            if options.compile:
                contenders[f"{name}, compiled"] = ours(task, seeds, True, registry)
        costs = measure(contenders, task.warm_up, options.repeats)
        console.print(table(task, costs))
        if task is CARTPOLE:
            for name in filter(costs.__contains__, task.goals):
                console.print(whole_run(name, costs))


if __name__ == "__main__":
    main()
