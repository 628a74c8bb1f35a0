"""`asks_worker`: the options by which commands find a worker."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Concatenate, Final, ParamSpec

import typer

from connect_py.api.errors import ConnectError
from connect_py.terminal.rest_client import RestClient, WorkerAddress, WorkerUnreachableError

DEFAULT_URL: Final = "http://127.0.0.1:8083"
REFUSED, UNKNOWN = 1, 2  # exit statuses
COMPLETION_SECONDS: Final = 2.0

P = ParamSpec("P")

Url = Annotated[str, typer.Option("--url", envvar="CONNECT_PY_URL", help="A worker of the group.")]
User = Annotated[
    str | None,
    typer.Option(
        "--user",
        envvar="CONNECT_PY_USER",
        metavar="NAME[:PASSWORD]",
        help="Asks for a missing password.",
    ),
]
Authorities = Annotated[
    Path | None,
    typer.Option(
        "--ca-file",
        envvar="CONNECT_PY_CA_FILE",
        exists=True,
        dir_okay=False,
        metavar="PEM",
        help="Whose certificates to trust over HTTPS.",
        show_default="the system's",
    ),
]
Certificate = Annotated[
    Path | None,
    typer.Option(
        "--cert-file",
        envvar="CONNECT_PY_CERT_FILE",
        exists=True,
        dir_okay=False,
        metavar="PEM",
        help="An own key and its certificate, if the worker asks for one.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="For machines.")]


def asks_worker(command: Callable[Concatenate[RestClient, P], None]) -> Callable[..., None]:
    """A command whose first parameter is a worker, with options that name it.

    Errors of the worker become one line on standard error, and exit status 1 (refused) or 2 (no
    answer).
    """

    def run(
        *,
        url: Url = DEFAULT_URL,
        user: User = None,
        ca_file: Authorities = None,
        cert_file: Certificate = None,
        **options: Any,
    ) -> None:
        with errors_exit(), RestClient(_address(url, user, ca_file, cert_file)) as worker:
            command(worker, **options)  # type: ignore[call-arg] # options are those of the command

    _, *own = inspect.signature(command, eval_str=True).parameters.values()
    return _with_options(run, command, own)


def may_ask_worker(
    command: Callable[..., None], provide: Callable[[Callable[[], RestClient] | None], None]
) -> Callable[..., None]:
    """Add the options that name a worker to a command that also works without one.

    Args: command: The command, without these options. provide: Called with a factory of the client
        before the command runs. The factory raises a `ConfigError` if
            the options are not valid.
    """

    def run(
        *,
        url: Url = DEFAULT_URL,
        user: User = None,
        ca_file: Authorities = None,
        cert_file: Certificate = None,
        **options: Any,
    ) -> None:
        provide(lambda: RestClient(_address(url, user, ca_file, cert_file)))
        command(**options)

    return _with_options(
        run, command, list(inspect.signature(command, eval_str=True).parameters.values())
    )


def _with_options(
    run: Callable[..., None], command: Callable[..., None], own: list[inspect.Parameter]
) -> Callable[..., None]:
    """Give `run` the parameters `own`, those that it shares with other commands, and the name of
    the command."""
    *shared, _ = inspect.signature(run, eval_str=True).parameters.values()
    parameters = [*(each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own), *shared]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined] # what typer reads
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return run


@contextmanager
def errors_exit() -> Iterator[None]:
    """End with a status and one line on standard error if the block raises an error that people get
    to read."""
    try:
        yield
    except (ConnectError, OSError, ValueError) as error:
        typer.echo(f"connect-py: {error}", err=True)
        raise typer.Exit(
            UNKNOWN if isinstance(error, WorkerUnreachableError) else REFUSED
        ) from error


def complete_names(context: typer.Context, incomplete: str) -> list[str]:
    """Names of connectors that begin so, for the shell; none if the worker does not answer at
    once."""
    given = context.params
    url, user = given.get("url") or DEFAULT_URL, given.get("user")
    if user and ":" not in user:
        return []  # a shell that completes cannot be asked for a password
    try:
        address = _address(url, user, given.get("ca_file"), given.get("cert_file"))
        with RestClient(address, request_seconds=COMPLETION_SECONDS) as worker:
            return [name for name in worker.names() if name.startswith(incomplete)]
    except ConnectError:
        return []


def _address(
    url: str, user: str | None, authorities: Path | None, certificate: Path | None
) -> WorkerAddress:
    if "://" not in url:
        url = f"http://{url}"
    name, separator, password = (user or "").partition(":")
    if user is not None and not separator:
        password = typer.prompt(f"Password of {name}", hide_input=True, err=True)
    return WorkerAddress(url, None if user is None else name, password, authorities, certificate)
