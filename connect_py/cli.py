"""The commands: the one place where the parts of a process are put together.

Imports stand inside the commands: `connect-py --help` answers at once, and no command loads what
another needs.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial, wraps
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from connect_py.api.command import (
    JAVA,
    WORKER,
    provide_configs,
    provide_java,
    provide_pipelines,
    provide_services,
    provide_sink_hosts,
    provide_worker,
)
from connect_py.api.errors import ConnectError
from connect_py.api.service import SharedServices
from connect_py.doctor.doctor_command import doctor
from connect_py.secret_mask import masked
from connect_py.terminal import connectors_command, kafka_commands
from connect_py.terminal.status_command import status
from connect_py.terminal.top_command import top
from connect_py.terminal.worker_options import may_ask_worker

if TYPE_CHECKING:
    from connect_py.api.pipeline import PipelineFactory
    from connect_py.api.sink_host import SinkHost

COMMANDS = "connect_py.commands"
NOT_STARTED = 2  # exit status of a command of plugins, as of wrong usage

# What people know from Kafka's own commands beside `--bootstrap-server`.
OTHER_SPELLINGS = {"bootstrap-servers": "bootstrap-server"}

app = typer.Typer(
    name="connect-py",
    help="A Kafka Connect-compatible worker in Python, and what it needs on a laptop.",
    no_args_is_help=True,
    context_settings={"token_normalize_func": lambda name: OTHER_SPELLINGS.get(name, name)},
    pretty_exceptions_enable=False,
)
kafka = typer.Typer(
    help="A real Apache Kafka broker on this machine, reachable from this machine only; topics and "
    "records of any one."
)
kafka.command("topics")(kafka_commands.topics)
kafka.command("produce")(kafka_commands.produce)
kafka.command("consume")(kafka_commands.consume)
app.add_typer(kafka, name="kafka", no_args_is_help=True)
app.add_typer(connectors_command.app, name="connectors", no_args_is_help=True)
app.command("doctor")(doctor)
app.command("status")(status)
app.command("top")(top)

# What `connect-py jars` fetches, and who needs it.
JARS = {
    "broker": "Kafka, for `connect-py kafka start` and the quickstart",
    "spark": "Spark and Iceberg, for every Iceberg sink",
    "s3": "Iceberg's library for S3 and AWS's catalogs",
    "spark-kafka": "Spark's Kafka source, for `connect-py load`",
    "connect": "Kafka Connect in Java, for `connect-py demo` and `java-connect`",
    "debezium": "Debezium's PostgreSQL connector, for `connect-py demo`",
    "registry": "a schema registry, for tests",
    "transforms": "transformations in Java, for tests side by side",
    "peers": "other sinks, for benchmarks side by side",
}
JARS_HELP = (
    "Fetch and check Java libraries, so that everything works offline from then on.\n\n"
    + "\n\n".join(f"{name}: {purpose}." for name, purpose in JARS.items())
)

KafkaDirectory = Annotated[
    Path | None,
    typer.Option(
        "--dir", help="Where topics and the log are kept.", show_default="per user", file_okay=False
    ),
]


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"connect-py {version('connect-py')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Options of `connect-py` itself."""


def connect_py() -> None:
    """Run the `connect-py` command: the subcommands of this module, and those that plugins bring.

    A plugin's subcommand is an entry point of the group `connect_py.commands`: its name, and a
    function for one command or a `typer.Typer` for a group of them. Its module imports what a
    command needs only when that runs.
    """
    add_plugin_commands(app)
    join_help_lines(app)
    with ExitStack() as closing:

        def services() -> SharedServices:
            from connect_py.worker.local_services import LocalServices

            return closing.enter_context(LocalServices("this command"))

        provide_services(services)
        provide_configs(_resolve, masked)
        provide_pipelines(_pipelines)
        provide_sink_hosts(partial(_sink_host, closing))
        app()


def add_plugin_commands(group: typer.Typer) -> None:
    """Add the subcommands that plugins bring."""
    for entry in entry_points(group=COMMANDS):
        command = entry.load()
        if isinstance(command, typer.Typer):
            for inner in command.registered_commands:
                if inner.callback is not None:
                    inner.callback = _prepared(inner.callback)
            group.add_typer(command, name=entry.name, no_args_is_help=True)
        else:
            group.command(entry.name)(_prepared(command))


def _prepared(command: Callable[..., None]) -> Callable[..., None]:
    """Return a plugin's command with the preparation that its marks ask for."""
    if hasattr(command, WORKER):
        return may_ask_worker(_with_java_on_demand(command), provide_worker)
    return _with_java(command) if hasattr(command, JAVA) else command


