"""Subcommands of `connect-py` that plugins bring."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint, version
from pathlib import Path

import psutil
import pytest
import typer
from fixtures.command_line import command_app, connect_py_program, fake_parts
from fixtures.echo_service import ask
from fixtures.service_plugins import echo
from typer.testing import CliRunner, Result

from connect_py import cli
from connect_py.api.command import COMMANDS, CommandContext, CommandEntry, command
from connect_py.embedded import spark_environment
from connect_py.embedded.jar_lock import SHIPPED_LOCKS
from connect_py.embedded.java_runtime import JavaNotFoundError
from connect_py.terminal.built_in_commands import BUILT_IN_COMMANDS
from connect_py.terminal.command_context import WorkerParts
from connect_py.terminal.command_line import all_entries, command_line

COMMAND_TABLE = (
    CommandEntry("greet", "Greet a person.", f"{__name__}:greet"),
    CommandEntry("greetings", "Greet persons."),
    CommandEntry("greetings one", "Greet a person.", f"{__name__}:greet"),
    CommandEntry("rows", "Count rows.", f"{__name__}:count_rows"),
    CommandEntry("status", "Exists already.", f"{__name__}:greet"),
    CommandEntry("status all", "Has a command as its group.", f"{__name__}:greet"),
    CommandEntry("nowhere one", "Has no group.", f"{__name__}:greet"),
    CommandEntry("kafka greet", "Belongs to a group of connect-py.", f"{__name__}:greet"),
    CommandEntry("missing", "Has no function.", f"{__name__}:no_such_function"),
)


@command()
def greet(_context: CommandContext, name: str) -> None:
    """Greet a person."""
    typer.echo(f"hello {name}")


@command(json=True)
def count_rows(context: CommandContext) -> None:
    """Count rows."""
    context.services()


@command()
def echo_pid(context: CommandContext) -> None:
    """Print the process ID of a service."""
    typer.echo(ask(context.services().shared_service(echo())))


def run_table(*words: str, parts: WorkerParts | None = None) -> Result:
    plugin = EntryPoint("greetings", f"{__name__}:COMMAND_TABLE", COMMANDS)
    entries = all_entries(BUILT_IN_COMMANDS, [plugin])
    return CliRunner().invoke(command_line(entries, parts or fake_parts()), words)


@pytest.mark.parametrize(
    "words", [["greet", "Ada"], ["greetings", "one", "Ada"], ["kafka", "greet", "Ada"]]
)
def test_command_of_a_plugin_runs_under_the_name_in_its_table(words: list[str]) -> None:
    result = run_table(*words)
    assert (result.exit_code, result.stdout) == (0, "hello Ada\n")


def test_help_shows_the_summaries_of_a_plugins_table() -> None:
    result = run_table("--help")
    assert re.search(r"^  greetings +Greet persons\.$", result.stdout, re.MULTILINE)


def test_plugin_cannot_replace_commands_or_omit_groups(capsys: pytest.CaptureFixture[str]) -> None:
    plugin = EntryPoint("greetings", f"{__name__}:COMMAND_TABLE", COMMANDS)
    entries = {entry.name: entry for entry in all_entries(BUILT_IN_COMMANDS, [plugin])}
    assert entries["status"] in BUILT_IN_COMMANDS
    assert capsys.readouterr().err.splitlines() == [
        "connect-py: plugin greetings: command 'status' already exists",
        "connect-py: plugin greetings: 'status all' has no command group",
        "connect-py: plugin greetings: 'nowhere one' has no command group",
    ]


def test_defective_plugin_does_not_disable_other_commands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    plugins = [
        EntryPoint("broken", "no_such_module:COMMANDS", COMMANDS),
        EntryPoint("greetings", f"{__name__}:COMMAND_TABLE", COMMANDS),
    ]
    assert "greet" in {entry.name for entry in all_entries((), plugins)}
    assert "the commands of plugin broken are not available" in capsys.readouterr().err


def test_command_without_its_function_is_reported() -> None:
    result = run_table("missing")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "command 'missing' is not available" in result.stderr


def test_services_of_a_command_end_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]), prepend=os.pathsep)
    parts = replace(cli.worker_parts(), export_java=lambda _: None)
    result = CliRunner().invoke(command_app(echo_pid, parts=parts))
    assert result.exit_code == 0, result.output
    assert not psutil.pid_exists(int(result.stdout))


def test_command_without_java_ends_with_status_2(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: str) -> None:
        raise JavaNotFoundError(("there is none",))

    monkeypatch.setattr(spark_environment, "spark_environment", missing)
    result = run_table("rows", parts=cli.worker_parts())
    assert (result.exit_code, result.output.splitlines()[-1]) == (
        2,
        "connect-py: no Java 17 to 21 found: there is none",
    )


def test_help_of_jars_names_every_jar_set_with_its_purpose() -> None:
    result = CliRunner().invoke(connect_py_program(), ["jars", "--help"])
    assert result.exit_code == 0
    for name in SHIPPED_LOCKS:
        assert f"\n  {name}: " in result.stdout


def test_the_version_is_that_of_the_package() -> None:
    result = CliRunner().invoke(connect_py_program(), ["--version"])
    assert (result.exit_code, result.output) == (0, f"connect-py {version('connect-py')}\n")


@pytest.mark.parametrize(
    ("typed", "reason"),
    [
        (
            ["--log-level", "foo=LOUD", "w.properties"],
            "--log-level foo=LOUD: unknown log level 'LOUD': expected one of OFF, FATAL, ",
        ),
        (["--log-level"], "--log-level : unknown log level '': expected one of OFF, FATAL, "),
        (["--quiet", "w.properties"], "unknown option --quiet"),
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
    lines = capsys.readouterr().err.splitlines()
    assert end.value.code == 1
    assert lines[0].startswith(f"connect-distributed: {reason}")
    assert lines[1].startswith("Usage: connect-distributed ")


def test_help_loads_no_library_that_only_commands_need() -> None:
    program = (
        "import sys, atexit, connect_py.cli\n"
        "atexit.register(lambda: print(*sys.modules))\n"
        "sys.argv[1:] = ['--help']\n"
        "connect_py.cli.connect_py()"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=True
    )
    assert "rollback" in loaded.stdout
    slow = {
        "confluent_kafka",
        "connectors.iceberg_tools.commands.audit",
        "fastapi",
        "httpx",
        "msgspec",
        "prometheus_client",
        "psutil",
        "pyarrow",
        "rich",
    }
    assert slow.isdisjoint(loaded.stdout.split())


def test_worker_command_refuses_connectors_and_levels_it_cannot_use(tmp_path: Path) -> None:
    properties = tmp_path / "worker.properties"
    properties.write_text("")
    refused = CliRunner().invoke(connect_py_program(), ["worker", str(properties), "sink.json"])
    assert refused.exit_code == 2
    assert "receives connectors over REST" in " ".join(refused.output.split())
    loud = CliRunner().invoke(
        connect_py_program(), ["worker", "--log-level", "a=LOUD", str(properties)]
    )
    assert loud.exit_code == 2
    assert "unknown log level 'LOUD'" in " ".join(loud.output.split())


@pytest.mark.parametrize(
    ("words", "runner"), [([], "distributed"), (["--standalone"], "standalone")]
)
def test_worker_command_runs_the_worker_of_its_mode(
    words: list[str], runner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties, calls = tmp_path / "worker.properties", []
    properties.write_text("")
    monkeypatch.setattr(
        f"connect_py.{runner}_worker.run_{runner}", lambda *arguments: calls.append(arguments) or 3
    )
    ended = CliRunner().invoke(
        connect_py_program(), ["worker", *words, str(properties), "--log-level", "WARN"]
    )
    assert ended.exit_code == 3
    assert (calls[0][0], calls[0][-1]) == (properties, {"root": "WARN"})
