"""The entry point of `explore`: runs a command and turns how it ends into one line and an exit code."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress

from explore._cli.parser import build_parser
from explore._messages import complain
from explore.errors import RunFailed, UserError


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; returns 0, 1 (it failed), 2 (the user's mistake), 3 (part of a sweep failed), or a signal's."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    code = _run(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # the terminal is gone, or the disk of a log full
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # or Python would fail when it exits
    return code


def _run(argv: Sequence[str]) -> int:
    try:
        if any("\0" in word for word in argv):
            raise UserError("there is a zero byte in an argument")
        arguments = build_parser(argv).parse_args(argv)
        vars(arguments).pop("_command").run(arguments)
        sys.stdout.flush()  # a closed pipe shows here, not when Python exits
    except (UserError, RunFailed) as error:
        if isinstance(error, RunFailed) and error.__cause__ and os.environ.get("EXPLORE_TRACEBACK"):
            traceback.print_exception(error.__cause__)
        complain(f"error: {error}")
        return error.exit_code
    except KeyboardInterrupt as interrupt:
        complain(": ".join(["interrupted", *map(str, interrupt.args)]))
        return getattr(interrupt, "exit_code", 130)
    except BrokenPipeError:
        return 1
    except Exception as error:
        if os.environ.get("EXPLORE_TRACEBACK"):
            traceback.print_exc()
        complain(
            f"internal error: {type(error).__name__}: {error} (a bug in explore; set EXPLORE_TRACEBACK=1 to see where)"
        )
        return 1
    return 0
