"""What the page about native kernels shows works."""

import re

import pytest
import torch
from pages import DOCS, blocks

from explore._native import library, operations, program
from explore._native.function import NativeFunction
from explore._native.recorder import NotRecordable

PAGE = DOCS / "concepts" / "kernels.md"


def leak(x):
    """The function and its gradient."""
    x = x.detach().requires_grad_()
    y = torch.nn.functional.leaky_relu(x, 0.1)
    y.square().sum().backward()
    return [y.detach(), x.grad]


def test_the_example_of_a_handler_works(kernels, monkeypatch):
    monkeypatch.setattr(operations, "HANDLERS", handlers := dict(operations.HANDLERS))
    monkeypatch.setattr("explore._native.recorder.HANDLERS", handlers)
    x = torch.randn(3, 8, 4, generator=torch.Generator().manual_seed(0))
    assert not [name for name in handlers if "leaky" in name]
    [handler] = blocks(PAGE, "python")
    exec(handler, {"handles": operations.handles, "torch": torch})
    assert {"leaky_relu", "leaky_relu_backward"} <= set(handlers)
    found = NativeFunction(leak, [x[:1]])([x], program.choose_lanes((0, 1, 2)), 3)
    for one, expected in zip(found, leak(x)):
        assert torch.allclose(one[:, 0], expected)


def test_every_setting_is_named():
    [line] = [line for line in PAGE.read_text().splitlines() if line.startswith(f"`{library.SETTING}` chooses")]
    assert {"auto", "off", *library.VARIANTS} <= set(re.findall(r"`(\w+)`", line))


SAID = {
    "sort": lambda x: [x.sort(-1).values],
    "topk": lambda x: [x.topk(2).values],
    "branch": lambda x: [x if float(x.sum()) > 1 else -x],
    "NumPy": lambda x: [x + torch.from_numpy(x.detach().numpy() * 2)],
    "torch.rand": lambda x: [x * torch.rand(8, 4)],
    "float64": lambda x: [x.double().float()],
}


@pytest.mark.parametrize("what", SAID)
def test_what_is_slower_is_told_as_the_page_says(what, kernels):
    with pytest.raises(NotRecordable) as told:
        NativeFunction(SAID[what], [torch.randn(1, 8, 4)])
    _, table = PAGE.read_text().split("## What makes a plugin slower")
    [row] = [line for line in table.splitlines() if line.startswith("|") and what in line.split("|")[1]]
    said = re.findall(r"`([^`]+)`", row.split("|")[2])
    general = {"the kernels have no sort": "the kernels have no "}
    assert any(str(told.value).startswith(general.get(one, one)) for one in said)
