"""A mistake of the user is one line, saying what is wrong, where, and what would be right; exit code 2."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from explore._cli.main import main

SMALL = (
    "experiment.episodes = 2",
    "experiment.seeds = (0, 1)",
    "environment.DeepSea.size = 4",
    "agent.Indexed.min_replay = 4",
)

NETWORKS = """
from explore import hookimpl
from explore.interfaces import ScaleModule, ValueNetwork
from explore.nn import MLP

class Scales(ScaleModule):
    def __init__(self, spec, heads: int = 3):
        super().__init__(heads)
        self.net = MLP(spec.observation, (8,), spec.num_actions * heads)

    def forward(self, obs):
        scales = self.net(obs).abs().unflatten(-1, (-1, self.heads))
        return {scales}

class Means(ValueNetwork):
    def __init__(self, spec):
        super().__init__()
        self.net = MLP(spec.observation, (8,), spec.num_actions)

    def forward(self, obs):
        means = self.net(obs)
        return {means}

@hookimpl
def explore_uncertainty_modules():
    return [Scales]

@hookimpl
def explore_value_networks():
    return [Means]
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def refused(folder, capsys):
    """Gives a command that must be refused to `explore run`; returns what it says after "explore: error: "."""

    def refused(*command, bindings=()):
        bound = [word for binding in (*SMALL, *bindings) for word in ("-b", binding)]
        before = everything_in(folder)
        code = main(["run", *command, *bound])
        out, err = capsys.readouterr()
        assert (code, out, err.count("\n")) == (2, "", 1), err
        assert err.startswith("explore: error: ")
        assert everything_in(folder) == before
        return err.removeprefix("explore: error: ").rstrip("\n")

    return refused


def everything_in(folder):
    return sorted(str(path) for path in folder.rglob("*") if "__pycache__" not in path.parts)


# Files


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, "there is no configuration 'mine.gin'; there are: bootdqn_bsuite_deep_sea, "),
        ("", "mine.gin is empty: it binds nothing"),
        ("# only a comment\n", "mine.gin is empty: it binds nothing"),
        ("experiment.episodes 3", "mine.gin:1: syntax error: "),
        ("experiment.seeds = (0,\n", "mine.gin:2: syntax error: EOF in multi-line statement"),
        (
            "experiment.device = cpu",
            "mine.gin:1: syntax error: Failed to parse token 'cpu' (a string is written",
        ),
        (
            "include 'pins_deepsea.gin'",
            "mine.gin:1: there is no configuration 'pins_deepsea.gin'; did you mean 'pins_deep_sea'?",
        ),
        ("import os", "mine.gin:1: 'import os' would run code; allow it with --allow-imports"),
        (
            "include 'pins_deep_sea.gin'\n\nuncertainty.SoftplusHeads.heads = 0",
            "mine.gin:3: uncertainty.SoftplusHeads: heads must be at least 1, got 0",
        ),
    ],
)
def test_a_file_that_cannot_be_used(refused, folder, text, expected):
    if text is not None:
        (folder / "mine.gin").write_text(text)
    assert refused("mine.gin").startswith(expected)


def test_a_recipe_that_is_misspelt(refused):
    assert refused("pins_deepsea") == "there is no configuration 'pins_deepsea'; did you mean 'pins_deep_sea'?"


# Names


