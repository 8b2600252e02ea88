"""Adam as the kernels execute it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from torch import Tensor

TABLES = 4
TABLE = np.dtype([("start", "i8"), ("rows", "i8"), ("width", "i8"), ("seen", "i8")])
ROW = np.dtype(
    [(name, "i8") for name in ("parameters", "gradient", "mean", "square", "steps")]
    + [("rate", "f8"), ("dense", "i8"), ("tables", "i8"), ("table", TABLE, TABLES)]
)
ADAM = np.dtype([("rows", "i8"), ("rows_per_lane", "i8"), ("epsilon", "f8"), ("clip", "f8")])


class Table(NamedTuple):
    """A layer of one-hot inputs in a row of parameters: where it starts, and its shape. It is at the end of the row, or
    followed by other tables."""

    start: int
    rows: int
    width: int


class Trained(NamedTuple):
    """Parameters of all lanes and what Adam keeps for them: `[lanes * rows, width]`, and `steps` `[lanes * rows]`."""

    parameters: Tensor
    gradient: Tensor
    mean: Tensor
    square: Tensor
    steps: Tensor
    rate: float
    tables: Sequence[Table]


class NativeAdam:
    """A step of Adam for the kernels. Of tables only the rows that were `seen`, `[lanes, rows]`, are changed: the
    others have never had a gradient."""

    def __init__(self, trained: Sequence[Trained], seen: np.ndarray, epsilon: float, clip: float | None):
        lanes = len(seen)
        each = [len(one.parameters) // lanes for one in trained]
        self._rows = np.zeros((lanes, sum(each)), ROW)
        self._held = trained, seen
        for lane in range(lanes):
            places = [(one, lane * count + k) for one, count in zip(trained, each) for k in range(count)]
            for slot, (one, row) in zip(self._rows[lane], places):
                for name in ("parameters", "gradient", "mean", "square", "steps"):
                    slot[name] = getattr(one, name)[row].data_ptr()
                tables = _find_tables(one.tables, seen.shape[1])
                slot["rate"], slot["tables"] = one.rate, len(tables)
                slot["dense"] = tables[0].start if tables else one.parameters.shape[1]
                for place, table in zip(slot["table"], tables):
                    place["start"], place["rows"], place["width"] = table
                    place["seen"] = seen[lane].ctypes.data
        self._adam = np.zeros(1, ADAM)
        self._adam[0] = (self._rows.ctypes.data, sum(each), epsilon, -1.0 if clip is None else clip)

    @property
    def address(self) -> int:
        return self._adam.ctypes.data


def _find_tables(tables: Sequence[Table], rows: int) -> list[Table]:
    """Those at the end that have so many rows; what lies before them is trained as a whole."""
    others = [k for k, table in enumerate(tables) if table.rows != rows]
    return list(tables[max([-1, len(tables) - TABLES - 1, *others]) + 1 :])
