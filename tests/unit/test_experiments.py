"""Experiments: what a plugin may declare, what `explore reproduce` makes of it, and the grids of the built-in ones."""

import textwrap
from math import prod
from pathlib import Path

import pytest
from explore_plugins.paper import explore_experiments

from explore._config.discovery import discover
from explore._running.experiment import load
from explore._sweeps.grid import Sweep
from explore._sweeps.reproduce import _name_method, find_experiment, find_folder, plan_batches, scale_grid
from explore.errors import UserError
from explore.experiments import Experiment, Grid

BUILT_IN = {one.name: one for one in explore_experiments()}
CELLS = {"deep-sea": 20, "cartpole": 10, "action-selection": 10, "regret": 28, "cost": 16, "open-choices": 12}
GRIDS = [pytest.param(one, name, id=f"{one.name}-{name}") for one in BUILT_IN.values() for name in one.grids]


def cells(experiment):
    sweeps = [Sweep(tuple(grid.recipes), tuple(grid.vary), tuple(grid.bind)) for grid in experiment.grids.values()]
    return [cell for sweep in sweeps for cell in sweep.cells()]


def make(**changes):
    whole = {"name": "mine", "claim": "It works.", "grids": {"all": Grid(["pins_deep_sea"])}, "draw": print}
    return Experiment(**whole | {"core_hours": 1.0} | changes)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"name": "Mine"}, "name 'Mine' must be lower-case words"),
        ({"name": "../mine"}, "name '../mine' must be lower-case words"),
        ({"grids": {"a/b": Grid(["x"])}}, "name 'a/b' must be"),
        ({"grids": {}}, "grids of mine must be at least one Grid"),
        ({"grids": {"all": ["pins_deep_sea"]}}, "grids of mine must be at least one Grid"),
        ({"draw": "figure"}, "draw of mine must be a function"),
        ({"scaled": "experiment.episodes"}, "scaled of mine must be a list"),
    ],
)
def test_an_experiment_that_cannot_be_run_is_refused_where_it_is_declared(changes, complaint):
    with pytest.raises(ValueError, match=complaint):
        make(**changes)


@pytest.mark.parametrize("values", [{"recipes": "pins"}, {"recipes": []}, {"recipes": ["a"], "vary": "x = [1]"}])
def test_a_grid_is_made_of_lists(values):
    with pytest.raises(ValueError, match=r"must be a list of strings|must name at least one"):
        Grid(**values)


def plugin(folder, returned):
    text = f"""
        from explore import hookimpl
        from explore.experiments import Experiment, Grid

        def mine(name):
            return Experiment(name, "It works.", {{"all": Grid(["pins_deep_sea"])}}, print, 1.0)

        @hookimpl
        def explore_experiments():
            return {returned}
    """
    (folder / "mine.py").write_text(textwrap.dedent(text))
    return str(folder / "mine.py")


def test_a_plugin_supplies_experiments_beside_those_built_in(tmp_path):
    registry = discover([plugin(tmp_path, "[mine('mine')]")])
    assert [*registry.experiments] == [*BUILT_IN, "mine"]
    assert [one.name for one in registry.plugins[-1].experiments] == ["mine"]


@pytest.mark.parametrize(
    ("returned", "complaint"),
    [
        ("mine('x')", "explore_experiments must return a list of explore.experiments.Experiment, not Experiment"),
        ("[Experiment]", "explore_experiments must return a list of explore.experiments.Experiment, not "),
        ("[mine('deep-sea')]", "there is an experiment deep-sea already, so mine cannot supply it too"),
        ("[mine('x'), mine('x')]", "there is an experiment x already"),
        ("[mine('A b')]", "explore_experiments raises ValueError: name 'A b' must be lower-case words"),
    ],
)
def test_what_is_no_experiment_is_named_in_a_line(tmp_path, returned, complaint):
    with pytest.raises(UserError, match=complaint) as raised:
        discover([plugin(tmp_path, returned)])
    assert "\n" not in str(raised.value)


def test_an_unknown_name_is_answered_with_the_nearest():
    registry = discover((), ("explore_plugins.paper",))
    with pytest.raises(UserError, match=r"^there is no experiment 'deepsea'; did you mean 'deep-sea'\?$"):
        find_experiment(registry, "deepsea")


def test_a_sketch_has_a_folder_of_its_own():
    assert find_folder("cost", None) == Path("reproduce/cost")
    assert find_folder("cost", "results", 0.01) == Path("results/cost-sketch-0.01")