def join_help_lines(group: typer.Typer) -> None:
    """Let the help of all commands break lines where the terminal ends, and not where the docstring
    does."""
    for command in group.registered_commands:
        text = inspect.cleandoc(
            command.help or (command.callback and command.callback.__doc__) or ""
        )
        command.help = "\n\n".join(paragraph.replace("\n", " ") for paragraph in text.split("\n\n"))
    for inner in group.registered_groups:
        if inner.typer_instance is not None:
            join_help_lines(inner.typer_instance)


def _resolve(connector: Mapping[str, str], worker: Path) -> dict[str, str]:
    from connect_py.config.command_config import connector_properties

    return connector_properties(connector, worker)


def _pipelines(connector: Mapping[str, str], worker: Path | None) -> PipelineFactory:
    from connect_py.config.command_config import worker_properties
    from connect_py.task.pipeline_factory import TaskPipelineFactory

    return TaskPipelineFactory(connector, worker_properties(worker))


def _sink_host(
    closing: ExitStack,
    connector: Mapping[str, str],
    worker: Path | None,
    settings: Mapping[str, str],
) -> SinkHost:
    from connect_py.config.command_config import worker_properties
    from connect_py.worker.sink_host import CommandSinkHost

    return closing.enter_context(
        CommandSinkHost(connector, {**worker_properties(worker), **settings})
    )


def _with_java(command: Callable[..., None]) -> Callable[..., None]:
    """The command, run with the places of Java and its libraries in the environment; exit status 2:
    they are missing.

    1 would be an answer: of `rebuild` that rows differ, of `try` that records have no place.
    """

    @wraps(command)
    def run(*arguments: object, **options: object) -> None:
        from connect_py.embedded.spark_environment import spark_environment

        try:
            os.environ.update(spark_environment(*getattr(command, JAVA)))
        except _embedded_errors() as error:
            raise _failure(error, NOT_STARTED) from error
        command(*arguments, **options)

    return run


