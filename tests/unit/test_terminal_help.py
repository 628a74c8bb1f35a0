"""The help of every command of `connect-py` on a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import entry_points
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from connect_py import cli

COLUMNS = 80


def _whole_app() -> typer.Typer:
    """The commands of `connect-py` and those of plugins, as `connect_py` puts them together."""
    whole = typer.Typer(no_args_is_help=True)
    whole.registered_commands = list(cli.app.registered_commands)
    whole.registered_groups = list(cli.app.registered_groups)
    whole.registered_callback = cli.app.registered_callback
    for entry in entry_points(group=cli.COMMANDS):
        command = entry.load()
        if isinstance(command, typer.Typer):
            whole.add_typer(command, name=entry.name)
        else:
            whole.command(entry.name)(command)
    return whole


def _commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from _commands(inner, (*path, name))


APP = _whole_app()
ALL = dict(_commands(typer.main.get_command(APP)))


def test_every_area_of_the_command_line_is_there() -> None:
    assert {path[0] for path in ALL if path} >= {"connectors", "kafka", "quickstart", "status", "top", "worker", "dlq"}


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_help_fits_80_columns_and_cuts_no_word(path: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(APP, [*path, "--help"], env={"COLUMNS": str(COLUMNS), "TERMINAL_WIDTH": str(COLUMNS)})
    assert shown.exit_code == 0, shown.output
    assert [line for line in shown.output.splitlines() if len(line) > COLUMNS] == []
    assert "…" not in shown.output
    words = set(shown.output.replace("│", " ").split())
    wanted = {word for text in _texts(ALL[path]) for word in text.split()}
    assert {word for word in wanted if word not in words and not word.startswith("`")} == set()


def _texts(command: Any) -> Iterator[str]:
    """What the help of a command must show whole."""
    yield command.help or ""
    for inner in getattr(command, "commands", {}).values():
        yield inner.name
    for parameter in command.params:
        yield getattr(parameter, "help", None) or ""
        yield " ".join(option for option in parameter.opts if option.startswith("-"))
