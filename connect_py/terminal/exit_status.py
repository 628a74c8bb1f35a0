"""Exit statuses of commands: the one place that maps errors to them."""

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

REFUSED: Final = 1  # the worker refused the request, or a connector is not in the requested state
UNKNOWN: Final = 2  # wrong usage, or the command could not get an answer

_EXPECTED: Final = (ConnectError, OSError, ValueError)  # their messages are written for users


@contextmanager
def errors_exit(failure_status: int) -> Iterator[None]:
    """Print an error of the block on standard error, and end with an exit status.

    The status is 2 if no worker answers or a prerequisite is missing, and `failure_status` for
    every other error. The traceback of an unexpected error follows its first line.
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
    """Print one message of `connect-py` on standard error; secrets are masked."""
    typer.echo(f"connect-py: {masked(message)}", err=True)
