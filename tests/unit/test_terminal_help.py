"""The help of every command of `connect-py` on a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from connect_py import cli

COLUMNS = 80


def _whole_app() -> typer.Typer:
    """The commands of `connect-py` and those of plugins, as `connect_py` puts them together."""
    whole = typer.Typer(no_args_is_help=True, context_settings=cli.app.info.context_settings)
    whole.registered_commands = list(cli.app.registered_commands)
    whole.registered_groups = list(cli.app.registered_groups)
    whole.registered_callback = cli.app.registered_callback
    cli.add_plugin_commands(whole)
    cli.join_help_lines(whole)
    return whole


def _commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from _commands(inner, (*path, name))


APP = _whole_app()
ALL = dict(_commands(typer.main.get_command(APP)))


def test_every_area_of_the_command_line_is_there() -> None:
    assert {path[0] for path in ALL if path} >= {
        "connectors",
        "kafka",
        "quickstart",
        "status",
        "top",
        "worker",
        "dlq",
    }


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_help_fits_80_columns_without_cut_words_or_broken_lines(path: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(
        APP, [*path, "--help"], env={"COLUMNS": str(COLUMNS), "TERMINAL_WIDTH": str(COLUMNS)}
    )
    assert shown.exit_code == 0, shown.output
    lines = shown.output.splitlines()
    assert [line for line in lines if len(line) > COLUMNS] == []
    assert "…" not in shown.output
    words = set(shown.output.replace("│", " ").split())
    assert {word for text in _texts(ALL[path]) for word in text.split()} - words == set()
    for line, following in pairwise(
        lines[: next(n for n, line in enumerate(lines) if line.startswith("╭"))]
    ):
        if line.strip() and following.strip() and "Usage:" not in line:
            assert len(line.rstrip()) + 1 + len(following.split()[0]) > COLUMNS - 2, (
                line,
                following,
            )


def _texts(command: Any) -> Iterator[str]:
    """What the help of a command must show whole."""
    yield command.help or ""
    yield from getattr(command, "commands", {})
    for parameter in command.params:
        yield getattr(parameter, "help", None) or ""
        yield " ".join(option for option in parameter.opts if option.startswith("-"))


def test_kafka_option_is_known_in_the_plural_as_well() -> None:
    typed = ["try", __file__, "--bootstrap-servers", "127.0.0.1:1", "--records", "none"]
    refused = CliRunner().invoke(APP, typed)
    assert refused.exit_code == 2
    assert "--records" in refused.output
    assert "No such option" not in refused.output
