"""Options for commands that connect to Kafka."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from connect_py.api.errors import ConfigError
from connectors.iceberg_tools.commands.key_values import key_values

if TYPE_CHECKING:
    from connect_py.api.sink_host import SinkHost

BootstrapServer = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        help="Kafka server as host:port. Overrides the worker's properties.",
    ),
]


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """Settings of the Kafka client."""

    bootstrap_server: BootstrapServer = None
    kafka_property: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE", help="A Kafka client property of librdkafka; may be repeated."
        ),
    ] = None
    client_config: Annotated[
        Path | None,
        typer.Option(
            help="File of Kafka client properties, as key=value.", exists=True, dir_okay=False
        ),
    ] = None

    def settings(self, host: SinkHost | None = None) -> dict[str, Any]:
        """Return the settings for the client library.

        Options override the file, and both override the settings that the connector inherits from
        its worker.

        Raises:
            ConfigError: A property is not of the form key=value, or no bootstrap server is set.
            OSError: The file cannot be read.
        """
        settings: dict[str, Any] = {} if host is None else host.client_config("admin")
        if self.client_config is not None:
            lines = [line.strip() for line in self.client_config.read_text().splitlines()]
            settings |= key_values(
                "--client-config", [line for line in lines if line and not line.startswith("#")]
            )
        settings |= key_values("--kafka-property", self.kafka_property)
        if self.bootstrap_server:
            settings["bootstrap.servers"] = self.bootstrap_server
        if not settings.get("bootstrap.servers"):
            raise ConfigError(
                "",
                "no Kafka cluster; specify one with --bootstrap-server host:port, or the worker's "
                "properties with --worker",
            )
        return settings
