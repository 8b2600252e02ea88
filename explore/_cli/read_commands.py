"""The commands that read runs from their folders: `compare`, `report`, `watch`. None of them imports torch."""

from __future__ import annotations

import argparse
import re

from explore.commands import Command
from explore.errors import UserError


class Compare(Command):
    summary = "runs side by side: scores with intervals, episodes to solve, cost"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("folders", metavar="RUN_OR_SWEEP", nargs="+", help="folders of runs or sweeps, of one task")
        shape = parser.add_mutually_exclusive_group()
        shape.add_argument("--json", action="store_true", help="print JSON instead of a table")
        shape.add_argument("--csv", action="store_true", help="print CSV instead of a table")

    def run(self, arguments: argparse.Namespace) -> None:
        from explore._analysis.compare import COSTS, compare

        comparison = compare(arguments.folders)
        if arguments.json or arguments.csv:
            print(comparison.json() + "\n" if arguments.json else comparison.csv(), end="")
            return

        from explore._cli.tables import make_console, print_rows

        rows = comparison.table()
        print_rows(rows, split_at=len(rows[0]) - sum(name in COSTS for name in rows[0]))
        make_console().print(*["", *comparison.foot()], sep="\n")


class Report(Command):
    summary = "runs as one page with pictures: learning, solving, cost, maps of beliefs"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("folders", metavar="RUN_OR_SWEEP", nargs="+", help="folders of runs or sweeps")
        parser.add_argument("--out", metavar="FILE.html", default="report.html", help="default: report.html")

    def run(self, arguments: argparse.Namespace) -> None:
        from explore._analysis.report import report

        print(report(arguments.folders, arguments.out))


class Watch(Command):
    summary = "pictures of a run while it is going, on a page that only this machine can see"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("folder", metavar="RUN", help="the folder of a run")
        parser.add_argument("--port", metavar="N", default="0", help="of the page; default: any that is free")
        parser.add_argument("--once", action="store_true", help="write one picture and end")
        parser.add_argument("--out", metavar="FILE.png", help="where to write it; default: watch.png")

    def run(self, arguments: argparse.Namespace) -> None:
        if not re.fullmatch(r"\d{1,5}", arguments.port, re.ASCII) or int(arguments.port) > 65535:
            raise UserError(f"--port must be an integer from 0 to 65535, got {arguments.port!r}")
        if arguments.out is not None and not arguments.once:
            raise UserError("--out goes with --once")

        from explore._analysis.watch import once, watch

        if arguments.once:
            print(once(arguments.folder, arguments.out or "watch.png"))
        else:
            watch(arguments.folder, int(arguments.port))
