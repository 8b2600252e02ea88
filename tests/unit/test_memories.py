"""What networks keep with transitions, what they see of them, and the memories that follow what is seen."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from building import CELLS, PINS, Walk, build, fill, live
from dm_env import specs
from explore_plugins.bonuses import VisitCounts
from explore_plugins.hypermodel import Hypermodel
from explore_plugins.mean_net import MLP
from explore_plugins.objectives import SampledTD
from explore_plugins.priors import NoPrior
from explore_plugins.softplus_heads import SoftplusHeads

from explore import nn as lane_nn
from explore._learning.replay import Replay
from explore.interfaces import Bits, Memory, Normals, Signs
from explore.streams import stream

NUMBER = specs.Array((1,), np.float32)
SEEDS = (0, 3)
WALK = partial(Walk, spec=CELLS)


# What is stored with transitions


@pytest.mark.parametrize("count, wide", [(1, 1), (8, 1), (9, 2), (20, 3), (0, 0)])
@pytest.mark.parametrize("kind", [Bits, Signs])
def test_eight_bits_take_a_byte(kind, count, wide):
    replay = Replay(NUMBER, 2, 99, stored=[kind(count)])
    assert replay.kept[0].nbytes == 2 * 100 * wide
    fill(replay, 50)
    replay.complete([0], [stream(0, "mask"), stream(1, "mask")], None)
    assert replay.sample([0], 10, [stream(0, "replay")]).stored[0].shape == (2, 10, count)


def test_signs_are_fair_coins_and_normals_are_normal():
    replay = Replay(NUMBER, 1, 5000, stored=[Signs(3), Normals(2)])
    fill(replay, 4000)
    replay.complete([0], [stream(0, "mask")], None)
    signs, normals = (one.read(kept[0, :4000]) for one, kept in zip(replay.stored, replay.kept))
    assert set(signs.flatten()) == {-1.0, 1.0}
    np.testing.assert_allclose(np.cov(signs.T), np.eye(3), atol=0.06)
    assert abs(signs.mean()) < 0.03
    np.testing.assert_allclose(np.cov(normals.T), np.eye(2), atol=0.08)
    assert abs(normals.mean()) < 0.04


def test_what_is_stored_with_a_transition_stays_with_it_through_the_ring():
    """Whichever slot it has, and whatever is stored beside it."""
    replay = Replay(NUMBER, 1, 20, stored=[Bits(3), Normals(2), Signs(9)])
    generator, told = stream(0, "mask"), {}
    for episode in range(12):
        fill(replay, 7, first=100 * episode)
        replay.complete([0], [generator], None)
        batch = replay.sample([0], 300, [stream(0, "replay", episode)])
        for number, *stored in zip(batch.obs[0, :, 0].tolist(), *(tensor[0].tolist() for tensor in batch.stored)):
            assert told.setdefault(number, stored) == stored
    assert len(told) == 12 * 7
    assert len({str(stored) for stored in told.values()}) == 12 * 7


# Who observes


class Diary(Memory):
    """Writes down each transition that it is shown, with the coins that were stored with it."""

    def __init__(self, spec):
        super().__init__()
        self.stores = {"coins": Signs(5)}
        self.seen = [[] for _ in range(len(lane_nn.zeros()))]

    def observe(self, transitions):
        for lane, row in transitions.there.nonzero().tolist():
            numbers = (transitions.obs, transitions.action, transitions.reward, transitions.discount)
            entry = [float(tensor[lane, row]) for tensor in numbers]
            entry.append(float(transitions.next_obs[lane, row]) if entry[-1] else None)
            self.seen[lane].append((*entry, *transitions.stored["coins"][lane, row].tolist()))


class Beside(SoftplusHeads):
    """Heads of PINs that hold a memory, and do nothing with it."""

    memory = Diary

    def __init__(self, spec):
        super().__init__(spec, heads=3, hidden=(7,))
        self.held = self.memory(spec)

    def build_twin(self, spec):
        return SoftplusHeads(spec, heads=3, hidden=(7,))


def with_memory(kind):
    return type(f"Beside{kind.__name__}", (Beside,), {"memory": kind, "exact": True})


def record_steps(agent):
    """All that happens to an agent from now on, by lane, as a `Diary` should have it."""
    happened = [[] for _ in agent.steps]
    latest = [None for _ in agent.steps]
    begin, observe = agent.begin_episode, agent.observe

    def begin_episode(observations, progress):
        latest[:] = observations
        begin(observations, progress)

    def observing(actions, timesteps, active=None):
        for lane, on in enumerate(active or agent.everyone):
            if on:
                step = timesteps[lane]
                following = float(step.observation) if step.discount else None
                reward = float(np.float32(step.reward))
                happened[lane].append((float(latest[lane]), actions[lane], reward, step.discount, following))
                latest[lane] = step.observation
        observe(actions, timesteps, active)

    agent.begin_episode, agent.observe = begin_episode, observing
    return happened


@pytest.mark.parametrize("learn_every", [None, 1, 3])
@pytest.mark.parametrize("min_replay", [12, 10**6])
def test_every_transition_is_observed_once_and_in_order(learn_every, min_replay):
    """Also where episodes are cut, where lanes bring different numbers of steps, and before learning starts."""
    diary = with_memory(Diary)
    settings = {"learn_every": learn_every, "min_replay": min_replay, "uncertainty": diary}
    agent = build((0, 3, 4), CELLS, **PINS | settings)
    [memory] = agent.function.memories
    assert memory.seen == [[], [], []], "the trial before the run"
    happened = record_steps(agent)
    live(agent, 9, WALK)
    agent.learner.complete(agent.replay, range(3), agent.streams["mask"])
    assert len({len(steps) for steps in happened}) > 1
    for seen, steps in zip(memory.seen, happened, strict=True):
        assert [entry[:5] for entry in seen] == steps


def test_more_than_a_chunk_of_transitions_is_observed_once():
    class Long(Walk):
        def reset(self):
            timestep, self.left = super().reset(), 150 if self.spec is CELLS else 3
            return timestep

    agent = build((0,), CELLS, **PINS | {"uncertainty": with_memory(Diary)})
    happened = record_steps(agent)
    live(agent, 3, partial(Long, spec=CELLS))
    agent.learner.complete(agent.replay, [0], agent.streams["mask"])
    assert [entry[:5] for entry in agent.function.memories[0].seen[0]] == happened[0]
    assert len(happened[0]) == 450


def test_a_network_gets_in_learning_what_was_stored_when_it_observed():
    shown = []

    class Learning(Diary):
        losses = ("nothing",)

        def __init__(self, spec):
            super().__init__(spec)
            self.weight = torch.nn.Parameter(lane_nn.zeros(1))

        def loss(self, transitions):
            for lane in range(2):
                coins = transitions.stored["coins"][lane].tolist()
                shown.extend((lane, reward, *row) for reward, row in zip(transitions.reward[lane].tolist(), coins))
            return {"nothing": (self.weight * 0).sum(1)}

    agent = build((0, 3), CELLS, **PINS | {"uncertainty": with_memory(Learning), "min_replay": 1})
    shown.clear()  # of the trial before the run
    live(agent, 8, WALK)
    known = {(lane, entry[2], *entry[5:]) for lane in range(2) for entry in agent.function.memories[0].seen[lane]}
    assert len(shown) > 100 and set(shown) <= known


# Memories


@lane_nn.exact
class Guess(Memory):
    """A network of its own that learns the reward, by its own loss."""

    losses = ("guess_loss",)
    rate = None

    def __init__(self, spec):
        super().__init__()
        self.learning_rate = self.rate
        self.net = lane_nn.MLP(spec.observation, (5,), spec.num_actions)

    def loss(self, transitions):
        guess = self.net(transitions.obs).gather(-1, transitions.action.unsqueeze(-1)).squeeze(-1)
        return {"guess_loss": (guess - transitions.reward).square().mean(1)}


def test_a_memory_is_one_for_the_trained_and_the_target_networks():
    agent = build(spec=CELLS, **PINS | {"uncertainty": with_memory(Guess)})
    function = agent.function
    [memory] = function.memories
    trained, target = function.parts[1], function.target_parts[1]
    assert trained is not target and trained.held is target.held is memory
    assert len(function.stacks[-1].buffer) == 1
    values = [stack.layout for stack in function.stacks[:-1]]
    assert not any("held" in name for layout in values for name in layout)


def test_its_own_loss_trains_a_memory_and_nothing_else():
    with_it, without = (build(spec=CELLS, **PINS | {"uncertainty": with_memory(memory)}) for memory in (Guess, Counts))
    before = with_it.function.stacks[-1].buffer.clone()
    rows, plain = live(with_it, 10, WALK), live(without, 10, WALK)
    assert not torch.equal(with_it.function.stacks[-1].buffer, before)
    for one, other in zip(with_it.function.stacks[:2], without.function.stacks[:2], strict=True):
        assert torch.equal(one.buffer, other.buffer)
    for seed, others in plain.items():
        for row, other in zip(rows[seed], others, strict=True):
            assert {name: row[name] for name in other} == other
            assert (row["guess_loss"] is None) == (row["mean_loss"] is None)


def test_a_memory_learns_what_its_loss_asks():
    agent = build(spec=CELLS, **PINS | {"uncertainty": with_memory(Guess), "learning_rate": 0.01})
    live(agent, 150, WALK)
    [memory] = agent.function.memories
    guesses = memory.net(torch.arange(9).expand(2, 9)).mean(1)
    torch.testing.assert_close(guesses, torch.tensor([0.0, 1.0, 2.0]).expand(2, 3), atol=0.5, rtol=0)


@pytest.mark.parametrize("whose", ["memory", "heads", "value"])
def test_a_learning_rate_of_one_network_only(whose):
    """At a rate that is next to nothing it stays where it was, while the others move."""

    class SlowGuess(Guess):
        rate = 1e-12 if whose == "memory" else None

    class SlowHeads(with_memory(SlowGuess)):
        learning_rate = 1e-12 if whose == "heads" else None

    class SlowValue(MLP):
        learning_rate = 1e-12 if whose == "value" else None

    parts = {"value": partial(SlowValue, hidden=(8,)), "uncertainty": SlowHeads}
    agent = build(spec=CELLS, **PINS | parts | {"learning_rate": 1e-2})
    before = [stack.buffer[0].clone() for stack in agent.function.stacks]
    live(agent, 8, WALK)
    pairs = zip(("value", "heads", "memory"), agent.function.stacks, before, strict=True)
    moved = {name for name, stack, old in pairs if (stack.buffer[0] - old).abs().max() > 1e-3}
    assert moved == {"value", "heads", "memory"} - {whose}


def test_two_rates_for_networks_that_are_trained_together_are_refused():
    class SlowValue(MLP):
        learning_rate = 1e-5

    class FastHypermodel(Hypermodel):
        learning_rate = 1e-2

    with pytest.raises(ValueError, match="learning_rate"):
        build(value=partial(SlowValue, hidden=(8,)), uncertainty=FastHypermodel, objective=SampledTD)


def test_a_memory_beside_a_memory_keeps_its_stores_apart():
    class Two(Memory):
        def __init__(self, spec):
            super().__init__()
            self.one, self.other = Diary(spec), Diary(spec)

    agent = build(spec=CELLS, **PINS | {"uncertainty": with_memory(Two)})
    live(agent, 6, WALK)
    diaries = [memory for memory in agent.function.memories if isinstance(memory, Diary)]
    assert len(diaries) == 2
    for lane in range(2):
        one, other = (diary.seen[lane] for diary in diaries)
        assert [entry[:5] for entry in one] == [entry[:5] for entry in other]
        assert [entry[5:] for entry in one] != [entry[5:] for entry in other]


@lane_nn.exact
class Counts(Memory):
    def __init__(self, spec):
        super().__init__()
        self.register_buffer("counts", lane_nn.zeros(spec.observation.num_values))

    def observe(self, transitions):
        self.counts.scatter_add_(1, transitions.obs, transitions.there)


def test_buffers_of_a_memory_are_part_of_the_state():
    heads = with_memory(Counts)
    agent, other = (build(seeds, CELLS, **PINS | {"uncertainty": heads}) for seeds in ((0, 3), (8, 9)))
    live(agent, 6, WALK)
    counts = agent.function.memories[0].counts
    assert counts.sum() > 20
    other.load_state_dict(agent.state_dict())
    assert torch.equal(other.function.memories[0].counts, counts)
    assert other.function.memories[0].counts is not counts
    held = [part.held.counts for part in (other.function.parts[1], other.function.target_parts[1])]
    assert all(torch.equal(one, counts) for one in held)


def test_a_buffer_without_lanes_is_refused():
    class Bare(Counts):
        def __init__(self, spec):
            super().__init__(spec)
            self.register_buffer("total", torch.zeros(7))

    message = r"Bare has no axis of lanes in total: make it with explore\.nn\.zeros"
    with pytest.raises(ValueError, match=message):
        build(spec=CELLS, **PINS | {"uncertainty": with_memory(Bare)})


def test_a_loss_of_the_wrong_name_or_shape_is_refused():
    class Renamed(Guess):
        losses = ("other",)

    class Unaveraged(Guess):
        def loss(self, transitions):
            return {"guess_loss": super().loss(transitions)["guess_loss"].sum()}

    for memory, message in [
        (Renamed, r"Renamed gives the losses \['guess_loss'\], but names \['other'\] in its `losses`"),
        (Unaveraged, r"Unaveraged gives guess_loss of shape \[\], expected \[lanes\] = \[2\]"),
    ]:
        with pytest.raises(ValueError, match=message):
            build(spec=CELLS, **PINS | {"uncertainty": with_memory(memory)})


# Lanes


def test_a_seed_with_memories_is_the_same_alone_and_in_company():
    settings = {"bonus": VisitCounts, "bonus_scale": 0.1, "replay_weight": 0.5, "uncertainty": with_memory(Guess)}

    def life(seeds):
        agent = build(seeds, CELLS, **PINS | settings)
        rows = live(agent, 10, WALK)[3]
        return rows, agent.function.bonus.counts[seeds.index(3)], agent.function.stacks[2].buffer[0][seeds.index(3)]

    rows, counts, guess = life([3])
    for company in ([0, 3, 4], [7, 3]):
        others, other_counts, other_guess = life(company)
        assert others == rows and torch.equal(other_counts, counts) and torch.equal(other_guess, guess)


def test_a_bonus_that_a_module_holds_serves_the_agent_too():
    agent = build(SEEDS, CELLS, **PINS | {"uncertainty": with_memory(VisitCounts), "bonus_scale": 1.0})
    assert agent.bonus is agent.function.parts[1].held
    live(agent, 6, WALK)
    assert agent.bonus.counts.sum() > 20


# What cannot hold one


def test_networks_that_have_a_twin_built_alike_hold_no_memory():
    class Holding(MLP):
        def __init__(self, spec):
            super().__init__(spec, hidden=(8,))
            self.held = Counts(spec)

    with pytest.raises(ValueError, match=r"the prior of Members must be frozen, .* or use prior\.NoPrior"):
        build(spec=CELLS, value=Holding)
    agent = build(spec=CELLS, value=Holding, prior=NoPrior)
    live(agent, 6, WALK)
    assert agent.function.memories[0].counts.sum() > 20
