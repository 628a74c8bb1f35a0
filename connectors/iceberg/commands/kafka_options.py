"""The options by which commands find Kafka."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

SERVER = "--bootstrap-server"  # `connect-py` takes the plural as well
Properties = Annotated[
    list[str] | None,
    typer.Option("--kafka-property", metavar="KEY=VALUE", help="For the client (librdkafka's names); repeatable."),
]
ClientConfig = Annotated[
    Path | None,
    typer.Option("--client-config", help="A file of such properties, key=value.", exists=True, dir_okay=False),
]


def client_settings(servers: str, properties: Sequence[str] | None, file: Path | None) -> dict[str, str]:
    """What the client library is given; single properties win over those of the file.

    Raises:
        ConfigError: A property is not of the form key=value.
        OSError: The file cannot be read.
    """
    from connect_py.api.errors import ConfigError

    lines = [] if file is None else [line.strip() for line in file.read_text().splitlines()]
    settings = {}
    for item in (*(line for line in lines if line and not line.startswith("#")), *(properties or ())):
        key, separator, value = item.partition("=")
        if not separator:
            raise ConfigError("", f"the client setting {key} is not of the form key=value")
        settings[key.strip()] = value.strip()
    return {**settings, "bootstrap.servers": servers}
