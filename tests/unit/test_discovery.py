"""Plugins are found, checked and reported."""

import importlib.metadata
import textwrap

import pytest

from explore._config import discovery
from explore._config.discovery import BUILT_INS, discover
from explore.errors import UserError

CONSTANT_HALF = """
    from explore import hookimpl
    from explore.interfaces import Schedule

    class Half(Schedule):
        def __init__(self, of: float = 1.0):
            self.of = of

        def __call__(self, progress):
            return self.of / 2

    @hookimpl
    def explore_schedules():
        return [Half]
"""


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """Writes a plugin file and returns its path relative to the working directory."""
    monkeypatch.chdir(tmp_path)

    def write(text, name="mine.py"):
        (tmp_path / name).write_text(textwrap.dedent(text))
        return name

    return write


def hook(body, name="explore_schedules", classes="[Half]"):
    """A plugin whose class `Half` has the given body."""
    indented = textwrap.indent(textwrap.dedent(body), "    ")
    return (
        "from explore import hookimpl\nfrom explore.interfaces import Schedule\n\n"
        f"class Half(Schedule):\n{indented}\n\n@hookimpl\ndef {name}():\n    return {classes}\n"
    )


def error_of(path):
    with pytest.raises(UserError) as raised:
        discover([path])
    message = str(raised.value)
    assert "\n" not in message
    return message


def test_every_built_in_loads():
    registry = discover()
    assert registry.failed == []
    assert [plugin.name for plugin in registry.plugins][: len(BUILT_INS)] == list(BUILT_INS)
    assert {"value.MLP", "uncertainty.SoftplusHeads", "agent.Indexed"} <= set(registry.components)


def test_a_file_supplies_components(plugin):
    registry = discover([plugin(CONSTANT_HALF)])
    component = registry.components["schedule.Half"]
    assert (component.slot, component.name, component.plugin, component.source) == (
        "schedule",
        "Half",
        "mine",
        "mine.py",
    )
    assert registry.plugins[-1].components == (component,)
    assert registry.plugins[-1].components


def test_a_module_is_named_without_ending(plugin, tmp_path, monkeypatch):
    plugin(CONSTANT_HALF, "named_module.py")
    monkeypatch.syspath_prepend(tmp_path)
    assert discover(["named_module"]).components["schedule.Half"].plugin == "named_module"


def test_a_plugin_may_only_watch_runs(plugin):
    path = plugin("""
        from explore import hookimpl

        seen = []

        @hookimpl
        def explore_run_started(run):
            seen.append(run)
    """)
    registry = discover([path])
    assert not registry.plugins[-1].components
    watcher = registry.hook.explore_run_started.get_hookimpls()[-1]
    assert watcher.plugin_name == "mine"
    watcher.function("a run")
    assert watcher.plugin.seen == ["a run"]


def test_naming_an_installed_plugin_again_changes_nothing():
    assert set(discover([BUILT_INS[0]]).components) == set(discover().components)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = (\n", "mine.py: it does not parse: '(' was never closed (mine.py:1)"),
        ("\nraise KeyError('lost')", "raises KeyError: 'lost' when imported (mine.py:2)"),
        (
            "import nowhere_at_all",
            "raises ModuleNotFoundError: No module named 'nowhere_at_all' when imported",
        ),
        ("raise SystemExit(3)", "raises SystemExit: 3 when imported (mine.py:1)"),
        ("x = 1", "it defines no hook"),
        (
            CONSTANT_HALF.replace("explore_schedules", "explore_schedule"),
            "there is no hook 'explore_schedule'; did you mean 'explore_schedules'?",
        ),
        (hook("__call__ = None", classes="Half"), "explore_schedules must return a list of classes"),
        (hook("__call__ = None", classes="[Half()]"), "explore_schedules must return classes, not <"),
        (
            hook("__call__ = None", classes="[int]"),
            "schedule.int must be a subclass of explore.interfaces.Schedule",
        ),
        (hook("pass"), "schedule.Half lacks the methods __call__"),
        (hook("def __init__(self, **options): ...\n__call__ = None"), "schedule.Half takes **kwargs"),
        (
            hook("__call__ = None", classes="[Half, Half]"),
            "schedule.Half is supplied by mine (mine.py) already",
        ),
        (
            hook("__call__ = None", classes="1 / 0"),
            "explore_schedules raises ZeroDivisionError: division by zero",
        ),
        (
            hook("__call__ = None", name="explore_selections"),
            "must be a subclass of explore.interfaces.Selection",
        ),
        (
            hook("__call__ = None", name="explore_objectives"),
            "must be a subclass of explore.interfaces.Objective",
        ),
        (
            "from explore import hookimpl\n@hookimpl\ndef explore_run_started(walk): ...",
            "Argument(s) {'walk'} are declared in the hookimpl but can not be found in the hookspec",
        ),
    ],
)
def test_a_broken_file_is_refused_in_one_line(plugin, text, expected):
    message = error_of(plugin(text))
    assert message.startswith("plugin mine.py: ")
    assert expected in message


def test_a_missing_file_is_refused_with_the_nearest(plugin):
    plugin(CONSTANT_HALF)
    assert error_of("mein.py") == "plugin mein.py: there is no such file; did you mean 'mine.py'?"


def test_a_missing_module_is_refused():
    assert "there is no module 'nowhere_at_all'" in error_of("nowhere_at_all")


def test_nobody_displaces_a_built_in(plugin):
    text = CONSTANT_HALF.replace("Half", "Linear")
    message = error_of(plugin(text))
    assert "schedule.Linear is supplied by explore_plugins.schedules (built in) already, so mine cannot" in message


def test_two_plugins_of_one_name_are_refused(plugin, tmp_path):
    first = plugin(CONSTANT_HALF)
    (tmp_path / "other").mkdir()
    second = plugin(CONSTANT_HALF.replace("Half", "Third"), "other/mine.py")
    with pytest.raises(UserError, match="another plugin is already called 'mine'"):
        discover([first, second])


def test_a_broken_built_in_does_not_stop_the_others(plugin, tmp_path, monkeypatch):
    plugin("raise RuntimeError('no luck')", "explore_broken.py")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(discovery, "BUILT_INS", ("explore_broken", "explore_plugins.priors", "explore_absent"))
    registry = discover()
    assert "prior.Additive" in registry.components
    assert [failure.name for failure in registry.failed] == ["explore_broken", "explore_absent"]
    assert registry.failed[0].reason == "raises RuntimeError: no luck when imported (explore_broken.py:1)"
    assert "No module named 'explore_absent'" in registry.failed[1].reason


@pytest.mark.parametrize(("text", "works"), [(CONSTANT_HALF, True), ("x = 1", False)])
def test_installed_packages_are_found_by_their_entry_point(plugin, tmp_path, monkeypatch, text, works):
    name = f"half_package_{works}"
    plugin(text, f"{name}.py")
    metadata = tmp_path / f"{name}-1.2.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Name: {name}\nVersion: 1.2\n")
    (metadata / "entry_points.txt").write_text(f"[explore]\nhalf = {name}\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert importlib.metadata.version(name) == "1.2"
    registry = discover()
    found = {plugin.name: plugin.source for plugin in (registry.plugins if works else registry.failed)}
    assert found["half"] == f"entry point ({name} 1.2)"
    assert ("schedule.Half" in registry.components) == works
