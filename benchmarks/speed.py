"""How fast PINs learn and act: all seeds at once against plain PyTorch, one seed after another.

    python benchmarks/speed.py [--seeds 1,5,20] [--repeats 15]

Plain PyTorch is `examples/pins.py` on bsuite's environments. An episode is a learning phase (sampling, targets,
optimiser) and then its steps (acting, environment, storing), which are timed apart; the ratio of the whole job is for
episodes of the paper: 100 updates and 1,000 steps on Cartpole swing-up, 10 updates and N steps on Deep-sea. `WideHeads`
is the plugin of the README. Contenders take turns episode by episode, and figures are medians.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dm_env
import numpy as np
import torch
from bsuite.environments.deep_sea import DeepSea
from bsuite.experiments.cartpole_swingup.cartpole_swingup import CartpoleSwingup
from rich.console import Console
from rich.table import Table
from timing import Cost, median_cost, show_goal, take_turns, time_episodes

from examples import pins
from explore._config.discovery import Registry, discover
from explore._config.gin_files import format_binding
from explore._running.experiment import load

Episode = Callable[[], Cost]


@dataclass(frozen=True)
class Task:
    title: str
    recipe: str
    bindings: Sequence[str]
    updates: int  # in a learning phase
    steps: int  # of an episode
    warm_up: int  # episodes that fill the replay
    environment: Callable[[], dm_env.Environment]  # bsuite's
    networks: dict[str, Any]  # of the recipe, for plain PyTorch


FAR = 1e9  # the track's end, so that every episode runs to the time limit

CARTPOLE = Task(
    title="Cartpole swing-up",
    recipe="pins_cartpole",
    bindings=[format_binding("environment.CartpoleSwingup.x_threshold", FAR)],
    updates=100,
    steps=1000,
    warm_up=5,
    environment=lambda: CartpoleSwingup(height_threshold=0.95, move_cost=0.05, x_threshold=FAR),
    networks={"mean_hidden": (50, 50, 50), "uncertainty_hidden": (50, 50, 50), "heads": 2},
)
DEEP_SEA = Task(
    title="Deep-sea, N = 30",
    recipe="pins_deep_sea",
    bindings=[format_binding("environment.DeepSea.size", 30)],
    updates=10,
    steps=30,
    warm_up=50,
    environment=lambda: DeepSea(30, mapping_seed=0),
    networks={"mean_hidden": (300,), "uncertainty_hidden": (512,), "heads": 10},
)
WIDE = {"uncertainty_hidden": (1024,), "heads": 4}
JOB_GOALS = {"1 seed": 10, "5 seeds": 22, "20 seeds": 25, "5 seeds, WideHeads": 15}  # swing-up
UPDATE_GOAL = {"5 seeds": 30}  # Deep-sea


def load_ours(task: Task, seeds: int, registry: Registry, heads: str | None = None) -> Episode:
    bindings = [
        *task.bindings,
        format_binding("experiment.seeds", tuple(range(seeds))),
        format_binding("agent.Indexed.batches_per_episode", task.updates),
        format_binding("agent.Indexed.min_replay", 1),  # every episode timed is one with learning
    ]
    if heads:
        bindings.append(f"agent.Indexed.uncertainty = @uncertainty.{heads}")
    return time_episodes(load(task.recipe, bindings, registry).build(), task.updates)


def build_plain(task: Task, **networks: Any) -> Episode:
    environment = task.environment()
    inputs = int(np.prod(environment.observation_spec().shape))
    agent = pins.PINs(inputs, environment.action_spec().num_values, **task.networks | networks)

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


def discover_with(page: str, *names: str) -> Registry:
    """What there is when these files, which a page of the documentation shows, are loaded."""
    text = (Path(__file__).parent.parent / page).read_text()
    blocks = dict(re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            (Path(folder) / name).write_text(blocks[name])
        return discover([str(Path(folder) / name) for name in names])


def compare(task: Task, plain: Episode, ours: dict[str, Episode], repeats: int, goals: tuple[dict, dict]) -> Table:
    """A table of costs and of plain PyTorch's costs divided by them; goals are of an update and of the whole job."""
    costs = {name: median_cost(one) for name, one in take_turns({"": plain} | ours, task.warm_up, repeats).items()}
    table = Table(title=f"PINs on {task.title}, per seed", title_justify="left")
    table.add_column("", no_wrap=True)
    for column in ("update [ms]", "ratio", "step [µs]", "ratio", "whole job: ratio"):
        table.add_column(column.replace("[", r"\["), justify="right")
    slow = costs[""]
    for name, cost in costs.items():
        job = slow.of_episode(task.updates, task.steps) / cost.of_episode(task.updates, task.steps)
        table.add_row(
            name or "plain PyTorch",
            f"{cost.update * 1e3:.3f}", show_goal(goals[0].get(name), slow.update / cost.update),
            f"{cost.step * 1e6:.1f}", f"{slow.step / cost.step:.1f}", show_goal(goals[1].get(name), job),
        )  # fmt: skip
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="1,5,20", help="numbers of seeds run together (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=15, help="episodes timed (default: %(default)s)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    registry, counts = discover_with("README.md", "wide_heads.py"), map(int, options.seeds.split(","))
    names = {f"{seeds} seed{'s' if seeds > 1 else ''}": seeds for seeds in counts}
    for task, goals in ((CARTPOLE, ({}, JOB_GOALS)), (DEEP_SEA, (UPDATE_GOAL, {}))):
        ours = {name: load_ours(task, seeds, registry) for name, seeds in names.items()}
        Console().print(compare(task, build_plain(task), ours, options.repeats, goals))
    wide = {"5 seeds, WideHeads": load_ours(CARTPOLE, 5, registry, "WideHeads")}
    Console().print(compare(CARTPOLE, build_plain(CARTPOLE, **WIDE), wide, options.repeats, ({}, JOB_GOALS)))


if __name__ == "__main__":
    main()
