"""The options by which commands find Kafka."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from connect_py.api.errors import ConfigError
from connectors.iceberg_tools.commands.key_values import key_values

if TYPE_CHECKING:
    from connect_py.api.sink_host import SinkHost

SERVER = "--bootstrap-server"  # `connect-py` takes the plural as well
BootstrapServer = Annotated[
    str | None, typer.Option(SERVER, help="Kafka, host:port, unless --worker says it.")
]
Properties = Annotated[
    list[str] | None,
    typer.Option(
        "--kafka-property",
        metavar="KEY=VALUE",
        help="For the client (librdkafka's names); repeatable.",
    ),
]
ClientConfig = Annotated[
    Path | None,
    typer.Option(
        "--client-config", help="A file of such properties, key=value.", exists=True, dir_okay=False
    ),
]


def client_settings(
    servers: str | None,
    properties: Sequence[str] | None,
    file: Path | None,
    host: SinkHost | None = None,
) -> dict[str, Any]:
    """What the client library is given: options win over the file, both over what the connector has
    from its worker.

    Raises:
        ConfigError: A property is not of the form key=value, or nothing says where Kafka is.
        OSError: The file cannot be read.
    """
    lines = [] if file is None else [line.strip() for line in file.read_text().splitlines()]
    settings: dict[str, Any] = {} if host is None else host.client_config("admin")
    settings |= key_values(
        "--client-config", [line for line in lines if line and not line.startswith("#")]
    )
    settings |= key_values("--kafka-property", properties) | (
        {"bootstrap.servers": servers} if servers else {}
    )
    if not settings.get("bootstrap.servers"):
        raise ConfigError(
            "", f"where is Kafka? Give {SERVER} host:port, or the worker's properties by --worker"
        )
    return settings
