"""`connect-py kafka topics`, `produce` and `consume`: of any cluster, or of `connect-py kafka
start`."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from connect_py.api.errors import ConnectError
from connect_py.terminal.worker_options import AsJson, errors_exit

if TYPE_CHECKING:
    from confluent_kafka import Message

    from connect_py.terminal.kafka_client import KafkaClient

Server = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        help="host:port.",
        show_default="the broker of `connect-py kafka start`",
    ),
]
ClientConfig = Annotated[
    Path | None,
    typer.Option(
        "--client-config", help="Client properties in Java's names.", exists=True, dir_okay=False
    ),
]
Directory = Annotated[
    Path | None,
    typer.Option("--dir", help="Of that broker.", show_default="per user", file_okay=False),
]
Topic = Annotated[str, typer.Argument(metavar="TOPIC")]


def topics(
    create: Annotated[str | None, typer.Option(metavar="TOPIC", help="Create this topic.")] = None,
    partitions: Annotated[int, typer.Option(min=1, help="Of the new topic.")] = 1,
    replicas: Annotated[int, typer.Option(min=1, help="Of the new topic.")] = 1,
    internal: Annotated[
        bool, typer.Option("--internal", help="Also topics that begin with __.")
    ] = False,
    bootstrap_server: Server = None,
    client_config: ClientConfig = None,
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """List topics with their partitions, replicas and records; or create one."""
    with errors_exit():
        client = _client(bootstrap_server, client_config, directory)
        if create is not None:
            client.create_topic(create, partitions, replicas)
            typer.echo(f"{create}: created")
            return
        found = client.topics(internal=internal)
        if as_json:
            rows = [
                {
                    "name": each.name,
                    "partitions": each.partitions,
                    "replicas": each.replicas,
                    "records": each.records,
                }
                for each in found
            ]
            typer.echo(json.dumps(rows, indent=2))
            return
        from connect_py.terminal.tables import show

        numbers = ("PARTITIONS", "REPLICAS", "RECORDS")
        texts = [
            (each.name, str(each.partitions), str(each.replicas), str(each.records))
            for each in found
        ]
        show(("TOPIC", *numbers), texts, right=numbers)


def produce(
    topic: Topic,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", exists=True, dir_okay=False, show_default="standard input"),
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="What stands between key and value; without it, no keys."
        ),
    ] = None,
    bootstrap_server: Server = None,
    client_config: ClientConfig = None,
    directory: Directory = None,
) -> None:
    """Write each line as a record. A line without the separator is refused."""
    with errors_exit():
        client = _client(bootstrap_server, client_config, directory)
        source: BinaryIO = sys.stdin.buffer if file is None else file.open("rb")
        with source:
            written = client.produce(topic, _records(source, key_separator))
        typer.echo(f"{topic}: {written} records written", err=True)


def consume(
    topic: Topic,
    newest: Annotated[
        int | None, typer.Option(min=1, help="Only the last so many of each partition.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on with new records until Ctrl-C.")
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="A JSON object for each: place, time, key, value, headers."),
    ] = False,
    bootstrap_server: Server = None,
    client_config: ClientConfig = None,
    directory: Directory = None,
) -> None:
    """Print the records of a topic, a line for each: the value, or all of it as JSON. No group's
    offsets change."""
    with errors_exit(), suppress(KeyboardInterrupt):
        client = _client(bootstrap_server, client_config, directory)
        for message in client.consume(topic, newest=newest, follow=follow):
            value = message.value()
            typer.echo(
                json.dumps(_document(message)) if as_json else b"null" if value is None else value
            )


def _client(servers: str | None, file: Path | None, directory: Path | None) -> KafkaClient:
    from connect_py.config.properties_file import read_properties
    from connect_py.embedded.detached_broker import DetachedBroker, default_directory
    from connect_py.terminal.kafka_client import KafkaClient

    settings = {} if file is None else read_properties(file)
    servers = servers or settings.get("bootstrap.servers")
    if servers is None:
        servers = DetachedBroker(directory or default_directory()).bootstrap_servers()
    if servers is None:
        raise ConnectError(
            "no broker runs here: `connect-py kafka start` starts one, --bootstrap-server names "
            "another"
        )
    return KafkaClient({**settings, "bootstrap.servers": servers})


def _records(source: BinaryIO, separator: str | None) -> Iterator[tuple[bytes | None, bytes]]:
    for number, line in enumerate(source, 1):
        text = line.rstrip(b"\r\n")
        if separator is None:
            yield None, text
            continue
        key, found, value = text.partition(separator.encode())
        if not found:
            raise ConnectError(f"line {number} has no {separator!r} between key and value")
        yield key, value


def _document(message: Message) -> dict[str, Any]:
    headers: Any = message.headers() or ()
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": message.timestamp()[1],
        "key": _text(message.key()),
        "value": _text(message.value()),
        "headers": [{"key": name, "value": _text(value)} for name, value in headers],
    }


def _text(data: bytes | str | None) -> str | dict[str, str] | None:
    """UTF-8 as text, other bytes as an object with their base64 form."""
    if data is None or isinstance(data, str):
        return data
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
