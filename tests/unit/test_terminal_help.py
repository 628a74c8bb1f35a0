"""The help of every command of `connect-py` on a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer
from fixtures.command_line import connect_py_program
from typer.testing import CliRunner

COLUMNS = 80


def _commands(
    command: Any, context: Any, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield all commands with their paths, imported."""
    yield path, command
    for name in getattr(command, "commands", {}):
        _, inner, _ = command.resolve_command(context, [name])
        yield from _commands(inner, context, (*path, name))


APP = connect_py_program()
ROOT = typer.main.get_command(APP)
ALL = dict(_commands(ROOT, ROOT.context_class(ROOT)))


def test_summaries_of_commands_are_the_first_paragraphs_of_their_help() -> None:
    for (*path, name), command in ((path, each) for path, each in ALL.items() if path):
        parent = ALL[tuple(path)]
        first_paragraph = (command.help or "").split("\n\n")[0]
        assert parent.commands[name].help == " ".join(first_paragraph.split()), (*path, name)


def test_every_area_of_the_command_line_exists() -> None:
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
def test_help_fits_80_columns_and_shows_all_words(path: tuple[str, ...]) -> None:
    result = CliRunner().invoke(
        APP, [*path, "--help"], env={"COLUMNS": str(COLUMNS), "TERMINAL_WIDTH": str(COLUMNS)}
    )
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert [line for line in lines if len(line) > COLUMNS] == []
    assert "…" not in result.output
    shown_text = "".join(result.output.split())  # words with hyphens may be broken
    texts = [word for text in _texts(ALL[path]) for word in text.split()]
    assert [word for word in texts if word not in shown_text] == []


def _texts(command: Any) -> Iterator[str]:
    """Yield the strings that the help of a command must show completely."""
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
