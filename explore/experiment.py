"""An experiment: a task, an agent, and seeds; and the run of it from configuration to folder."""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import dm_env
import numpy as np
import torch

from explore import config as configuration
from explore.discovery import Registry, discover, line_in
from explore.errors import RunFailed, UserError
from explore.gin_files import binding
from explore.interfaces import Agent, Judge, Spec
from explore.loop import play, train
from explore.record import Run, episode_columns, summarise
from explore.streams import Streams, integer_seed


class Experiment:
    """The root of a configuration: all seeds of an agent in copies of an environment.

    Args:
      environment: the task, built once per seed.
      agent: acts and learns, for all seeds at once.
      episodes: episodes of each seed.
      seeds: the seeds, each a lane of the one program.
      evaluate_every: plays an evaluation episode after every so many episodes; None: never.
      stop_when_solved: ends the run once every seed has solved the task.
      threads: torch threads; networks this small are fastest with one.
      device: where tensors live: cpu, cuda, ...
    """

    def __init__(
        self,
        environment: type[dm_env.Environment],
        agent: type[Agent],
        episodes: int,
        seeds: Sequence[int] = (0,),
        evaluate_every: int | None = None,
        stop_when_solved: bool = False,
        threads: int = 1,
        device: str = "cpu",
    ):
        for name, number in (("episodes", episodes), ("evaluate_every", evaluate_every), ("threads", threads)):
            if number is not None and number < 1:
                raise ValueError(f"{name} must be at least 1, got {number!r}")
        if threads > 256:
            raise ValueError(f"threads must be at most 256, got {threads!r}")
        self.episodes, self.evaluate_every, self.stop_when_solved = episodes, evaluate_every, stop_when_solved
        self.seeds, self.threads = _checked_seeds(seeds), threads
        self._build: Callable[[int], Any] = lambda seed: environment(seed=integer_seed(seed, "environment"))
        self.environments = [self._build(seed) for seed in self.seeds]
        self.judges = [getattr(env, "judge", Judge)(env) for env in self.environments]
        if stop_when_solved and not self.judges[0].decides:
            raise ValueError(f"stop_when_solved makes no sense here: nobody says when {self.task} is solved")
        spec = _spec(self.environments[0])
        self.agent: Agent = agent(spec, Streams(self.seeds), _checked_device(device))  # type: ignore[call-arg]
        self.columns = episode_columns(self.agent.columns, self.judges[0].columns, evaluate_every is not None)

    @property
    def task(self) -> str:
        """The environment's name: its attribute `task`, or that of its class."""
        return getattr(self.environments[0], "task", type(self.environments[0]).__name__)

    def run(self, record: Callable[[list[dict[str, Any]]], None]) -> None:
        """Trains all seeds; `record` gets the rows of `episodes.csv` as episodes end."""
        every = self.evaluate_every
        evaluators = [self._build(seed) for seed in self.seeds] if every else []

        def evaluate(episode: int) -> Sequence[float] | None:
            if every is None or episode % every:
                return None
            returns, _ = play(evaluators, self.agent.evaluate, begin=lambda _: self.agent.begin_evaluation())
            return returns

        with _torch(self.threads, self.seeds[0]):
            train(
                self.agent, self.environments, self.judges, self.seeds, self.episodes, record, evaluate,
                self.stop_when_solved,
            )  # fmt: skip


def run(
    config: str | Path,
    *,
    bindings: Sequence[str] = (),
    seeds: Iterable[int] | None = None,
    out: str | Path | None = None,
    plugins: Sequence[str] = (),
    quiet: bool = False,
    allow_imports: bool = False,
) -> Run:
    """Runs the experiment of a gin file and returns the run, done.

    `bindings`, `seeds`, `out`, `plugins` and `allow_imports` are the options of `explore run`.
    """
    bindings, plugins = _listed(bindings), _listed(plugins)
    if seeds is not None:
        bindings = [
            *bindings,
            binding("experiment.seeds", tuple(int(s) if isinstance(s, np.integer) else s for s in seeds)),
        ]
    registry = discover(plugins)
    loaded = configuration.load(config, bindings, registry, allow_imports=allow_imports)
    experiment: Experiment = loaded.build()
    for note in [*map(str, registry.failed), *loaded.unused()]:
        print(f"explore: note: {note}", file=sys.stderr)
    run = Run.create(
        Path(out).expanduser() if out is not None else None,
        name=Path(config).resolve().parent.name if Path(config).name == "config.gin" else Path(config).stem,
        config=loaded.text(),
        columns=experiment.columns,
        seeds=experiment.seeds,
        episodes=experiment.episodes,
        command=sys.argv,
        plugins=[{"name": p.name, "version": p.version, "source": p.source} for p in registry.plugins],
        threads=experiment.threads,
        quiet=quiet,
    )
    _recorded(experiment, run, registry)
    return run


