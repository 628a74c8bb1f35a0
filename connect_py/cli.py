"""Entry points of the programs `connect-py`, `connect-distributed`, and `connect-standalone`.

Only this module connects commands with the parts of a worker. Each part is imported inside a
function, because a program should load only the parts that it uses. `connect-py --help` does not
import any command, and the workers do not import the command-line parser.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from connect_py.api.pipeline import PipelineFactory
    from connect_py.api.service import SharedServices
    from connect_py.api.sink_host import SinkHost
    from connect_py.terminal.command_context import WorkerParts


def connect_py() -> None:
    """Run `connect-py` with its own commands and the commands that plugins provide."""
    from importlib.metadata import entry_points

    from connect_py.api.command import COMMANDS
    from connect_py.terminal.built_in_commands import BUILT_IN_COMMANDS
    from connect_py.terminal.command_line import all_entries, command_line

    entries = all_entries(BUILT_IN_COMMANDS, entry_points(group=COMMANDS))
    command_line(entries, worker_parts())()


def connect_distributed() -> None:
    """Run a distributed worker.

    The exit status is 1 if the usage is wrong or the worker ended without a signal, 2 if it could
    not start, and 3 if it failed late in its startup.
    """
    usage = "connect-distributed", "worker.properties"
    arguments, levels = _worker_arguments("connectDistributed.out", *usage)
    if len(arguments) != 1:
        _refuse_usage(*usage)

    _start_fork_server()
    from connect_py.distributed_worker import run_distributed

    sys.exit(run_distributed(Path(arguments[0]), levels))


def connect_standalone() -> None:
    """Run a standalone worker.

    The exit status is the same as for `connect-distributed`. It is also 3 if a connector from the
    command line failed.
    """
    usage = "connect-standalone", "worker.properties [connector1.properties connector2.json ...]"
    arguments, levels = _worker_arguments("connectStandalone.out", *usage)
    if not arguments:
        _refuse_usage(*usage)

    _start_fork_server()
    from connect_py.standalone_worker import run_standalone

    sys.exit(run_standalone(Path(arguments[0]), list(map(Path, arguments[1:])), levels))


def _start_fork_server() -> None:
    """Start the fork server, which imports its modules while this process imports the worker."""
    from connect_py.early_start import start_fork_server

    start_fork_server()


def _worker_arguments(
    daemon_output: str, program: str, expected: str
) -> tuple[list[str], dict[str, str]]:
    """Return the positional arguments and the log levels. Become a daemon if requested."""
    from connect_py.log_context import parse_log_level

    arguments, levels, daemon = sys.argv[1:], dict[str, str](), False
    while arguments and arguments[0].startswith("-"):
        option = arguments.pop(0)
        if option == "-daemon":
            daemon = True
        elif option == "--log-level":
            value = arguments.pop(0) if arguments else ""
            try:
                levels |= parse_log_level(value)
            except ValueError as error:
                _refuse_usage(program, expected, f"--log-level {value}: {error}")
        elif option in ("--help", "-h"):
            _refuse_usage(program, expected)
        else:
            _refuse_usage(program, expected, f"unknown option {option}")
    if daemon and arguments:
        from connect_py.daemon import become_daemon

        become_daemon(daemon_output)
    return arguments, levels


def _refuse_usage(program: str, expected: str, reason: str | None = None) -> NoReturn:
    if reason is not None:
        print(f"{program}: {reason}", file=sys.stderr)
    print(f"Usage: {program} [-daemon] [--log-level [logger=]LEVEL]... {expected}", file=sys.stderr)
    sys.exit(1)


# --- Parts of a worker for commands


def worker_parts() -> WorkerParts:
    """Return functions that run parts of a worker inside a command."""
    from connect_py.terminal.command_context import WorkerParts

    return WorkerParts(
        services=_services,
        sink_host=_sink_host,
        pipelines=_pipelines,
        resolve=_resolve,
        export_java=_export_java,
    )


def _services() -> AbstractContextManager[SharedServices]:
    from connect_py.worker.local_services import LocalServices

    return LocalServices("this command")


def _sink_host(
    connector: Mapping[str, str], worker: Path | None, settings: Mapping[str, str]
) -> AbstractContextManager[SinkHost]:
    from connect_py.config.command_config import worker_properties
    from connect_py.worker.sink_host import CommandSinkHost

    return CommandSinkHost(connector, {**worker_properties(worker), **settings})


def _resolve(connector: Mapping[str, str], worker: Path) -> dict[str, str]:
    from connect_py.config.command_config import connector_properties

    return connector_properties(connector, worker)


def _pipelines(connector: Mapping[str, str], worker: Path | None) -> PipelineFactory:
    from connect_py.config.command_config import worker_properties
    from connect_py.task.pipeline_factory import TaskPipelineFactory

    return TaskPipelineFactory(connector, worker_properties(worker))


def _export_java(jars: Iterable[str]) -> None:
    from connect_py.embedded.spark_environment import spark_environment

    os.environ.update(spark_environment(*jars))
