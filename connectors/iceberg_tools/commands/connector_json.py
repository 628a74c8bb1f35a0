"""Connector configurations from files, as people post them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from connect_py.api.command import resolved_connector, sink_host
from connect_py.api.errors import ConfigError
from connect_py.api.sink_host import SinkHost
from connectors.iceberg import PLUGINS

if TYPE_CHECKING:
    from connectors.iceberg.config.sink_config import IcebergSinkConfig

# and what Java shortens them to
_CLASSES = (*(each.name for each in PLUGINS), "IcebergSinkConnector", "IcebergSink")
_NO_WORKER = "name the worker's properties by --worker"
NO_PROVIDER = "no properties of a worker configure it here"
_PLACEHOLDER = re.compile(r"\$\{[^}]*:[^}]*\}")


def read_connector(path: Path) -> dict[str, str]:
    """The properties of a connector, `name` among them, from `{"name": …, "config": {…}}` or from
    the bare `config`.

    Raises:
        ConfigError: The file is not one of these, or says no name.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError("", f"{path}: {error}") from error
    config = document.get("config", document) if isinstance(document, dict) else None
    if not isinstance(config, dict):
        raise ConfigError("", f"{path}: expected a connector as it is posted: a name and a config")
    if document.get("name") is not None:
        config = {**config, "name": document["name"]}
    for key, value in config.items():
        if isinstance(value, (dict, list)):
            raise ConfigError(key, f"has to be a text in {path}")
    texts = {str(key): str(value) for key, value in config.items() if value is not None}
    props = {
        key: text.lower() if isinstance(config[key], bool) else text for key, text in texts.items()
    }
    if not props.get("name"):
        raise ConfigError(
            "name", f'is missing in {path}: add it beside "config", or to bare properties'
        )
    return props


def is_sink(props: Mapping[str, str]) -> bool:
    """Whether they are of an Iceberg sink."""
    return props.get("connector.class", "") in _CLASSES


def resolve_connector(path: Path, worker: Path | None) -> dict[str, str]:
    """As `read_connector`, with the values of the config providers that a worker's properties
    configure.

    Raises: ConfigError: The file is not one of these, of another connector, or a value is not
        available.
    """
    props = read_connector(path)
    if "connector.class" in props and not is_sink(props):
        raise ConfigError("connector.class", f"{props['connector.class']} is no Iceberg sink")
    if worker is not None:
        found = resolved_connector(props, worker)
        left = {key: value for key, value in found.items() if value == props[key]}
        refuse_providers(left, NO_PROVIDER)
        return found
    for key, value in props.items():
        if _PLACEHOLDER.search(value):
            raise ConfigError(key, f"comes from a config provider: {_NO_WORKER}")
    return props


def parse_connector(path: Path, worker: Path | None) -> tuple[IcebergSinkConfig, SinkHost | None]:
    """The configuration of a connector, for a command that asks its catalog, and its host if there
    is a worker's file.

    With that file it has what the worker gives it: the values of config providers, and the catalog
    if it names none.

    Raises:
        ConfigError: A file is not one of these, a value is not available, or is not acceptable.
    """
    # Imported here to reduce the startup time of commands that use a worker's driver.
    from connectors.iceberg.config.sink_config import IcebergSinkConfig
    from connectors.iceberg.config.worker_defaults import with_worker_catalog

    if worker is None:
        props = read_connector(path)
        refuse_providers(props, _NO_WORKER)
        return IcebergSinkConfig.parse(props), None
    props = resolve_connector(path, worker)
    host = sink_host(props, worker, {})
    return IcebergSinkConfig.parse(with_worker_catalog(props, host.worker_settings)), host


def refuse_providers(props: Mapping[str, str], cure: str) -> None:
    """Values such as `${env:TOKEN}` are a worker's to look up.

    Raises:
        ConfigError: Names the first of them, and the cure.
    """
    for key, value in props.items():
        if key.startswith(("iceberg.catalog.", "iceberg.hadoop.")) and "${" in value:
            raise ConfigError(key, f"comes from a config provider: {cure}")
