"""Learning: the paper's learn_from_buffer for all lanes at once.

All that is frozen during a learning phase, targets and priors, is evaluated once for all its
minibatches; only the trained networks run in the inner loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import dm_env
import numpy as np
import torch
from torch import Tensor

from explore._learning.adam import Adam
from explore._learning.native import NativePart, build_native_adam, mark_seen
from explore._learning.replay import Batch, Replay
from explore._learning.trees import map_tensors
from explore._state import capture, restore
from explore._values.indexed_value import IndexedValue
from explore.errors import RunFailed
from explore.interfaces import (
    Beliefs,
    Bits,
    Features,
    Index,
    Network,
    Normals,
    Objective,
    Phase,
    ScaleModule,
    Selection,
    Stored,
    Transitions,
)
from explore.interfaces.memory import ROWS
from explore.streams import Generators

Outputs = tuple[Tensor, ...]
"""What the networks of all parts give."""
Given = tuple[Batch, tuple[Transitions, ...]]
"""A batch, and the same as networks with a loss of their own see it."""
How = tuple[int, Sequence[int], float, Mapping[str, Generators]]
"""The size of minibatches, the lanes that learn, progress, and generators."""
Minibatch = tuple[Tensor, Tensor, Tensor, Mapping[str, Any], tuple[Transitions, ...]]
"""Observations, actions, priors, what the objective prepared, and transitions as in `Given`."""


class Learner:
    """Trains an indexed value function with Adam, each lane on its own.

    `target` selects the next action in the targets, by the values of the target networks, or with
    `double_q` by those that the trained networks have before the phase. `epsilon` and `clip` are Adam's.
    Minibatches are learned from by the kernels if the function is `native` and they can, else by PyTorch.

    `stored` is what must be kept with each transition, and `losses` names what `learn` returns.
    """

    def __init__(
        self,
        function: IndexedValue,
        objective: Objective,
        target: Selection,
        discount: float,
        learning_rate: float,
        epsilon: float = 1e-8,
        clip: float | None = None,
        double_q: bool = False,
        mask_probability: float = 0.5,
    ):
        self.function, self.objective, self.target, self.discount = function, objective, target, discount
        self.double_q = double_q
        objective.check(function)
        indices = function.indexer.distributions
        self._bits = [Bits(index.bits, mask_probability) for index in indices]
        self._noise = [Normals(index.size) for index in indices] if objective.uses_noise else []
        own = [kind for network in function.networks for kind in network.stores.values()]
        self.stored: list[Stored] = [*self._bits, *self._noise, *own]
        self._observers = [network for network in function.networks if type(network).observe is not Network.observe]
        self._trained_apart = _list_trained_apart(function)
        self.losses = (*objective.losses, *(loss for network in self._trained_apart for loss in network.losses))
        self.adam = Adam(function.stacks, learning_rate, epsilon, clip, _count_one_hot(function))
        self._parts: dict[str, NativePart] = {}
        if function.recording is not None:
            function.recording.watch(objective)
            function.recording.watch(target)
            everything: dict[str, Callable[..., Any]] = {
                "targets": self._compute_targets,
                "updates": self._update,
                "steps": self._step,
            }
            self._parts = {name: NativePart(function.recording, name, one) for name, one in everything.items()}
            self._native_adam = build_native_adam(self.adam)

    @torch.no_grad()
    def complete(self, replay: Replay, lanes: Sequence[int], generators: Sequence[np.random.Generator]) -> None:
        """Stores what is kept with the new transitions of some lanes, and shows them to who observes."""
        prior = self._evaluate_prior if self.function.prior_parts else None
        new = replay.complete(lanes, generators, prior)
        if self._observers and any(map(len, new.values())):
            batch, there = replay.read(new, ROWS)
            batch = batch.to(self.function.device)
            for network, transitions in zip(self._observers, self.show(batch, self._observers)):
                transitions.there = there.to(self.function.device)
                for start in range(0, there.shape[1], ROWS):
                    network.observe(transitions.slice(slice(start, start + ROWS)))

    def learn(
        self, batch: Batch, batch_size: int, lanes: Sequence[int], progress: float,
        selecting: Generators, drawing: Generators, measures: bool = True,
    ) -> dict[str, Tensor]:  # fmt: skip
        """A learning phase on a batch that holds all its minibatches, for some of the lanes.

        `selecting` are the streams of the target's selection, `drawing` those of indices to learn
        at. Returns each loss and, if it `measures`, the `uncertainty` (standard deviation of the values
        at the next observations), averaged over the phase, `[lanes]`.
        """
        batch = batch.to(self.function.device)
        own = tuple(self.show(batch, self._trained_apart))
        generators = {"selecting": selecting, "drawing": drawing}
        how = (batch_size, lanes, progress, generators)
        found = self._learn_at_once((batch, own), how, measures) or self._learn_in_parts((batch, own), how, measures)
        if bool(found["negative"].any()):
            [name] = [type(part).__name__ for part in self.function.parts if isinstance(part, ScaleModule)]
            raise RunFailed(f"{name} gave a negative uncertainty; it must never be below 0")
        results = {name: loss.mean(1) for name, loss in found["losses"].items()}
        if measures:
            results["uncertainty"] = _mean_where(self.discount * batch.discount > 0, found["std"])
        return results

    def _learn_at_once(self, given: Given, how: How, measures: bool) -> dict[str, Any] | None:
        """Targets and a step, where there is only one minibatch, by the kernels."""
        (batch, _), (size, lanes, *_) = given, how
        if not self._parts or batch.obs.shape[1] > size:
            return None
        self._mark_seen(batch, lanes)
        return self._parts["steps"](given, *how, measures, self._native_adam)

    def _learn_in_parts(self, given: Given, how: How, measures: bool) -> dict[str, Any]:
        """All targets, then a step on each minibatch."""
        (batch, own), (size, lanes, progress, generators) = given, how
        outputs = tuple(self.function.evaluate_targets(batch.next_obs))
        judging = tuple(self.function.evaluate_trained(batch.next_obs)) if self.double_q else ()
        targets = None
        if self._parts:
            everyone = range(len(self.function.seeds))
            targets = self._parts["targets"]((batch, outputs, judging), size, everyone, progress, generators, measures)
        if targets is None:
            targets = self._compute_targets(self.function, (batch, outputs, judging), progress, generators, measures)
        minibatches = (batch.obs, batch.action, batch.prior, targets["prepared"], own)
        losses = None
        if self._parts:
            self._mark_seen(batch, lanes)
            losses = self._parts["updates"](minibatches, *how, adam=self._native_adam)
        if losses is None:
            losses = self._take_steps(minibatches, size, lanes)
        return targets | {"losses": losses}

    def _take_steps(self, minibatches: Minibatch, size: int, lanes: Sequence[int]) -> dict[str, Tensor]:
        """A step on each minibatch by PyTorch; returns the losses, `[lanes, minibatches]`."""
        obs = minibatches[0]
        self.adam.choose(lanes, 0 if obs.is_floating_point() else int(obs.max()) + 1)
        losses = []
        for start in range(0, obs.shape[1], size):
            losses.append(self._update(self.function, _cut_out(minibatches, slice(start, start + size))))
            self.adam.step()
        return {name: torch.stack([one[name] for one in losses], 1) for name in self.losses}

    def _mark_seen(self, batch: Batch, lanes: Sequence[int]) -> None:
        if not batch.obs.is_floating_point():
            mark_seen(self.adam, lanes, batch.obs.numpy())
            if self._trained_apart:  # which may learn from all that they are shown
                mark_seen(self.adam, lanes, batch.next_obs.numpy())

    # What is done with one minibatch, by PyTorch, or recorded for the kernels with a function of one seed.

    def _step(
        self, function: IndexedValue, given: Given, progress: Any, generators: Mapping[str, Generators], measures: bool
    ) -> dict[str, Any]:
        """Targets and gradients."""
        batch, own = given
        with torch.no_grad():
            outputs = tuple(network(batch.next_obs) for network in function.target_parts)
            judging = tuple(network(batch.next_obs) for network in function.parts) if self.double_q else ()
        targets = self._compute_targets(function, (batch, outputs, judging), progress, generators, measures)
        losses = self._update(function, (batch.obs, batch.action, batch.prior, targets.pop("prepared"), own))
        return targets | {"losses": losses}

    @torch.no_grad()
    def _compute_targets(
        self,
        function: IndexedValue,
        given: tuple[Batch, Outputs, Outputs],
        progress: Any,
        generators: Mapping[str, Generators],
        measures: bool,
    ) -> dict[str, Any]:
        """What the objective prepares; standard deviations at the next observations, if it `measures`; and how many of
        those of heads are negative, which would silently turn into exploration of the opposite sign."""
        phase = self._phase(function, given, progress, generators)
        targets: dict[str, Any] = {"prepared": self.objective.prepare(phase)}
        if measures:
            targets["std"] = function.std(phase.next_features).mean(2)
        return targets | {"negative": function.count_negative_scales(phase.next_features)}

    @torch.enable_grad()
    def _update(self, function: IndexedValue, minibatch: Minibatch, *_: Any) -> dict[str, Tensor]:
        """Adds up gradients; returns the losses."""
        losses = self._compute_losses(function, minibatch)
        torch.stack(list(losses.values())).sum().backward()
        return {name: loss.detach() for name, loss in losses.items()}

    def _compute_losses(self, function: IndexedValue, minibatch: Minibatch) -> dict[str, Tensor]:
        """The losses of a function's networks on a minibatch."""
        obs, action, prior, prepared, own = minibatch
        if prior.numel():  # at every action; the networks are asked at those taken
            prior = prior.gather(2, action[:, :, None, None].expand(-1, -1, 1, prior.shape[-1]))
        losses = self.objective.loss(function, function.trained_features(obs, prior, action), prepared)
        for network, transitions in zip(_list_trained_apart(function), own):
            losses = losses | network.loss(transitions)
        return losses

    def _phase(
        self,
        function: IndexedValue,
        given: tuple[Batch, Outputs, Outputs],
        progress: Any,
        generators: Mapping[str, Generators],
    ) -> Phase:
        batch, outputs, judging_outputs = given
        next_features = function.join(outputs, batch.next_prior, function.target_parts)
        judging: Features = next_features
        if self.double_q:
            judging = function.join(judging_outputs, batch.next_prior, function.parts)

        def look(index: Index) -> Beliefs:
            return Beliefs(function, judging, index, generators["selecting"], progress)

        parts = len(function.parts)
        return Phase(
            function=function,
            transitions=batch.transitions({}),
            reward=batch.reward,
            discount=self.discount * batch.discount,
            bits=tuple(batch.stored[:parts]),
            noise=tuple(batch.stored[parts : parts + len(self._noise)]),
            next_features=next_features,
            look=look,
            target=self.target,
            generators=generators["drawing"],
            progress=progress,
        )

    def state_dict(self) -> dict[str, Any]:
        """What is kept from one phase to the next, apart from the function's."""
        return {"adam": self.adam.state_dict(), "components": capture(self._components(), "learner")}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on as the learner whose state this is."""
        self.adam.load_state_dict(state["adam"])
        restore(self._components(), state["components"], "learner")

    def _components(self) -> dict[str, Any]:
        return {"objective": self.objective, "target": self.target}

    def show(self, batch: Batch, networks: Sequence[Network]) -> Iterator[Transitions]:
        """A batch as each of some networks sees it, with the numbers that it stores."""
        if not networks:
            return iter(())
        rest = iter(batch.stored[len(self._bits) + len(self._noise) :])
        stored = {id(network): dict(zip(network.stores, rest)) for network in self.function.networks}
        return (batch.transitions(stored[id(network)]) for network in networks)

    # For checks before a run.

    def prepare(self, batch: Batch, generators: Generators) -> Minibatch:
        """What a step on a minibatch needs."""
        batch = batch.to(self.function.device)
        outputs = tuple(self.function.evaluate_targets(batch.next_obs))
        whose = {"selecting": generators, "drawing": generators}
        targets = self._compute_targets(self.function, (batch, outputs, outputs), 0.0, whose, False)
        own = tuple(self.show(batch, self._trained_apart))
        return batch.obs, batch.action, batch.prior, targets["prepared"], own

    def evaluate_losses(self, batch: Batch, generators: Generators) -> dict[str, Tensor]:
        """The losses of a minibatch, with gradients; nothing is learned."""
        minibatch = self.prepare(batch, generators)
        with torch.enable_grad():
            return self._compute_losses(self.function, minibatch)

    def record(self, batch: Batch, size: int, generators: Generators) -> None:
        """Records what the kernels will execute on a batch with minibatches of this size; nothing is learned."""
        how: How = (size, (), 0.0, {"selecting": generators, "drawing": generators})
        given = batch, tuple(self.show(batch, self._trained_apart))
        if not self._parts:
            return
        for measures in (True, False):
            if self._learn_at_once(given, how, measures) is None:
                outputs = tuple(self.function.evaluate_targets(batch.next_obs))
                judging = tuple(self.function.evaluate_trained(batch.next_obs)) if self.double_q else ()
                self._parts["targets"]((batch, outputs, judging), *how, measures)
                self._parts["updates"](self.prepare(batch, generators), *how)

    def _evaluate_prior(self, obs: Tensor) -> Tensor:
        return self.function.prior_features(obs.to(self.function.device))


def _mean_where(there: Tensor, numbers: Tensor) -> Tensor:
    """Means over the transitions that have a next observation, `[lanes]`."""
    return (numbers * there).sum(1) / there.sum(1).clamp_min(1)


def _cut_out(tensors: Minibatch, part: slice) -> Minibatch:
    """A minibatch of everything prepared for a phase; what has one row is for all of them."""
    return map_tensors(tensors, lambda tensor: tensor if tensor.shape[1] == 1 else tensor[:, part])


def _list_trained_apart(function: IndexedValue) -> list[Network]:
    """The networks with losses of their own."""
    return [network for network in function.networks if network.losses]


def _count_one_hot(function: IndexedValue) -> int:
    """How many one-hot observations there are; 0 if they are floats."""
    observation = function.spec.observation
    return int(observation.num_values) if isinstance(observation, dm_env.specs.DiscreteArray) else 0