@pytest.mark.parametrize(
    ("binding", "expected"),
    [
        (
            "uncertainty.SoftplusHead.heads = 3",
            "unknown component 'uncertainty.SoftplusHead'; did you mean 'uncertainty.SoftplusHeads'?",
        ),
        (
            "agent.Indexed.uncertainty = @uncertainty.Ensembel",
            "unknown component 'uncertainty.Ensembel'; did you mean 'uncertainty.Ensemble'?",
        ),
        (
            "uncertainty.SoftplusHeads.head = 3",
            "uncertainty.SoftplusHeads has no parameter 'head'; did you mean 'heads'?",
        ),
        (
            "uncertanty.Ensemble.size = 3",
            "unknown slot 'uncertanty' in 'uncertanty.Ensemble'; did you mean 'uncertainty'?",
        ),
        (
            "agent.Indexed.prior = @selection.MeanArgmax",
            "selection.MeanArgmax does not fit agent.Indexed.prior, which takes prior.Additive, prior.NoPrior",
        ),
        (
            "objective.WassersteinTD.sigma = @prior.Additive",
            "prior.Additive does not fit objective.WassersteinTD.sigma, which takes schedule.Constant, schedule.Linear",
        ),
        (
            "agent.Indexed.acting = 'SampledArgmax'",
            "agent.Indexed: acting must be a component (@selection.MeanArgmax, @selection.",
        ),
        (
            "agent.Indexed.prior = @prior.Additive()",
            "write @prior.Additive without parentheses: the core calls it when needed",
        ),
        (
            "objective.WassersteinTD.sigma = @schedule.Linear",
            "schedule.Linear.start has no value; bind it, e.g. schedule.Linear.start = ...",
        ),
        ("episodes = 5\nexperiment.episodes = %episode", "unknown macro 'episode'; did you mean 'episodes'?"),
        ("# nothing", "binds nothing; write slot.Name.parameter = value"),
    ],
)
def test_a_name_that_is_unknown_or_does_not_fit(refused, binding, expected):
    place = f'-b "{" ".join(binding.split())}"'
    assert refused("pins_deep_sea", bindings=[binding]).removeprefix(place).lstrip(": ").startswith(expected)


def test_a_misspelt_scope(refused):
    bindings = ["objective.WassersteinTD.sigma = @slow/schedule.Linear", "slwo/schedule.Linear.start = 3.0"]
    assert refused("pins_deep_sea", bindings=bindings) == (
        "-b \"slwo/schedule.Linear.start = 3.0\": no reference @slwo/... enters the scope 'slwo'; did you mean 'slow'?"
    )


# Values

CHOICES = {
    "uncertainty.Ensemble": ["agent.Indexed.uncertainty = [@uncertainty.Ensemble, @uncertainty.SoftplusHeads]"],
    "objective.SampledTD": ["agent.Indexed.objective = @objective.SampledTD"],
    "selection.EpsilonGreedy": ["agent.Indexed.acting = @selection.EpsilonGreedy"],
    "selection.OptimisticArgmax": ["agent.Indexed.target = @selection.OptimisticArgmax"],
    "selection.Boltzmann": ["agent.Indexed.acting = @selection.Boltzmann"],
    "selection.InformationDirected": ["agent.Indexed.acting = @selection.InformationDirected"],
    "schedule.Linear": [
        "objective.WassersteinTD.sigma = @schedule.Linear",
        "schedule.Linear.start = 2.0",
        "schedule.Linear.end = 1.0",
    ],
    "environment.CartpoleSwingup": ["experiment.environment = @environment.CartpoleSwingup"],
    "environment.Bsuite": ["experiment.environment = @environment.Bsuite"],
}
"""Bindings that put a component into the run where the recipe does not."""

POSITIVE = "at least 1"
WHOLE = "an integer"
LIST = "a list of integers"
WIDTHS = "a list of positive layer widths such as (50, 50)"
INITIALISERS = "one of torch, glorot_uniform, glorot_normal, he_normal, truncated_normal"
SHARE = "between 0 and 1"
NOT_NEGATIVE = "at least 0 and finite"

