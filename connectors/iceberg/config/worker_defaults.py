"""The worker's catalog, for connectors that name none: `connect_py.defaults.iceberg.*` in the
worker's properties."""

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
# What a connector must not have, to get the worker's; Spark's keys in both spellings.
_SPARK: Final = (SPARK_PREFIX, f"{SPARK_PREFIX}spark.")
_OWN: Final = (HADOOP_CONF_DIR, *(f"{prefix}master" for prefix in _SPARK))
_OWN_PREFIXES: Final = (
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
    """The properties of a connector; one that says nothing of a catalog or storage gets the
    worker's.

    All or nothing: properties of two catalogs are never mixed. Else a user who may create
    connectors could have the secrets of the worker's catalog sent to an address of their own, which
    a Spark elsewhere is as well.

    Args:
        props: The connector's or task's configuration.
        worker_settings: Of `SharedServices`.
    """
    if any(key in _OWN or key.startswith(_OWN_PREFIXES) for key in props):
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


def is_of_worker(key: str, value: str, worker_settings: Callable[[str], Mapping[str, str]]) -> bool:
    """Whether a key has the value that the worker gives it, which therefore needs no leave."""
    return worker_settings(DEFAULTS).get(DEFAULTS + key) == value
