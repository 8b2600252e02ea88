"""The command `explore export-bsuite`."""

from __future__ import annotations

import argparse

from explore.commands import Command


class ExportBsuite(Command):
    summary = "runs of bsuite's tasks as the CSV files that bsuite reads"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("folders", metavar="RUN_OR_SWEEP", nargs="+", help="folders of runs or sweeps")
        parser.add_argument("--out", metavar="DIR", required=True, help="a new folder for the files")

    def run(self, arguments: argparse.Namespace) -> None:
        from explore_plugins.bsuite_logs import export_bsuite

        for path in export_bsuite(arguments.folders, arguments.out):
            print(path)