def _with_java_on_demand(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command; it prepares the environment when it starts a JVM of its own."""

    def prepare() -> None:
        from connect_py.embedded.spark_environment import spark_environment

        try:
            os.environ.update(spark_environment(*getattr(command, JAVA)))
        except _embedded_errors() as error:
            raise ConnectError(str(error)) from error

    @wraps(command)
    def run(**options: object) -> None:
        provide_java(prepare if hasattr(command, JAVA) else None)
        command(**options)

    return run


def connect_distributed() -> None:
    """Run the `connect-distributed` command.

    Exit status 1: wrong usage, or the worker ended by itself; 2: it could not start; 3: its start
    failed late.
    """
    usage = "connect-distributed", "worker.properties"
    arguments, levels = _worker_arguments("connectDistributed.out", *usage)
    if len(arguments) != 1:
        _refuse_usage(*usage)

    _start_fork_server()
    from connect_py.distributed_worker import run_distributed

    sys.exit(run_distributed(Path(arguments[0]), levels))


def connect_standalone() -> None:
    """Run the `connect-standalone` command.

    Exit status as of `connect-distributed`; 3 also when a connector of the command line failed.
    """
    usage = "connect-standalone", "worker.properties [connector1.properties connector2.json ...]"
    arguments, levels = _worker_arguments("connectStandalone.out", *usage)
    if not arguments:
        _refuse_usage(*usage)

    _start_fork_server()
    from connect_py.standalone_worker import run_standalone

    sys.exit(run_standalone(Path(arguments[0]), list(map(Path, arguments[1:])), levels))


def _start_fork_server() -> None:
    """Start the server first: it imports its modules while this process imports the worker."""
    from connect_py.early_start import start_fork_server

    start_fork_server()


def _worker_arguments(
    daemon_output: str, command: str, expected: str
) -> tuple[list[str], dict[str, str]]:
    """What follows the options, and the levels of loggers; goes into the background if that is
    asked for."""
    arguments, levels, daemon = sys.argv[1:], dict[str, str](), False
    while arguments and arguments[0].startswith("-"):
        option = arguments.pop(0)
        if option == "-daemon":
            daemon = True
        elif option == "--log-level":
            given = arguments.pop(0) if arguments else ""
            try:
                levels |= _log_level(given)
            except ValueError as error:
                _refuse_usage(command, expected, f"--log-level {given}: {error}")
        elif option in ("--help", "-h"):
            _refuse_usage(command, expected)
        else:
            _refuse_usage(command, expected, f"there is no option {option}")
    if daemon and arguments:
        from connect_py.daemon import become_daemon

        become_daemon(daemon_output)
    return arguments, levels


def _log_level(given: str) -> dict[str, str]:
    """The level of a logger, "root" if none is named.

    Raises:
        ValueError: There is no such level.
    """
    from connect_py.log_context import LEVELS

    logger, _, level = given.rpartition("=")
    if level.upper() not in LEVELS:
        raise ValueError(f"levels are {', '.join(LEVELS)}")
    return {logger or "root": level.upper()}


@app.command("worker")
def worker(
    properties: Annotated[
        Path,
        typer.Argument(
            metavar="WORKER.PROPERTIES",
            help="The worker's properties.",
            exists=True,
            dir_okay=False,
        ),
    ],
    connectors: Annotated[
        list[Path] | None,
        typer.Argument(metavar="CONNECTOR...", help="With --standalone: files of connectors."),
    ] = None,
    standalone: Annotated[
        bool, typer.Option("--standalone", help="One worker without a group.")
    ] = False,
    daemon: Annotated[
        bool, typer.Option("--daemon", help="In the background, with its log in $LOG_DIR.")
    ] = False,
    log_level: Annotated[
        list[str] | None,
        typer.Option(metavar="[LOGGER=]LEVEL", help="Wins over the properties. Repeatable."),
    ] = None,
) -> None:
    """Run a worker, as connect-distributed and connect-standalone do.

    Exit status 0: stopped by a signal; 1: the worker ended by itself; 2: it could not start, or
    wrong usage; 3: its start failed late, or a connector of the command line failed.
    """
    levels: dict[str, str] = {}
    for given in log_level or ():
        try:
            levels |= _log_level(given)
        except ValueError as error:
            raise typer.BadParameter(f"{given}: {error}", param_hint="--log-level") from error
    if connectors and not standalone:
        raise typer.BadParameter(
            "a worker of a group gets its connectors over REST", param_hint="CONNECTOR"
        )
    if daemon:
        from connect_py.daemon import become_daemon

        become_daemon("connectStandalone.out" if standalone else "connectDistributed.out")
    _start_fork_server()
    if standalone:
        from connect_py.standalone_worker import run_standalone

        raise typer.Exit(run_standalone(properties, connectors or [], levels))
    from connect_py.distributed_worker import run_distributed

    raise typer.Exit(run_distributed(properties, levels))


def _refuse_usage(command: str, expected: str, reason: str | None = None) -> NoReturn:
    if reason is not None:
        typer.echo(f"{command}: {reason}", err=True)
    typer.echo(f"Usage: {command} [-daemon] [--log-level [logger=]LEVEL]... {expected}", err=True)
    sys.exit(1)


@kafka.command("start")
def kafka_start(
    directory: KafkaDirectory = None,
    port: Annotated[
        int,
        typer.Option(
            min=0, max=65535, help="For clients. 0: the folder's last port, or a free one."
        ),
    ] = 0,
) -> None:
    """Start the broker, leave it running and print its bootstrap servers."""
    from connect_py.embedded.detached_broker import DetachedBroker, default_directory

    folder = directory or default_directory()
    try:
        bootstrap_servers, started = DetachedBroker(folder).start(port)
    except _embedded_errors() as error:
        raise _failure(error) from error
    typer.echo(
        f"Kafka {'started' if started else 'was running already'}; topics are kept in {folder}",
        err=True,
    )
    typer.echo(bootstrap_servers)


@kafka.command("stop")
def kafka_stop(directory: KafkaDirectory = None) -> None:
    """Stop the broker. Its topics stay for the next start."""
    from connect_py.embedded.detached_broker import DetachedBroker, default_directory

    folder = directory or default_directory()
    try:
        stopped = DetachedBroker(folder).stop()
    except TimeoutError as error:
        raise _failure(error) from error
    typer.echo(f"Kafka {'stopped' if stopped else 'was not running'} in {folder}", err=True)


@app.command("quickstart")
def quickstart(
    directory: Annotated[
        Path,
        typer.Option("--dir", help="Where topics, tables and logs are kept; emptied at the start."),
    ] = Path("quickstart-data"),
    seconds: Annotated[
        float | None,
        typer.Option(min=1, help="End by itself, and compare the tables with what was produced."),
    ] = None,
    rate: Annotated[float, typer.Option(min=1, max=5000, help="Changes per second.")] = 200,
) -> None:
    """Start everything on this machine and watch a small shop's changes land in Iceberg."""
    from connect_py.quickstart.quickstart import main

    raise typer.Exit(main(directory, seconds, rate))


@app.command("demo")
def demo(
    directory: Annotated[
        Path,
        typer.Option("--dir", help="Where data, tables and logs are kept; emptied at the start."),
    ] = Path("demo-data"),
    seconds: Annotated[
        float | None,
        typer.Option(
            min=1, help="End so long after the first rows arrived, and compare all tables."
        ),
    ] = None,
    tour: Annotated[
        bool, typer.Option("--tour", help="Take all steps by itself, and end.")
    ] = False,
) -> None:
    """Land a PostgreSQL database in Iceberg with Debezium: all on this machine.

    Needs PostgreSQL's server, which it runs in a folder of its own. Exit status 0: every table
    equals PostgreSQL's, or Ctrl-C ended it before the comparison.
    """
    if tour and seconds is not None:
        raise typer.BadParameter("the tour ends by itself", param_hint="--seconds")
    from connect_py.demo.demo_command import main

    raise typer.Exit(main(directory, seconds, tour=tour))


@app.command("java-connect")
def java_connect(
    properties: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="The worker's properties.")
    ],
) -> None:
    """Run Java's Kafka Connect worker, for connectors in Java such as Debezium's. Ctrl-C stops it.

    Its libraries are those of `connect-py jars connect`. `plugin.path` of the properties names
    folders with connectors.
    """
    from connect_py.embedded.java_connect import java_connect_command

    try:
        command = [str(word) for word in java_connect_command(properties.resolve())]
    except _embedded_errors() as error:
        raise _failure(error) from error
    os.execv(command[0], command)


