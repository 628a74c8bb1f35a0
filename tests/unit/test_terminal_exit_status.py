"""Exit statuses of commands that raise an error."""

from __future__ import annotations

import pytest
import typer
from fixtures.command_line import command_app
from typer.testing import CliRunner

from connect_py.api.command import CommandContext, PrerequisiteError, command
from connect_py.api.errors import ConfigError, ConnectError
from connect_py.terminal.rest_client import RequestRefusedError, WorkerUnreachableError


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ConnectError("the catalog does not answer"), 7),
        (ConfigError("--to", "unknown snapshot"), 7),
        (RequestRefusedError(409, "the connector exists already"), 7),
        (FileNotFoundError("sink.json"), 7),
        (WorkerUnreachableError("no worker answers"), 2),
        (PrerequisiteError("no Java was found"), 2),
        (typer.BadParameter("expected a number"), 2),
    ],
)
def test_status_depends_on_the_class_of_the_error(error: Exception, status: int) -> None:
    @command(failure_status=7)
    def fail(_context: CommandContext) -> None:
        raise error

    result = CliRunner().invoke(command_app(fail))
    assert (result.exit_code, result.stdout) == (status, "")
    assert str(error) in result.stderr


def test_confirmation_that_is_declined_aborts_with_status_1() -> None:
    @command(failure_status=7)
    def ask(context: CommandContext) -> None:
        if not context.confirm("Delete it?"):
            raise typer.Abort

    assert CliRunner().invoke(command_app(ask), input="n\n").exit_code == 1
    assert CliRunner().invoke(command_app(ask), input="y\n").exit_code == 0
