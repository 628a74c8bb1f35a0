"""The worker's default catalog: `connect_py.defaults.iceberg.*` in the worker's properties."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from connect_py.api.config import with_prefix
from connectors.iceberg.config.keys import (
    CATALOG_NAME,
    CATALOG_PREFIX,
    HADOOP_CONF_DIR,
    HADOOP_PREFIX,
    SPARK_PREFIX,
)

DEFAULTS: Final = "connect_py.defaults."
_PREFIXES: Final = (CATALOG_PREFIX, HADOOP_PREFIX)
_KEYS: Final = (CATALOG_NAME, HADOOP_CONF_DIR)
# The worker's catalog does not apply to a connector with any of these keys. The name of a Spark
# setting may or may not include `spark.` after the prefix.
_SPARK: Final = (SPARK_PREFIX, f"{SPARK_PREFIX}spark.")
_CATALOG_KEYS: Final = (HADOOP_CONF_DIR, *(f"{prefix}master" for prefix in _SPARK))
_CATALOG_PREFIXES: Final = (
    *_PREFIXES,
    *(
        f"{prefix}{name}"
        for prefix in _SPARK
        for name in ("sql.catalog.", "hadoop.", "kubernetes.", "yarn.")
    ),
)

T = TypeVar("T", bound=str | None)


def with_worker_catalog(
    props: Mapping[str, T], worker_settings: Callable[[str], Mapping[str, str]]
) -> dict[str, T | str]:
    """Return a connector's properties, and add the worker's catalog if they specify none.

    The properties of two catalogs are never combined. Otherwise, users with permission to create
    connectors could send the secrets of the worker's catalog to a server that they control, such as
    a Spark cluster.

    Args:
        props: The configuration of the connector or task.
        worker_settings: Returns the worker properties that start with a prefix.
    """
    if any(key in _CATALOG_KEYS or key.startswith(_CATALOG_PREFIXES) for key in props):
        return dict(props)
    defaults = with_prefix(worker_settings(DEFAULTS), DEFAULTS)
    return {
        **{
            key: value
            for key, value in defaults.items()
            if key.startswith(_PREFIXES) or key in _KEYS
        },
        **props,
    }


def is_worker_default(
    key: str, value: str, worker_settings: Callable[[str], Mapping[str, str]]
) -> bool:
    """Return True if a value is the worker's default for the key, which is always permitted."""
    return worker_settings(DEFAULTS).get(DEFAULTS + key) == value
