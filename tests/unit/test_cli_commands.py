"""Subcommands of `connect-py` that plugins bring."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest
import typer

from connect_py import cli

GREETINGS = typer.Typer()


def greet(name: str) -> None:
    typer.echo(f"hello {name}")


GREETINGS.command("one")(greet)
GREETINGS.command("two")(lambda: None)


@pytest.mark.parametrize(
    ("brought", "typed"), [("greet", ["greetings", "Ada"]), ("GREETINGS", ["greetings", "one", "Ada"])]
)
def test_a_plugins_subcommand_runs_under_its_entry_points_name(
    brought: str, typed: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fresh = typer.Typer()
    fresh.command("built-in")(lambda: None)
    entry = EntryPoint("greetings", f"{__name__}:{brought}", cli.COMMANDS)
    monkeypatch.setattr(cli, "app", fresh)
    monkeypatch.setattr(cli, "entry_points", lambda group: [entry] if group == cli.COMMANDS else [])
    monkeypatch.setattr("sys.argv", ["connect-py", *typed])

    with pytest.raises(SystemExit) as end:
        cli.connect_py()

    assert end.value.code == 0
    assert capsys.readouterr().out == "hello Ada\n"
