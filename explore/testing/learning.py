"""Learning from made-up transitions: what it reaches, what it must leave alone, and the same with native kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from explore._learning.preflight import make_up_batch, make_up_observations
from explore._native.library import without_kernels
from explore._values.indexed_value import IndexedValue
from explore.interfaces import Spec
from explore.streams import Streams, stream
from explore.testing import toy
from explore.testing.promises import LANES_APART, Options, Subject

UPDATES = 12


def agent_of(spec: Spec, seeds: Sequence[int], parts: dict[str, Any]) -> Any:
    return toy.indexed(**parts)(spec, Streams(seeds), torch.device("cpu"))


def check_learning(subject: Subject, spec: Spec, parts: dict[str, Any]) -> None:
    """Lanes 0 and 2 learn, lane 1 does not."""
    with subject.attempt("in learning"):
        agent = agent_of(spec, range(3), parts)
        frozen = [parameter for twin in agent.function.prior_parts for parameter in twin.parameters()]
        before, priors = copy_buffers(agent.function), [parameter.clone() for parameter in frozen]
        learn(agent, lanes=(0, 2))
    for stack, old in zip(agent.function.stacks, before):
        moved = stack.view_parameters((stack.buffer[0] != old[0]).float())
        for path, changes in moved.items():
            name = path.removeprefix("network.")  # of a value network that another module holds
            trained, waited, also = changes.flatten(1).any(1).unflatten(0, (3, -1)).any(1).tolist()
            if path in stack.trainable:
                subject.require(
                    trained and also,
                    f"never trains its parameter {name}, which no gradient reaches",
                    "use it in what is returned, without detach() or .data, or say requires_grad_(False)",
                )
                subject.require(not waited, f"changes its parameter {name} of a seed that does not learn", LANES_APART)
            else:
                subject.require(
                    not (trained or waited or also),
                    f"changes its parameter {name}, which is frozen",
                    "let nothing assign to parameters in forward or values; what is learned has requires_grad",
                )
    subject.require(
        all(torch.equal(now, then) for now, then in zip(frozen, priors)),
        "changes the frozen prior while it learns",
        "let nothing assign to parameters in forward or values",
    )


def copy_buffers(function: IndexedValue) -> list[Tensor]:
    return [stack.buffer.clone() for stack in function.stacks]


def learn(agent: Any, lanes: Sequence[int], updates: int = UPDATES) -> dict[str, Tensor]:
    """Learns from made-up transitions, all bits of their masks set."""
    function = agent.function
    generators = [stream(seed, "batch") for seed in function.seeds]
    selecting, drawing = (
        [stream(seed, use) if lane in lanes else None for lane, seed in enumerate(function.seeds)]
        for use in ("target", "learning")
    )
    losses: dict[str, Tensor] = {}
    for _ in range(updates):
        obs = make_up_observations(function.spec, generators, 6)
        batch = make_up_batch(obs, generators, agent.replay, function.spec.num_actions)
        losses = agent.learner.learn(batch, 6, lanes, 0.5, selecting=selecting, drawing=drawing)
    return losses


def check_kernels(subject: Subject, options: Options, parts: dict[str, Any]) -> None:
    """The kernels, where they can execute it, learn the same as PyTorch within rounding."""
    spec = options.specs()[-1]
    tame = {"adam_epsilon": 1e-3}  # lest Adam blows rounding up to the size of a step
    native = agent_of(spec, (0, 1), parts | tame)
    with without_kernels():
        plain = agent_of(spec, (0, 1), parts | tame)
    with subject.attempt("with native kernels"):
        found, expected = (learn(agent, lanes=(0, 1), updates=2) for agent in (native, plain))
    pairs = [*zip(copy_buffers(native.function), copy_buffers(plain.function)), *zip(found.values(), expected.values())]
    subject.require(
        all(torch.allclose(one, other, rtol=1e-3, atol=1e-4) for one, other in pairs),
        "learns something else with native kernels than with PyTorch",
        "let forward, values and loss be functions of tensors alone, with no branch on what is in them and no state "
        "that they change",
    )
