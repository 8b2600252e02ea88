"""What a command of `explore` is; those of plugins are found by entry points of the group `explore.commands`.

The name of the entry point is the name of the command:

    # hello.py                                          # pyproject.toml
    from explore.commands import Command                [project.entry-points."explore.commands"]
                                                        hello = "hello:Hello"
    class Hello(Command):
        summary = "greet somebody"

        def add_arguments(self, parser):
            parser.add_argument("name", metavar="NAME")

        def run(self, arguments):
            print(f"Hello {arguments.name}!")

`explore hello World` imports the module, and so does `explore --help`, for the summary: import what
takes long, such as torch, within `run`.
"""

from __future__ import annotations

import abc
import argparse

from explore._messages import note

__all__ = ["Command", "note"]


class Command(abc.ABC):
    """A command: one line for `explore --help`, the arguments it takes, and what it does with them.

    `run` raises `explore.errors.UserError` for wrong input and `RunFailed` for what went wrong.
    """

    summary: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declares the arguments, as with `argparse`."""

    @abc.abstractmethod
    def run(self, arguments: argparse.Namespace) -> None:
        """Does the work."""
