"""The built-in plugins, each a module written as a third party would write it."""

BUILT_INS: tuple[str, ...] = (
    "explore_plugins.mean_net",
    "explore_plugins.softplus_heads",
    "explore_plugins.ensemble",
    "explore_plugins.deterministic",
    "explore_plugins.hypermodel",
    "explore_plugins.epinet",
    "explore_plugins.noise",
    "explore_plugins.priors",
    "explore_plugins.bonuses",
    "explore_plugins.selections",
    "explore_plugins.information_directed",
    "explore_plugins.objectives",
    "explore_plugins.schedules",
    "explore_plugins.random_mdp",
    "explore_plugins.deep_sea",
    "explore_plugins.cartpole_swingup",
    "explore_plugins.bsuite",
    "explore_plugins.indexed_agent",
    "explore_plugins.tabular",
    "explore_plugins.tabular_wtd",
    "explore_plugins.display",
    "explore_plugins.tensorboard",
    "explore_plugins.local_launcher",
    "explore_plugins.ray_launcher",
    "explore_plugins.paper",
)
"""In the order in which `explore plugins` lists them."""

BUILT_IN_EXPERIMENTS: tuple[str, ...] = ("explore_plugins.paper",)
"""The modules among them that `explore reproduce` lists; they import no torch."""

BUILT_IN_COMMANDS = {"export-bsuite": "explore_plugins.bsuite_export:ExportBsuite"}
"""Commands by name, as others declare them by entry points, see `explore.commands`."""

BUILT_IN_SECTIONS = {"regret": "explore_plugins.regret_section:draw_regret"}
"""Sections of reports by name, as others declare them by entry points, see `explore.reports`."""
