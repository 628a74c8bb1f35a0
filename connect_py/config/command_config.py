"""Configurations for commands, with placeholders resolved in the same way as in a worker."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from connect_py.api.errors import ConfigError
from connect_py.config.config_provider import ConfigResolver
from connect_py.config.properties_file import read_properties
from connect_py.secret_mask import masked


def worker_properties(worker: Path | None) -> dict[str, str]:
    """Return the resolved properties from a worker's file, or an empty dict if there is no file.

    Raises:
        ConfigError: A config provider is invalid or has no value for a placeholder.
        OSError: The file cannot be read.
    """
    if worker is None:
        return {}
    props = read_properties(worker)
    return _resolved(props, props, worker)


def connector_properties(connector: Mapping[str, str], worker: Path) -> dict[str, str]:
    """Return a connector's properties, resolved with the config providers in a worker's file.

    Raises the same errors as `worker_properties`.
    """
    return _resolved(connector, read_properties(worker), worker)


def _resolved(
    props: Mapping[str, str], declared: Mapping[str, str], worker: Path
) -> dict[str, str]:
    """Resolve all placeholders.

    A worker ignores missing values. A command reports them, because it may run on a machine where
    the provider does not have the values.
    """
    # commands do not configure logging; this handler prints their warnings
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_MaskedFormatter())
    resolver = ConfigResolver.of(declared)
    resolved = resolver.resolve(props)
    for key in sorted(resolver.placeholder_keys(resolved)):
        raise ConfigError(
            key,
            f"the config provider that {worker} configures does not have this value on "
            "this machine",
        )
    return resolved


class _MaskedFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return masked(super().format(record))
