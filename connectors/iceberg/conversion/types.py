"""Conversions between the types of Kafka Connect, Iceberg, and Arrow.

Iceberg types are JSON values: a string, or a dict with the key `type`.

- `arrow_schema` returns the Arrow schema of a table's files, with field IDs.
- `new_table_schema` and `partition_spec` return the schema and partition spec of a new table.
"""

from __future__ import annotations

import itertools
import json
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from connect_py.api.errors import DataError
from connect_py.api.schema import (
    DATE,
    DECIMAL,
    TIME,
    TIMESTAMP,
    Schema,
    Type,
    decimal_precision,
    decimal_scale,
)
from connect_py.columns.arrow import DECIMAL_DIGITS
from connectors.iceberg.config.layout_terms import PartitionTerm
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.config.sink_options import ClassFamily, LogicalTypes
from connectors.iceberg.conversion.full_names import FullNames, fields_of
from connectors.iceberg.conversion.temporal import logical_name, named_temporal_type
from connectors.iceberg.table.table import WriteMode

IcebergType: TypeAlias = "str | Mapping[str, Any]"

FIELD_ID = b"PARQUET:field_id"
# column with the position of each row's change in the source's log; see `staging.ordering`
ORDER = "__connect_py_order"
# Arrow metadata key for a column's initial default as Iceberg JSON; not written to files
INITIAL_DEFAULT = b"connect_py.initial-default"
VARIANT = pa.struct(
    [
        pa.field("metadata", pa.binary(), nullable=False),
        pa.field("value", pa.binary(), nullable=False),
    ]
)
JSON = "io.debezium.data.Json"
VARIABLE_SCALE_DECIMAL = "io.debezium.data.VariableScaleDecimal"
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(-?\d+)\s*\)")
_FIXED = re.compile(r"fixed\[(\d+)\]")

_TO_ICEBERG: Mapping[Type, str] = {
    Type.BOOLEAN: "boolean",
    Type.INT8: "int",
    Type.INT16: "int",
    Type.INT32: "int",
    Type.INT64: "long",
    Type.FLOAT32: "float",
    Type.FLOAT64: "double",
    Type.STRING: "string",
    Type.BYTES: "binary",
}
_CONNECT_NAMES = frozenset({DATE, TIME, TIMESTAMP})  # defined by Kafka Connect
# column types for logical types other than those of numbers with a `TemporalType`
_FULL_NAMES: Mapping[tuple[str, Type], str] = {
    ("io.debezium.time.ZonedTimestamp", Type.STRING): "timestamptz",
    ("io.debezium.time.IsoDate", Type.STRING): "date",
    ("io.debezium.time.IsoTime", Type.STRING): "time",
    ("io.debezium.time.IsoTimestamp", Type.STRING): "timestamp",
    ("io.debezium.data.Uuid", Type.STRING): "uuid",
    ("uuid", Type.STRING): "uuid",
    (VARIABLE_SCALE_DECIMAL, Type.STRUCT): "string",
}


@dataclass(frozen=True, slots=True)
class TypeOptions:
    """Options for the types of new columns."""

    logical_types: LogicalTypes = LogicalTypes.CONNECT
    # create UUID columns for strings named `uuid`, like Apache's sink and unlike Tabular's
    uuid: bool = True
    force_optional: bool = False
    variants: bool = False  # create variant columns for JSON strings
    # create columns of type time; not for merged tables, because Spark cannot read this type
    times: bool = True

    @staticmethod
    def of(config: IcebergSinkConfig) -> TypeOptions:
        return TypeOptions(
            config.logical_types,
            config.family is ClassFamily.APACHE,
            config.force_optional,
            times=config.mode is WriteMode.APPEND,
            variants=config.json_variants and config.format_version() >= 3,
        )


# --- Iceberg to Arrow


def arrow_schema(fields: Sequence[Mapping[str, Any]]) -> pa.Schema:
    """Return the Arrow schema of a table's files, with field IDs in the metadata."""
    return pa.schema([_arrow_field(field) for field in fields])


