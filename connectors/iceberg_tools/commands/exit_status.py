"""What a command ends with when something goes wrong: one line on standard error, and an exit
status."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from connect_py.api.command import without_secrets
from connect_py.api.errors import ConnectError


@contextmanager
def errors_exit(status: int) -> Iterator[None]:
    """End with this status if the block raises an error, whatever it is: other statuses have a
    meaning of their own."""
    try:
        yield
    except (typer.Exit, typer.Abort, typer.BadParameter):
        raise
    except Exception as error:
        foreseen = isinstance(error, (ConnectError, OSError, ValueError))
        text = (
            str(error) if foreseen else f"{type(error).__name__}, which was not foreseen: {error}"
        )
        typer.echo(f"connect-py: {without_secrets(text)}", err=True)
        raise typer.Exit(status) from error