@pytest.mark.parametrize(
    ("there", "asked", "expected"),
    [
        ([], (0, 1), [(0, 1)]),
        ([], (3, 1), [(1, 3)]),
        ([(0, 1)], (0, 1), [(0, 1)]),
        ([(0, 1, 2)], (1,), [(0, 1, 2)]),
        ([(0, 1)], (0, 1, 2, 3), [(0, 1), (2, 3)]),
        ([(0, 1), (5, 6)], (1, 9), [(0, 1), (9,)]),
    ],
)
def test_only_seeds_that_are_not_there_yet_are_new(there, asked, expected):
    assert plan_batches(there, asked) == expected


SCALED = ("experiment.episodes", "agent.Indexed.min_replay", "agent.Indexed.target_period")


def test_a_sketch_has_fewer_episodes_and_learns_and_copies_sooner():
    grid = scale_grid(Grid(["pins_deep_sea", "bsp5_deep_sea"], ["environment.DeepSea.size = [5, 6]"]), SCALED, 0.01)
    assert grid.bind == ["experiment.episodes = 60", "agent.Indexed.min_replay = 20", "agent.Indexed.target_period = 1"]


def test_a_sketch_scales_what_is_bound_last_and_leaves_what_varies():
    varied = "agent.Indexed.min_replay = [64, 128]"
    grid = scale_grid(Grid(["pins_deep_sea"], [varied], ["experiment.episodes = 100"]), SCALED[:2], 0.1)
    assert grid.bind == ["experiment.episodes = 100", "experiment.episodes = 10"]


def test_without_scale_a_grid_stays_as_it_is():
    grid = Grid(["pins_deep_sea"])
    assert scale_grid(grid, SCALED, 1.0) is grid


def test_methods_are_called_by_what_varies_of_them_as_the_experiment_says():
    sweep = Sweep(
        ("pins_deep_sea", "dqn_deep_sea"),
        ("environment.DeepSea.size = [5, 6]", "agent.Indexed.discount = [0.9]"),
    )
    labels = {"pins_deep_sea": "PINs", "discount=0.9": "γ = 0.9"}
    experiment = make(labels=labels, grids={"all": Grid(list(sweep.recipes))})
    names = [_name_method(sweep, cell.name, cell.recipe, experiment) for cell in sweep.cells()]
    assert names == ["PINs, γ = 0.9"] * 2 + ["dqn_deep_sea, γ = 0.9"] * 2
    alone = Sweep(("pins_deep_sea",), ("environment.DeepSea.size = [5, 6]",))
    assert {_name_method(alone, cell.name, cell.recipe, experiment) for cell in alone.cells()} == {"PINs"}
    choice = Sweep(("pins_deep_sea",), ("agent.Indexed.discount = [0.9]",))
    [cell] = choice.cells()
    assert _name_method(choice, cell.name, cell.recipe, experiment) == "PINs, γ = 0.9"
    assert _name_method(choice, cell.name, cell.recipe, make(labels=labels)) == "γ = 0.9"


# The paper


def test_the_experiments_of_the_paper_have_the_cells_that_its_figures_need():
    assert {name: len(cells(one)) for name, one in BUILT_IN.items()} == CELLS
    assert {name: len(one.seeds) for name, one in BUILT_IN.items() if len(one.seeds) != 5} == {
        "regret": 200,
        "open-choices": 20,
    }
    assert all(one.core_hours > 0 for one in BUILT_IN.values())


@pytest.mark.slow
@pytest.mark.parametrize(("experiment", "name"), GRIDS)
def test_every_cell_of_the_paper_can_be_built_and_its_bindings_have_an_effect(experiment, name):
    grid, registry = experiment.grids[name], discover()
    values = prod(len(one.values) for one in Sweep(tuple(grid.recipes), tuple(grid.vary)).varied)
    every = [cell for cell in Sweep(tuple(grid.recipes), tuple(grid.vary), tuple(grid.bind)).cells()]
    assert len(every) == len(grid.recipes) * values
    for cell in every:
        config = load(cell.recipe, [*cell.bindings, "experiment.seeds = (0,)"], registry)
        config.build()
        assert config.unused() == []


def test_no_two_cells_of_an_experiment_are_the_same():
    for one in BUILT_IN.values():
        found = [(cell.recipe, cell.bindings) for cell in cells(one)]
        assert len(set(found)) == len(found)
