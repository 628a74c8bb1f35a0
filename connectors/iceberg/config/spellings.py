"""Old spellings of keys, keys that have no effect, and keys that nothing reads."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from types import MappingProxyType

from connectors.iceberg.config import keys
from connectors.iceberg.config.expectations import EXPECT
from connectors.iceberg.config.maintenance_policy import SETTINGS
from connectors.iceberg.config.sink_options import ClassFamily

_OLD_SPELLINGS: Mapping[str, str] = MappingProxyType(
    {
        "iceberg.tables.dynamic.enabled": keys.DYNAMIC,
        "iceberg.tables.routeField": keys.ROUTE_FIELD,
        "iceberg.tables.defaultCommitBranch": keys.COMMIT_BRANCH,
        "iceberg.tables.cdcField": keys.CDC_FIELD,
        "iceberg.tables.upsertModeEnabled": keys.UPSERT_MODE,
        "iceberg.tables.autoCreateEnabled": keys.AUTO_CREATE,
        "iceberg.tables.evolveSchemaEnabled": keys.EVOLVE_SCHEMA,
        "iceberg.control.group.id": keys.CONTROL_GROUP,
        "iceberg.control.commitIntervalMs": keys.COMMIT_INTERVAL,
        "iceberg.control.commitTimeoutMs": keys.COMMIT_TIMEOUT,
        "iceberg.control.commitThreads": keys.COMMIT_THREADS,
    }
)
_OLD_TABLE_SPELLINGS: Mapping[str, str] = MappingProxyType(
    {"routeRegex": "route-regex", "idColumns": "id-columns", "commitBranch": "commit-branch"}
)
_NAMESPACE = (
    f"has no effect; the namespace is part of a table's name, as in {keys.TABLES}=sales.orders"
)
NEVER_VALID: Mapping[str, str] = MappingProxyType(
    {
        "iceberg.tables.id-columns": f"has no effect; did you mean {keys.ID_COLUMNS}?",
        "iceberg.tables.partition-by": f"has no effect; did you mean {keys.PARTITION_BY}?",
        "iceberg.table.namespace": _NAMESPACE,
        "iceberg.tables.namespace": _NAMESPACE,
        "iceberg.tables.drop-col-enabled": "belongs to a fork; columns are never dropped",
        "iceberg.write-exception.handler": "belongs to a fork; use errors.tolerance and a "
        "dead-letter queue",
        "iceberg.writer-exception.handler": "belongs to a fork; use errors.tolerance and a "
        "dead-letter queue",
        "experimental.write-exception-handler.class": "belongs to a fork; use errors.tolerance and "
        "a dead-letter queue",
        "iceberg.ext.preserve-case": "has no effect; names of the route field are lower-cased, "
        "others keep their case",
        "iceberg.ext.channel-replication-factor": "has no effect; create the topics before, or set "
        "the broker's default",
        "iceberg.ext.quick-jvm": "has no effect; the worker's "
        "connect_py.spark.driver.extraJavaOptions sets the JVM's",
        "iceberg.ext.evolution.view": "has no effect; create a view that coalesces the columns c, "
        "c_v2 and so on",
        "iceberg.ext.variable-decimal-scale": "has no effect; create the column as decimal, else "
        "it becomes a string",
        "iceberg.ext.deleted-column": "has no effect; the column is __deleted",
        "iceberg.ext.set-identifier-fields": "has no effect; new tables get the identifier fields "
        "of their keys",
    }
)
_TABLE_SETTINGS = (
    "id-columns",
    "partition-by",
    "sort-by",
    "commit-branch",
    "route-regex",
    "renamed",
    "tags",
    "cycle-sql",
    "cycle-transform",
    EXPECT,
    *(f"maintenance.{setting.name}" for setting in SETTINGS),
)
_ALIKE = 0.75  # how like a known key a misspelt one is
_FORK_PREFIXES = ("iceberg.tables.deadletter.", "iceberg.write-exception.handler.properties.")


def respelled(props: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Properties under their new names, and what to say about it."""
    apache = ClassFamily.of(props.get("connector.class", "")) is ClassFamily.APACHE
    known: dict[str, str] = dict(props)
    warnings: list[str] = []
    for old, new in _OLD_SPELLINGS.items():
        if old not in props:
            continue
        if old == "iceberg.control.group.id" and apache:
            warnings.append(f"{old} has no effect under this class name")
            continue
        known.setdefault(new, known.pop(old))
        warnings.append(f"{old} is an old spelling, use {new}")
    for key in props:
        for old, new in _OLD_TABLE_SPELLINGS.items():
            if key.startswith(keys.TABLE_PREFIX) and key.endswith("." + old):
                renamed = key.removesuffix(old) + new
                known.setdefault(renamed, known.pop(key))
                warnings.append(f"{key} is an old spelling, use {renamed}")
        if key in NEVER_VALID:
            warnings.append(f"{key} {NEVER_VALID[key]}")
        elif key.startswith(_FORK_PREFIXES):
            warnings.append(
                f"{key} belongs to a fork; use errors.tolerance and a dead-letter queue"
            )
    return known, warnings


