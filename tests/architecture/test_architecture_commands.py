"""Commands on the pages are commands of this version: each line is parsed by the very parser that
would run it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer
from fixtures.command_line import connect_py_program
from page_lines import ROOT, lines_of

# `test_postgres_demo` runs the lines of its page unchanged.
RUN_UNNAMED = {"java-connect"}


@pytest.fixture(scope="module")
def application() -> Any:
    """Return the parser of `connect-py` with all commands."""
    return typer.main.get_command(connect_py_program())


def _parse(command: Any, words: list[str], whole: bool) -> None:
    """Parse words as the command would, without looking whether files exist."""
    context = command.context_class(command, info_name=words[0], **command.context_settings)
    options, rest, _ = command.make_parser(context).parse_args(list(words[1:]))
    if not hasattr(command, "commands"):
        needed = [
            each
            for each in command.get_params(context)
            if each.required and options.get(each.name) is None
        ]
        if whole and needed and "--help" not in words:
            raise ValueError(f"lacks {', '.join(str(each.name) for each in needed)}")
    elif rest:
        name, inner, remaining = command.resolve_command(context, rest)
        _parse(inner, [name, *remaining], whole)


def test_commands_of_connect_py_on_the_pages_are_accepted(application: Any) -> None:
    lines = lines_of("connect-py")
    assert len(lines) > 60
    wrong = []
    for line in lines:
        try:
            _parse(application, line.words(), line.whole)
        except Exception as error:  # noqa: BLE001 - of the parser, whose classes have no public place
            wrong.append(f"{line}: {error}")
    assert wrong == []


def test_subcommands_on_the_pages_are_run_by_tests(application: Any) -> None:
    """A command that no test names is a command that no test runs."""
    commands = {line.words()[1] for line in lines_of("connect-py")} & set(application.commands)
    texts = "\n".join(
        path.read_text() for path in (ROOT / "tests").rglob("test_*.py") if path != Path(__file__)
    )
    texts += "\n".join(path.read_text() for path in (ROOT / "tests" / "fixtures").glob("*.py"))
    assert len(commands) > 20
    assert {name for name in commands if f'"{name}"' not in texts} == RUN_UNNAMED


def test_targets_of_make_on_the_pages_exist() -> None:
    targets = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    page_targets = {
        word for line in lines_of("make") for word in line.words()[1:2] if "=" not in word
    }
    assert {"site", "release", "quickstart"} <= page_targets
    assert page_targets - targets == set()


def test_programs_and_their_options_on_the_pages_exist() -> None:
    ours = ("tests/", "tools/", "docs/")  # other programs are created by earlier steps of the page
    lines = [line for line in lines_of("python") if line.words()[1].startswith(ours)]
    assert len(lines) > 5
    for line in lines:
        _, program, *arguments = line.words()
        text = (ROOT / program).read_text()
        for option in (word.partition("=")[0] for word in arguments if word.startswith("-")):
            assert f'"{option}"' in text or option in ("-h", "--help"), str(line)