VALUES = {
    "experiment.episodes = 0": POSITIVE,
    "experiment.episodes = 2.5": WHOLE,
    "experiment.evaluate_every = 0": POSITIVE,
    "experiment.threads = 0": POSITIVE,
    "experiment.stop_when_solved = 'no'": "True or False",
    "experiment.seeds = ()": "different integers of at least 0 such as (0, 1, 2)",
    "experiment.seeds = 1000000000000": "at most 1,000,000",
    "experiment.seeds = 0": "different integers of at least 0 such as (0, 1, 2)",
    "agent.Indexed.batch_size = 0": POSITIVE,
    "agent.Indexed.batch_size = 64.0": WHOLE,
    "agent.Indexed.batches_per_episode = 0": POSITIVE,
    "agent.Indexed.learn_every = 0": POSITIVE,
    "agent.Indexed.target_period = -10": POSITIVE,
    "agent.Indexed.replay_capacity = 1": "at least 2",
    "agent.Indexed.min_replay = 2000000": "at most replay_capacity = 1000000",
    "agent.Indexed.discount = 2": SHARE,
    "agent.Indexed.mask_probability = 2": SHARE,
    "agent.Indexed.mask_probability = -0.5": SHARE,
    "agent.Indexed.learning_rate = 0": "above 0",
    "agent.Indexed.double_q = 'no'": "True or False",
    "agent.Indexed.uncertainty = []": "a module or a list of them",
    "value.MLP.hidden = 300": LIST,
    "value.MLP.hidden = 'wide'": LIST,
    "value.MLP.hidden = (50, 0)": WIDTHS,
    "value.MLP.init = 'zeros'": INITIALISERS,
    "uncertainty.SoftplusHeads.heads = 0": POSITIVE,
    "uncertainty.SoftplusHeads.heads = 2.0": WHOLE,
    "uncertainty.SoftplusHeads.hidden = {}": LIST,
    "uncertainty.SoftplusHeads.hidden = None": LIST,
    "uncertainty.SoftplusHeads.init = 'xavier'": INITIALISERS,
    "uncertainty.SoftplusHeads.train_heads = 'all'": "'one' or 'masked'",
    "uncertainty.Ensemble.size = 0": POSITIVE,
    "uncertainty.Ensemble.size = -3": POSITIVE,
    "prior.Additive.scale = -1": NOT_NEGATIVE,
    "prior.Additive.uncertainty_scale = 'two'": "a number or None",
    "prior.Additive.init = 'zeros'": INITIALISERS,
    "objective.WassersteinTD.sigma = -1": "at least 0",
    "objective.WassersteinTD.sigma = 'two'": "a number or a component (@schedule.Constant, @schedule.Linear)",
    "objective.SampledTD.noise = -1": NOT_NEGATIVE,
    "objective.SampledTD.indices = 0": POSITIVE,
    "selection.EpsilonGreedy.epsilon = 2": SHARE,
    "selection.OptimisticArgmax.draws = 0": POSITIVE,
    "selection.OptimisticArgmax.quantile = 2": SHARE,
    "selection.Boltzmann.temperature = 0": "at least 1e-08",
    "selection.InformationDirected.draws = 0": POSITIVE,
    "selection.InformationDirected.information = 'entropy'": "'optimal_action' or 'value'",
    "schedule.Linear.until = 0": "above 0 and at most 1",
    "environment.DeepSea.size = -5": "at least 2",
    "environment.DeepSea.size = 5.0": WHOLE,
    "environment.DeepSea.deterministic = 'yes'": "True or False",
    "environment.DeepSea.mapping_seed = -1": "None or from 0 to 2**32 - 1",
    "environment.CartpoleSwingup.height_threshold = 1.0": "below 1",
    "environment.CartpoleSwingup.x_dot_threshold = -1": "None or above 0",
    "environment.CartpoleSwingup.move_cost = -0.1": NOT_NEGATIVE,
    "environment.CartpoleSwingup.max_time = 0": "above 0 and finite",
    "environment.Bsuite.id = 'catc/0'": "one of bsuite's",
}
"""Binding -> what its value must be."""


@pytest.mark.parametrize(("binding", "right"), VALUES.items())
def test_a_value_out_of_range(refused, binding, right):
    name, value = binding.split(" = ")
    component, _, parameter = name.rpartition(".")
    error = refused("pins_deep_sea", bindings=[*CHOICES.get(component, ()), binding])
    assert error.startswith(f'-b "{binding}": {component}: {parameter} must be {right}, got {value}')


@pytest.mark.parametrize(
    ("seeds", "right"), [("(1, 1)", "different"), ("(-1,)", "different"), ("(1.5,)", f"an integer or {LIST}")]
)
def test_seeds_in_a_binding_that_make_no_sense(refused, seeds, right):
    error = refused("pins_deep_sea", bindings=[f"experiment.seeds = {seeds}"])
    assert error.startswith(f'-b "experiment.seeds = {seeds}": experiment: seeds must be {right}')


