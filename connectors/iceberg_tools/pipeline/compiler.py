"""`Compiler`: compiles a target into the configuration of a connector."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from connectors.iceberg.config import keys
from connectors.iceberg.config.tag_schedule import parse_duration
from connectors.iceberg_tools.pipeline.file_fields import (
    APPEND,
    AVRO,
    DEBEZIUM,
    ENVELOPE,
    EVOLVE,
    FAIL,
    HOLD,
    JSON,
    JSON_SCHEMA,
    JSON_SCHEMAS,
    MERGE,
    PROTOBUF,
    REGISTRY_FORMATS,
    SETTING_PREFIX,
    STRING,
    TABLE,
    TARGET,
    TRY,
)
from connectors.iceberg_tools.pipeline.kinds import Field, FieldValue
from connectors.iceberg_tools.pipeline.target import Target

OWNER_KEY: Final = "connect_py.pipeline"  # config key for the name of the connector's pipeline
CONNECTOR_CLASS: Final = "org.apache.iceberg.connect.IcebergSinkConnector"
UNWRAP_ALIAS: Final = "unwrap"
_UNWRAP_CLASS: Final = "io.debezium.transforms.ExtractNewRecordState"
_JSON_CONVERTER: Final = "org.apache.kafka.connect.json.JsonConverter"
_CONVERTERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        JSON: _JSON_CONVERTER,
        JSON_SCHEMAS: _JSON_CONVERTER,
        STRING: "org.apache.kafka.connect.storage.StringConverter",
        AVRO: "io.confluent.connect.avro.AvroConverter",
        JSON_SCHEMA: "io.confluent.connect.json.JsonSchemaConverter",
        PROTOBUF: "io.confluent.connect.protobuf.ProtobufConverter",
    }
)
_EVOLUTION: Final = (
    keys.EVOLVE_ADD,
    keys.EVOLVE_WIDEN,
    keys.EVOLVE_OPTIONAL,
    keys.EVOLVE_RENAME,
    keys.EVOLVE_INCOMPATIBLE,
)
_ACTIONS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        EVOLVE: ("apply",) * 5,
        TRY: ("apply", "apply", "apply", "ignore", "ignore"),
        HOLD: ("hold",) * 5,
        FAIL: ("dead-letter",) * 5,  # without errors.tolerance, a bad record fails the task
    }
)


@dataclass(frozen=True, slots=True)
class CompiledConnector:
    """The configuration of a connector, with the source of each key in the file."""

    name: str
    target: Target
    config: Mapping[str, str]
    # field that sets each key; keys that no field sets are missing
    sources: Mapping[str, FieldValue]


class Compiler:
    """Compiles one target. Call `compile` only once."""

    def __init__(self, target: Target, shared: Mapping[str, FieldValue]) -> None:
        """Create a compiler.

        Args:
            target: The target to compile.
            shared: The top-level fields of the file.
        """
        self._target = target
        self._shared = shared
        self._config: dict[str, str] = {}
        self._sources: dict[str, FieldValue] = {}

    def compile(self) -> CompiledConnector:
        """Return the configuration. A field takes precedence over the same key in `properties`."""
        target = self._target
        self._config |= {"connector.class": CONNECTOR_CLASS, OWNER_KEY: target.pipeline}
        self._set_declared((*TARGET.fields,), target.fields)
        self._set_formats()
        self._set_transforms()
        self._set_routes()
        self._set_tables()
        self._set_changes()
        self._set_settings()
        for prefix, name in ((keys.HADOOP_PREFIX, "hadoop"), (keys.SPARK_PREFIX, "spark")):
            for key, value in _entries(self._shared.get(name)):
                self._set(prefix + key, value)
        for key, value in _entries(self._shared.get("catalog")):
            self._set(keys.CATALOG_NAME if key == "name" else keys.CATALOG_PREFIX + key, value)
        for key, value in target.entries("properties").items():
            if key not in self._config:
                self._set(key, value)
        return CompiledConnector(target.connector, target, self._config, self._sources)

    def _set(self, key: str, source: FieldValue, value: Any = None) -> None:
        self._config[key] = to_config_value(source.plain() if value is None else value)
        self._sources[key] = source

    def _set_declared(
        self, fields: tuple[Field, ...], values: Mapping[str, FieldValue], table: str = ""
    ) -> None:
        for each in fields:
            if each.key and each.name in values:
                below = each.key.removeprefix(SETTING_PREFIX)
                self._set(
                    f"{keys.TABLE_PREFIX}{table}.{below}" if table else each.key, values[each.name]
                )

    def _set_formats(self) -> None:
        target = self._target
        for side, name in (("key", "key-format"), ("value", "format")):
            format_field = target.field(name) or target.field("format")
            if format_field is None:
                continue
            self._set(f"{side}.converter", format_field, _CONVERTERS[format_field.value])
            if format_field.value in (JSON, JSON_SCHEMAS):
                self._set(
                    f"{side}.converter.schemas.enable",
                    format_field,
                    format_field.value == JSON_SCHEMAS,
                )
            registry = target.field("registry")
            if registry is not None and format_field.value in REGISTRY_FORMATS:
                self._set(f"{side}.converter.schema.registry.url", registry)
            if format_field.value != STRING:
                for key, setting in target.entries("converter").items():
                    self._set(f"{side}.converter.{key}", setting)

    def _set_transforms(self) -> None:
        target, aliases = self._target, []
        unwrap = target.field("unwrap")
        if unwrap is not None and unwrap.value == ENVELOPE:
            self._set(keys.ENVELOPE, unwrap, "debezium")
        elif unwrap is not None and unwrap.value == DEBEZIUM:
            tombstones = target.write_mode == MERGE and target.field("cdc-field") is None
            aliases.append(UNWRAP_ALIAS)
            self._set(f"transforms.{UNWRAP_ALIAS}.type", unwrap, _UNWRAP_CLASS)
            handling = "tombstone" if tombstones else "rewrite"
            self._set(f"transforms.{UNWRAP_ALIAS}.delete.tombstone.handling.mode", unwrap, handling)
        for alias, settings in transform_aliases(target):
            aliases.append(alias)
            for key, value in settings.items():
                if key != "name":
                    self._set(f"transforms.{alias}.{key}", value)
        if aliases:
            self._config["transforms"] = ",".join(aliases)
        predicates = target.field("predicates")
        if predicates is not None:
            self._set("predicates", predicates, tuple(predicates.value))
            for alias, each in predicates.value.items():
                for key, value in each.value.items():
                    self._set(f"predicates.{alias}.{key}", value)

    def _set_routes(self) -> None:
        target, tables = self._target, self._target.field("tables")
        route = target.field("route")
        if target.tables_by_topic:
            source = route or tables
            assert source is not None
            self._set(keys.TOPIC_TO_TABLE, source, automatic_rule(target.plain("namespace", "")))
        elif route is not None and isinstance(route.value, tuple):
            rules = (rule for rule in map(route_rule, route.value) if rule is not None)
            self._set(keys.TOPIC_TO_TABLE, route, rules)
        elif route is not None:
            fields = {field.name: field for field in _ROUTE_KEYS}
            for name, value in route.value.items():
                self._set(fields[name].key, value)
        if tables is not None and target.fixed_tables:
            self._set(keys.TABLES, tables, target.fixed_tables)

    def _set_tables(self) -> None:
        for table, settings in self._target.table_settings.items():
            self._set_declared(TABLE.fields, settings.value, table)
            self._set_expectations(
                f"{keys.TABLE_PREFIX}{table}.expect.", settings.value.get("expectations")
            )
            self._set_maintenance(
                f"{keys.TABLE_PREFIX}{table}.maintenance.", settings.value.get("maintenance")
            )
        self._set_expectations(keys.EXPECT_PREFIX, self._target.field("expectations"))
        self._set_maintenance(keys.MAINTENANCE_PREFIX, self._target.field("maintenance"))
        for key, value in self._target.entries("table-properties").items():
            self._set(keys.AUTO_CREATE_PREFIX + key, value)

    def _set_expectations(self, prefix: str, expectations: FieldValue | None) -> None:
        for name, each in _entries(expectations):
            if isinstance(each.value, dict):
                for setting, value in each.value.items():
                    self._set(prefix + (name if setting == "sql" else f"{name}.{setting}"), value)
            else:
                self._set(prefix + name, each)

    def _set_maintenance(self, prefix: str, maintenance: FieldValue | None) -> None:
        if maintenance is not None and isinstance(maintenance.value, dict):
            self._set(f"{prefix}enabled", maintenance, True)
            for name, each in maintenance.value.items():
                self._set(prefix + name, each)
        elif maintenance is not None:
            self._set(f"{prefix}enabled", maintenance)

    def _set_changes(self) -> None:
        policy = self._target.field("schema-changes")
        if policy is not None and policy.value in _ACTIONS:
            for key, action in zip(_EVOLUTION, _ACTIONS[policy.value], strict=True):
                self._set(key, policy, action)

    def _set_settings(self) -> None:
        """Set keys that have a different default or unit in the file."""
        target = self._target
        self._config.setdefault(keys.AUTO_CREATE, "true")
        self._config.setdefault(keys.WRITE_MODE, APPEND)
        interval = target.field("commit-interval")
        if interval is not None:
            self._set(keys.COMMIT_INTERVAL, interval, parse_duration(interval.value))
        dead_letters = target.field("dead-letters")
        if dead_letters is not None:
            self._set("errors.tolerance", dead_letters, "all")
            fields = {field.name: field.key for field in _DEAD_LETTER_KEYS}
            for name, value in dead_letters.value.items():
                self._set(fields[name], value)


def _nested_fields(name: str) -> tuple[Field, ...]:
    """Return the fields of the mapping that the given target field accepts."""
    kind: Any = next(field.kind for field in TARGET if field.name == name)
    return tuple(getattr(kind, "mapping", kind))


_ROUTE_KEYS: Final = _nested_fields("route")
_DEAD_LETTER_KEYS: Final = _nested_fields("dead-letters")


def _entries(field: FieldValue | None) -> Iterator[tuple[str, FieldValue]]:
    if field is not None:
        yield from field.value.items()


def transform_aliases(target: Target) -> Iterator[tuple[str, Mapping[str, FieldValue]]]:
    """Yield the alias and settings of each transformation of a target, in order."""
    for number, item in enumerate(target.items("transforms"), 1):
        name = item.value.get("name")
        yield (f"t{number}" if name is None else str(name.value)), item.value


def automatic_rule(namespace: str) -> str:
    """Return the rule that maps each topic to its own table."""
    return rf"(?:.*\.)?([^.]+):{namespace}.{{1}}" if namespace else ".*:{topic}"


def route_rule(rule: FieldValue) -> str | None:
    """Return a rule in the connector's notation, or None if it is incomplete."""
    pattern, tables = rule.value.get("topics"), rule.value.get("tables")
    return (
        None if pattern is None or tables is None else f"{pattern.value}:{'+'.join(tables.plain())}"
    )


def to_config_value(value: Any) -> str:
    """Format a value for a connector's configuration."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return ",".join(f"{key}:{each}" for key, each in value.items())
    if isinstance(value, (tuple, Iterator)):
        return ",".join(map(str, value))
    return str(value)
