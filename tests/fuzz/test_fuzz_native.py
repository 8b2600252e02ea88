"""Random functions, executed by the kernels: a lane is the same alone and in company, and as PyTorch has it."""

import numpy as np
import pytest
import torch

from explore._native.function import NativeFunction
from explore._native.program import choose_lanes

pytestmark = pytest.mark.usefixtures("kernels")
LANES, FUNCTIONS = 31, 200

STEPS = [
    lambda h, w, i: torch.tanh(torch.bmm(h, w[:, 0])),
    lambda h, w, i: torch.relu(torch.baddbmm(h.mean(1, keepdim=True), h, w[:, 0].transpose(1, 2))),
    lambda h, w, i: torch.sigmoid(h) * h,
    lambda h, w, i: torch.nn.functional.softplus(h) - h.mean(-1, keepdim=True),
    lambda h, w, i: h.softmax(-1) + h.square().mean((1, 2), keepdim=True).clamp(max=3.0),
    lambda h, w, i: torch.where(h > 0.1, h, h.sin()),
    lambda h, w, i: torch.maximum(h, h.flip(2)) - torch.minimum(h, h.roll(1, 2)),
    lambda h, w, i: h / (h.var(-1, keepdim=True) + 0.5),
    lambda h, w, i: h - h.logsumexp(-1, keepdim=True),
    lambda h, w, i: torch.cat([h[..., 1:], h[..., :1]], -1).clamp(-2, 2),
    lambda h, w, i: (h.unsqueeze(2) * h.unsqueeze(3)).sum(3) / h.shape[-1] ** 0.5,
    lambda h, w, i: h.gather(2, i.expand(-1, -1, h.shape[-1])) + h,
    lambda h, w, i: torch.zeros_like(h).scatter_add(2, i.expand(-1, -1, h.shape[-1]), h) + h.cos(),
    lambda h, w, i: torch.nn.functional.elu(h) * (i == 1) + h.exp().clamp_max(2.0),
    lambda h, w, i: torch.nn.functional.gelu(h) - torch.nn.functional.pad(h, (0, -1))[..., :1],
    lambda h, w, i: h * w[:, 0].diagonal(dim1=1, dim2=2).unsqueeze(1) + w[:, 0, :1],
    lambda h, w, i: torch.einsum("lbi,lbj->lbij", h, h.abs().sqrt().detach()).mean(2),
    lambda h, w, i: h.clone().mul_(0.5).add_(w[:, 0, 1:2]),
]


def compose(random):
    """A function of `[lanes, rows, width]`, weights and places, with its gradients, which are not all but 0."""
    chosen = random.integers(len(STEPS), size=random.integers(2, 7))

    def compute(x, weights, places):
        x, weights = x.detach().requires_grad_(), weights.detach().requires_grad_()
        h = x * weights.mean((2, 3), keepdim=True)[:, 0]
        for step in chosen:
            h = STEPS[step](h, weights, places)
        loss = (h - 0.3).square().mean((1, 2)) + 0.1 * x.square().mean((1, 2)) + 0.1 * weights.square().mean((1, 2, 3))
        gradients = torch.autograd.grad(loss.sum(), [x, weights])
        return [h.detach(), loss.detach(), *gradients]

    return compute


@pytest.mark.parametrize("seed", range(FUNCTIONS))
def test_a_random_function_gives_each_lane_its_own(seed):
    random = np.random.default_rng(seed)
    rows, width, batches = (int(n) for n in random.integers([2, 2, 1], [20, 18, 4]))
    function = compose(random)
    x = torch.from_numpy(random.normal(size=(LANES, batches * rows, width)).astype(np.float32))
    weights = torch.from_numpy(random.normal(size=(LANES, 1, width, width)).astype(np.float32)) / width**0.5
    places = torch.from_numpy(random.integers(width, size=(LANES, batches * rows, 1)))
    native = NativeFunction(function, [x[:1, :rows], weights[:1], places[:1, :rows]])

    def run(lanes):
        return native([x, weights, places], choose_lanes(tuple(lanes)), LANES, batches)

    everyone = run(range(LANES))
    for count in (1, 3, 7):
        lanes = sorted(random.choice(LANES, count, replace=False).tolist())
        for some, of_all in zip(run(lanes), everyone):
            assert some[lanes].numpy().tobytes() == of_all[lanes].numpy().tobytes()
            some[lanes] = 0
            assert not some.any()  # nothing is written for the others
    for batch in range(batches):
        span = slice(batch * rows, (batch + 1) * rows)
        exact = function(x[:, span].double(), weights.double(), places[:, span])
        for found, right in zip(everyone, exact):
            one = found[:, batch].double()
            assert float((one - right).abs().max()) <= 1e-3 * max(1.0, float(right.abs().max()))
