"""Old spellings of keys, keys that have no effect, and unknown keys."""

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
        "iceberg.tables.drop-col-enabled": "is specific to a fork; columns are never dropped",
        "iceberg.write-exception.handler": "is specific to a fork; use errors.tolerance and a "
        "dead-letter queue",
        "iceberg.writer-exception.handler": "is specific to a fork; use errors.tolerance and a "
        "dead-letter queue",
        "experimental.write-exception-handler.class": "is specific to a fork; use errors.tolerance "
        "and a dead-letter queue",
        "iceberg.ext.preserve-case": "has no effect; table names in the route field are converted "
        "to lower case, and other names are case-sensitive",
        "iceberg.ext.channel-replication-factor": "has no effect; create the topics yourself, or "
        "set the brokers' default",
        "iceberg.ext.quick-jvm": "has no effect; set the JVM options with the worker's "
        "connect_py.spark.driver.extraJavaOptions",
        "iceberg.ext.evolution.view": "has no effect; create a view that coalesces the columns c, "
        "c_v2, and so on",
        "iceberg.ext.variable-decimal-scale": "has no effect; create the column with type decimal; "
        "otherwise, the sink creates it with type string",
        "iceberg.ext.deleted-column": "has no effect; the column name is __deleted",
        "iceberg.ext.set-identifier-fields": "has no effect; the key columns of a new table become "
        "its identifier fields",
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
_SIMILARITY = 0.75  # minimum ratio for a suggestion
_FORK_PREFIXES = ("iceberg.tables.deadletter.", "iceberg.write-exception.handler.properties.")


def with_current_spellings(props: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the properties with the current spelling of their keys, and a list of warnings."""
    is_apache = ClassFamily.of(props.get("connector.class", "")) is ClassFamily.APACHE
    current: dict[str, str] = dict(props)
    warnings: list[str] = []
    for old, new in _OLD_SPELLINGS.items():
        if old not in props:
            continue
        if old == "iceberg.control.group.id" and is_apache:
            warnings.append(f"{old} has no effect with this class name")
            continue
        current.setdefault(new, current.pop(old))
        warnings.append(f"{old} is an old spelling; use {new}")
    for key in props:
        for old, new in _OLD_TABLE_SPELLINGS.items():
            if key.startswith(keys.TABLE_PREFIX) and key.endswith("." + old):
                renamed = key.removesuffix(old) + new
                current.setdefault(renamed, current.pop(key))
                warnings.append(f"{key} is an old spelling; use {renamed}")
        if key in NEVER_VALID:
            warnings.append(f"{key} {NEVER_VALID[key]}")
        elif key.startswith(_FORK_PREFIXES):
            warnings.append(
                f"{key} is specific to a fork; use errors.tolerance and a dead-letter queue"
            )
    return current, warnings


def unknown_keys(
    props: Mapping[str, str], defined_keys: Collection[str], tables: Collection[str]
) -> list[str]:
    """Return warnings about unknown keys that start with `iceberg.`.

    Args:
        props: The properties with the current spelling of their keys.
        defined_keys: The keys of all declared options.
        tables: All tables that rows may be routed to, or empty if the records determine them.
    """
    defined = [key for key in defined_keys if key.startswith(keys.OWN_PREFIX)]
    short = {name.rpartition(".")[2] for name in tables}
    warnings = []
    for key in props:
        is_known = (
            key in defined_keys
            or key in _OLD_SPELLINGS
            or key in NEVER_VALID
            or key.startswith(_FORK_PREFIXES)
        )
        if is_known or not key.startswith(keys.OWN_PREFIX) or key.startswith(keys.FREE_PREFIXES):
            continue
        table, _, setting = key.removeprefix(keys.TABLE_PREFIX).partition(f".{EXPECT}.")
        if setting and table:
            setting = EXPECT
        else:
            table, _, setting = key.removeprefix(keys.TABLE_PREFIX).rpartition(".")
        if table.endswith(".maintenance"):
            table, setting = table.removesuffix(".maintenance"), f"maintenance.{setting}"
        if not key.startswith(keys.TABLE_PREFIX) or not table:
            suggestion = _suggestion(keys.OWN_PREFIX, key, [*defined, *_below_prefixes(key)])
            warnings.append(f"{key} is unknown and has no effect{suggestion}")
        elif setting not in _TABLE_SETTINGS:
            prefix = f"{keys.TABLE_PREFIX}{table}."
            suggestion = _suggestion(prefix, key, [prefix + name for name in _TABLE_SETTINGS])
            warnings.append(f"{key} is unknown and has no effect{suggestion}")
        elif tables and table not in tables and table not in short:
            warnings.append(
                f"{key} has no effect: no rows are routed to table {table}"
                f"{_suggestion('', table, tables)}"
            )
    return warnings


def _below_prefixes(key: str) -> list[str]:
    """Return the key with its prefix replaced by each similar prefix in `FREE_PREFIXES`."""
    candidates = []
    parts = key.split(".")
    for prefix in keys.FREE_PREFIXES:
        depth = prefix.count(".")
        start = ".".join(parts[:depth]) + "."
        similarity = difflib.SequenceMatcher(
            None, start[len(keys.OWN_PREFIX) :], prefix[len(keys.OWN_PREFIX) :]
        ).ratio()
        if len(parts) > depth and similarity >= _SIMILARITY:
            candidates.append(prefix + ".".join(parts[depth:]))
    return candidates


def _suggestion(prefix: str, key: str, names: Collection[str]) -> str:
    """Return a suggestion to append to a warning, or an empty string if no name is similar.

    The comparison ignores the common prefix of the key and the names.
    """
    start = len(prefix)
    similar = difflib.get_close_matches(key[start:], [n[start:] for n in names], 1, _SIMILARITY)
    return f"; did you mean {prefix}{similar[0]}?" if similar else ""
