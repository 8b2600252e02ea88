"""The command line: what it lists, how it refuses, and that it is quick."""

import os
import re
import subprocess
import sys
import types

import pytest

from explore._cli.main import main
from explore._cli.parser import COMMANDS, build_parser
from explore._config.discovery import discover
from explore._config.gin_files import list_recipes
from explore._config.seeds import parse_seeds
from explore._running.experiment import load
from explore.errors import RunFailed, UserError

MINE = '''
from explore import hookimpl
from explore.interfaces import Schedule

class Half(Schedule):
    """Half of something.

    Args:
      of: the whole, [red]unless[/red] it is cut.
    """

    def __init__(self, of: float = 1.0):
        self.of = of

    def __call__(self, progress):
        return self.of / 2

@hookimpl
def explore_schedules():
    return [Half]
'''


@pytest.fixture
def mine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE)
    return "mine.py"


@pytest.fixture
def train(monkeypatch):
    """Replaces training by a function that can be told what to do, and records its arguments."""
    calls = []
    module = types.ModuleType("explore._running.run")

    def run(config=None, **options):
        calls.append((config, options))
        if train.raises:
            raise train.raises

    module.run = run
    monkeypatch.setitem(sys.modules, "explore._running.run", module)
    train = types.SimpleNamespace(calls=calls, raises=None)
    return train


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("0-4", (0, 1, 2, 3, 4)), ("0,3,7", (0, 3, 7)), ("5", (5,)), ("8, 1-2", (8, 1, 2)), ("3-3", (3,))],
)
def test_seeds_are_ranges_and_numbers(text, seeds):
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "'' is not a seed"),
        ("1,,2", "'' is not a seed"),
        ("-1", "'-1' is not a seed"),
        ("one", "'one' is not a seed"),
        ("1.5", "'1.5' is not a seed"),
        ("1-2-3", "'1-2-3' is not a seed"),
        ("²", "'²' is not a seed"),
        ("4-0", "the range '4-0' is empty; write 0-4"),
        ("0-3,2", "2 is repeated"),
    ],
)
def test_seeds_that_make_no_sense_are_refused(text, expected):
    with pytest.raises(UserError) as raised:
        parse_seeds(text)
    assert expected in str(raised.value)


def test_run_passes_everything_on(train):
    command = ["run", "a.gin", "-b", "x.y = 1", "-b", "z = 2", "--seeds", "0-1", "--out", "o", "-p", "m.py"]
    assert main([*command, "--quiet", "--allow-imports"]) == 0
    assert train.calls == [
        (
            "a.gin",
            {
                "bindings": ["x.y = 1", "z = 2"],
                "seeds": (0, 1),
                "out": "o",
                "plugins": ["m.py"],
                "quiet": True,
                "allow_imports": True,
                "resume": False,
                "force": False,
            },
        )
    ]


def test_run_leaves_to_the_configuration_what_is_not_given(train):
    assert main(["run", "a.gin"]) == 0
    _, options = train.calls[0]
    assert (options["seeds"], options["out"], options["bindings"]) == (None, None, [])


@pytest.mark.parametrize(
    ("exception", "code", "line"),
    [
        (UserError("no such\nthing"), 2, "explore: error: no such thing\n"),
        (RunFailed("the loss is NaN"), 1, "explore: error: the loss is NaN\n"),
        (KeyboardInterrupt(), 130, "explore: interrupted\n"),
        (KeyboardInterrupt("resume with --resume"), 130, "explore: interrupted: resume with --resume\n"),
        (
            KeyError("x"),
            1,
            "explore: internal error: KeyError: 'x' (a bug in explore; set EXPLORE_TRACEBACK=1 to see where)\n",
        ),
    ],
)
def test_how_a_run_ends_is_one_line_and_an_exit_code(train, capsys, monkeypatch, exception, code, line):
    monkeypatch.delenv("EXPLORE_TRACEBACK", raising=False)
    train.raises = exception
    assert main(["run", "a.gin"]) == code
    assert capsys.readouterr().err == line


