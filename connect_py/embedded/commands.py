"""Commands of `connect-py` that manage local programs and libraries."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from connect_py.api.command import CommandContext, command
from connect_py.api.errors import ConfigError
from connect_py.embedded.archives import make_archives
from connect_py.embedded.detached_broker import DetachedBroker, default_directory
from connect_py.embedded.jar_lock import SHIPPED_LOCKS, JarLock
from connect_py.embedded.java_connect import java_connect_command, unpack_archives
from connect_py.embedded.python_archive import write_archive
from connect_py.plurals import pluralize

BrokerDirectory = Annotated[
    Path | None,
    typer.Option(
        "--dir",
        help="Directory for topics and the log.",
        show_default="per user",
        file_okay=False,
    ),
]


@command()
def kafka_start(
    _context: CommandContext,
    directory: BrokerDirectory = None,
    port: Annotated[
        int,
        typer.Option(
            min=0, max=65535, help="Client port. 0 selects the last port used, or a free port."
        ),
    ] = 0,
) -> None:
    """Start the broker in the background and print its bootstrap servers."""
    folder = directory or default_directory()
    bootstrap_servers, started = DetachedBroker(folder).start(port)
    typer.echo(
        f"Kafka {'started' if started else 'was already running'}; topics are stored in {folder}",
        err=True,
    )
    typer.echo(bootstrap_servers)


@command()
def kafka_stop(_context: CommandContext, directory: BrokerDirectory = None) -> None:
    """Stop the broker. Its topics are retained."""
    folder = directory or default_directory()
    stopped = DetachedBroker(folder).stop()
    typer.echo(f"Kafka {'stopped' if stopped else 'was not running'} in {folder}", err=True)


@command()
def java_connect(
    _context: CommandContext,
    properties: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="Worker properties file.")
    ],
) -> None:
    """Run Java's Kafka Connect worker, for connectors written in Java, such as Debezium's.

    Ctrl-C stops it. `connect-py jars connect` downloads its libraries. `plugin.path` in the
    properties specifies the directories that contain connectors.
    """
    arguments = [str(argument) for argument in java_connect_command(properties.resolve())]
    os.execv(arguments[0], arguments)


@command()
def jars(
    _context: CommandContext,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", show_default="broker and spark")
    ] = None,
    unpack: Annotated[
        Path | None,
        typer.Option(help="Unpack archives, such as Debezium's, into this directory."),
    ] = None,
) -> None:
    """Download and verify Java libraries for use without a network.

    broker: Kafka, for `connect-py kafka start` and the quickstart.

    spark: Spark and Iceberg, for every Iceberg sink.

    s3: Iceberg's library for S3 and AWS catalogs.

    spark-kafka: Spark's Kafka source, for `connect-py load`.

    connect: Kafka Connect in Java, for `connect-py demo` and `java-connect`.

    debezium: Debezium's PostgreSQL connector, for `connect-py demo`.

    registry: a schema registry, for tests.

    transforms: transformations in Java, for comparison tests.

    peers: other sinks, for comparison benchmarks.
    """
    for name in names or ["broker", "spark"]:
        if name not in SHIPPED_LOCKS:
            raise ConfigError(
                "", f"unknown jar set {name!r}: expected one of {', '.join(SHIPPED_LOCKS)}"
            )
        files = JarLock.shipped(name).resolve()
        archives = unpack_archives(name, unpack) if unpack is not None else []
        typer.echo(f"{name}: {pluralize(len(files), 'file')} in {files[0].parent}")
        for archive in archives:
            typer.echo(f"{archive.name}: unpacked into {unpack}")


@command()
def archives(_context: CommandContext) -> None:
    """Create class data archives, which halve the startup time of Kafka and Spark.

    Takes about 30 seconds and is needed only once.
    """
    names = make_archives()
    typer.echo(
        f"created: {', '.join(names)}"
        if names
        else "nothing to do: the archives exist, or this Java cannot create them"
    )


@command()
def spark_archive(
    _context: CommandContext,
    path: Annotated[
        Path,
        typer.Argument(help="File to write, for example connect-py.tar.gz.", dir_okay=False),
    ],
) -> None:
    """Package this Python environment and connect-py for the executors of a Spark cluster.

    Clusters that do not have connect-py need the package. `connect-py load --archive FILE` sends
    the file to the executors, which must have the same operating system and processor architecture
    as this machine.
    """
    with Console(stderr=True).status("packing") as status:
        count = write_archive(path, lambda name: status.update(f"packing {name}"))
    typer.echo(f"{path}: {count:,} files, {path.stat().st_size / 1e6:,.0f} MB")
