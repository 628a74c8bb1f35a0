"""Read connector configurations from files in the format of the REST API."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from connect_py.api.errors import ConfigError
from connectors.iceberg import PLUGINS

if TYPE_CHECKING:
    from connect_py.api.command import CommandContext
    from connect_py.api.sink_host import SinkHost
    from connectors.iceberg.config.sink_config import IcebergSinkConfig

# class names of the sink, including the abbreviations that Java accepts
_CLASSES = (*(each.name for each in PLUGINS), "IcebergSinkConnector", "IcebergSink")
_NO_WORKER = "specify the worker's properties with --worker"
NO_PROVIDER = "it cannot be resolved without a worker's properties"
_PLACEHOLDER = re.compile(r"\$\{[^}]*:[^}]*\}")


def read_connector(path: Path) -> dict[str, str]:
    """Return the properties of a connector, including `name`.

    The file contains `{"name": …, "config": {…}}` or the `config` object alone.

    Raises:
        ConfigError: The file has neither form, or does not contain a name.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError("", f"{path}: {error}") from error
    config = document.get("config", document) if isinstance(document, dict) else None
    if not isinstance(config, dict):
        raise ConfigError(
            "", f"{path}: expected a connector with a name and a config, as in the REST API"
        )
    if document.get("name") is not None:
        config = {**config, "name": document["name"]}
    for key, value in config.items():
        if isinstance(value, (dict, list)):
            raise ConfigError(key, f"must be a string in {path}")
    strings = {str(key): str(value) for key, value in config.items() if value is not None}
    props = {
        key: value.lower() if isinstance(config[key], bool) else value
        for key, value in strings.items()
    }
    if not props.get("name"):
        raise ConfigError(
            "name", f'is missing in {path}; add it next to "config", or to plain properties'
        )
    return props


def is_sink(props: Mapping[str, str]) -> bool:
    """Return True if the properties configure an Iceberg sink."""
    return props.get("connector.class", "") in _CLASSES


def resolve_connector(context: CommandContext, path: Path, worker: Path | None) -> dict[str, str]:
    """Read a connector and resolve its placeholders with a worker's config providers.

    Raises:
        ConfigError: A file does not contain a connector or a worker's properties, the connector is
            not an Iceberg sink, or a value is not available.
    """
    props = read_connector(path)
    if "connector.class" in props and not is_sink(props):
        raise ConfigError("connector.class", f"{props['connector.class']} is not an Iceberg sink")
    if worker is not None:
        resolved = context.resolve(props, worker)
        unchanged = {key: value for key, value in resolved.items() if value == props[key]}
        refuse_providers(unchanged, NO_PROVIDER)
        return resolved
    for key, value in props.items():
        if _PLACEHOLDER.search(value):
            raise ConfigError(key, f"uses a config provider: {_NO_WORKER}")
    return props


def parse_connector(
    context: CommandContext, path: Path, worker: Path | None
) -> tuple[IcebergSinkConfig, SinkHost | None]:
    """Return the configuration of a connector, and its `SinkHost` if `worker` is set.

    `worker` is a file of worker properties. If it is set, config providers are resolved, and the
    connector inherits the worker's catalog unless it configures its own.

    Raises:
        ConfigError: A file does not contain a connector, or a value is not available or invalid.
    """
    # imported here to reduce the startup time of commands that use a worker's driver
    from connectors.iceberg.config.sink_config import IcebergSinkConfig
    from connectors.iceberg.config.worker_defaults import with_worker_catalog

    if worker is None:
        props = read_connector(path)
        refuse_providers(props, _NO_WORKER)
        return IcebergSinkConfig.parse(props), None
    props = resolve_connector(context, path, worker)
    host = context.sink_host(props, worker, {})
    return IcebergSinkConfig.parse(with_worker_catalog(props, host.worker_settings)), host


def refuse_providers(props: Mapping[str, str], remedy: str) -> None:
    """Reject placeholders such as `${env:TOKEN}` in catalog settings.

    Raises:
        ConfigError: A setting has a placeholder. The error contains the setting's key and the
            remedy.
    """
    for key, value in props.items():
        if key.startswith(("iceberg.catalog.", "iceberg.hadoop.")) and "${" in value:
            raise ConfigError(key, f"uses a config provider: {remedy}")
