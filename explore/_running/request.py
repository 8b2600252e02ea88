"""What a user asks to be run, and what is tried of it before it is."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from explore._config import configuration
from explore._config.discovery import Registry
from explore._config.tracebacks import name_plugin_that_raised
from explore._running.experiment import Experiment
from explore._running.preflight import preflight
from explore._state import Unsavable
from explore.errors import UserError


@dataclass(frozen=True)
class Request:
    """The options of `explore run`."""

    config: str | Path | None  # None: that of the folder
    bindings: list[str]
    plugins: list[str]
    allow_imports: bool
    quiet: bool

    def load(self, registry: Registry, default: Path = Path()) -> configuration.Config:
        config = default if self.config is None else self.config
        return configuration.load(config, self.bindings, registry, allow_imports=self.allow_imports)

    def resume_command(self, folder: Path) -> str:
        """The command that resumes the run in a folder."""
        place = f"./{folder}" if str(folder).startswith("-") else str(folder)
        words = ["explore", "run", "--resume", place, *(word for plugin in self.plugins for word in ("-p", plugin))]
        return shlex.join([*words, *(["--allow-imports"] if self.allow_imports else [])])


def try_before_run(experiment: Experiment, registry: Registry) -> None:
    """Has `preflight` try an experiment; says what to do about what fails, and in whose plugin."""
    try:
        preflight(experiment)
    except Unsavable as error:
        settings = {"minutes": experiment.checkpoint_minutes, "every": experiment.checkpoint_every}
        on = [f"experiment.checkpoint_{name}" for name, value in settings.items() if value is not None]
        off = " ".join(f'-b "{name} = None"' for name in on)
        raise UserError(f"{error}; or do without checkpoints: {off}") from error
    except (Exception, SystemExit) as error:
        raise name_plugin_that_raised(error, registry) from error.__cause__
