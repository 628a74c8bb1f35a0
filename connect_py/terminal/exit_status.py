"""Exit statuses of commands. This module is the only one that maps errors to exit statuses."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import typer

from connect_py.api.command import PrerequisiteError
from connect_py.api.errors import ConnectError
from connect_py.secret_mask import masked
from connect_py.terminal.rest_client import WorkerUnreachableError

REFUSED: Final = 1  # the worker rejected the request, or a connector is not in the requested state
UNKNOWN: Final = 2  # wrong usage, or the command could not determine the result

_EXPECTED: Final = (ConnectError, OSError, ValueError)  # errors whose messages are meant for users


@contextmanager
def errors_exit(failure_status: int) -> Iterator[None]:
    """Print an error raised in the `with` block to standard error, and exit with a status.

    The status is 2 if no worker responds or a prerequisite is missing, and `failure_status` for any
    other error. The first line of an unexpected error is followed by its traceback.
    """
    try:
        yield
    except (typer.Exit, typer.Abort, typer.BadParameter):
        raise
    except Exception as error:
        expected = isinstance(error, _EXPECTED)
        message = str(error) if expected else f"unexpected {type(error).__name__}: {error}"
        print_error(message)
        if not expected:
            typer.echo(masked("".join(traceback.format_exception(error)).rstrip()), err=True)
        not_started = isinstance(error, (WorkerUnreachableError, PrerequisiteError))
        raise typer.Exit(UNKNOWN if not_started else failure_status) from error


def print_error(message: str) -> None:
    """Print a message from `connect-py` to standard error, with secrets masked."""
    typer.echo(f"connect-py: {masked(message)}", err=True)
