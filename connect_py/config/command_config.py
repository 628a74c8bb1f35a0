"""Configurations for a command that does a worker's work: placeholders are replaced as the worker
replaces them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from connect_py.api.errors import ConfigError
from connect_py.config.config_provider import ConfigResolver
from connect_py.config.properties_file import read_properties
from connect_py.secret_mask import masked


def worker_properties(worker: Path | None) -> dict[str, str]:
    """The properties of a worker's file; none without a file.

    Raises:
        ConfigError: A config provider is wrong, or lacks a value.
        OSError: The file cannot be read.
    """
    if worker is None:
        return {}
    props = read_properties(worker)
    return _resolved(props, props, worker)


def connector_properties(connector: Mapping[str, str], worker: Path) -> dict[str, str]:
    """A connector's properties, with values of the providers that a worker's file configures.
    Errors as above."""
    return _resolved(connector, read_properties(worker), worker)


def _resolved(
    props: Mapping[str, str], declared: Mapping[str, str], worker: Path
) -> dict[str, str]:
    """A worker leaves a placeholder whose value is missing; here the command may run on another
    machine."""
    if logging.lastResort is not None:  # commands configure no log: this one prints their warnings
        logging.lastResort.setFormatter(_MaskedFormatter())
    resolver = ConfigResolver.of(declared)
    found = resolver.resolve(props)
    for key in sorted(resolver.placeholder_keys(found)):
        raise ConfigError(
            key, f"its config provider, which {worker} configures, does not have the value here"
        )
    return found


class _MaskedFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return masked(super().format(record))
