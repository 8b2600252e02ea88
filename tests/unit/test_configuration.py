"""A gin file becomes objects, mistakes in it become one line, and `text` repeats it all."""

import math
import textwrap

import dm_env
import pytest

from explore._config import gin_files
from explore._config.configuration import Config
from explore._config.discovery import discover
from explore._config.parameters import parameters
from explore.errors import UserError
from explore.interfaces import Schedule, Selection

PLUGIN = '''
from collections.abc import Sequence
from explore import hookimpl
from explore.interfaces import Agent, Schedule, Selection
from dm_env import Environment

class Steady(Schedule):
    """A number.

    Args:
      level: how high it is,
        in metres.
      limit: never above this.
    """

    def __init__(self, level: float = 0.5, limit: float = float("inf"), tint=print):
        if level < 0:
            raise ValueError(f"level must be at least 0, got {level!r}")
        if level == 13:
            raise KeyError("unlucky")
        if level == 14:
            raise ValueError("nothing works today")
        self.level, self.limit = level, limit

    def unused_parameters(self):
        return {"limit": "level is 7"} if self.level == 7 else {}

    def __call__(self, progress):
        return self.level

class Calm(Selection):
    def __init__(self, warmth: float | type[Schedule] = 1.0):
        self.warmth = warmth() if isinstance(warmth, type) else warmth

    def scores(self, beliefs): ...

class Nested(Selection):
    def __init__(self, greedy: type[Selection] = Calm):
        self.greedy = greedy()

    def scores(self, beliefs): ...

class Walker(Agent):
    def __init__(
        self,
        spec,
        streams,
        device,
        acting: type[Selection],
        several: Sequence[type[Schedule]] = (),
        color: str = "red",
        lazy: type[Selection] | None = None,
    ):
        self.spec, self.color = spec, color
        self.acting = acting()
        self.several = [schedule() for schedule in several]

    begin_episode = act = observe = evaluate = state_dict = load_state_dict = None

class Room(Environment):
    def __init__(self, seed, size: int, door: str | None = None):
        self.seed, self.size, self.door = seed, size, door

    reset = step = observation_spec = action_spec = None

@hookimpl
def explore_schedules():
    return [Steady]

@hookimpl
def explore_selections():
    return [Calm, Nested]

@hookimpl
def explore_agents():
    return [Walker]

@hookimpl
def explore_environments():
    return [Room]
'''

RECIPE = """\
# A walk through a room.
experiment:
  environment = @environment.Room
  agent       = @agent.Walker

agent.Walker.acting = @selection.Calm
environment.Room.size = 3
"""


class Experiment:
    """Stands in for `explore._running.experiment.Experiment`, which trains too."""

    def __init__(
        self,
        environment: type[dm_env.Environment],
        agent,
        episodes: int = 5,
        seeds: tuple[int, ...] = (0,),
        device: str = "cpu",
    ):
        if episodes < 1:
            raise ValueError(f"episodes must be at least 1, got {episodes}")
        self.episodes, self.seeds = episodes, seeds
        self.environments = [environment(seed=seed) for seed in seeds]
        self.agent = agent("a spec", streams="streams", device=device)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "walk-about.py").write_text(PLUGIN)
    (tmp_path / "walk.gin").write_text(RECIPE)
    return tmp_path


@pytest.fixture
def read(folder):
    """Loads `walk.gin` with bindings, or another file with the given text."""
    registry = discover(["walk-about.py"])

    def read(*bindings, text=None, **options):
        if text is not None:
            (folder / "other.gin").write_text(textwrap.dedent(text))
        name = "walk.gin" if text is None else "other.gin"
        return Config(name, bindings, registry, root=Experiment, **options)

    return read


def error_of(function, *arguments, **options):
    with pytest.raises(UserError) as raised:
        function(*arguments, **options)
    message = str(raised.value)
    assert "\n" not in message
    return message


def built(config):
    return config.build(), config.text()


# What a configuration means


def test_a_file_and_then_bindings_fill_the_parameters(read):
    experiment = read("environment.Room.size = 7", "experiment.seeds = (2, 5)").build()
    assert [(room.seed, room.size) for room in experiment.environments] == [(2, 7), (5, 7)]
    assert experiment.agent.spec == "a spec"


def test_a_file_is_not_needed(read):
    lines = [line for line in RECIPE.splitlines() if not line.startswith("#")]
    config = Config(None, ["\n".join(lines)], discover(["walk-about.py"]), root=Experiment)
    assert config.build().environments[0].size == 3


