"""Every recipe runs, and holds the paper's settings (supplement A; Theorem 1)."""

import numpy as np
import pytest

import explore
from explore._config.discovery import discover
from explore._config.gin_files import list_recipes
from explore._running.experiment import load
from explore.errors import UserError

BASES = {
    "deep_sea": "agent.Indexed.value",
    "cartpole_swingup": "agent.Indexed.value",
    "ensemble_deep_sea": "agent.Indexed.prior",
    "ensemble_cartpole": "agent.Indexed.prior",
    "every_step_deep_sea": "agent.Indexed.uncertainty",
    "tabular_deep_sea": "experiment.agent",
    "random_mdp": "experiment.agent",
}
"""Recipes to be included by others, and the first value that each leaves to them."""

SMALL = {
    "deep_sea": ("environment.DeepSea.size = 5",),
    "cartpole": ("environment.CartpoleSwingup.max_time = 0.3",),
    "random_mdp": ("environment.RandomMDP.states = 3", "environment.RandomMDP.horizon = 4"),
}

EVERYWHERE = {
    "seeds": 5,
    "discount": 0.99,
    "learning_rate": 1e-3,
    "batch_size": 64,
    "target_period": 10,
    "replay_capacity": 1_000_000,
    "mask_probability": 0.5,
}
TASKS = {
    "deep_sea": {"task": "DeepSea", "episodes": 6000, "batches_per_episode": 10, "min_replay": 2000},
    "cartpole": {"task": "CartpoleSwingup", "episodes": 3000, "batches_per_episode": 100, "min_replay": 2000},
}
PINS = {"members": 1, "betas": (2, 2), "acting": "SampledArgmax", "target": "MeanArgmax", "train_heads": "one"}
ENSEMBLE = {"acting": "SampledArgmax", "target": "SampledArgmax", "noise": 0}
DQN = {"members": 1, "betas": None, "acting": "EpsilonGreedy", "target": "MeanArgmax", "noise": 0}
BSP = {"deep_sea": {"hidden": [50], "betas": (10, 10)}, "cartpole": {"hidden": [50, 50, 50], "betas": (30, 30)}}

PAPER = {
    "pins_deep_sea": PINS | {"hidden": [300], "heads": 10, "scale_hidden": [512], "sigma": [2, 2, 2, 2]},
    "pins_cartpole": PINS | {"hidden": [50, 50, 50], "heads": 2, "scale_hidden": [50, 50, 50], "sigma": [2, 1.5, 1, 1]},
    "dqn_deep_sea": DQN | {"hidden": [50]},
    "dqn_cartpole": DQN | {"hidden": [50, 50, 50]},
}
for task, settings in BSP.items():
    PAPER |= {f"bsp{size}_{task}": ENSEMBLE | settings | {"members": size} for size in (5, 7, 10)}
    PAPER[f"bs10_{task}"] = ENSEMBLE | settings | {"members": 10, "betas": None}

HYPER = {
    "uncertainty": "Hypermodel", "size": 5, "hidden": [64, 64], "prior": 10, "double_q": True, "clip": 10.0,
    "epsilon": 1.5e-4, "redraw": 0.01, "indices": 20, "target_index": "fresh", "noise": 0, "capacity": 1_000_000,
    "mask_probability": 0.5,
}  # fmt: skip
PLAIN = HYPER | {
    "double_q": False,
    "clip": None,
    "epsilon": 1e-8,
    "redraw": 0,
    "hidden": [50, 50],
    "target_index": "same",
}
EXPLORERS = {
    "hyperagent_deep_sea": HYPER,
    "hyperdqn_deep_sea": HYPER | {"size": 3, "redraw": 0, "noise": 0.01, "target_index": "same"},
    "epinet_deep_sea": PLAIN | {"uncertainty": "Epinet", "size": 2, "prior": 1},
    "noisy_deep_sea": PLAIN
    | {
        "uncertainty": "NoisyNet",
        "size": 400 + 4 * 64 + 2,
        "hidden": [64, 64],
        "prior": None,
        "redraw": 1,
        "indices": 1,
    }
    | {"target_index": "fresh"},
    "bootdqn_bsuite_deep_sea": PLAIN
    | {"uncertainty": "Ensemble", "size": 20, "prior": 5, "indices": 1, "capacity": 10_000, "mask_probability": 1.0},
}
"""Methods beyond the paper, in the settings they were published with."""