def test_a_device_that_is_not_there(refused):
    error = refused("pins_deep_sea", bindings=["experiment.device = 'gpu'"])
    assert error.startswith("-b \"experiment.device = 'gpu'\": experiment: device 'gpu' is not available: ")


@pytest.mark.parametrize(
    ("bindings", "reason"),
    [
        (
            ["agent.Indexed.uncertainty = @uncertainty.Ensemble"],
            "objective.WassersteinTD matches means and standard deviations, so it needs one uncertainty module "
            "with scales such as uncertainty.SoftplusHeads, not Ensemble; use objective.SampledTD",
        ),
        (
            ["agent.Indexed.uncertainty = [@uncertainty.Ensemble, @uncertainty.Deterministic]"],
            "uncertainty has Ensemble and Deterministic: each is built on the value network, so only one can be named",
        ),
        (
            [
                "agent.Indexed.uncertainty = @uncertainty.Deterministic",
                "agent.Indexed.objective = @objective.SampledTD",
                "objective.SampledTD.noise = 1.0",
            ],
            "objective.SampledTD.noise perturbs the values of different indices differently, but "
            "uncertainty.Deterministic has only one; set it to 0",
        ),
    ],
)
def test_a_combination_that_makes_no_sense(refused, bindings, reason):
    assert refused("pins_deep_sea", bindings=bindings).endswith(f": agent.Indexed: {reason}")


# Plugins


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, "there is no such file"),
        ("net = (", "it does not parse: '(' was never closed (mine.py:1)"),
        ("\nraise KeyError('lost')", "raises KeyError: 'lost' when imported (mine.py:2)"),
        ("x = 1", "it defines no hook: mark a function such as explore_environments with @hookimpl"),
        (
            "from explore import hookimpl\n@hookimpl\ndef explore_prior(): ...",
            "there is no hook 'explore_prior'; did you mean 'explore_priors'?",
        ),
    ],
)
def test_a_plugin_file_that_cannot_be_used(refused, folder, text, expected):
    if text is not None:
        (folder / "mine.py").write_text(text)
    assert refused("pins_deep_sea", "-p", "mine.py") == f"plugin mine.py: {expected}"


def test_a_plugin_module_that_is_not_there(refused):
    assert refused("pins_deep_sea", "-p", "nowhere_at_all") == (
        "plugin nowhere_at_all: there is no module 'nowhere_at_all'; name a file with its .py"
    )


OUTPUTS = [
    ("scales", "scales - 5", "Scales gives negative uncertainties; they must be at least 0 (softplus its output)"),
    (
        "scales",
        "scales[..., :2]",
        "Scales gives values of shape [2, 32, 2, 2], expected [lanes, batch, actions, heads] = [2, 32, 2, 3]",
    ),
    (
        "means",
        "means[..., :1]",
        "Means gives values of shape [2, 32, 1], expected [lanes, batch, actions] = [2, 32, 2]",
    ),
    ("means", "None", "Means must return a tensor, got NoneType"),
    ("means", "means @ means", "Means fails on observations of shape [2, 32]: "),
]
CHOOSE = {
    "scales": "agent.Indexed.uncertainty = @uncertainty.Scales",
    "means": "agent.Indexed.value = @value.Means",
}


@pytest.mark.parametrize(("network", "output", "expected"), OUTPUTS)
def test_a_component_with_a_wrong_output(refused, folder, network, output, expected):
    (folder / "mine.py").write_text(NETWORKS.format(**{"scales": "scales", "means": "means", network: output}))
    assert f": {expected}" in refused("pins_deep_sea", "-p", "mine.py", bindings=[CHOOSE[network]])


# Options


@pytest.mark.parametrize(
    ("seeds", "expected"),
    [
        ("", "'' is not a seed; write e.g. 0-4 or 0,3,7"),
        ("0,1,0", "0 is repeated; every seed is run once"),
        ("-1", "'-1' is not a seed; write e.g. 0-4 or 0,3,7"),
        ("two", "'two' is not a seed; write e.g. 0-4 or 0,3,7"),
        ("4-0", "the range '4-0' is empty; write 0-4"),
    ],
)
def test_seeds_that_make_no_sense(refused, seeds, expected):
    assert refused("pins_deep_sea", "--seeds", seeds) == f"--seeds {seeds!r}: {expected}"