def test_includes_are_relative_to_the_including_file(read, folder):
    (folder / "base" / "deep").mkdir(parents=True)
    (folder / "base" / "first.gin").write_text("include 'deep/second.gin'\nexperiment.episodes = 8\n")
    (folder / "base" / "deep" / "second.gin").write_text("include '../../walk.gin'\nexperiment.episodes = 9\n")
    experiment = read(text="include 'base/first.gin'\nenvironment.Room.size = 4").build()
    assert (experiment.episodes, experiment.environments[0].size) == (8, 4)


def test_macros_stand_for_values_and_the_last_one_counts(read):
    config = read("n = 2", "environment.Room.size = %n", "experiment.seeds = (%n, %m)", "m = %k", "k = 1", "n = 6")
    experiment, text = built(config)
    assert (experiment.environments[0].size, experiment.seeds) == (6, (6, 1))
    assert "%" not in text
    assert config.unused() == []


def test_scopes_tell_two_uses_of_a_component_apart(read):
    experiment = read(
        "agent.Walker.several = [@low/schedule.Steady, @high/schedule.Steady, @schedule.Steady]",
        "low/schedule.Steady.level = 0.1",
        "high/schedule.Steady.level = 0.9",
    ).build()
    assert [schedule.level for schedule in experiment.agent.several] == [0.1, 0.9, 0.5]


def test_a_component_that_is_a_default_can_be_configured(read):
    experiment = read("agent.Walker.acting = @selection.Nested", "selection.Calm.warmth = 4.0").build()
    assert experiment.agent.acting.greedy.warmth == 4.0


def test_configurations_follow_one_another_in_a_process(read, folder):
    first = read("environment.Room.size = 7")
    second = read("experiment.episodes = 2")
    assert (second.build().environments[0].size, first.build().environments[0].size) == (3, 7)
    again = Config("walk.gin", [], discover(["walk-about.py"]), root=Experiment)  # the same names, other classes
    assert again.build().episodes == 5


# The text of a configuration


EVERYTHING = [
    "experiment.seeds = (4,)",
    "agent.Walker.acting = @warm/selection.Nested",
    "selection.Calm.warmth = @schedule.Steady",
    "warm/schedule.Steady.level = 2",
    "agent.Walker.several = [@low/schedule.Steady, @schedule.Steady]",
    "low/schedule.Steady.limit = -1e999",
    "environment.Room.door = 'it\\'s = @open'",
]


def test_the_text_builds_the_same_again(read):
    experiment, text = built(read(*EVERYTHING))
    again, repeated = built(read(text=text))
    assert repeated == text
    assert again.agent.acting.greedy.warmth.level == experiment.agent.acting.greedy.warmth.level == 2
    assert again.environments[0].door == experiment.environments[0].door == "it's = @open"
    assert again.agent.several[0].limit == -math.inf
    assert read(text=text).build().seeds == (4,)


def test_the_text_has_every_parameter_of_what_was_built_and_nothing_else(read):
    _, text = built(read(*EVERYTHING, "selection.Calm.warmth = 2.0", "agent.Walker.several = ()"))
    assert text == textwrap.dedent("""\
        experiment:
          environment = @environment.Room
          agent       = @agent.Walker
          episodes    = 5
          seeds       = (4,)
          device      = 'cpu'

        environment.Room:
          size = 3
          door = "it's = @open"

        agent.Walker:
          acting  = @warm/selection.Nested
          several = ()
          color   = 'red'
          lazy    = None

        warm/selection.Nested:
          greedy = @selection.Calm

        warm/selection.Calm:
          warmth = 2.0
    """)


def test_bindings_without_effect_are_told_with_their_place(read):
    config = read(
        "schedule.Steady.level = 1",
        "agent.Walker.lazy = @selection.Nested",
        "selection.Nested.greedy = @selection.Calm",
        "n = 3",
    )
    config.build()
    assert config.unused() == [
        '-b "schedule.Steady.level = 1": schedule.Steady.level = 1 has no effect in this run',
        '-b "selection.Nested.greedy = @selection.Calm": selection.Nested.greedy = @selection.Calm '
        "has no effect in this run",
        '-b "n = 3": the macro n is not used (a parameter is bound as slot.Name.n)',
    ]


def test_a_binding_that_another_switches_off_is_told_and_left_out_of_the_text(read):
    used = "agent.Walker.several = [@schedule.Steady]"
    config = read("schedule.Steady.level = 7", "schedule.Steady.limit = 9.0", used)
    _, text = built(config)
    note = '-b "schedule.Steady.limit = 9.0": schedule.Steady.limit = 9.0 has no effect in this run: level is 7'
    assert config.unused() == [note]
    assert "level = 7" in text and "limit" not in text
    config = read("schedule.Steady.level = 7", used)
    config.build()
    assert config.unused() == []  # nobody asked for the default
    uses = "agent.Walker.several = [@schedule.Steady, @low/schedule.Steady]"
    config = read("schedule.Steady.level = 7", "low/schedule.Steady.level = 1", "schedule.Steady.limit = 9.0", uses)
    _, text = built(config)
    assert config.unused() == []  # it has an effect on one of the two
    assert text.count("limit = 9.0") == 1