TABULAR = {
    "wtd": "TabularWTD",
    "rlsvi": "TabularRLSVI",
    "psrl": "TabularPSRL",
    "ucbvi": "UCBVI",
    "egreedy": "TabularQLearning",
}
TABULAR = {f"{name}_{task}": agent for name, agent in TABULAR.items() for task in ("random_mdp", "deep_sea")}


def task_of(recipe):
    return next(task for task in SMALL if recipe.endswith(task))


def settings_of(experiment):
    """What was built, in the words of the tables above."""
    agent, function = experiment.agent, experiment.agent.function
    found = {
        "task": experiment.description.name,
        "episodes": experiment.episodes,
        "seeds": len(experiment.seeds),
        "discount": agent.learner.discount,
        "learning_rate": agent.learner.adam.rates[0],
        "replay_capacity": agent.replay.capacity - 1,
        "mask_probability": agent.replay.stored[0].probability,
        "members": function.parts[0].index.size,
        "hidden": widths(function.parts[0].network),
        "betas": tuple(function.prior.scales.values()) if function.prior.has_twin else None,
        "acting": type(agent.acting).__name__,
        "target": type(agent.learner.target).__name__,
    }
    plain = ("batch_size", "batches_per_episode", "target_period", "min_replay")
    found |= {name: getattr(agent, name) for name in plain}
    for scales in function.parts[1:]:
        found |= {"heads": scales.heads, "scale_hidden": widths(scales), "train_heads": scales.index.train_heads}
        found |= {"sigma": [pytest.approx(agent.objective.sigma(progress)) for progress in (0, 0.45, 0.9, 1)]}
    if not function.parts[1:]:
        found |= {"noise": agent.objective.noise}
    return found


def widths(network):
    return [layer.outputs for layer in network.net.layers[:-1]]


def test_every_recipe_is_a_base_or_in_a_table():
    assert sorted(list_recipes()) == sorted([*PAPER, *EXPLORERS, *TABULAR, *BASES])


@pytest.mark.parametrize("recipe", [*PAPER, *EXPLORERS, *TABULAR])
def test_everything_in_a_recipe_has_an_effect(recipe):
    config = load(recipe, ["experiment.seeds = (0,)"], discover())
    config.build()
    assert config.unused() == []


@pytest.mark.parametrize("recipe", PAPER)
def test_a_recipe_holds_the_papers_settings(recipe):
    experiment = load(recipe, (), discover()).build()
    assert settings_of(experiment) == EVERYWHERE | TASKS[task_of(recipe)] | PAPER[recipe]


@pytest.mark.parametrize("recipe", EXPLORERS)
def test_a_recipe_of_another_explorer_holds_its_settings(recipe):
    agent = load(recipe, (), discover()).build().agent
    function, learner = agent.function, agent.learner
    holder = function.parts[0]
    assert {
        "uncertainty": type(holder).__name__,
        "size": holder.index.size,
        "hidden": widths(holder.network),
        "prior": function.prior.scales["value"] if function.prior.has_twin else None,
        "double_q": learner.double_q,
        "clip": learner.adam.clip,
        "epsilon": learner.adam.epsilon,
        "redraw": agent.redraw_probability,
        "indices": agent.objective.indices,
        "target_index": agent.objective.target_index,
        "noise": agent.objective.noise,
        "capacity": agent.replay.capacity - 1,
        "mask_probability": agent.replay.stored[0].probability,
    } == EXPLORERS[recipe]
    assert (agent.learn_every, agent.target_period, agent.batch_size, agent.min_replay) == (1, 4, 128, 128)
    assert (learner.discount, learner.adam.rates[0]) == (0.99, 1e-3)
    assert {type(selection).__name__ for selection in (agent.acting, learner.target)} == {"SampledArgmax"}


def test_deep_sea_maps_actions_at_random_for_each_seed():
    seas = load("pins_deep_sea", (), discover()).build().environments
    assert {sea.size for sea in seas} == {20}
    assert len({str(sea._right) for sea in seas}) == 5


