"""Actions, selected by what a value function believes of the observations of all lanes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import dm_env
import numpy as np
import torch
from torch import Tensor

from explore._native.library import load_library
from explore._native.program import Lanes, Program, choose_lanes
from explore._native.recorder import NotRecordable
from explore._state import capture, restore
from explore._values.indexed_value import IndexedValue
from explore.interfaces import Beliefs, Features, Index, Selection, argmax, select_actions
from explore.interfaces.objective import PlannedProgress
from explore.streams import Generators


class ActionSelector:
    """Selects an action for each lane by what a function believes of one observation; `name` says what for.

    The kernels do it if they can, else PyTorch.
    """

    def __init__(self, function: IndexedValue, selection: Selection, name: str):
        self.function, self.selection, self.name = function, selection, name
        one_hot = isinstance(function.spec.observation, dm_env.specs.DiscreteArray)
        self._dtype = np.int64 if one_hot else np.float32
        self._index: Index | None = None
        self._program: Program | None = None
        self._schedules: list[Callable[[float], float]] | None = None
        self._lanes: dict[tuple[bool, ...], Lanes] = {}
        if function.recording is not None:
            function.recording.watch(selection)

    def select(
        self,
        observations: np.ndarray,
        index: Index,
        generators: Sequence[np.random.Generator],
        active: Sequence[bool],
        progress: float = 0.0,
    ) -> list[int]:
        """Actions at observations `[lanes, ...]`; ties are broken at random. Those of lanes that are not active do not
        matter, and nothing is drawn from their generators."""
        observations = np.asarray(observations, self._dtype)
        if index is not self._index:
            self.hold(observations, index, progress)
        if self._program is None:
            obs = torch.from_numpy(observations).unsqueeze(1).to(self.function.device)
            return self._choose(self.function.acting_features(obs), generators, active, progress)
        self._obs[:] = observations
        key = tuple(active)
        if key not in self._lanes:
            self._lanes[key] = choose_lanes(tuple(lane for lane, on in enumerate(active) if on))
        self._program.run(self._lanes[key])
        if not self._gives_scores:
            return self._choose(tuple(self._results), generators, active, progress)
        if self._argmax(*self._where):
            return argmax(self._results[0].flatten(1, 2), only_active(generators, active)).flatten().tolist()
        return self._best.tolist()

    def hold(self, observations: np.ndarray, index: Index, progress: float = 0.0) -> None:
        """Prepares for acting on this index: the kernels compute the scores of actions, or at least the features."""
        self._index, self._program = index, None
        recording = self.function.recording
        if recording is None:
            return
        obs = torch.from_numpy(observations).unsqueeze(1)
        self._gives_scores = type(self.selection).select is Selection.select
        native, arguments = None, [part.contiguous() for part in index]
        if self._gives_scores:
            arguments += [torch.full((1, 1), schedule(progress)) for schedule in self._list_schedules(obs, index)]
            examples = [obs[:1], *(one[:1] for one in arguments)]
            native = recording.record(f"selection in {self.name}", (self, obs.dtype), self._score, examples)
        if native is None:
            self._gives_scores = False
            native = recording.record(f"networks in {self.name}", (self, obs.dtype), self._compute_features, [obs[:1]])
        if native is None:
            return
        here = obs.clone()
        self._obs, self._best = here.squeeze(1).numpy(), np.zeros(len(obs), np.int64)
        self._results = [torch.zeros(len(obs), 1, *shape[1:]) for shape in native.shapes]
        self._program = native.bind([here, *(arguments if self._gives_scores else [])], self._results)
        self._results = [result.squeeze(1) for result in self._results]
        self._argmax = load_library().argmax
        self._where = self._results[0].data_ptr(), len(obs), self.function.spec.num_actions, self._best.ctypes.data

    def state_dict(self) -> dict[str, Any]:
        """What the selection keeps from one action to the next."""
        return {"selection": capture(self.selection, self.name)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on as the selector whose state this is."""
        self._index = None
        restore(self.selection, state["selection"], self.name)

    def _choose(
        self, features: Features, generators: Sequence[np.random.Generator], active: Sequence[bool], progress: float
    ) -> list[int]:
        own = only_active(generators, active)
        beliefs = Beliefs(self.function, features, self._index or (), own, progress)
        return select_actions(self.selection, beliefs, 1).flatten().tolist()

    def _compute_features(self, obs: Tensor) -> list[Tensor]:
        assert self.function.recording is not None
        features = self.function.recording.alone.acting_features(obs)
        tensors = [one for one in features if isinstance(one, Tensor)]
        if len(tensors) < len(features):
            raise NotRecordable("networks whose values are computed at an index")
        return tensors

    def _list_schedules(self, obs: Tensor, index: Index) -> list[Callable[[float], float]]:
        """Those that the selection follows, in the order in which it asks for their values."""
        if self._schedules is None:
            schedules: list[Callable[[float], float]] = []

            def take(schedule: Callable[[float], float]) -> Tensor:
                schedules.append(schedule)
                return torch.tensor(schedule(0.5))

            with suppress(NotRecordable):
                self._compute_scores(obs[:1], [part[:1] for part in index], take)
            self._schedules = schedules
        return self._schedules

    def _score(self, obs: Tensor, *given: Tensor) -> list[Tensor]:
        parts = len(self.function.parts)
        values = iter(given[parts:])
        scores = self._compute_scores(obs, given[:parts], lambda _: next(values).view(()))
        if scores.shape != (1, 1, 1, self.function.spec.num_actions):
            raise NotRecordable(f"{type(self.selection).__name__} gives scores of shape {[*scores.shape]}")
        return [scores]

    def _compute_scores(self, obs: Tensor, index: Sequence[Tensor], take: Callable[..., Tensor]) -> Tensor:
        """Of a single lane; `take` gives the value of a schedule."""
        assert self.function.recording is not None
        function = self.function.recording.alone
        features: Any = function.acting_features(obs)
        progress: Any = PlannedProgress(take)
        return self.selection.scores(_ValuesOnly(function, features, tuple(index), [], progress))


class _ValuesOnly(Beliefs):
    """Beliefs of which values and schedules can be used, but no random numbers."""

    def __getattribute__(self, name: str) -> Any:
        if name == "generators":
            raise NotRecordable("a selection that uses random numbers")
        return super().__getattribute__(name)


def only_active(generators: Sequence[np.random.Generator], active: Sequence[bool]) -> Generators:
    """The generators of active lanes, and None for the others."""
    return [generator if on else None for generator, on in zip(generators, active)]
