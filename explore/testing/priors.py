"""The check of a prior."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from explore.interfaces import Prior
from explore.testing import toy
from explore.testing.lives import check_company, check_resume
from explore.testing.promises import LANES_APART, STANDARD, Options, Subject, shorten_traceback, try_component


@shorten_traceback
def check_prior(cls: type[Prior], options: Options = STANDARD, /, **parameters: Any) -> None:
    """Raises `Nonconformance` unless a prior keeps all promises of its slot."""
    with try_component("prior", cls, parameters) as subject:
        prior = subject.build()
        for network in ("value", "uncertainty") if prior.has_twin else ():
            _check_join(subject, prior, network)
        for parts in (toy.pins(), toy.bsp()):
            for spec in options.specs():
                walk, agent = (
                    partial(toy.Walk, spec=spec),
                    toy.indexed(**(parts | {"prior": subject.build} | options.agent)),
                )
                check_company(subject, walk, agent)
                check_resume(subject, walk, agent)


def _check_join(subject: Subject, prior: Prior, network: str) -> None:
    generator = torch.Generator().manual_seed(0)
    for lanes in (1, 2, 7):
        trained, frozen = (torch.randn(lanes, 5, 3, 4, generator=generator).abs() for _ in range(2))
        before = trained.clone(), frozen.clone()
        with subject.attempt("in join"):
            joined = prior.join(trained, frozen, network)
            again = prior.join(trained, frozen, network)
        subject.require(
            joined.shape == trained.shape,
            f"joins two tensors of shape {[*trained.shape]} to one of {[*joined.shape]}",
            "join must keep the shape",
        )
        subject.require(bool(joined.isfinite().all()), "joins finite numbers to what is not finite", "see its join")
        subject.require(
            torch.equal(joined, again),
            "joins the same tensors to something else each time",
            "drop what is random in join",
        )
        subject.require(
            torch.equal(trained, before[0]) and torch.equal(frozen, before[1]),
            "changes the tensors that it joins",
            "join must return a new tensor; use no functions that end in _",
        )
        for lane in range(lanes):
            one = slice(lane, lane + 1)
            subject.require(
                torch.allclose(prior.join(trained[one], frozen[one], network), joined[one], atol=1e-6),
                "mixes lanes: a seed's values depend on those of others",
                LANES_APART,
            )
        for axis, what in ((1, "observations"), (2, "actions")):
            first = (slice(None),) * axis + (slice(0, 1),)
            subject.require(
                torch.allclose(prior.join(trained[first], frozen[first], network), joined[first], atol=1e-6),
                f"joins an entry to something else beside other {what} than by itself",
                "join must treat every number by itself: in learning it sees the actions taken only",
            )
        subject.require(
            network == "value" or bool((joined >= 0).all()),
            "joins two uncertainties that are not negative to one that is",
            'add what is not negative where network is "uncertainty"',
        )
        leaf = trained.clone().requires_grad_()
        prior.join(leaf, frozen, network).sum().backward()
        subject.require(
            leaf.grad is not None and bool(leaf.grad.any()),
            "lets no gradient through to what is trained",
            "join must depend on `trained`, without detach()",
        )
