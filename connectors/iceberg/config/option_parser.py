"""`OptionParser`: converts a connector's properties to the attributes of `SinkOptions`."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from connect_py.api.config import with_prefix
from connect_py.api.errors import ConfigError
from connectors.iceberg.config import keys
from connectors.iceberg.config.allowed_settings import REMOTE, no_spark_connect
from connectors.iceberg.config.cycle_aggregate import parse_aggregates
from connectors.iceberg.config.cycle_step import parse_cycle_sql, parse_cycle_transform
from connectors.iceberg.config.expectations import expectation_rules
from connectors.iceberg.config.layout_terms import list_items
from connectors.iceberg.config.maintenance_policy import (
    SETTINGS,
    MaintenancePolicy,
    keys_without_effect,
)
from connectors.iceberg.config.sink_options import (
    CONFIG_DEF,
    ClassFamily,
    LogicalTypes,
    SinkOptions,
)
from connectors.iceberg.config.spellings import unknown_keys, with_current_spellings
from connectors.iceberg.config.table_config import (
    TableConfig,
    checked,
    checked_step,
    partition_terms,
    table_config,
)
from connectors.iceberg.config.tag_schedule import parse_tags
from connectors.iceberg.config.topic_rules import TopicRule, is_table_name, topic_rules
from connectors.iceberg.table.schema_change import ChangeAction, ChangeKind, EvolutionPolicy
from connectors.iceberg.table.table import WriteMode

_EVOLVE: Mapping[ChangeKind, str] = MappingProxyType(
    {
        ChangeKind.ADD: keys.EVOLVE_ADD,
        ChangeKind.WIDEN: keys.EVOLVE_WIDEN,
        ChangeKind.OPTIONAL: keys.EVOLVE_OPTIONAL,
        ChangeKind.RENAME: keys.EVOLVE_RENAME,
        ChangeKind.VERSION: keys.EVOLVE_INCOMPATIBLE,
    }
)


class OptionParser:
    """Parses one configuration. `parse` must be called only once."""

    def __init__(self, props: Mapping[str, str]) -> None:
        self._props = props
        self._current, self._warnings = with_current_spellings(props)
        self._values = CONFIG_DEF.parse(self._current)
        self._problems: list[tuple[str, str]] = []
        self._connector = props.get("name", "")
        self._family = ClassFamily.of(props.get("connector.class", ""))
        self._tables: tuple[str, ...] | None = (
            None if self._values[keys.TABLES] is None else tuple(self._values[keys.TABLES])
        )
        self._table_props = with_prefix(self._current, keys.TABLE_PREFIX)
        self._catalog = {
            key: value
            for key, value in with_prefix(self._current, keys.CATALOG_PREFIX).items()
            if key
        }
        # both `iceberg.spark.master` and `iceberg.spark.spark.master` set `spark.master`
        spark = with_prefix(self._current, keys.SPARK_PREFIX)
        self._spark = {"spark." + key.removeprefix("spark."): value for key, value in spark.items()}
        self._create = with_prefix(self._current, keys.AUTO_CREATE_PREFIX)
        write_mode = self._values[keys.WRITE_MODE]
        has_changes = bool(self._values[keys.CDC_FIELD]) or self._values[keys.UPSERT_MODE]
        is_merged = write_mode == "merge" or (write_mode == "auto" and has_changes)
        self._mode = WriteMode.MERGE if is_merged else WriteMode.APPEND
        self._changelogs_only = write_mode == "changelog"
        self._apache_merges = self._mode is WriteMode.MERGE and self._family is ClassFamily.APACHE
        self._default_table = TableConfig("")
        self._rules: tuple[TopicRule, ...] = ()
        self._unavailable = b""

    def parse(self) -> tuple[dict[str, Any] | None, list[tuple[str, str]]]:
        """Return the configuration's attributes, or None and the errors as (key, message) pairs."""
        self._check_destinations()
        self._read_tables()
        self._check_changes()
        self._check_commits()
        self._check_group()
        self._check_spark()
        self._check_new_tables()
        self._check_dead_letters()
        self._check_notices()
        self._check_maintenance()
        return (None, self._problems) if self._problems else (self._attributes(), [])

    def _refuse(self, key: str, reason: str) -> None:
        self._problems.append((key, reason))

    def _check_destinations(self) -> None:
        tables, dynamic = self._tables, self._values[keys.DYNAMIC]
        if not self._catalog:
            self._refuse(keys.CATALOG_PREFIX, "Must specify Iceberg catalog properties")
        if "type" in self._catalog and "catalog-impl" in self._catalog:
            self._refuse(
                keys.CATALOG_PREFIX, "Cannot create catalog, both type and catalog-impl are set"
            )
        by_topic = bool((self._values[keys.TOPIC_TO_TABLE] or "").strip())
        if tables is not None and dynamic:
            self._refuse(keys.TABLES, "Cannot specify both static and dynamic table names")
        elif by_topic and (tables or dynamic):
            self._refuse(
                keys.TOPIC_TO_TABLE, f"cannot be combined with {keys.TABLES} or {keys.DYNAMIC}"
            )
        elif dynamic and not self._has_route_field():
            self._refuse(
                keys.ROUTE_FIELD, "Must specify a route field if using dynamic table names"
            )
        elif not dynamic and not by_topic and not any(tables or ()):
            self._refuse(keys.TABLES, "Must specify table name(s)")
        if tables and any(tables):
            for name in tables:
                if not is_table_name(name):
                    self._refuse(keys.TABLES, f"{name or 'an empty item'} is not a table name")

    def _has_route_field(self) -> bool:
        return bool((self._values[keys.ROUTE_FIELD] or "").strip())

    def _read_tables(self) -> None:
        values = self._values
        try:
            self._default_table = TableConfig(
                "",
                checked(keys.ID_COLUMNS, list_items, values[keys.ID_COLUMNS] or ""),
                checked(keys.PARTITION_BY, partition_terms, values[keys.PARTITION_BY] or ""),
                values[keys.COMMIT_BRANCH] or None,
                tags=checked(keys.TAGS, parse_tags, values[keys.TAGS] or ""),
                maintenance=self._maintenance(),
                rules=expectation_rules(with_prefix(self._current, keys.EXPECT_PREFIX)),
                step=checked_step(
                    checked(keys.CYCLE_SQL, parse_cycle_sql, values[keys.CYCLE_SQL] or ""),
                    checked(
                        keys.CYCLE_TRANSFORM,
                        parse_cycle_transform,
                        values[keys.CYCLE_TRANSFORM] or "",
                    ),
                ),
                aggregates=parse_aggregates(
                    with_prefix(self._current, keys.AGGREGATE_PREFIX), self._tables
                ),
            )
            self._rules = topic_rules(values[keys.TOPIC_TO_TABLE])
            self._unavailable = _unavailable(values[keys.UNAVAILABLE_VALUE])
            for name in self._tables or ():
                table = table_config(self._table_props, name, self._default_table, self._warnings)
                if table.route_regex is not None and not self._has_route_field():
                    raise ConfigError(
                        f"{keys.TABLE_PREFIX}{name}.route-regex",
                        f"has no effect without {keys.ROUTE_FIELD}",
                    )
        except ConfigError as error:
            self._refuse(error.key, error.why)

    def _maintenance(self) -> MaintenancePolicy:
        attributes = {}
        for setting in SETTINGS:
            key = keys.MAINTENANCE_PREFIX + setting.name
            attributes[setting.member] = checked(key, setting.parse, self._values[key] or "")
        return MaintenancePolicy(**attributes)

    def _check_changes(self) -> None:
        """Check the keys that determine each row's operation (insert, update, or delete)."""
        values, merges = self._values, self._mode is WriteMode.MERGE
        envelopes = values[keys.ENVELOPE] == "debezium"
        if envelopes and values[keys.CDC_FIELD]:
            self._refuse(
                keys.ENVELOPE,
                f"debezium determines the operation; cannot be combined with {keys.CDC_FIELD}",
            )
        if envelopes and not merges and not self._changelogs_only:
            self._refuse(
                keys.ENVELOPE,
                f"requires {keys.UPSERT_MODE}=true or {keys.WRITE_MODE}=changelog",
            )
        if self._changelogs_only and not envelopes:
            self._refuse(
                keys.WRITE_MODE,
                f"changelog requires {keys.ENVELOPE}=debezium, because only change events contain "
                "the rows before and after each change",
            )
        no_operations = not envelopes and (values[keys.CDC_FIELD] or "").rpartition(".")[2] not in (
            "op",
            "__op",
        )
        applied = merges or self._changelogs_only
        if values[keys.SNAPSHOT_EVENTS] == "ignore" and (no_operations or not applied):
            self._refuse(
                keys.SNAPSHOT_EVENTS,
                f"requires {keys.ENVELOPE}=debezium, or Debezium's op or __op as {keys.CDC_FIELD}",
            )
        suffix = values[keys.CHANGELOG_SUFFIX]
        if suffix and (not envelopes or not merges):
            self._refuse(
                keys.CHANGELOG_SUFFIX,
                f"requires merged tables and {keys.ENVELOPE}=debezium, because only change events "
                "contain the rows before each change",
            )
        elif suffix:
            templates = [name for rule in self._rules for name in rule.templates]
            for name in (*(self._tables or ()), *templates, values[keys.DEAD_LETTER_TABLE] or ""):
                if name.strip().endswith(suffix):
                    self._refuse(
                        keys.CHANGELOG_SUFFIX,
                        f"the table name {name} must not end with the suffix for change logs",
                    )

    def _check_commits(self) -> None:
        values = self._values
        if (values[keys.CDC_FIELD] or values[keys.UPSERT_MODE]) and self._apache_merges:
            self._warnings.append(
                f"{keys.CDC_FIELD} and {keys.UPSERT_MODE} enable MERGE; Apache's sink ignored them"
            )
        engine = values[keys.COMMIT_ENGINE]
        if engine in ("append", "delta"):
            self._warnings.append(
                f"{keys.COMMIT_ENGINE}={engine} is equivalent to auto because there is only one "
                "engine"
            )
        if engine == "merge" and self._mode is WriteMode.APPEND:
            self._refuse(keys.COMMIT_ENGINE, "merge requires merged tables, but rows are appended")
        if (
            keys.COMMIT_TIMEOUT in self._props
            and values[keys.COMMIT_TIMEOUT] >= values[keys.COMMIT_INTERVAL]
        ):
            self._warnings.append(
                f"{keys.COMMIT_TIMEOUT} should be less than {keys.COMMIT_INTERVAL}; otherwise, a "
                "slow task delays the next commit"
            )

    def _check_group(self) -> None:
        group, default_group = self._group(), f"connect-{self._connector}"
        consumer_group = self._props.get("consumer.override.group.id", default_group)
        if group != consumer_group:
            self._warnings.append(
                f"{keys.CONNECT_GROUP} is {group}, but the consumer group is {consumer_group}"
            )

    def _group(self) -> str:
        return self._values[keys.CONNECT_GROUP] or f"connect-{self._connector}"

    def _check_spark(self) -> None:
        for key in self._props:
            if key in (
                keys.SPARK_PREFIX + REMOTE,
                keys.SPARK_PREFIX + REMOTE.removeprefix("spark."),
            ):
                self._refuse(key, no_spark_connect(f"{keys.SPARK_PREFIX}master"))

    def _check_new_tables(self) -> None:
        is_set = "format-version" in self._create
        version = self._create.get("format-version", "2")
        if version not in ("1", "2", "3"):
            self._refuse(
                keys.AUTO_CREATE_PREFIX + "format-version",
                f"invalid value {version}: expected 1, 2, or 3",
            )
        elif self._values[keys.JSON_TYPE] == "variant" and version != "3" and is_set:
            self._refuse(keys.JSON_TYPE, "variant requires format version 3")
        elif version == "1" and self._mode is WriteMode.MERGE:
            self._refuse(
                keys.AUTO_CREATE_PREFIX + "format-version",
                "merged tables require format version 2 or 3",
            )

    def _check_dead_letters(self) -> None:
        props, values = self._props, self._values
        dead_letters, replay = (
            (values[keys.DEAD_LETTER_TABLE] or "").strip(),
            (values[keys.REPLAY_TOPIC] or "").strip(),
        )
        if dead_letters:
            if not is_table_name(dead_letters) or "." not in dead_letters:
                self._refuse(
                    keys.DEAD_LETTER_TABLE,
                    f"invalid table {dead_letters}: expected namespace.table",
                )
            elif dead_letters in (self._tables or ()):
                self._refuse(
                    keys.DEAD_LETTER_TABLE,
                    f"{dead_letters} is one of {keys.TABLES}; use a separate table",
                )
            elif (props.get("errors.tolerance") or "none").strip().lower() != "all":
                self._warnings.append(
                    f"{keys.DEAD_LETTER_TABLE} has no effect without errors.tolerance=all"
                )
        if replay and not dead_letters:
            self._refuse(keys.REPLAY_TOPIC, f"has no effect without {keys.DEAD_LETTER_TABLE}")
        elif replay and replay in [
            topic.strip() for topic in (props.get("topics") or "").split(",")
        ]:
            self._refuse(keys.REPLAY_TOPIC, f"{replay} is one of the connector's topics")
        if replay and self._mode is WriteMode.MERGE and not values[keys.ORDERING_COLUMNS]:
            self._warnings.append(
                f"{keys.REPLAY_TOPIC}: without {keys.ORDERING_COLUMNS}, the sink cannot determine "
                "whether a replayed record is older than the row in a merged table; it inserts the "
                "record if its key is missing and skips it otherwise"
            )

    def _check_notices(self) -> None:
        values = self._values
        lineage = [
            key
            for key in (keys.OPENLINEAGE_URL, keys.OPENLINEAGE_FILE)
            if (values[key] or "").strip()
        ]
        if len(lineage) > 1:
            self._refuse(keys.OPENLINEAGE_FILE, f"cannot be combined with {keys.OPENLINEAGE_URL}")
        elif lineage and importlib.util.find_spec("openlineage") is None:
            self._refuse(
                lineage[0],
                "requires the OpenLineage library; run pip install 'connect-py[lineage]' on each "
                "worker",
            )
        for key in (keys.OPENLINEAGE_URL, keys.NOTICES_WEBHOOK):
            url = (values[key] or "").strip()
            if url and urlsplit(url).scheme not in ("http", "https"):
                self._refuse(key, "must be a URL that starts with http:// or https://")

    def _check_maintenance(self) -> None:
        if ignored := keys_without_effect(self._current):
            enabled = keys.MAINTENANCE_PREFIX + "enabled"
            self._warnings.append(
                f"{enabled}=auto ignores {', '.join(sorted(ignored))}: only {enabled}=true applies "
                f"{'it' if len(ignored) == 1 else 'them'}"
            )

    def _attributes(self) -> dict[str, Any]:
        current, values, tables = self._current, self._values, self._tables
        suffix, dead_letters = (
            values[keys.CHANGELOG_SUFFIX],
            (values[keys.DEAD_LETTER_TABLE] or "").strip(),
        )
        changelogs = [name + suffix for name in tables or () if suffix]
        aggregates = [aggregate.table for aggregate in self._default_table.aggregates]
        destinations = (
            list(filter(None, [*tables, *changelogs, *aggregates, dead_letters])) if tables else ()
        )
        warnings = [*self._warnings, *unknown_keys(current, CONFIG_DEF.keys, destinations)]
        default_types = LogicalTypes.FULL if self._apache_merges else LogicalTypes.CONNECT
        options = [
            (member.name, member.metadata) for member in fields(SinkOptions) if member.metadata
        ]
        return {name: option["read"](values[option["key"]]) for name, option in options} | {
            "connector": self._connector,
            "family": self._family,
            "default_table": self._default_table,
            "warnings": tuple(dict.fromkeys(warnings)),
            "topic_rules": self._rules,
            "evolution": _evolution(values),
            "auto_create_props": self._create,
            "write_props": {
                k: v
                for prefix in keys.WRITE_PREFIXES
                for k, v in with_prefix(current, prefix).items()
            },
            "table_props": self._table_props,
            "catalog": self._catalog,
            "hadoop": with_prefix(current, keys.HADOOP_PREFIX),
            "kafka": with_prefix(current, keys.KAFKA_PREFIX),
            "spark": self._spark,
            "mode": self._mode,
            "changelogs_only": self._changelogs_only,
            "logical_types": default_types
            if values[keys.LOGICAL_TYPES] == "auto"
            else LogicalTypes(values[keys.LOGICAL_TYPES]),
            "unavailable_value": self._unavailable,
            "connect_group": self._group(),
            "control_group": values[keys.CONTROL_GROUP] or f"cg-control-{self._connector}",
            "commit_max_failures": values[keys.COMMIT_MAX_FAILURES]
            if keys.COMMIT_MAX_FAILURES in current
            else None,
            "target_file_size_bytes": values[keys.TARGET_FILE_SIZE]
            if keys.TARGET_FILE_SIZE in current
            else None,
        }


def _evolution(values: Mapping[str, Any]) -> EvolutionPolicy:
    default = ChangeAction.APPLY if values[keys.EVOLVE_SCHEMA] else ChangeAction.IGNORE
    actions = {kind: values[key] for kind, key in _EVOLVE.items()}
    return {
        kind: default if action == "auto" else ChangeAction(action)
        for kind, action in actions.items()
    }


def _unavailable(text: str) -> bytes:
    if not text.startswith("hex:"):
        return text.encode()
    try:
        return bytes.fromhex(text.removeprefix("hex:"))
    except ValueError as error:
        raise ConfigError(
            keys.UNAVAILABLE_VALUE, "expected hexadecimal digits after hex:"
        ) from error
