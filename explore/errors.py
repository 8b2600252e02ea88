"""The two ways a command can end badly, each with its exit code."""


class UserError(Exception):
    """The user's input is wrong. Shown as one line; exit code 2.

    Say what is wrong, where, and what would be right.
    """

    exit_code = 2


class RunFailed(Exception):
    """The run itself failed (a loss turned NaN, the disk is full). Exit code 1."""

    exit_code = 1
