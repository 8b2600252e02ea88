"""The experiments of "Parameterized Indexed Value Function for Efficient Exploration in Reinforcement Learning".

Tan, Xiong and Dwaracherla, https://arxiv.org/abs/1912.10577. `explore reproduce` lists them, runs them and
draws them; the recipes are those that cite the paper. What takes long to import is imported when it is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from explore import hookimpl
from explore.experiments import Experiment, Grid

if TYPE_CHECKING:
    from explore.reports import Band, Picture, ReportData, Result, Section

METHODS = {"pins": "PINs", "bsp5": "BSP_5", "bsp7": "BSP_7", "bsp10": "BSP_10", "bs10": "BS_10"}
TABULAR = {"wtd": "WTD", "rlsvi": "RLSVI", "psrl": "PSRL", "ucbvi": "UCBVI"}
LABELS = {
    f"{short}_{task}": name
    for names, tasks in ((METHODS, ("deep_sea", "cartpole")), (TABULAR, ("random_mdp",)))
    for short, name in names.items()
    for task in tasks
}
SELECTIONS = {
    "target=MeanArgmax": "ā: by the mean",
    "target=SampledArgmax": "ã: sampled",
    **{f"draws={draws}": f"optimistic, K = {draws}" for draws in (1, 5, 20)},
}
SCALED = ("experiment.episodes", "agent.Indexed.min_replay", "agent.Indexed.target_period")
COPIES = 6  # numbers for each parameter: trained, target, prior, gradient and Adam's two moments


def recipes(task: str, *methods: str) -> list[str]:
    return [f"{method}_{task}" for method in methods]


def draw_deep_sea(data: ReportData) -> Section:
    """Cumulative reward of every seed, and how many seeds have solved the task."""
    from explore import reports

    caption = (
        f"Cumulative reward against episodes, {reports.describe_seeds(data.results)}. Thin: seeds; thick: their mean, "
        "with its pointwise 95% bootstrap interval. A seed has learned if its line rises to the end."
    )
    curves = _draw_panels(data, data.results, caption)
    solving = reports.draw_solving(data)
    return reports.Section(
        "Deep-sea", [], _learned_table(data.results), [curves, *(solving.pictures if solving else [])]
    )


def draw_cartpole(data: ReportData) -> Section:
    """The best of the last 100 episodes: mean over seeds and standard deviation."""
    from explore import reports

    caption = (
        f"Maximum of the last 100 episodes, {reports.describe_seeds(data.results)}: mean over seeds, and one standard "
        "deviation on either side."
    )
    rows = [["setting", "method", "seeds", "best of the last 100", "standard deviation", "lowest", "highest"]]
    for result in data.results:
        best = np.array(result.configuration.numbers("best_of_last_100"))
        numbers = (best.mean(), best.std(ddof=min(1, len(best) - 1)), best.min(), best.max())
        rows.append([result.setting, result.method, str(len(best)), *(f"{number:.0f}" for number in numbers)])
    return reports.Section("Cartpole swing-up", [], rows, [_draw_panels(data, data.results, caption, deviation=True)])


def draw_selections(data: ReportData) -> Section:
    """As Deep-sea, a line for each selection in the learning target."""
    return replace(draw_deep_sea(data), title="Selection of actions in the learning target")


def draw_regret(data: ReportData) -> Section:
    """The section of reports on regret."""
    from explore import reports
    from explore_plugins import regret_section

    return regret_section.draw_regret(data) or reports.Section("Regret", ["No run knows its regret."])


def draw_cost(data: ReportData) -> Section:
    """Time per update, from runs that differ in their number of updates only; parameters and memory."""
    from explore import reports

    rows = [["setting", "method", "milliseconds per update and seed", "trained parameters", "MB per seed"]]
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in data.results:
        groups.setdefault((result.setting, result.method.partition(", ")[0]), []).append(result)
    for (setting, method), results in groups.items():
        times = {_batches(one): _episode_seconds(one) for one in results}
        few, many = min(times), max(times)
        updates = (many - few) * len(results[0].seeds)
        time = f"{1000 * (times[many] - times[few]) / updates:.3f}" if updates else "-"
        size = int(results[0].configuration.cost["parameters"])
        rows.append([setting, method, time, f"{size:,}", f"{4e-6 * COPIES * size:.2f}"])
    text = [
        "The time of an update is that by which quick episodes are longer where there are more updates in them, so "
        "that acting is left out; it holds if nothing else ran beside (--jobs 1). Memory is computed, not measured: "
        f"{COPIES} single-precision numbers for each parameter (trained, target, prior, gradient, Adam's two moments)."
    ]
    return reports.Section("Cost", text, rows)


def _batches(result: Result) -> int:
    return int(result.configuration.bindings["agent.Indexed.batches_per_episode"])


def _episode_seconds(result: Result) -> float:
    """How long a quick episode of all seeds takes, in the second half of a run, where all learn.

    What else the machine does makes episodes slower, never quicker: the 10% quantile hardly sees it.
    """
    seconds = np.diff(result.columns["seconds"][0], prepend=0.0)
    return float(np.quantile(seconds[len(seconds) // 2 :], 0.1))


def draw_choices(data: ReportData) -> Section:
    """One table, a row for each choice; the recipe is what differs least from all others."""
    from explore import reports

    every = [result.configuration.bindings for result in data.results]
    recipe = min(every, key=lambda one: sum(len(_list_changes(one, other)) for other in every))
    named = {", ".join(_list_changes(recipe, one)) or "as written": i for i, one in enumerate(every)}
    first = sorted(named, key=lambda name: name != "as written")
    rows = _learned_table([replace(data.results[named[name]], method=name) for name in first])
    text = ["Each row differs in one choice from the first one, which is the recipe."]
    return reports.Section(
        "What the paper leaves open", text, [["choice", *rows[0][2:]], *(row[1:] for row in rows[1:])]
    )


def _list_changes(recipe: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    return [f"{name} = {value}" for name, value in other.items() if recipe.get(name) != value]


def _draw_panels(data: ReportData, results: Sequence[Result], caption: str, deviation: bool = False) -> Picture:
    """A panel for each setting with a line for each method, in what learning is shown by."""
    from explore import reports

    settings = data.by_setting(results)
    figure, axes = reports.panels([*settings], 2.6 if len(settings) > 1 else 3.4)
    label = ""
    for panel, setting in zip(axes, settings):
        curves = data.curves(setting)
        for result, curve in curves:
            label, number = curve.label, data.place(result)
            if deviation:
                band = _deviations(curve.values)
                reports.draw_band(panel, np.arange(1, len(band.estimate) + 1), band, number, len(curves), (0, 10**9))
            else:
                reports.draw_line(panel, curve.values, number, len(curves))
    reports.label_outer(axes, "episode", label)
    reports.legend(figure, data, results)
    return reports.Picture(figure, caption)


def _deviations(seeds: list[np.ndarray]) -> Band:
    """The mean of curves and a standard deviation on either side, as far as all go."""
    from explore.reports import Band

    values = np.array([seed[: min(map(len, seeds))] for seed in seeds])
    mean, deviation = values.mean(0), values.std(0, ddof=min(1, len(values) - 1))
    return Band(mean - deviation, mean, mean + deviation)


def _learned_table(results: Sequence[Result]) -> list[list[str]]:
    """Seeds that have learned and that have solved the task, with intervals for the shares."""
    rows = [["setting", "method", "seeds", "learned", "share learned", "solved", "share solved", "first treasure"]]
    for result in results:
        seeds = [*result.configuration.seeds.values()]
        learned = sum(bool(seed.get("learned")) for seed in seeds)
        solved = sum(seed.get("solved_at") is not None for seed in seeds)
        first = [seed["first_treasure"] for seed in seeds if seed.get("first_treasure")]
        cells: list[Any] = [len(seeds), learned, _share(learned, len(seeds)), solved, _share(solved, len(seeds))]
        median = f"{np.median(first):.0f}, median of {len(first)}" if first else "-"
        rows.append([result.setting, result.method, *map(str, cells), median])
    return rows


def _share(successes: int, count: int) -> str:
    from explore.reports import share_interval

    low, share, high = share_interval(successes, count)
    return f"{share:.2f} ({low:.2f} to {high:.2f})"


def _one_choice(binding: str, *bind: str) -> Grid:
    return Grid(["pins_deep_sea"], [binding], bind)


DEEP_SEA = Experiment(
    name="deep-sea",
    claim="PINs learn Deep-sea about as well as BSP_5 and BSP_7, N = 25 in 4 of 5 seeds and N = 30 in 3 of 5; BS_10, "
    "without priors, struggles as N grows (figure on cumulative reward).",
    grids={"sizes": Grid(recipes("deep_sea", *METHODS), ["environment.DeepSea.size = [15, 20, 25, 30]"])},
    draw=draw_deep_sea,
    core_hours=0.8,
    labels=LABELS,
    scaled=SCALED,
)
CARTPOLE = Experiment(
    name="cartpole",
    claim="On swing-up PINs come to perform as BSP do, more slowly and with less variance in the end; BS_10 fails.",
    grids={
        "methods": Grid(recipes("cartpole", *METHODS), ["environment.CartpoleSwingup.x_dot_threshold = [1.0, None]"])
    },
    draw=draw_cartpole,
    core_hours=5,
    labels=LABELS,
    scaled=SCALED,
)
ACTION_SELECTION = Experiment(
    name="action-selection",
    claim="Learning with ā is more robust across seeds than learning with ã (supplement B); an optimistic choice among "
    "K draws, which the supplement proposes, is beside them.",
    grids={
        "compared": Grid(
            ["pins_deep_sea"],
            [
                "environment.DeepSea.size = [20, 25]",
                "agent.Indexed.target = [@selection.MeanArgmax, @selection.SampledArgmax]",
            ],
        ),
        "proposed": Grid(
            ["pins_deep_sea"],
            ["environment.DeepSea.size = [20, 25]", "selection.OptimisticArgmax.draws = [1, 5, 20]"],
            ["agent.Indexed.target = @selection.OptimisticArgmax"],
        ),
    },
    draw=draw_selections,
    core_hours=2,
    labels=SELECTIONS,
    scaled=SCALED,
)
REGRET = Experiment(
    name="regret",
    claim="The Bayes regret of tabular Wasserstein TD stays below the bound of Theorem 1, which grows as H² √(|X||A|L) "
    "but for logarithms.",
    grids={
        "episodes": Grid(recipes("random_mdp", *TABULAR)),
        "states": Grid(recipes("random_mdp", *TABULAR), ["environment.RandomMDP.states = [5, 20]"]),
        "actions": Grid(recipes("random_mdp", *TABULAR), ["environment.RandomMDP.actions = [2, 6]"]),
        "horizon": Grid(recipes("random_mdp", *TABULAR), ["environment.RandomMDP.horizon = [5, 20]"]),
    },
    draw=draw_regret,
    core_hours=5,
    labels=LABELS,
    seeds=range(200),
)
SAME_SIZE = ("value.MLP.hidden = (300,)", "experiment.episodes = 300")
BATCHES = "agent.Indexed.batches_per_episode = [10, 50]"
SHORT = ("environment.CartpoleSwingup.max_time = 1.0", "experiment.episodes = 100")  # hardly any acting
COST = Experiment(
    name="cost",
    claim="An update of PINs takes two back-propagations, one of BSP_K takes K: at equal sizes of the networks PINs "
    "are cheaper.",
    grids={
        "deep-sea-pins": Grid(["pins_deep_sea"], [BATCHES], [*SAME_SIZE, "uncertainty.SoftplusHeads.hidden = (300,)"]),
        "deep-sea-bsp": Grid(recipes("deep_sea", "bsp5", "bsp7", "bsp10"), [BATCHES], SAME_SIZE),
        "cartpole": Grid(recipes("cartpole", *[*METHODS][:4]), [BATCHES], SHORT),
    },
    draw=draw_cost,
    core_hours=0.1,
    labels=LABELS,
    scaled=("experiment.episodes", "agent.Indexed.min_replay"),
)
OPEN_CHOICES = Experiment(
    name="open-choices",
    claim="What PINs achieve on Deep-sea with N = 20 does not hang on what the paper leaves open.",
    grids={
        "as-written": Grid(["pins_deep_sea"]),
        "discount": _one_choice("agent.Indexed.discount = [1.0]"),
        "initialiser": _one_choice(
            "value.MLP.init = ['glorot_uniform']", "uncertainty.SoftplusHeads.init = 'glorot_uniform'"
        ),
        "priors": _one_choice("prior.Additive.init = ['he_normal', 'glorot_uniform']"),
        "first-step": _one_choice("agent.Indexed.min_replay = [64, 10000]"),
        "heads": _one_choice("uncertainty.SoftplusHeads.train_heads = ['masked']"),
        "target-period": _one_choice("agent.Indexed.target_period = [1, 40]"),
        "mapping": _one_choice("environment.DeepSea.mapping_seed = [42]"),
        "costs": _one_choice("environment.DeepSea.move_costs = ['every']"),
    },
    draw=draw_choices,
    core_hours=3.5,
    seeds=range(20),
    scaled=("experiment.episodes", "agent.Indexed.min_replay"),  # the target period is varied
)


@hookimpl
def explore_experiments() -> list[Experiment]:
    return [DEEP_SEA, CARTPOLE, ACTION_SELECTION, REGRET, COST, OPEN_CHOICES]
