"""What the author of an agent composes it from: an indexed value function, a memory, and learning from it.

`IndexedValue` builds the networks of all seeds, `Replay` keeps what they have seen, and `Learner` trains
the one on batches of the other. An agent draws an index for each episode, acts on the values there, and
learns; `agent.Indexed` (`explore_plugins/indexed_agent.py`) does so with every option, this one with none:

    class Sampling(Agent):
        columns = ("loss",)

        def __init__(self, spec, streams, device, value: type[ValueNetwork], uncertainty: type[UncertaintyModule],
                     prior: type[Prior], acting: type[Selection], objective: type[Objective]):
            self.streams, self.acting = streams, acting()
            self.function = IndexedValue(spec, streams.seeds, value, [uncertainty], prior(), device)
            self.learner = Learner(self.function, objective(), acting(), discount=0.99, learning_rate=1e-3)
            stored, prior = self.learner.stored, self.function.prior_shape
            self.replay = Replay(spec.observation, len(streams), 10_000, stored, prior)
            self.index, self.losses = (), [None] * len(streams)
            check_learner(self.learner, [self.acting], self.replay)  # what is wrong is told before the run

        def begin_episode(self, observations, progress):
            self.index = self.function.indexer.draw(self.streams["index"], 1, 1)
            for lane, observation in enumerate(observations):
                self.replay.start(lane, observation)

        def learn(self):
            lanes = [lane for lane in range(len(self.streams)) if self.replay.size(lane) >= 32]
            if lanes:
                self.learner.complete(self.replay, lanes, self.streams["mask"])
                batch = self.replay.sample(lanes, 10 * 32, self.streams["replay"])  # ten minibatches of 32
                streams = {"selecting": self.streams["target"], "drawing": self.streams["learning index"]}
                losses = self.learner.learn(batch, 32, lanes, 0.0, **streams)
                self.losses = [float(loss) if lane in lanes else None for lane, loss in enumerate(losses["loss"])]
                self.function.copy_to_target(lanes)

        def act(self, observations, active):
            generators = [generator if on else None for generator, on in zip(self.streams["acting"], active)]
            features = self.function.acting_features(torch.as_tensor(observations).unsqueeze(1))
            beliefs = Beliefs(self.function, features, self.index, generators, progress=0.0)
            return select_actions(self.acting, beliefs, 1).flatten().tolist()

        def observe(self, actions, timesteps, active):
            for lane in [lane for lane, on in enumerate(active) if on]:
                self.replay.append(lane, actions[lane], timesteps[lane])

        def evaluate(self, observations, active):
            return self.act(observations, active)

        def metrics(self):
            return {"loss": self.losses}

A checkpoint keeps an agent's attributes, and those of what it is made of. An agent that saves something else has
`state_dict` and `load_state_dict`, where `capture(thing, "its name")` gives the state of a component as
data and `restore(thing, state, "its name")` puts it back.
"""

from explore._learning.learner import Learner
from explore._learning.preflight import check_learner
from explore._learning.replay import Batch, Replay
from explore._state import capture, restore
from explore._values.indexed_value import IndexedValue

__all__ = ["Batch", "IndexedValue", "Learner", "Replay", "capture", "check_learner", "restore"]
