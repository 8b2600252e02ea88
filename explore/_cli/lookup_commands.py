"""The commands that say what there is (`recipes`, `plugins`, `components`, `describe`), `doctor` and `new-plugin`."""

from __future__ import annotations

import argparse
import json
import os
import shlex
from typing import Any

from explore._cli.run_commands import add_plugins
from explore._messages import suggest
from explore.commands import Command
from explore.errors import RunFailed, UserError
from explore.hooks import SLOTS


class Recipes(Command):
    summary = "the configurations that come with explore, to run by name"

    def run(self, arguments: argparse.Namespace) -> None:
        from explore._cli.tables import print_rows
        from explore._config.gin_files import list_recipes

        rows = [("recipe", "what it is")]
        for name, path in list_recipes().items():
            about = path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")
            if not about.startswith("Base "):  # of other recipes; it lacks an agent
                rows.append((name, about))
        print_rows(rows)


class Plugins(Command):
    summary = "what is installed, from where, and what failed to load"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_plugins(parser)

    def run(self, arguments: argparse.Namespace) -> None:
        from explore._analysis.report.plugin_sections import PLUGIN_SECTIONS
        from explore._cli.parser import COMMANDS
        from explore._cli.plugin_commands import PLUGIN_COMMANDS
        from explore._cli.tables import print_rows
        from explore._config.discovery import discover

        registry = discover(arguments.plugins)
        rows = [("plugin", "source", "version", "components")]
        for plugin in registry.plugins:
            supplied = ", ".join(component.selector for component in plugin.components)
            if plugin.experiments:
                experiments = f"experiments: {', '.join(one.name for one in plugin.experiments)}"
                supplied = f"{supplied}; {experiments}" if supplied else experiments
            supplied = supplied or "(watches runs)"
            rows.append((plugin.name, plugin.source, plugin.version, supplied))
        print_rows(rows)
        if registry.failed:
            print()
            print_rows([("failed", "source", "reason"), *registry.failed])
        for what, (found, failures) in {
            "commands of plugins": PLUGIN_COMMANDS.load_all(COMMANDS),
            "sections of reports by plugins": PLUGIN_SECTIONS.load_all(),
        }.items():
            print(f"\n{what}: {', '.join(found) or 'none'}", *failures, sep="\n")


class Components(Command):
    summary = "every component with its parameters and defaults"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("slot", metavar="SLOT", nargs="?", help="only those of this slot")
        add_plugins(parser)

    def run(self, arguments: argparse.Namespace) -> None:
        if arguments.slot is not None and arguments.slot not in SLOTS:
            raise UserError(f"unknown slot {arguments.slot!r}{suggest(arguments.slot, SLOTS)}")

        from explore._cli.tables import make_console, make_table
        from explore._config.discovery import discover
        from explore._config.parameters import parameters

        found = discover(arguments.plugins).components.values()
        table = make_table("component", "parameter", "default")
        for slot in [arguments.slot] if arguments.slot else SLOTS:
            for component in (one for one in found if one.slot == slot):
                rows = [(name, _default(known)) for name, known in parameters(component.cls).items()] or [("", "")]
                for number, row in enumerate(rows):
                    table.add_row("" if number else component.selector, *row, end_section=row is rows[-1])
        make_console().print(table)


class Describe(Command):
    summary = "the documentation and the parameters of a component"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("name", metavar="SLOT.NAME", help="e.g. uncertainty.SoftplusHeads")
        add_plugins(parser)

    def run(self, arguments: argparse.Namespace) -> None:
        import inspect

        from explore._cli.tables import make_console, print_rows
        from explore._config.checks import ROOT
        from explore._config.discovery import discover
        from explore._config.parameters import ARGUMENTS, parameters
        from explore._running.experiment import Experiment

        found: dict[str, tuple[type, str]] = {ROOT: (Experiment, "the root of a configuration")}
        for one in discover(arguments.plugins).components.values():
            found[one.selector] = one.cls, f"plugin {one.plugin}, {one.source}"
        name = arguments.name
        if name not in found:
            raise UserError(f"unknown component {name!r}{suggest(name, found)}")
        cls, origin = found[name]
        about = ARGUMENTS.sub("", inspect.getdoc(cls) or "").strip()
        make_console().print(f"{name} ({origin})\n\n{about}")
        known = [(one.name, _default(one), one.annotation, one.documentation) for one in parameters(cls).values()]
        if known:
            print()
            print_rows([("parameter", "default", "type", "meaning"), *known])


class Doctor(Command):
    summary = "what is installed, what executes agents, and a self-test of a few seconds"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
        add_plugins(parser)

    def run(self, arguments: argparse.Namespace) -> None:
        from explore._cli.parser import COMMANDS

        try:
            from explore._cli.doctor import examine
            from explore._cli.tables import print_line
        except Exception as error:  # of a package that is missing or damaged
            raise RunFailed(f"explore cannot be imported: {type(error).__name__}: {error}") from error

        findings = []
        for finding in examine(arguments.plugins, COMMANDS):
            findings.append(finding)
            if not arguments.json:
                print_line(finding.check, finding.result, finding.details)
        failed = [finding.check for finding in findings if finding.result == "failed"]
        if arguments.json:
            checks = {check: {"result": result, "details": details} for check, result, details in findings}
            print(json.dumps({"well": not failed, "checks": checks}, indent=2))
        if failed:
            raise RunFailed(f"not all is well: {', '.join(failed)}")
        if not arguments.json:
            print("\nall is well")


class NewPlugin(Command):
    summary = "write the package of a new plugin: a component that works, and its test"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("name", metavar="NAME", help="e.g. cosine-heads")
        about = "of its component; default: uncertainty"
        parser.add_argument("--slot", metavar="SLOT", default="uncertainty", help=about)
        parser.add_argument("--out", metavar="DIR", help="a new folder for the package; default: NAME")
        add_plugins(parser)

    def run(self, arguments: argparse.Namespace) -> None:
        from explore._cli.new_plugin import new_plugin

        paths, commands = new_plugin(arguments.name, arguments.slot, arguments.out, arguments.plugins)
        print(*paths, sep="\n")
        print("\nNext:", f"cd {shlex.quote(os.path.dirname(paths[0]))}", *commands, sep="\n  ")


def _default(parameter: Any) -> str:
    if parameter.required:
        return "(required)"
    return parameter.default.__name__ if isinstance(parameter.default, type) else repr(parameter.default)
