"""Whose code raised an exception: the right component, hook or nobody's."""

import pytest

from explore._config.discovery import discover
from explore._config.tracebacks import describe, find_line, name_plugin_that_raised
from explore.errors import RunFailed

PLUGIN = """
from explore import hookimpl
from explore.interfaces import Schedule

def divide():
    return 1 / 0

class First(Schedule):
    def __call__(self, progress):
        return divide()

class Second(First):
    pass

@hookimpl
def explore_schedules():
    return [First, Second]

@hookimpl
def explore_run_started(run):
    divide()
"""


@pytest.fixture
def registry(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "two.py").write_text(PLUGIN)
    return discover(["two.py"])


def raised_by(function, *arguments, **named):
    with pytest.raises((Exception, SystemExit)) as raised:
        function(*arguments, **named)
    return raised.value


@pytest.mark.parametrize("name", ["First", "Second"])
def test_of_several_components_in_a_file_the_one_that_ran_is_named(registry, name):
    error = raised_by(registry.components[f"schedule.{name}"].cls(), 0.5)
    failure = name_plugin_that_raised(error, registry)
    assert isinstance(failure, RunFailed)
    assert str(failure) == f"schedule.{name} of plugin two raises ZeroDivisionError: division by zero (two.py:6)"


def test_a_lifecycle_hook_is_named(registry):
    failure = name_plugin_that_raised(raised_by(registry.hook.explore_run_started, run=None), registry)
    told = "explore_run_started of plugin two raises ZeroDivisionError: division by zero (two.py:6)"
    assert str(failure) == told


def test_what_no_plugin_raised_is_left_as_it_is(registry):
    error = raised_by(int, "x")
    assert name_plugin_that_raised(error, registry) is error
    failure = name_plugin_that_raised(raised_by(exit, 3), registry)
    assert str(failure) == "something called for the end of the program: SystemExit: 3"


def test_a_message_is_told_in_one_line_with_the_line_of_the_file(registry):
    error = raised_by(compile, "1 +", "x", "eval")
    assert find_line(error, "nowhere.py") == ""
    assert describe(ValueError("one\n  two")) == "ValueError: one two"
