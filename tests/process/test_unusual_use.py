"""Unusual but legitimate use: a clear message, and nothing lost silently."""

import os
import subprocess
import sys

import pytest

import explore
from explore._cli.main import main

TINY = [
    "environment.DeepSea.size = 4",
    "experiment.episodes = 4",
    "agent.Indexed.min_replay = 4",
    "experiment.seeds = (0, 1)",
]

ENVIRONMENT = """
import dm_env
import numpy as np
from explore import hookimpl

class Broken(dm_env.Environment):
    def __init__(self, seed):
        self.steps = 0
    def reset(self):
        return dm_env.restart(np.int32(0))
    def step(self, action):
        self.steps += 1
        if self.steps == 3:
            {mistake}
        return dm_env.termination(0.0, np.int32(1))
    def observation_spec(self):
        return dm_env.specs.DiscreteArray(2)
    def action_spec(self):
        return dm_env.specs.DiscreteArray(2)

@hookimpl
def explore_environments():
    return [Broken]
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments, bindings=()):
    return main(
        ["run", "pins_deep_sea", "--quiet", *arguments, *(word for b in [*TINY, *bindings] for word in ("-b", b))]
    )


@pytest.mark.parametrize(
    ("mistake", "what"), [("1 / 0", "ZeroDivisionError: division by zero"), ("raise SystemExit(0)", "SystemExit: 0")]
)
def test_an_error_in_a_plugin_during_a_run_names_the_plugin_and_the_line(folder, capsys, mistake, what):
    (folder / "mine.py").write_text(ENVIRONMENT.format(mistake=mistake))
    broken = "experiment.environment = @environment.Broken"
    expected = f"environment.Broken of plugin mine raises {what} (mine.py:14)"
    assert run("-p", "mine.py", "--out", "out", bindings=[broken]) == 1  # tried before the run
    assert capsys.readouterr().err.splitlines()[-1] == f"explore: error: {expected}"
    assert not (folder / "out").exists()
    assert run("-p", "mine.py", "--out", "out", bindings=[broken, "experiment.checkpoint_minutes = None"]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == f"explore: error: {expected}"
    assert explore.Run.open(folder / "out").info["reason"] == expected


def test_a_missing_include_is_not_replaced_by_a_recipe_of_the_same_name(folder, capsys):
    (folder / "mine.gin").write_text("include 'elsewhere/pins_deep_sea.gin'")
    assert main(["run", "mine.gin"]) == 2
    assert "mine.gin:1: there is no configuration 'elsewhere/pins_deep_sea.gin'" in capsys.readouterr().err


def test_a_file_with_a_byte_order_mark_is_read(folder):
    (folder / "mine.gin").write_text("\ufeffinclude 'pins_deep_sea.gin'", encoding="utf-8")
    assert main(["run", "mine.gin", "--quiet", *(word for b in TINY for word in ("-b", b))]) == 0


@pytest.mark.parametrize(
    ("binding", "advice"),
    [
        ("agent.Indexed.target = selection.MeanArgmax", "a component as @slot.Name"),
        ("experiment.stop_when_solved = true", "True, False and None with a capital letter"),
    ],
)
def test_a_word_that_is_no_value_gets_the_right_advice(capsys, binding, advice):
    assert run(bindings=[binding]) == 2
    assert advice in capsys.readouterr().err


def test_a_network_that_draws_random_numbers_is_refused(folder, capsys):
    (folder / "drop.py").write_text(
        """
import torch
from explore import hookimpl, nn
from explore.interfaces import ValueNetwork

class Drop(ValueNetwork):
    def __init__(self, spec):
        super().__init__()
        self.net = nn.MLP(spec.observation, (8,), spec.num_actions)
        self.drop = torch.nn.Dropout(0.5)
    def forward(self, obs):
        return self.drop(self.net(obs))

@hookimpl
def explore_value_networks():
    return [Drop]
"""
    )
    assert run("-p", "drop.py", bindings=["agent.Indexed.value = @value.Drop"]) == 2
    assert "Drop gives other values for the same observations each time" in capsys.readouterr().err


def test_stopping_when_solved_needs_a_task_that_can_be_solved(capsys):
    bindings = ["experiment.environment = @environment.Bsuite", "environment.Bsuite.id = 'catch/0'"]
    assert run(bindings=[*bindings, "experiment.stop_when_solved = True"]) == 2
    assert "catch/0 defines no criterion for solved" in capsys.readouterr().err


def test_too_many_threads_are_refused(capsys):
    assert run(bindings=["experiment.threads = 100000"]) == 2
    assert "threads must be at most 256, got 100000" in capsys.readouterr().err


def test_too_little_memory_is_reported_with_the_binding(capsys):
    assert run(bindings=["environment.DeepSea.size = 10000000"]) == 2
    error = capsys.readouterr().err
    assert "environment.DeepSea needs more memory than there is" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("name", ["", ".", "./mine"])
def test_a_plugin_must_be_a_file_or_a_module(capsys, name):
    assert run("-p", name) == 2
    assert "neither a file with its .py nor the name of a module" in capsys.readouterr().err


def test_a_reader_that_goes_away_does_not_end_a_run(folder):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    bindings = " ".join(f"-b '{binding}'" for binding in [*TINY, "experiment.episodes = 400"])
    command = f"{sys.executable} -m explore run pins_deep_sea --out out {bindings} | head -1"
    subprocess.run(command, shell=True, env=environment, check=True, capture_output=True)
    assert explore.Run.open(folder / "out").status == "done"


def test_a_run_repeated_from_its_folder_is_called_after_the_folder(folder):
    assert run("--out", "first") == 0
    assert main(["run", "first/config.gin", "--quiet"]) == 0
    assert (folder / "runs" / "first").is_dir()


def test_the_version_is_printed(capsys):
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"explore {explore.__version__}\n"