@pytest.mark.parametrize(
    ("out", "expected"),
    [
        ("full", "the run folder full exists already; choose another with --out"),
        ("full/file", "the run folder full/file exists already; choose another with --out"),
        ("full/file/run", "cannot write the run folder full/file/run: Not a directory; choose another with --out"),
    ],
)
def test_an_output_folder_that_cannot_be_used(refused, folder, out, expected):
    (folder / "full").mkdir()
    (folder / "full" / "file").write_text("precious")
    assert refused("pins_deep_sea", "--out", out) == expected
    assert (folder / "full" / "file").read_text() == "precious"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_output_folder_without_permission(refused, folder):
    (folder / "locked").mkdir(mode=0o555)
    assert refused("pins_deep_sea", "--out", "locked/run").startswith("cannot write the run folder locked/run: ")


@pytest.mark.parametrize(
    "command",
    [["run", "nowhere.gin"], ["run", "pins_deep_sea", "-b", "uncertainty.SoftplusHeads.heads = 0"]],
)
def test_the_command_shows_no_traceback_even_if_those_of_bugs_are_wanted(folder, command):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "EXPLORE_TRACEBACK": "1"}
    program = [sys.executable, "-m", "explore", *command]
    done = subprocess.run(program, capture_output=True, text=True, env=environment)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("explore: error: ")
    assert done.stderr.count("\n") == 1
    assert list(Path.cwd().iterdir()) == []


@pytest.mark.parametrize(
    "binding",
    [
        "agent.Indexed.discount = 'high'",
        "agent.Indexed.learning_rate = None",
        "agent.Indexed.mask_probability = 'half'",
        "agent.Indexed.value = None",
        "agent.Indexed.uncertainty = None",
        "agent.Indexed.batch_size = True",
        "experiment.episodes = True",
        "uncertainty.SoftplusHeads.heads = True",
        "uncertainty.SoftplusHeads.init = ['torch']",
        "value.MLP.hidden = (True,)",
        "prior.Additive.scale = None",
        "schedule.Linear.start = 'two'",
        "schedule.Linear.until = 'late'",
        "selection.OptimisticArgmax.quantile = 'high'",
        "selection.EpsilonGreedy.greedy = @selection.EpsilonGreedy",
    ],
)
def test_a_value_of_the_wrong_kind(refused, binding):
    component = binding.split(" = ")[0].rpartition(".")[0]
    error = refused("pins_deep_sea", "--quiet", bindings=[*CHOICES.get(component, ()), binding])
    assert error.startswith(f'-b "{binding}": ')
    assert "not supported" not in error
    assert "not callable" not in error


@pytest.mark.parametrize(
    ("parameter", "value"), [("objective.WassersteinTD.sigma", -1.0), ("selection.EpsilonGreedy.epsilon", 3.0)]
)
def test_a_schedule_that_leaves_the_range(refused, parameter, value):
    component, _, name = parameter.rpartition(".")
    chosen = [*CHOICES.get(component, ()), f"{parameter} = @schedule.Constant", f"schedule.Constant.value = {value}"]
    assert name in refused("pins_deep_sea", "--quiet", bindings=chosen)


def test_a_component_that_raises_on_observations(refused, folder):
    (folder / "mine.py").write_text(NETWORKS.format(scales="scales.nothing", means="means"))
    error = refused("pins_deep_sea", "-p", "mine.py", bindings=[CHOOSE["scales"]])
    assert "Scales fails on observations" in error


@pytest.mark.parametrize(("network", "output", "expected"), OUTPUTS[:1])
def test_the_place_of_a_component_with_a_wrong_output(refused, folder, network, output, expected):
    (folder / "mine.py").write_text(NETWORKS.format(**{"scales": "scales", "means": "means", network: output}))
    error = refused("pins_deep_sea", "-p", "mine.py", bindings=[CHOOSE[network]])
    assert error.startswith(f'-b "{CHOOSE[network]}": ')