def test_a_built_in_agent_is_repeated_by_its_text(tmp_path):
    names = "value.MLP", "uncertainty.SoftplusHeads", "prior.Additive", "objective.WassersteinTD"
    chosen = [f"agent.Indexed.{name.split('.')[0]} = @{name}" for name in names]
    chosen += [f"agent.Indexed.{use} = @selection.EpsilonGreedy" for use in ("acting", "target")]
    root = ["experiment.environment = @environment.DeepSea", "experiment.agent = @agent.Indexed"]

    class Composed:
        def __init__(self, environment, agent):
            from explore.interfaces import Spec
            from explore.streams import Streams

            sea = environment(seed=0)
            agent(Spec(sea.observation_spec(), sea.action_spec().num_values), streams=Streams([0]), device="cpu")

    registry = discover()
    _, text = built(Config(None, [*root, *chosen], registry, root=Composed))
    (tmp_path / "config.gin").write_text(text)
    assert built(Config(tmp_path / "config.gin", [], registry, root=Composed))[1] == text
    for name in (*names, "agent.Indexed", "environment.DeepSea", "selection.EpsilonGreedy"):
        block = text.split(f"{name}:\n")[1].split("\n\n")[0]
        bound = [line.split("=")[0].strip() for line in block.splitlines()]
        assert bound == list(parameters(registry.components[name].cls))


# Mistakes


@pytest.mark.parametrize(
    ("mistake", "expected"),
    [
        ("experiment.epsodes = 3", "experiment has no parameter 'epsodes'; did you mean 'episodes'?"),
        ("agent.Walker.spec = 3", "agent.Walker has no parameter 'spec'"),
        ("schedul.Steady.level = 3", "unknown slot 'schedul' in 'schedul.Steady'; did you mean 'schedule'?"),
        ("schedule.Stedy.level = 3", "unknown component 'schedule.Stedy'; did you mean 'schedule.Steady'?"),
        ("Steady.level = 3", "unknown component 'Steady'; write schedule.Steady"),
        (
            "agent.Walker.acting = @selection.Clam",
            "unknown component 'selection.Clam'; did you mean 'selection.Calm'?",
        ),
        (
            "schedule.Stedy:\n  level = 3",
            "unknown component 'schedule.Stedy'; did you mean 'schedule.Steady'?",
        ),
        (
            "agent.Walker.acting = @schedule.Steady",
            "schedule.Steady does not fit agent.Walker.acting, which takes selection.",
        ),
        (
            "agent.Walker.several = [@schedule.Steady, @value.MLP]",
            "value.MLP does not fit agent.Walker.several",
        ),
        ("selection.Nested.greedy = @prior.NoPrior", "prior.NoPrior does not fit selection.Nested.greedy"),
        (
            "experiment.environment = @agent.Walker",
            "agent.Walker does not fit experiment.environment, which takes environment.",
        ),
        (
            "agent.Walker.acting = 'Calm'",
            "agent.Walker: acting must be a component (@selection.",
        ),
        ("agent.Walker.acting = @selection.Calm()", "write @selection.Calm without parentheses"),
        ("lw/schedule.Steady.level = 1", "no reference @lw/... enters the scope 'lw'"),
        ("experiment.episodes = %n", "unknown macro 'n'"),
        ("n = %m\nm = [%n]\nexperiment.seeds = %n", "the macro 'n' stands for itself"),
        ("experiment.device = cpu", "syntax error: Failed to parse token 'cpu' (a string is written in quotes"),
        ("experiment.seeds = (1, 2", "syntax error: EOF in multi-line statement"),
        ("experiment.episodes 3", "syntax error: "),
        ("experiment:\n  episodes = 3\n seeds = (1,)", "syntax error: unindent does not match"),
        ("import os", "'import os' would run code; allow it with --allow-imports"),
        ("include 'wlak.gin'", "there is no configuration 'wlak.gin'; did you mean 'walk'?"),
        ("experiment.episodes = 0", "experiment: episodes must be at least 1, got 0"),
        (
            "agent.Walker.several = [@schedule.Steady]\nschedule.Steady.level = -1",
            "schedule.Steady: level must be",
        ),
        (
            "schedule.Steady.level = 'x'\nagent.Walker.several = [@schedule.Steady]",
            "schedule.Steady: level must be a number, got 'x'",
        ),
    ],
)
def test_a_mistake_is_told_in_one_line_with_its_place(read, mistake, expected):
    assert error_of(lambda: read(mistake).build()).startswith(f'-b "{" ".join(mistake.split())}": {expected}')
    message = error_of(lambda: read(text=RECIPE + mistake).build())
    place, _, told = message.partition(": ")
    assert told.startswith(expected)
    file, line = place.split(":")
    assert file == "other.gin"
    assert len(RECIPE.splitlines()) < int(line) <= len((RECIPE + mistake).splitlines()) + 1