def load_agent(folder: str | Path, plugins: Sequence[str] = (), allow_imports: bool = False) -> Agent:
    """The agent of a run as it was in the end, to be asked for values, uncertainty and actions."""
    run = Run.open(Path(folder))
    registry = discover(_listed(plugins))
    loaded = configuration.load(run.folder / "config.gin", (), registry, allow_imports=allow_imports)
    agent: Agent = loaded.build().agent
    try:
        agent.load_state_dict(run.weights)
    except (KeyError, RuntimeError) as error:
        raise UserError(f"the weights in {run.folder} do not fit its configuration: {error}") from error
    return agent


def _recorded(experiment: Experiment, run: Run, registry: Registry) -> None:
    """Runs the experiment, keeping the run's folder and everyone who watches informed."""
    started, steps = time.perf_counter(), 0

    def record(rows: list[dict[str, Any]]) -> None:
        nonlocal steps
        seconds = round(time.perf_counter() - started, 3)
        rows = [{**row, "seconds": seconds} for row in rows]
        steps = sum(row["steps"] for row in rows)
        run.add(rows)
        _tell(registry.hook.explore_episode_finished, run=run, rows=rows)

    def finish(status: str, reason: str | None = None) -> None:
        judges = dict(zip(experiment.seeds, experiment.judges))
        summary = summarise(judges, task=experiment.task, steps=steps)
        try:
            run.finish(status, summary, reason, seconds=time.perf_counter() - started)
        finally:
            _tell(registry.hook.explore_run_finished, run=run, summary=summary)

    try:
        _tell(registry.hook.explore_run_started, run=run)
        experiment.run(record)
        run.save_weights(experiment.agent.state_dict())
    except KeyboardInterrupt:
        try:
            run.save_weights(experiment.agent.state_dict())
        finally:
            finish("interrupted")
        raise KeyboardInterrupt(f"what there is lies in {run.folder}") from None
    except (Exception, SystemExit) as error:
        failure = error if isinstance(error, RunFailed) else _blamed(error, registry)
        reason = str(failure) if isinstance(failure, RunFailed) else f"{type(error).__name__}: {error}"
        with suppress(RunFailed):  # the disk is full, say: what came first is what to tell
            finish("failed", reason)
        raise failure from error.__cause__
    finish("done")


def _blamed(error: BaseException, registry: Registry) -> BaseException:
    """What went wrong in the code of somebody's plugin, with its name and line."""
    what = " ".join(f"{type(error).__name__}: {error}".split())
    for component in registry.components.values():
        if component.source != "built in" and (where := line_in(error, inspect.getfile(component.cls))):
            return RunFailed(f"{component.selector} of plugin {component.plugin} raises {what}{where}")
    return RunFailed(f"something called for the end of the program: {what}") if isinstance(error, SystemExit) else error


@contextmanager
def _torch(threads: int, seed: int) -> Iterator[None]:
    """The threads of a run; and torch's own generator seeded, for what a plugin may draw from it."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield
    finally:
        torch.set_num_threads(before)


def _listed(texts: Sequence[str]) -> list[str]:
    return [texts] if isinstance(texts, str) else [str(text) for text in texts]


def _tell(hook: Any, **news: Any) -> None:
    """Calls a lifecycle hook; what a plugin that watches does wrong ends the run, and the plugin is named."""
    try:
        hook(**news)
    except (Exception, SystemExit) as error:
        what = " ".join(f"{type(error).__name__}: {error}".split())
        for implementation in hook.get_hookimpls():
            if where := line_in(error, inspect.getfile(implementation.function)):
                name = implementation.plugin_name
                raise RunFailed(f"{hook.name} of the plugin {name} raises {what}{where}") from error
        raise


def _spec(environment: dm_env.Environment) -> Spec:
    actions = environment.action_spec()
    if not isinstance(actions, dm_env.specs.DiscreteArray):
        raise ValueError(f"environment must have discrete actions, got {actions!r}")
    return Spec(environment.observation_spec(), int(actions.num_values))


def _checked_seeds(seeds: Sequence[int]) -> tuple[int, ...]:
    if not seeds or min(seeds) < 0 or len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds must be different whole numbers of at least 0 such as (0, 1, 2), got {seeds!r}")
    return tuple(seeds)


def _checked_device(device: str) -> torch.device:
    try:
        torch.zeros(1, device=device).item()
        return torch.device(device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ValueError(f"device {device!r} is not to be had here: {str(error).splitlines()[0]}") from error
