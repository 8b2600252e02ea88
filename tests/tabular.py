"""Tabular agents as the tests need them: built without gin, shown what followed, and living in small random MDPs."""

from functools import partial

import dm_env
import torch
from building import live
from explore_plugins.random_mdp import RandomMDP
from explore_plugins.tabular import UCBVI, TabularPSRL, TabularQLearning, TabularRLSVI
from explore_plugins.tabular_wtd import TabularWTD

from explore._config.discovery import discover
from explore._running.experiment import load
from explore.interfaces import Spec
from explore.streams import Streams

SMALL = partial(RandomMDP, states=3, actions=2, horizon=3)
AGENTS = [TabularWTD, TabularRLSVI, TabularPSRL, UCBVI, TabularQLearning]
RECIPES = ["wtd", "rlsvi", "psrl", "ucbvi", "egreedy"]
THREE_STATES = [f"environment.RandomMDP.{name} = {n}" for name, n in {"states": 3, "actions": 2, "horizon": 3}.items()]


def build(kind, seeds=(0,), environment=SMALL, **settings):
    task = environment(seed=0)
    actions = task.action_spec().num_values
    spec = Spec(task.observation_spec(), actions, task.reward_spec(), task.true_model().observations)
    return kind(spec, Streams(seeds), torch.device("cpu"), **settings)


NUMBERS = SMALL(0).belief_map()


def tell(agent, stage, state, action, outcomes, numbers=NUMBERS):
    """Shows the agent's only lane what followed an action, each outcome a reward and a next state."""
    after = min(stage + 1, len(numbers) - 1)
    for reward, following in outcomes:
        agent.act(numbers[stage, [state]], [True])
        agent.observe([action], [dm_env.transition(reward, numbers[after, following])], [True])


class Diary(RandomMDP):
    """Writes down what happened at each (stage, state, action)."""

    def __init__(self, seed, **settings):
        super().__init__(seed, **({"states": 3, "actions": 2, "horizon": 3} | settings))
        self.seen = {}
        self.steps = []

    def step(self, action):
        here = (self._stage, self._state, action)
        timestep = super().step(action)
        self.steps.append((here, timestep.reward, self._state))
        self.seen.setdefault(here, []).append((timestep.reward, self._state))
        return timestep


def live_in_diary(agent, episodes, each_episode):
    """Lets the agent live; calls `each_episode(values, seen)` with what it acted on and what it knew before."""
    diaries, known = [], {}

    def environment(seed):
        diaries.append(Diary(seed))
        return diaries[-1]

    def measure(episode):
        each_episode(agent.values[0], {place: [*outcomes] for place, outcomes in known.items()})
        known.update({place: [*outcomes] for place, outcomes in diaries[0].seen.items()})
        return {}

    live(agent, episodes, environment, measure)


def rows_of(recipe, seeds, bindings, episodes=15):
    settings = [f"experiment.episodes = {episodes}", f"experiment.seeds = {tuple(seeds)}", *bindings]
    rows = [row for lanes in load(recipe, settings, discover()).build().train() for row in lanes]
    return {seed: [row for row in rows if row["seed"] == seed] for seed in seeds}
