"""`WorkerOptions`: the options with which commands specify a running worker."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from connect_py.api.errors import ConnectError
from connect_py.terminal.rest_client import RestClient, WorkerAddress

DEFAULT_URL: Final = "http://127.0.0.1:8083"
COMPLETION_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """Address of a worker, credentials, and certificates."""

    url: Annotated[
        str, typer.Option("--url", envvar="CONNECT_PY_URL", help="URL of any worker in the group.")
    ] = DEFAULT_URL
    user: Annotated[
        str | None,
        typer.Option(
            "--user",
            envvar="CONNECT_PY_USER",
            metavar="NAME[:PASSWORD]",
            help="User for basic authentication. Prompts for the password if it is omitted.",
        ),
    ] = None
    ca_file: Annotated[
        Path | None,
        typer.Option(
            "--ca-file",
            envvar="CONNECT_PY_CA_FILE",
            exists=True,
            dir_okay=False,
            metavar="PEM",
            help="Certificate authorities to trust for HTTPS.",
            show_default="system authorities",
        ),
    ] = None
    cert_file: Annotated[
        Path | None,
        typer.Option(
            "--cert-file",
            envvar="CONNECT_PY_CERT_FILE",
            exists=True,
            dir_okay=False,
            metavar="PEM",
            help="Client key and certificate, if the worker requires one.",
        ),
    ] = None

    def address(self) -> WorkerAddress:
        """Return the address. Prompt for a missing password on the terminal."""
        url = self.url if "://" in self.url else f"http://{self.url}"
        name, separator, password = (self.user or "").partition(":")
        if self.user is not None and not separator:
            password = typer.prompt(f"Password for {name}", hide_input=True, err=True)
        user = None if self.user is None else name
        return WorkerAddress(url, user, password, self.ca_file, self.cert_file)


def complete_names(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of connectors with this prefix, for shell completion.

    The result is empty if no worker responds within two seconds.
    """
    names = ("url", "user", "ca_file", "cert_file")
    values = {name: value for name in names if (value := context.params.get(name)) is not None}
    options = WorkerOptions(**values)
    if options.user and ":" not in options.user:
        return []  # completion cannot prompt for a password
    try:
        with RestClient(options.address(), request_seconds=COMPLETION_SECONDS) as worker:
            return [name for name in worker.names() if name.startswith(incomplete)]
    except ConnectError:
        return []
