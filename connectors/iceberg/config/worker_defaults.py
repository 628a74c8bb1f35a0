"""The worker's catalog, for connectors that name none: `connect_py.defaults.iceberg.*` in the worker's properties."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from connect_py.api.config import with_prefix
from connectors.iceberg.config.keys import CATALOG_NAME, CATALOG_PREFIX, HADOOP_CONF_DIR, HADOOP_PREFIX

DEFAULTS: Final = "connect_py.defaults."
_PREFIXES: Final = (CATALOG_PREFIX, HADOOP_PREFIX)
_KEYS: Final = (CATALOG_NAME, HADOOP_CONF_DIR)

T = TypeVar("T", bound=str | None)


def with_worker_catalog(
    props: Mapping[str, T], worker_settings: Callable[[str], Mapping[str, str]]
) -> dict[str, T | str]:
    """The properties of a connector; one without `iceberg.catalog.*` gets the worker's catalog and its storage.

    All or nothing: properties of two catalogs are never mixed. Only `iceberg.hadoop.*` of the connector wins.

    Args:
        props: The connector's or task's configuration.
        worker_settings: Of `SharedServices`.
    """
    if any(key.startswith(CATALOG_PREFIX) for key in props):
        return dict(props)
    defaults = with_prefix(worker_settings(DEFAULTS), DEFAULTS)
    return {**{key: value for key, value in defaults.items() if key.startswith(_PREFIXES) or key in _KEYS}, **props}


def is_of_worker(key: str, value: str, worker_settings: Callable[[str], Mapping[str, str]]) -> bool:
    """Whether a key has the value that the worker gives it, which therefore needs no leave."""
    return worker_settings(DEFAULTS).get(DEFAULTS + key) == value