def writable_fields(fields: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the columns that may contain values from records.

    Optional columns of a type that cannot be written remain null. `ORDER` is excluded, because it
    contains no values from records.

    Raises:
        DataError: A required column cannot be written.
    """
    writable = []
    for field in fields:
        if field["name"] == ORDER:
            continue
        try:
            arrow_type_of(field["type"])
        except DataError:
            if field["required"]:
                raise
            continue
        writable.append(field)
    return writable


def _arrow_field(field: Mapping[str, Any]) -> pa.Field:
    metadata = {FIELD_ID: str(field["id"]).encode()}
    if (default := field.get("initial-default")) is not None:
        metadata[INITIAL_DEFAULT] = json.dumps(default).encode()
    return pa.field(
        field["name"],
        arrow_type_of(field["type"]),
        nullable=not field["required"],
        metadata=metadata,
    )


def initial_values(field: pa.Field, length: int) -> pa.Array:
    """Return the values for an added column in older rows: its initial default, or nulls."""
    default = (field.metadata or {}).get(INITIAL_DEFAULT)
    return default_values(None if default is None else json.loads(default), field.type, length)


def default_values(default: object, target: pa.DataType, length: int) -> pa.Array:
    """Return an array that repeats a default, or nulls if there is no valid default.

    Args:
        default: Default value as decoded Iceberg JSON.
        target: Arrow type of the array.
        length: Length of the array.
    """
    if default is None or isinstance(default, list | dict):
        return pa.nulls(length, target)
    storage = pa.string() if isinstance(default, str) and not pa.types.is_string(target) else target
    try:
        if target == pa.uuid():
            raw = pa.array([uuid.UUID(str(default)).bytes] * length, pa.binary(16))
            return pa.ExtensionArray.from_storage(target, raw)
        if pa.types.is_binary(target) or pa.types.is_fixed_size_binary(target):
            return pa.array([bytes.fromhex(str(default))] * length, target)
        return pa.array([default] * length, storage).cast(target)
    except (pa.ArrowException, ValueError):
        return pa.nulls(length, target)


_PRIMITIVES: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "timestamp_ns": pa.timestamp("ns"),
    "timestamptz_ns": pa.timestamp("ns", "UTC"),
    "string": pa.string(),
    "uuid": pa.uuid(),
    "binary": pa.binary(),
    "unknown": pa.null(),
    "variant": VARIANT,
}


def arrow_type_of(type_: IcebergType) -> pa.DataType:
    """Return the Arrow type of an Iceberg type.

    Raises:
        DataError: Values of this type, such as geometry, cannot be staged.
    """
    if isinstance(type_, str):
        primitive = _PRIMITIVES.get(type_)
        if primitive is not None:
            return primitive
        if (decimal := decimal_parts(type_)) is not None:
            return pa.decimal128(*decimal)
        if fixed := _FIXED.fullmatch(type_):
            return pa.binary(int(fixed.group(1)))
        raise DataError(f"columns of type {type_} cannot be written")
    kind = type_["type"]
    if kind == "struct":
        return pa.struct(list(arrow_schema(type_["fields"])))
    if kind == "list":
        return pa.list_(*arrow_schema(fields_of(type_)))
    if kind == "map":
        return pa.map_(*arrow_schema(fields_of(type_)))
    raise DataError(f"columns of type {kind} cannot be written")


def decimal_parts(type_: IcebergType) -> tuple[int, int] | None:
    """Return the precision and scale of a decimal type, or None for other types."""
    match = _DECIMAL.fullmatch(type_) if isinstance(type_, str) else None
    return None if match is None else (int(match[1]), int(match[2]))


def time_columns(schema: Mapping[str, Any]) -> list[str]:
    """Return the top-level columns of an Iceberg schema that contain the type time."""
    return [field["name"] for field in schema["fields"] if '"time"' in json.dumps(field["type"])]


def why_no_key(type_: IcebergType) -> str | None:
    """Return the reason why a column of this type cannot be a key, or None if it can."""
    word = type_["type"] if isinstance(type_, Mapping) else type_
    if isinstance(type_, Mapping) or word.startswith(
        ("variant", "geometry", "geography", "unknown")
    ):
        return f"is of type {word}, which cannot identify rows"
    return None


# --- Connect to Iceberg


def type_of_schema(
    schema: Schema, options: TypeOptions, ids: Iterator[int] | None = None
) -> IcebergType:
    """Return the Iceberg type of a new column for a Connect schema.

    Raises:
        DataError: There is no such type, for example for a struct without fields.
    """
    ids = ids or itertools.count(1)
    name = logical_name(schema)
    if schema.type is Type.BYTES and schema.name == DECIMAL:
        return decimal_type(schema, options)
    if name is not None:
        is_full, temporal = options.logical_types is LogicalTypes.FULL, named_temporal_type(schema)
        column_type = _FULL_NAMES.get((name, schema.type)) if is_full else None
        is_temporal = temporal is not None and schema.type is temporal.schema_type
        if temporal is not None and is_temporal and (is_full or name in _CONNECT_NAMES):
            column_type = temporal.column_type
        if name == "uuid" and schema.type is Type.STRING and options.uuid:
            column_type = "uuid"
        if name == JSON and schema.type is Type.STRING and options.variants:
            column_type = "variant"
        # If time columns are not allowed, the base type applies, which is a number or string.
        if column_type is not None and (column_type != "time" or options.times):
            return column_type
    if schema.type is Type.STRUCT:
        if not schema.fields:
            raise DataError("a struct without fields has no Iceberg type")
        return {
            "type": "struct",
            "fields": [_new_field(f.name, f.schema, options, ids) for f in schema.fields],
        }
    if schema.type is Type.ARRAY:
        element = _present(schema.value_schema)
        id_ = next(ids)
        return {
            "type": "list",
            "element-id": id_,
            "element": type_of_schema(element, options, ids),
            "element-required": not (element.optional or options.force_optional),
        }
    if schema.type is Type.MAP:
        key, value = _present(schema.key_schema), _present(schema.value_schema)
        key_id, value_id = next(ids), next(ids)
        return {
            "type": "map",
            "key-id": key_id,
            "key": type_of_schema(key, options, ids),
            "value-id": value_id,
            "value": type_of_schema(value, options, ids),
            "value-required": not (value.optional or options.force_optional),
        }
    return _TO_ICEBERG[schema.type]


def _new_field(
    name: str, schema: Schema, options: TypeOptions, ids: Iterator[int]
) -> dict[str, Any]:
    required = not (schema.optional or options.force_optional)
    return {
        "id": next(ids),
        "name": name,
        "required": required,
        "type": type_of_schema(schema, options, ids),
    }


def _present(schema: Schema | None) -> Schema:
    if schema is None:
        raise DataError("an array or map schema lacks the schema of its items")
    return schema


def decimal_type(schema: Schema, options: TypeOptions) -> str:
    """Return the type of a new column for decimals.

    Raises:
        DataError: Iceberg does not support the scale of the schema.
    """
    scale = decimal_scale(schema)
    digits = DECIMAL_DIGITS
    if options.logical_types is LogicalTypes.FULL:
        precision = decimal_precision(schema)
        digits = DECIMAL_DIGITS if precision is None else precision
        if scale < 0:  # Iceberg has no negative scales
            digits, scale = min(DECIMAL_DIGITS, digits - scale), 0
        if digits > DECIMAL_DIGITS:
            return "string"
        digits = max(digits, scale)
    if not 0 <= scale <= digits <= DECIMAL_DIGITS:
        raise DataError(f"decimals with scale {scale} have no Iceberg type")
    return f"decimal({digits}, {scale})"


_OF_ARROW: Sequence[tuple[Callable[[pa.DataType], bool], str]] = (
    (pa.types.is_string, "string"),
    (pa.types.is_large_string, "string"),
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_integer, "long"),
    (pa.types.is_floating, "double"),
    (pa.types.is_date, "date"),
    (pa.types.is_time, "time"),
)


def type_of_arrow(type_: pa.DataType, ids: Iterator[int] | None = None) -> IcebergType | None:
    """Return the Iceberg type of a new column for schemaless values, or None if there is none."""
    ids = ids or itertools.count(1)
    is_ = pa.types
    for of_kind, name in _OF_ARROW:
        if of_kind(type_):
            return name
    if is_.is_decimal(type_):
        precision, scale = type_.precision, type_.scale
        if scale < 0:
            precision, scale = precision - scale, 0
        precision = max(precision, scale)
        return f"decimal({precision}, {scale})" if precision <= DECIMAL_DIGITS else None
    if is_.is_timestamp(type_):
        return "timestamp" if type_.tz is None else "timestamptz"
    if is_.is_list(type_):
        id_ = next(ids)
        element = type_of_arrow(type_.value_type, ids)
        if element is None:
            return None
        return {"type": "list", "element-id": id_, "element": element, "element-required": False}
    if is_.is_struct(type_):
        fields = []
        for field in type_:
            id_ = next(ids)
            inner = type_of_arrow(field.type, ids)
            if inner is not None:
                fields.append({"id": id_, "name": field.name, "required": False, "type": inner})
        return {"type": "struct", "fields": fields} if fields else None
    return None  # bytes never get a column, and the type of nulls is not known yet


def new_table_schema(
    schema: Schema | None, type_: pa.DataType, options: TypeOptions, key_columns: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the Iceberg schema of a new table as JSON.

    Key columns become identifier fields if all of them exist, are required, and have a type that
    Iceberg permits.

    Args:
        schema: The schema of the rows, or None if they are schemaless.
        type_: The Arrow type of schemaless rows.
        options: The options for the types of new columns.
        key_columns: The key columns, or empty if the table has no identifier fields.

    Raises:
        DataError: The rows have no fields, a field has no Iceberg type, or Iceberg rejects the
            names of the fields.
    """
    ids = itertools.count(1)
    if schema is None:
        inferred = type_of_arrow(type_, ids) if pa.types.is_struct(type_) else None
        if not isinstance(inferred, dict):
            raise DataError("Unable to create table from empty object")
        fields = inferred["fields"]
    else:
        if schema.type is not Type.STRUCT:
            raise DataError(
                f"Unable to create table from a value of type {schema.type.name}, expected STRUCT"
            )
        if not schema.fields:
            raise DataError("Unable to create table from empty object")
        fields = [_new_field(f.name, f.schema, options, ids) for f in schema.fields]
    names = FullNames()
    for field in fields:
        if (reason := names.add((field["name"],), field["type"])) is not None:
            raise DataError(f"Unable to create table: {reason}")
    table: dict[str, Any] = {"type": "struct", "schema-id": 0, "fields": fields}
    by_name = {f["name"]: f for f in fields}
    keys = [by_name[name] for name in key_columns if name in by_name]
    can_identify = all(
        f["required"] and isinstance(f["type"], str) and f["type"] not in ("float", "double")
        for f in keys
    )
    if keys and can_identify and len(keys) == len(key_columns):
        table["identifier-field-ids"] = [f["id"] for f in keys]
    return table


# --- partition specs

_TIMESTAMPS = ("timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns")
_DATES = ("date", *_TIMESTAMPS)
# column types that a transform supports; all other transforms support any type
_SOURCES: Mapping[str, Sequence[str]] = {
    "year": _DATES,
    "month": _DATES,
    "day": _DATES,
    "hour": _TIMESTAMPS,
    "truncate": ("int", "long", "string", "binary", "decimal"),
}
_NO_BUCKETS = ("boolean", "float", "double")


def partition_spec(schema: Mapping[str, Any], terms: Sequence[PartitionTerm]) -> dict[str, Any]:
    """Return the partition spec of a new table as JSON.

    Raises:
        DataError: A column does not exist, a transform does not support the type of its column, or
            a name is not unique.
    """
    fields = []
    columns = {f["name"] for f in schema["fields"]}
    for number, term in enumerate(terms, 1000):
        source = _find(schema["fields"], term.column)
        if source is None:
            raise DataError(f"Cannot find partition column {term.column}")
        _check_transform(term, source["type"])
        if term.name in columns and not (term.transform == "identity" and term.name == term.column):
            raise DataError(f"Cannot create partition field {term.name}: a column has that name")
        fields.append(
            {
                "name": term.name,
                "transform": term.iceberg_transform,
                "source-id": source["id"],
                "field-id": number,
            }
        )
    times: dict[int, str] = {}
    for field in fields:
        if field["transform"] in ("year", "month", "day", "hour"):
            if field["source-id"] in times:
                raise DataError(f"Cannot add redundant partition field {field['name']}")
            times[field["source-id"]] = field["transform"]
    return {"spec-id": 0, "fields": fields}


def _find(fields: Sequence[Mapping[str, Any]], path: str) -> Mapping[str, Any] | None:
    """Return a field by its dotted path. Names may contain dots."""
    for field in fields:
        if field["name"] == path:
            return field
    for field in fields:
        inner = field["type"]
        if (
            path.startswith(field["name"] + ".")
            and isinstance(inner, Mapping)
            and inner["type"] == "struct"
        ):
            nested = _find(inner["fields"], path[len(field["name"]) + 1 :])
            if nested is not None:
                return nested
    return None


def _check_transform(term: PartitionTerm, type_: IcebergType) -> None:
    if not isinstance(type_, str):
        raise DataError(f"Cannot partition by {term.column}: it is a {type_['type']}")
    kind = type_.partition("(")[0]
    if kind not in _SOURCES.get(term.transform, (kind,)) or (
        term.transform == "bucket" and kind in _NO_BUCKETS
    ):
        raise DataError(f"Invalid source type {type_} for transform: {term.iceberg_transform}")
