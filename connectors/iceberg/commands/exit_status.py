"""What a command ends with when something goes wrong: one line on standard error, and an exit status."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from connect_py.api.command import without_secrets
from connect_py.api.errors import ConnectError


@contextmanager
def errors_exit(status: int) -> Iterator[None]:
    """End with this status if the block raises an error that people get to read."""
    try:
        yield
    except (ConnectError, OSError, ValueError) as error:
        typer.echo(f"connect-py: {without_secrets(str(error))}", err=True)
        raise typer.Exit(status) from error