@pytest.mark.parametrize("recipe", [name for name in [*PAPER, *EXPLORERS, *TABULAR] if name.endswith("deep_sea")])
def test_recipes_of_the_paper_have_its_costs_and_others_those_of_bsuite(recipe):
    sea = load(recipe, (), discover()).build().environments[0]
    paper, bsuite = 1 - 0.01 * 19 / 20, 1 - 0.01
    assert sea.best_return == pytest.approx(paper if recipe in PAPER else bsuite)


def test_swing_up_has_the_thresholds_of_the_papers_text():
    config = load("pins_cartpole", (), discover())
    config.build()
    block = config.text().split("environment.CartpoleSwingup:\n")[1].split("\n\n")[0]
    bound = dict(line.replace(" ", "").split("=") for line in block.splitlines())
    assert bound == {
        "height_threshold": "0.95",
        "theta_dot_threshold": "1.0",
        "x_reward_threshold": "1.0",
        "x_dot_threshold": "1.0",
        "x_threshold": "5.0",
        "move_cost": "0.05",
        "timescale": "0.01",
        "max_time": "10.0",
        "init_range": "0.05",
    }


def test_epsilon_greedy_dithers_in_one_step_of_twenty():
    assert load("dqn_deep_sea", (), discover()).build().agent.acting.epsilon(0.5) == 0.05


@pytest.mark.parametrize("recipe", TABULAR)
def test_a_tabular_recipe_has_its_agent_and_its_task(recipe):
    experiment = load(recipe, (), discover()).build()
    assert type(experiment.agent).__name__ == TABULAR[recipe]
    if task_of(recipe) == "deep_sea":
        assert (experiment.environments[0].size, len(experiment.seeds), experiment.episodes) == (20, 5, 2000)
        assert len({str(sea._right) for sea in experiment.environments}) == 5
    else:
        mdp = experiment.environments[0]
        assert (mdp.outcomes.shape, mdp.mass, len(experiment.seeds)) == ((10, 10, 3, 20), 3.0, 200)


@pytest.mark.parametrize("name", ["wtd", "rlsvi"])
def test_random_mdps_are_met_with_the_settings_of_theorem_1(name):
    agent = load(f"{name}_random_mdp", (), discover()).build().agent
    assert (agent.sigma**2, agent.prior_mean, agent.beta) == (pytest.approx(3 * 10**2), 10, 3.0)


@pytest.mark.parametrize("recipe", [*PAPER, *EXPLORERS, *TABULAR])
def test_a_recipe_runs_and_leaves_a_complete_folder(recipe, tmp_path, capsys):
    learning = ["agent.Indexed.batches_per_episode = 2"] if recipe in PAPER else []  # else one at every step
    learning += ["agent.Indexed.min_replay = 5"] if recipe not in TABULAR else []
    bindings = (*SMALL[task_of(recipe)], *learning, "experiment.episodes = 3")
    run = explore.run(recipe, bindings=bindings, seeds=range(2), out=tmp_path / "run", quiet=True)
    assert run.status == "done"
    files = sorted(path.name for path in run.folder.iterdir())
    assert files == [".lock", "checkpoint", "config.gin", "episodes.csv", "run.json", "snapshots", "summary.json"]
    assert run.checkpoints.episodes() == [3, 1]
    episodes = run.episodes
    assert episodes["seed"].tolist() == [0, 1] * 3
    assert episodes["episode"].tolist() == [1, 1, 2, 2, 3, 3]
    assert ("regret" in episodes) == (recipe in TABULAR)
    measured = {"return"} | {name for name in episodes if name.endswith("loss") or name in ("uncertainty", "regret")}
    for name in measured:
        assert np.isfinite(episodes[name][-2:]).all(), name
    assert run.summary["overall"]["seeds"] == 2
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("recipe", "missing"), BASES.items())
def test_a_base_is_refused_with_what_it_lacks(recipe, missing):
    with pytest.raises(
        UserError, match=rf"(\.gin:\d+: |^){missing} has no value; bind it, e\.g\. {missing} = @\w+\.\w+$"
    ):
        load(recipe, (), discover())
