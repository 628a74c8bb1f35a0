"""Subcommands of `connect-py` that plugins bring."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint, version
from pathlib import Path

import psutil
import pytest
import typer
from fixtures.echo_service import ask
from fixtures.service_plugins import echo
from typer.testing import CliRunner

from connect_py import cli
from connect_py.api.command import command_services, provide_services, uses_java
from connect_py.api.errors import ConnectError
from connect_py.embedded import spark_environment
from connect_py.embedded.jar_lock import SHIPPED_LOCKS
from connect_py.embedded.java_runtime import JavaNotFoundError

GREETINGS = typer.Typer()


def echo_pid() -> None:
    typer.echo(ask(command_services().shared_service(echo())))


def greet(name: str) -> None:
    typer.echo(f"hello {name}")


@uses_java
def count_rows() -> None:
    raise AssertionError("it needs Java")


GREETINGS.command("one")(greet)
GREETINGS.command("two")(lambda: None)


@pytest.mark.parametrize(
    ("brought", "typed"),
    [("greet", ["greetings", "Ada"]), ("GREETINGS", ["greetings", "one", "Ada"])],
)
def test_a_plugins_subcommand_runs_under_its_entry_points_name(
    brought: str,
    typed: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
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


def test_a_command_has_services_that_end_with_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    fresh = typer.Typer()
    fresh.command("built-in")(lambda: None)
    entry = EntryPoint("echo", f"{__name__}:echo_pid", cli.COMMANDS)
    monkeypatch.setattr(cli, "app", fresh)
    monkeypatch.setattr(cli, "entry_points", lambda group: [entry])
    monkeypatch.setattr("sys.argv", ["connect-py", "echo"])
    with pytest.raises(SystemExit) as end:
        cli.connect_py()
    assert end.value.code == 0
    assert not psutil.pid_exists(int(capsys.readouterr().out))
    provide_services(None)
    with pytest.raises(ConnectError, match="commands of connect-py only"):
        command_services()


def test_a_command_without_java_ends_with_status_two(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(*_: str) -> None:
        raise JavaNotFoundError(("there is none",))

    fresh = typer.Typer()
    fresh.command("built-in")(lambda: None)
    monkeypatch.setattr(spark_environment, "spark_environment", missing)
    monkeypatch.setattr(cli, "app", fresh)
    monkeypatch.setattr(
        cli, "entry_points", lambda group: [EntryPoint("rows", f"{__name__}:count_rows", group)]
    )
    monkeypatch.setattr("sys.argv", ["connect-py", "rows"])
    with pytest.raises(SystemExit) as end:
        cli.connect_py()
    assert (end.value.code, capsys.readouterr()) == (
        2,
        ("", "connect-py: no Java 17 to 21 was found: there is none\n"),
    )


def test_jars_help_names_every_shipped_lock_with_its_purpose() -> None:
    assert tuple(cli.JARS) == SHIPPED_LOCKS
    shown = CliRunner().invoke(cli.app, ["jars", "--help"])
    assert shown.exit_code == 0
    for name in SHIPPED_LOCKS:
        assert f"{name}: " in shown.output


def test_the_version_is_that_of_the_package() -> None:
    shown = CliRunner().invoke(cli.app, ["--version"])
    assert (shown.exit_code, shown.output) == (0, f"connect-py {version('connect-py')}\n")


@pytest.mark.parametrize(
    ("typed", "reason"),
    [
        (
            ["--log-level", "foo=LOUD", "w.properties"],
            "--log-level foo=LOUD: levels are OFF, FATAL, ",
        ),
        (["--log-level"], "--log-level : levels are OFF, FATAL, "),
        (["--quiet", "w.properties"], "there is no option --quiet"),
    ],
)
def test_wrong_worker_arguments_print_the_reason_before_the_usage(
    typed: list[str],
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.argv", ["connect-distributed", *typed])
    with pytest.raises(SystemExit) as end:
        cli.connect_distributed()
    said = capsys.readouterr().err.splitlines()
    assert end.value.code == 1
    assert said[0].startswith(f"connect-distributed: {reason}")
    assert said[1].startswith("Usage: connect-distributed ")


def test_help_loads_no_library_that_only_commands_need() -> None:
    program = (
        "import sys, connect_py.cli\nprint(*sorted({name.partition('.')[0] for name in "
        "sys.modules}))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=True
    )
    slow = {"confluent_kafka", "fastapi", "httpx", "prometheus_client", "psutil", "pyarrow", "rich"}
    assert slow.isdisjoint(loaded.stdout.split())


def test_worker_command_refuses_connectors_and_levels_it_cannot_use(tmp_path: Path) -> None:
    properties = tmp_path / "worker.properties"
    properties.write_text("")
    refused = CliRunner().invoke(cli.app, ["worker", str(properties), "sink.json"])
    assert refused.exit_code == 2
    assert "gets its connectors over REST" in " ".join(refused.output.replace("│", " ").split())
    loud = CliRunner().invoke(cli.app, ["worker", "--log-level", "a=LOUD", str(properties)])
    assert loud.exit_code == 2
    assert "a=LOUD: levels are OFF" in " ".join(loud.output.replace("│", " ").split())


@pytest.mark.parametrize(
    ("words", "runner"), [([], "distributed"), (["--standalone"], "standalone")]
)
def test_worker_command_runs_the_worker_of_its_mode(
    words: list[str], runner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties, seen = tmp_path / "worker.properties", []
    properties.write_text("")
    monkeypatch.setattr(
        f"connect_py.{runner}_worker.run_{runner}", lambda *given: seen.append(given) or 3
    )
    ended = CliRunner().invoke(cli.app, ["worker", *words, str(properties), "--log-level", "WARN"])
    assert ended.exit_code == 3
    assert (seen[0][0], seen[0][-1]) == (properties, {"root": "WARN"})