def test_a_misspelt_scope_gets_the_nearest(read):
    message = error_of(read, "agent.Walker.several = [@low/schedule.Steady]", "lwo/schedule.Steady.level = 1")
    assert message.endswith("no reference @lwo/... enters the scope 'lwo'; did you mean 'low'?")


def test_a_scope_that_a_binding_took_away_is_no_mistake(read):
    text = RECIPE + "agent.Walker.several = [@low/schedule.Steady]\nlow/schedule.Steady.level = 1"
    config = read("agent.Walker.several = ()", text=text)
    config.build()
    assert len(config.unused()) == 1


@pytest.mark.parametrize(
    ("without", "expected"),
    [
        (
            "experiment:",
            "experiment.environment has no value; bind it, e.g. experiment.environment = @environment.",
        ),
        (
            "environment.Room.size",
            "other.gin:3: environment.Room.size has no value; bind it, e.g. environment.Room.size = ",
        ),
    ],
)
def test_a_missing_value_is_told_with_the_binding_to_add(read, without, expected):
    kept, skipping = [], False
    for line in RECIPE.splitlines():
        skipping = line.startswith(without) or (skipping and line.startswith(" "))
        kept += [] if skipping else [line]
    assert error_of(read, text="\n".join(kept)).startswith(expected)


def test_a_message_without_a_parameter_points_to_where_the_component_was_chosen(read):
    text = RECIPE + "schedule.Steady.level = 14\nagent.Walker.several = [@schedule.Steady]"
    assert error_of(read(text=text).build) == "other.gin:9: schedule.Steady: nothing works today"


def test_another_exception_in_a_plugin_names_it_and_its_line(read):
    config = read("agent.Walker.several = [@schedule.Steady]", "schedule.Steady.level = 13")
    line = PLUGIN.splitlines().index('            raise KeyError("unlucky")') + 1
    assert error_of(config.build).endswith(
        f"schedule.Steady of plugin walk-about raises KeyError: 'unlucky' (walk-about.py:{line})"
    )


def test_a_bug_of_the_core_is_not_the_users_mistake(folder):
    class Broken:
        def __init__(self):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Config(None, [], discover(), root=Broken).build()


def test_a_user_error_passes_unchanged(folder):
    class Strict:
        def __init__(self):
            raise UserError("not like this")

    assert error_of(Config(None, [], discover(), root=Strict).build) == "not like this"


def test_a_recipe_is_found_by_its_name(read, folder, monkeypatch):
    (folder / "installed").mkdir()
    (folder / "walk.gin").rename(folder / "installed" / "stroll.gin")
    monkeypatch.setattr(gin_files, "list_recipes", lambda: {"stroll": folder / "installed" / "stroll.gin"})
    registry = discover(["walk-about.py"])
    for name in ("stroll", "stroll.gin"):
        assert Config(name, [], registry, root=Experiment).build().episodes == 5


def test_imports_run_only_when_they_are_allowed(read, folder, monkeypatch):
    (folder / "imported_by_gin.py").write_text("import gin\n@gin.register\ndef doubled(x=2):\n    return 2 * x\n")
    monkeypatch.syspath_prepend(folder)
    text = "import imported_by_gin\nexperiment.episodes = @imported_by_gin.doubled()\nimported_by_gin.doubled.x = 4\n"
    assert error_of(read, text=text + RECIPE).startswith("other.gin:1: 'import imported_by_gin' would run code")
    experiment, complete = built(read(text=text + RECIPE, allow_imports=True))
    assert experiment.episodes == 8
    assert built(read(text=complete, allow_imports=True))[1] == complete


# Parameters


def test_parameters_carry_their_documentation_and_leave_out_what_the_core_supplies(read):
    components = discover(["walk-about.py"]).components
    steady = parameters(components["schedule.Steady"].cls)
    assert steady["level"].documentation == "how high it is, in metres."
    assert (steady["limit"].documentation, steady["limit"].default) == ("never above this.", math.inf)
    walker = parameters(components["agent.Walker"].cls)
    assert list(walker) == ["acting", "several", "color", "lazy"]
    assert (walker["acting"].classes, walker["several"].classes) == ((Selection,), (Schedule,))
    assert walker["several"].annotation == "Sequence[type[Schedule]]"
    assert [name for name, known in walker.items() if known.required] == ["acting"]
    assert "device" in parameters(Experiment)
    assert parameters(components["selection.MeanArgmax"].cls) == {}