def test_the_traceback_of_a_bug_is_shown_on_request(train, capsys, monkeypatch):
    monkeypatch.setenv("EXPLORE_TRACEBACK", "1")
    train.raises = KeyError("x")
    assert main(["run", "a.gin"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_errors_are_red_on_a_terminal_unless_colour_is_unwanted(capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    main(["fly"])
    assert capsys.readouterr().err.startswith("\033[31mexplore: error")
    monkeypatch.setenv("NO_COLOR", "1")
    main(["fly"])
    assert capsys.readouterr().err.startswith("explore: error")


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["fly"], "invalid choice: 'fly'"),
        (["run", "pins_deep_sea", "--out", "o\0"], "there is a zero byte in an argument"),
        ([], "required: COMMAND"),
        (["run"], "name a configuration to run, or a folder: --resume DIR (see explore run --help)"),
        (["run", "a.gin", "--seeds", "4-0"], "the range '4-0' is empty"),
        (["components", "prioor"], "unknown slot 'prioor'; did you mean 'prior'?"),
        (
            ["describe", "schedule.Linaer"],
            "unknown component 'schedule.Linaer'; did you mean 'schedule.Linear'?",
        ),
        (["plugins", "-p", "nowhere.py"], "plugin nowhere.py: there is no such file"),
        (["compare", "nowhere"], "there is no folder nowhere"),
        (["report", "nowhere"], "there is no folder nowhere"),
        (["report", ".", "--out", "."], ". is a folder; say which file to write, such as report.html"),
        (["report", ".", "--out", "nowhere/report.html"], "there is no folder nowhere to write report.html to"),
        (["watch", "nowhere"], "there is no run folder nowhere"),
        (["watch", "nowhere", "--once"], "there is no run folder nowhere"),
        (["watch", ".", "--port", "70000"], "--port must be an integer from 0 to 65535, got '70000'"),
        (["watch", ".", "--out", "a.png"], "--out goes with --once"),
        (["export-bsuite", "nowhere", "--out", "x"], "there is no folder nowhere"),
        (["export-bsuite", "nowhere"], "the following arguments are required: --out"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(train, capsys, command, expected):
    assert main(command) == 2
    error = capsys.readouterr().err
    assert error.startswith("explore: error: ")
    assert expected in error
    assert error.count("\n") == 1


def test_plugins_tells_what_is_installed(mine, capsys):
    assert main(["plugins", "-p", mine]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.split()[:3] == ["explore_plugins.priors", "built", "in"] for line in lines)
    assert any(line.split() == ["mine", "mine.py", "schedule.Half"] for line in lines)
    assert any("explore_plugins.display" in line and "(watches runs)" in line for line in lines)


def test_plugins_tells_what_failed_and_why(mine, capsys, monkeypatch):
    monkeypatch.setattr("explore._config.discovery.BUILT_INS", ("explore_plugins.priors", "explore_absent"))
    assert main(["plugins"]) == 0
    out = capsys.readouterr().out
    assert "prior.Additive" in out
    assert "explore_absent  built in  raises ModuleNotFoundError: No module named 'explore_absent'" in out


def test_components_lists_parameters_and_defaults(mine, capsys):
    assert main(["components", "-p", mine]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["schedule.Half", "of", "1.0"] in lines
    assert ["agent.Indexed", "value", "(required)"] in lines
    assert ["greedy", "MeanArgmax"] in lines
    assert ["selection.MeanArgmax"] in lines


def test_components_of_one_slot(capsys):
    assert main(["components", "prior"]) == 0
    out = capsys.readouterr().out
    assert "prior.Additive" in out
    assert "schedule.Linear" not in out


def test_describe_shows_documentation_parameters_and_owner(mine, capsys):
    assert main(["describe", "schedule.Half", "-p", mine]) == 0
    out = capsys.readouterr().out
    assert out.startswith("schedule.Half (plugin mine, mine.py)\n\nHalf of something.\n\n")
    assert "of         1.0      float  the whole, [red]unless[/red] it is cut." in out
    assert "Args:" not in out


def test_describe_knows_the_experiment_too(capsys):
    assert main(["describe", "experiment"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("experiment (the root of a configuration)\n")
    assert "stop_when_solved" in out


def test_tables_are_not_cut_when_the_output_is_not_a_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    assert main(["describe", "uncertainty.SoftplusHeads"]) == 0
    out = capsys.readouterr().out
    assert "…" not in out
    assert "\033" not in out
    assert any(
        line.startswith("train_heads") and line.rstrip().endswith("whose bit is set.") for line in out.splitlines()
    )


def test_help_needs_neither_torch_nor_gin(tmp_path):
    code = (
        "import sys\nfrom explore._cli.main import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit as end:\n    assert not end.code\n"
        "assert not {'torch', 'gin', 'numpy', 'rich'} & set(sys.modules), 'slow imports'\n"
    )
    path = os.pathsep.join(sys.path)
    done = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": path}, cwd=tmp_path, capture_output=True)
    assert done.returncode == 0, done.stderr


def test_a_closed_pipe_is_no_complaint(tmp_path):
    reading, writing = os.pipe()
    os.close(reading)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "explore", "components"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, env=environment, cwd=tmp_path)
    os.close(writing)
    assert done.stderr == b""
    assert done.returncode == 1


def test_every_command_has_help():
    for action in build_parser(["--help"])._subparsers._group_actions:
        assert {*COMMANDS, "export-bsuite"} <= set(action.choices)
        assert all(choice.help for choice in action._choices_actions)


@pytest.mark.parametrize(
    ("words", "config", "out"),
    [
        (["resume", "o"], None, "o"),
        (["run", "--resume", "o"], None, "o"),
        (["run", "--resume", "--out", "o"], None, "o"),
        (["run", "a.gin", "--resume", "o"], "a.gin", "o"),
        (["run", "a.gin", "--resume", "o", "--out", "./o"], "a.gin", "./o"),
        (["run", "--resume", "a", "--out", "o"], "a", "o"),
    ],
)
def test_ways_to_resume(train, words, config, out):
    assert main([*words, "-b", "x.y = 1", "-p", "m.py", "--force", "--quiet", "--allow-imports"]) == 0
    [(given, options)] = train.calls
    assert (given, options.pop("out"), options.pop("seeds", None)) == (config, out, None)
    switches = dict.fromkeys(["quiet", "allow_imports", "resume", "force"], True)
    assert options == {"bindings": ["x.y = 1"], "plugins": ["m.py"], **switches}


def test_recipes_are_listed_with_what_they_are(capsys):
    assert main(["recipes"]) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split()[0] == "recipe"
    listed = dict(line.split(maxsplit=1) for line in lines)
    assert listed["noisy_deep_sea"].startswith("NoisyNet-DQN on Deep-sea (Fortunato et al. 2018): noise on the")
    assert listed.keys() == {name for name in list_recipes() if is_complete(name)}


def is_complete(recipe):
    try:
        return bool(load(recipe, (), discover()))
    except UserError:
        return False


# Commands of plugins

HELLO = """
from explore.commands import Command
from explore.errors import UserError

class Hello(Command):
    summary = "greet somebody"

    def add_arguments(self, parser):
        parser.add_argument("name", metavar="NAME")

    def run(self, arguments):
        if arguments.name == "nobody":
            raise UserError("there is nobody")
        print(f"Hello {arguments.name}!")

class Empty(Command):
    summary = "nothing"

class Terse(Command):
    def run(self, arguments):
        pass
"""


@pytest.fixture
def hello(tmp_path, monkeypatch):
    """Installs distributions with these commands."""

    def install(name, **commands):
        folder = tmp_path / f"{name}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        lines = [f"{command.replace('_', '-')} = {value}" for command, value in commands.items()]
        (folder / "entry_points.txt").write_text("\n".join(["[explore.commands]", *lines]))

    (tmp_path / "hello_command.py").write_text(HELLO)
    monkeypatch.syspath_prepend(tmp_path)
    yield install
    sys.modules.pop("hello_command", None)


def test_a_plugin_adds_a_command(hello, capsys):
    hello("greetings", hello="hello_command:Hello")
    assert main(["hello", "World"]) == 0
    assert capsys.readouterr().out == "Hello World!\n"
    assert main(["hello", "nobody"]) == 2
    assert main(["hello"]) == 2
    complaint = "the following arguments are required: NAME (see explore hello --help)"
    assert capsys.readouterr().err == f"explore: error: there is nobody\nexplore: error: {complaint}\n"
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "hello          greet somebody" in re.sub(r"hello +greet", "hello          greet", capsys.readouterr().out)
    assert main(["plugins"]) == 0
    assert "commands of plugins: export-bsuite, hello\n" in capsys.readouterr().out


BROKEN = [
    ("absent:Hello", "cannot be loaded: ModuleNotFoundError: No module named 'absent'"),
    ("hello_command:Bye", "cannot be loaded: AttributeError: module 'hello_command' has no attribute 'Bye'"),
    ("hello_command:HELLO", "cannot be loaded: AttributeError"),
    ("hello_command:UserError", "must be a subclass of explore.commands.Command that defines run"),
    ("hello_command:Empty", "must be a subclass of explore.commands.Command that defines run"),
    ("hello_command:Terse", "has no summary: a line for explore --help"),
]


@pytest.mark.parametrize(("value", "reason"), BROKEN)
def test_a_broken_command_is_named_and_does_not_stop_the_others(hello, capsys, value, reason):
    hello("greetings", broken=value, hello="hello_command:Hello")
    assert main(["hello", "World"]) == 0
    assert capsys.readouterr().err == ""
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert not ended.value.code
    out, err = capsys.readouterr()
    assert "greet somebody" in out
    assert err.startswith(f"explore: note: the command broken of greetings 1.0 {reason}")
    assert err.count("\n") == 1
    assert main(["broken"]) == 2
    assert f"explore: error: the command broken of greetings 1.0 {reason}" in capsys.readouterr().err


def test_a_command_whose_name_is_taken_is_refused(hello, capsys):
    hello("a-greeting", hello="hello_command:Hello", recipes="hello_command:Hello", export_bsuite="hello_command:Hello")
    hello("b-greeting", hello="hello_command:Empty")
    assert main(["hello", "World"]) == 0
    with pytest.raises(SystemExit):
        main(["--help"])
    out, err = capsys.readouterr()
    assert "runs of bsuite's tasks as the CSV files" in " ".join(out.split())
    owners = {"export-bsuite of a-greeting": "explore_plugins.bsuite_export", "hello of b-greeting": "a-greeting 1.0"}
    owners["recipes of a-greeting"] = "explore"
    assert err.splitlines() == [
        f"explore: note: the command {name} 1.0 is left out: {owner} has a command of this name already"
        for name, owner in owners.items()
    ]
