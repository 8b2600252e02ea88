"""Adds seeds to a finished run, and goes on with a run to which seeds were added.

Lanes are independent, so seeds can be run in parts, see `explore._storage.parts`: the run is what they are together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from explore._config.discovery import discover
from explore._config.gin_files import format_binding, format_value, read_bindings
from explore._messages import note
from explore._running.experiment import load, preserve_generators, seed_generators
from explore._running.preflight import to_bytes
from explore._running.provenance import describe_changed_bindings, describe_changes
from explore._running.resume import check_plugins, find_checkpoint, refuse_changes
from explore._running.summary import merge_summaries
from explore._state import capture
from explore._storage.parts import list_parts, merge_rows, merge_snapshots
from explore._storage.run_folder import Run
from explore._storage.run_writer import RunWriter
from explore._storage.snapshots import is_due
from explore.errors import UserError
from explore.streams import global_generators

if TYPE_CHECKING:
    from explore._running.run import Request

SEEDS = re.compile(r"(?m)^(experiment:\n(?:  .*\n)*?  seeds +=).*$")

Train = Callable[["Request"], Run]


def extend_run(request: Request, seeds: Sequence[int], train: Train) -> Run:
    """Adds seeds to a run; raises `UserError`, with nothing written, where all at once would give something else."""
    assert request.folder is not None
    with closing(RunWriter.open_for_resume(request.folder, request.quiet)) as writer:
        run, parts = writer.run, list_parts(request.folder) or [writer.run]
        begun = [part.info["seeds"] for part in parts if part.info["seeds"][0] not in run.info["seeds"]]
        if [*seeds] not in begun:
            for reason in _list_obstacles(run, parts, seeds):
                raise UserError(f"{run.folder} cannot be extended: {reason}")
            new = replace(
                request,
                config=run.folder / "config.gin",
                folder=run.folder / "parts" / str(max(len(parts), 1) + 1),
                bindings=[format_binding("experiment.seeds", tuple(seeds)), "experiment.observers = ()"],
                resume=False,
                whole=run,
            )
            check_plugins(run, discover(request.plugins))
            train(new)
        return _finish(writer, request, train)


def resume_parts(request: Request, train: Train) -> Run:
    """Goes on with all parts of a run, maybe for more episodes."""
    assert request.folder is not None
    with closing(RunWriter.open_for_resume(request.folder, request.quiet)) as writer:
        if request.config is not None or request.bindings:
            registry = discover(request.plugins)
            check_plugins(writer.run, registry)
            config = request.config or request.folder / "config.gin"
            loaded = load(config, request.bindings, registry, allow_imports=request.allow_imports)
            loaded.build()
            changes = describe_changed_bindings(writer.run.config, loaded.text())
            refuse_changes(writer.run, [one for one in changes if not request.force or "experiment.seeds" in one])
        return _finish(writer, request, train)


def check_the_same(whole: Run, made_with: Mapping[str, Any], build: Callable[[], Any]) -> None:
    """Raises `UserError` if new seeds would be run with something else, or are drawn from what all seeds share."""
    if changes := describe_changes(whole.info, made_with):
        raise UserError(f"{whole.folder} cannot be extended: it was made with {'; '.join(changes)}")
    before = _states()
    with preserve_generators():
        build()  # once more: what is imported the first time may draw, too
        if _states() != before:
            raise UserError(f"{whole.folder} cannot be extended: {SHARED}")


SHARED = "its components draw from global generators, which all seeds share"


def _list_obstacles(run: Run, parts: Sequence[Run], seeds: Sequence[int]) -> Iterator[str]:
    """Why more seeds would not be what they are if all had been run at once."""
    if run.status != "done":
        yield f"it is {run.status}; first: explore resume {run.folder}"
    for seed in sorted({*seeds} & {seed for part in parts for seed in part.info["seeds"]}):
        over = seed in run.info["seeds"]
        yield f"it has seed {seed} already" + ("" if over else f", not to its end; first: explore resume {run.folder}")
    bindings, episodes = read_bindings(run.config), run.info["episodes"]
    if bindings.get("experiment.stop_when_solved") == "True":
        yield "with experiment.stop_when_solved every seed runs until all have solved the task"
    due = _list_due(bindings.get("experiment.snapshots", "None"), episodes)
    if run.snapshots.episodes() not in ([], due):
        yield "its snapshots are not those that experiment.snapshots asks for"
    yield from _list_obstacles_of_past(parts[0], episodes)
    yield from _list_shared(parts[0])


def _list_obstacles_of_past(first: Run, episodes: int) -> Iterator[str]:
    resumed = first.info["resumed"]
    if any(entry.get("forced") for entry in resumed):
        yield "it was resumed with --force, so more seeds would be made with something else"
    if any(entry.get("episodes") != episodes for entry in resumed) and "schedule." in first.config:
        yield f"its schedules began with other episodes than {episodes}, and those of more seeds would not"


def _list_shared(first: Run) -> Iterator[str]:
    """Whether components drew from the global generators, which are then not as they were seeded."""
    checkpoint = find_checkpoint(first)
    if checkpoint is None or "generators" not in checkpoint:
        yield "without checkpoints it is not known whether components draw from what all seeds share"
        return
    with preserve_generators():
        seed_generators(first.info["seeds"][0])
        if to_bytes(checkpoint["generators"]) != _states():
            yield SHARED


def _list_due(per_tenfold: str, episodes: int) -> list[int]:
    every = range(1, episodes + 1) if per_tenfold != "None" else ()
    return [episode for episode in every if episode == episodes or is_due(episode, int(per_tenfold))]


def _states() -> Any:
    return to_bytes(capture(global_generators(), "the global generators"))


def _finish(writer: RunWriter, request: Request, train: Train) -> Run:
    """Trains all parts to their ends, and puts them together."""
    run = writer.run
    for part in list_parts(run.folder):
        if part.status != "done" or request.config is not None or request.bindings:
            own = format_binding("experiment.seeds", tuple(part.info["seeds"]))
            train(replace(request, folder=part.folder, bindings=[*request.bindings, own], whole=run))
    parts = list_parts(run.folder)
    first, summaries = parts[0].info, [part.summary for part in parts]
    seeds = [seed for part in parts for seed in part.info["seeds"]]
    config = SEEDS.sub(lambda match: f"{match[1]} {format_value(tuple(seeds))}", parts[0].config, count=1)
    if run.info["status"] == "done" and run.config == config:
        note(f"{run.folder} is done, with {first['episodes']} episodes of {len(seeds)} seeds")
        return run
    common = set.intersection(*({*part.snapshots.episodes()} for part in parts))
    extended = [{"at": p.info["started"], "seeds": p.info["seeds"], "command": p.info["command"]} for p in parts[1:]]
    facts = {**first, "seeds": seeds, "extended": extended, "seconds": sum(part.info["seconds"] for part in parts)}
    snapshots = {n: merge_snapshots([part.snapshots.read(n) for part in parts]) for n in sorted(common)}
    writer.replace(config, merge_rows(parts), snapshots, merge_summaries(summaries), **facts)
    note(f"{run.folder} now has {len(seeds)} seeds")
    return run