def unknown_keys(
    known: Mapping[str, str], defined_keys: Collection[str], tables: Collection[str]
) -> list[str]:
    """What to say of keys below `iceberg.` that nothing reads. `tables`: all that rows may go to;
    empty: not known."""
    defined = [key for key in defined_keys if key.startswith(keys.OWN_PREFIX)]
    short = {name.rpartition(".")[2] for name in tables}
    warnings = []
    for key in known:
        read = (
            key in defined_keys
            or key in _OLD_SPELLINGS
            or key in NEVER_VALID
            or key.startswith(_FORK_PREFIXES)
        )
        if read or not key.startswith(keys.OWN_PREFIX) or key.startswith(keys.FREE_PREFIXES):
            continue
        table, _, setting = key.removeprefix(keys.TABLE_PREFIX).partition(f".{EXPECT}.")
        if setting and table:
            setting = EXPECT
        else:
            table, _, setting = key.removeprefix(keys.TABLE_PREFIX).rpartition(".")
        if table.endswith(".maintenance"):
            table, setting = table.removesuffix(".maintenance"), f"maintenance.{setting}"
        if not key.startswith(keys.TABLE_PREFIX) or not table:
            meant = _nearest(keys.OWN_PREFIX, key, [*defined, *_below_prefixes(key)])
            warnings.append(f"{key} is not known and has no effect{meant}")
        elif setting not in _TABLE_SETTINGS:
            near = [f"{keys.TABLE_PREFIX}{table}.{each}" for each in _TABLE_SETTINGS]
            own = f"{keys.TABLE_PREFIX}{table}."
            warnings.append(f"{key} is not known and has no effect{_nearest(own, key, near)}")
        elif tables and table not in tables and table not in short:
            warnings.append(
                f"{key} has no effect: no rows go to a table {table}{_nearest('', table, tables)}"
            )
    return warnings


def _below_prefixes(key: str) -> list[str]:
    """The key below each prefix under which anything may stand, where its own beginning is like
    that prefix."""
    found = []
    for prefix in keys.FREE_PREFIXES:
        depth = prefix.count(".")
        parts = key.split(".")
        begins = ".".join(parts[:depth]) + "."
        alike = difflib.SequenceMatcher(
            None, begins[len(keys.OWN_PREFIX) :], prefix[len(keys.OWN_PREFIX) :]
        ).ratio()
        if len(parts) > depth and alike >= _ALIKE:
            found.append(prefix + ".".join(parts[depth:]))
    return found


def _nearest(common: str, key: str, known: Collection[str]) -> str:
    """What may have been meant, if something is alike in what follows the common beginning."""
    start = len(common)
    nearest = difflib.get_close_matches(key[start:], [name[start:] for name in known], 1, _ALIKE)
    return f"; did you mean {common}{nearest[0]}?" if nearest else ""