@app.command("jars", help=JARS_HELP)
def jars(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", show_default="broker and spark")
    ] = None,
    unpack: Annotated[
        Path | None,
        typer.Option(help="Unpack archives among them, such as Debezium's, into this folder."),
    ] = None,
) -> None:
    """Fetch and check Java libraries."""
    from connect_py.embedded.jar_lock import JarLock
    from connect_py.embedded.java_connect import unpack_archives

    for name in names or ["broker", "spark"]:
        if name not in JARS:
            raise _failure(ValueError(f"there are no jars {name!r}, only {', '.join(JARS)}"))
        try:
            files = JarLock.shipped(name).resolve()
            unpacked = unpack_archives(name, unpack) if unpack is not None else []
        except _embedded_errors() as error:
            raise _failure(error) from error
        typer.echo(f"{name}: {len(files)} files in {files[0].parent}")
        for archive in unpacked:
            typer.echo(f"{archive.name}: unpacked into {unpack}")


@app.command("archives")
def archives() -> None:
    """Make the archives that let Kafka and Spark start in half the time. Takes half a minute,
    once."""
    from connect_py.embedded.archives import make_archives

    try:
        made = make_archives()
    except _embedded_errors() as error:
        raise _failure(error) from error
    typer.echo(
        f"made: {', '.join(made)}"
        if made
        else "nothing to do: they exist, or this Java cannot make them"
    )


@app.command("spark-archive")
def spark_archive(
    path: Annotated[
        Path, typer.Argument(help="The file to write, such as connect-py.tar.gz.", dir_okay=False)
    ],
) -> None:
    """Pack this Python and connect-py for Spark's executors, for clusters that do not have it.

    `connect-py load --archive FILE` sends it to them. They need the operating system and the
    processor of this machine.
    """
    from rich.console import Console

    from connect_py.embedded.python_archive import PythonArchiveError, write_archive

    try:
        with Console(stderr=True).status("packing") as status:
            count = write_archive(path, lambda name: status.update(f"packing {name}"))
    except (PythonArchiveError, OSError) as error:
        raise _failure(error) from error
    typer.echo(f"{path}: {count:,} files, {path.stat().st_size / 1e6:,.0f} MB")


def _embedded_errors() -> tuple[type[Exception], ...]:
    """What can go wrong on the way to a broker or its jars and has a message worth reading without
    a trace."""
    from connect_py.embedded.archives import ArchiveError
    from connect_py.embedded.broker import BrokerError
    from connect_py.embedded.ivy import IvyError
    from connect_py.embedded.jar_lock import JarLockError
    from connect_py.embedded.java_runtime import JavaNotFoundError

    return (ArchiveError, BrokerError, IvyError, JarLockError, JavaNotFoundError, TimeoutError)


def _failure(error: Exception, status: int = 1) -> typer.Exit:
    typer.echo(f"connect-py: {error}", err=True)
    return typer.Exit(status)
