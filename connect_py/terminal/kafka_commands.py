"""`connect-py kafka topics`, `produce`, and `consume`.

By default, they use the broker started by `connect-py kafka start`.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer
from confluent_kafka import Message

from connect_py.api.command import CommandContext, command
from connect_py.api.errors import ConnectError
from connect_py.config.properties_file import read_properties
from connect_py.embedded.detached_broker import DetachedBroker, default_directory
from connect_py.plurals import pluralize
from connect_py.terminal.kafka_client import KafkaClient
from connect_py.terminal.tables import table_lines

NUMBERS = ("PARTITIONS", "REPLICAS", "RECORDS")
Topic = Annotated[str, typer.Argument(metavar="TOPIC")]


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """Options that specify a Kafka cluster."""

    bootstrap_server: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-server",
            help="Bootstrap server, as host:port.",
            show_default="the broker started by `connect-py kafka start`",
        ),
    ] = None
    client_config: Annotated[
        Path | None,
        typer.Option(
            "--client-config",
            help="Properties file with Java client settings.",
            exists=True,
            dir_okay=False,
        ),
    ] = None
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir",
            help="Directory of the broker started by `connect-py kafka start`.",
            show_default="per user",
            file_okay=False,
        ),
    ] = None

    def client(self) -> KafkaClient:
        """Return a client for the cluster.

        Raises:
            ConnectError: No cluster is specified, and the embedded broker is not running.
        """
        settings = {} if self.client_config is None else read_properties(self.client_config)
        servers = self.bootstrap_server or settings.get("bootstrap.servers")
        if servers is None:
            servers = DetachedBroker(self.directory or default_directory()).bootstrap_servers()
        if servers is None:
            raise ConnectError(
                "no broker is running on this machine: start one with `connect-py kafka start`, or "
                "specify one with --bootstrap-server"
            )
        return KafkaClient({**settings, "bootstrap.servers": servers})


@command(json=True)
def topics(
    context: CommandContext,
    *,
    create: Annotated[str | None, typer.Option(metavar="TOPIC", help="Create this topic.")] = None,
    partitions: Annotated[
        int, typer.Option(min=1, help="Number of partitions of the new topic.")
    ] = 1,
    replicas: Annotated[int, typer.Option(min=1, help="Replication factor of the new topic.")] = 1,
    internal: Annotated[
        bool, typer.Option("--internal", help="Include topics whose names begin with __.")
    ] = False,
    cluster: ClusterOptions,
) -> None:
    """List topics with their partition, replica, and record counts, or create a topic."""
    client = cluster.client()
    if create is not None:
        client.create_topic(create, partitions, replicas)
        typer.echo(f"{create}: created")
        return
    views = client.topics(internal=internal)
    rows = [
        (each.name, str(each.partitions), str(each.replicas), str(each.records)) for each in views
    ]
    context.show(
        [asdict(each) for each in views], table_lines(("TOPIC", *NUMBERS), rows, right=NUMBERS)
    )


@command()
def produce(
    _context: CommandContext,
    topic: Topic,
    *,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", exists=True, dir_okay=False, show_default="standard input"),
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="Separator between key and value. Without it, keys are null."
        ),
    ] = None,
    cluster: ClusterOptions,
) -> None:
    """Write each line as a record. Lines without the key separator are rejected."""
    client = cluster.client()
    source: BinaryIO = sys.stdin.buffer if file is None else file.open("rb")
    with source:
        count = client.produce(topic, _records(source, key_separator))
    typer.echo(f"{topic}: {pluralize(count, 'record')} written", err=True)


@command()
def consume(
    _context: CommandContext,
    topic: Topic,
    *,
    newest: Annotated[
        int | None, typer.Option(min=1, help="Print only the last records of each partition.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Continue with new records until Ctrl-C is pressed.")
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print each record as JSON, with its location, timestamp, and headers."
        ),
    ] = False,
    cluster: ClusterOptions,
) -> None:
    """Print the records of a topic, one per line, as the value or as JSON.

    Consumer group offsets do not change.
    """
    with suppress(KeyboardInterrupt):
        for message in cluster.client().consume(topic, newest=newest, follow=follow):
            value = message.value()
            typer.echo(
                json.dumps(_document(message)) if as_json else b"null" if value is None else value
            )


def _records(source: BinaryIO, separator: str | None) -> Iterator[tuple[bytes | None, bytes]]:
    for number, line in enumerate(source, 1):
        content = line.rstrip(b"\r\n")
        if separator is None:
            yield None, content
            continue
        key, delimiter, value = content.partition(separator.encode())
        if not delimiter:
            raise ConnectError(f"line {number} has no {separator!r} between key and value")
        yield key, value


def _document(message: Message) -> dict[str, Any]:
    headers: Any = message.headers() or ()
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": message.timestamp()[1],
        "key": _decoded(message.key()),
        "value": _decoded(message.value()),
        "headers": [{"key": name, "value": _decoded(value)} for name, value in headers],
    }


def _decoded(data: bytes | str | None) -> str | dict[str, str] | None:
    """Return UTF-8 data as a string, and any other data as an object with base64."""
    if data is None or isinstance(data, str):
        return data
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
