"""What the author of an agent composes it from: an indexed value function, a memory, and learning from it.

`IndexedValue` builds the networks of all seeds, `Replay` keeps what they have seen, and `Learner` trains
the one on batches of the other. An agent draws an index for each episode, acts on the values there, and
learns; `agent.Indexed` (`explore_plugins/indexed_agent.py`) does so with every option, this one with none:

    class Sampling(Agent):
        columns = ("loss",)

        def __init__(self, spec, streams, device, value: type[ValueNetwork], uncertainty: type[UncertaintyModule],
                     prior: type[Prior], acting: type[Selection], objective: type[Objective]):
            self.streams = streams
            self.function = IndexedValue(spec, streams.seeds, value, [uncertainty], prior(), device)
            self.acting = ActionSelector(self.function, acting(), "acting")
            self.learner = Learner(self.function, objective(), acting(), discount=0.99, learning_rate=1e-3)
            stored, prior = self.learner.stored, self.function.prior_shape
            self.replay = Replay(spec.observation, len(streams), 10_000, stored, prior)
            self.index, self.losses = (), [None] * len(streams)
            check_learner(self.learner, [self.acting], self.replay, 32, 10)  # what is wrong is told first

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
            return self.acting.select(observations, self.index, self.streams["acting"], active)

        def observe(self, actions, timesteps, active):
            self.replay.append(actions, timesteps, active)

        def evaluate(self, observations, active):
            return self.act(observations, active)

        def metrics(self):
            return {"loss": self.losses}

        def execution(self):
            return self.function.execution()  # native kernels or PyTorch, for the first line of a run

A checkpoint keeps an agent's attributes, and those of what it is made of. An agent that saves something else has
`state_dict` and `load_state_dict`, where `capture(thing, "its name")` gives the state of a component as
data and `restore(thing, state, "its name")` puts it back.
"""

from explore._learning.learner import Learner
from explore._learning.preflight import check_learner
from explore._learning.replay import Batch, Replay
from explore._state import capture, restore
from explore._values.acting import ActionSelector
from explore._values.indexed_value import IndexedValue

__all__ = ["ActionSelector", "Batch", "IndexedValue", "Learner", "Replay", "capture", "check_learner", "restore"]
