"""gin files are found and read, and values are written as gin reads them."""

import math

import pytest

from explore._config import gin_files
from explore._config.configuration import Config
from explore._config.discovery import discover
from explore._config.gin_files import format_binding, format_value
from explore.errors import UserError


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "nothing/pins_cartpol.gin",
            "there is no configuration 'nothing/pins_cartpol.gin'; did you mean 'pins_cartpole'?",
        ),
        ("empty.gin", "empty.gin is empty: it binds nothing"),
        (".", ". is a folder; name the file, e.g. config.gin"),
        ("binary.gin", "binary.gin cannot be read: "),
        ("cycle.gin", "cycle.gin:1: cycle.gin includes itself"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(tmp_path, monkeypatch, name, expected):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(gin_files, "list_recipes", lambda: {"pins_cartpole": tmp_path / "walk.gin"})
    (tmp_path / "empty.gin").write_text("# nothing\n\n")
    (tmp_path / "binary.gin").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "cycle.gin").write_text("include 'cycle.gin'\n")
    with pytest.raises(UserError) as raised:
        Config(name, [], discover(), root=object)
    assert str(raised.value).startswith(expected)


@pytest.mark.parametrize(
    "value", [None, True, -3, 0.1, 1e-30, math.inf, "a 'b' \"c\"\n", (), (1,), [1, [2]], {"a": (1, 2)}]
)
def test_a_literal_is_read_back_by_gin(value):
    import gin

    assert gin.config.parse_value(format_value(value)) == value


@pytest.mark.parametrize("value", [math.nan, object(), print, {1, 2}, (1, [print])])
def test_what_gin_cannot_read_is_not_written(value):
    with pytest.raises(ValueError, match="gin has no literal"):
        format_value(value)


def test_options_become_bindings():
    assert format_binding("experiment.seeds", (0, 1)) == "experiment.seeds = (0, 1)"
