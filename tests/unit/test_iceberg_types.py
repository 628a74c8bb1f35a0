"""Types of new columns and partition specs."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from iceberg_staging_rows import table
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema as IcebergSchema

from connect_py.api.errors import DataError
from connect_py.api.schema import (
    BOOLEAN,
    BYTES,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    OPTIONAL_STRING,
    STRING,
    Schema,
    Type,
    array,
    date,
    decimal,
    map_of,
    struct,
    time,
    timestamp,
)
from connectors.iceberg.config.layout_terms import parse_partition_by, split_outside_brackets
from connectors.iceberg.config.sink_options import LogicalTypes
from connectors.iceberg.conversion.types import (
    TypeOptions,
    arrow_schema,
    new_table_schema,
    partition_spec,
    type_of_arrow,
    type_of_schema,
)

CONNECT = TypeOptions()
FULL = TypeOptions(LogicalTypes.FULL)


def named(type_: Type, name: str, **more: Any) -> Schema:
    return Schema(type_, name=name, **more)


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (BOOLEAN, "boolean"),
        (INT8, "int"),
        (INT16, "int"),
        (INT32, "int"),
        (INT64, "long"),
        (FLOAT32, "float"),
        (FLOAT64, "double"),
        (STRING, "string"),
        (named(Type.STRING, "uuid"), "uuid"),
        (BYTES, "binary"),
        (decimal(3), "decimal(38, 3)"),
        (date(), "date"),
        (time(), "time"),
        (timestamp(), "timestamptz"),
        (named(Type.INT64, "io.debezium.time.MicroTimestamp"), "long"),
        (named(Type.STRING, "io.debezium.data.Uuid"), "string"),
    ],
)
def test_connect_types_map_as_in_java(schema: Schema, expected: str) -> None:
    assert type_of_schema(schema, CONNECT) == expected


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (named(Type.INT32, "io.debezium.time.Date"), "date"),
        (named(Type.INT64, "io.debezium.time.MicroTime"), "time"),
        (named(Type.INT64, "io.debezium.time.MicroTimestamp"), "timestamp"),
        (named(Type.STRING, "io.debezium.time.ZonedTimestamp"), "timestamptz"),
        (named(Type.STRING, "io.debezium.time.ZonedTime"), "string"),
        (named(Type.STRING, "io.debezium.data.Json"), "string"),
        (named(Type.STRING, "io.debezium.data.Uuid"), "uuid"),
        (Schema(Type.INT64, parameters={"logicalType": "timestamp-micros"}), "timestamptz"),
        (decimal(2, parameters={"connect.decimal.precision": "9"}), "decimal(9, 2)"),
        (decimal(-2, parameters={"connect.decimal.precision": "5"}), "decimal(7, 0)"),
        (
            struct(
                ("scale", INT32), ("value", BYTES), name="io.debezium.data.VariableScaleDecimal"
            ),
            "string",
        ),
    ],
)
def test_full_logical_types_know_debezium_and_avro(schema: Schema, expected: str) -> None:
    assert type_of_schema(schema, FULL) == expected


def test_a_decimal_without_an_iceberg_type_is_refused() -> None:
    with pytest.raises(DataError, match="no Iceberg type"):
        type_of_schema(decimal(-2), CONNECT)


def test_nested_types_keep_optionality_and_give_every_field_an_id() -> None:
    row = struct(
        ("id", INT64),
        ("tags", array(OPTIONAL_STRING, optional=True)),
        ("more", map_of(STRING, struct(("a", INT32), ("b", OPTIONAL_STRING)))),
    )
    made = IcebergSchema.model_validate_json(
        json.dumps(new_table_schema(row, pa.null(), CONNECT, ["id"]))
    )
    assert [f.required for f in made.fields] == [True, False, True]
    assert made.identifier_field_names() == {"id"}
    assert str(made.find_type("more.value.a")) == "int"
    assert made.find_field("more.value.a").required
    assert not made.find_field("tags.element").required
    ids = list(made._lazy_id_to_name)
    assert len(ids) == len(set(ids)) == 8
    forced = new_table_schema(row, pa.null(), TypeOptions(force_optional=True), ["id"])
    optional = IcebergSchema.model_validate_json(json.dumps(forced))
    assert not any(
        optional.find_field(n).required for n in ("id", "more", "more.value", "more.value.a")
    )
    assert "identifier-field-ids" not in forced


def test_schemaless_rows_are_inferred_from_their_columns() -> None:
    inferred = type_of_arrow(
        pa.struct(
            [
                ("s", pa.string()),
                ("n", pa.int64()),
                ("f", pa.float64()),
                ("nothing", pa.null()),
                ("raw", pa.binary()),
                ("l", pa.list_(pa.int64())),
                ("empty", pa.list_(pa.null())),
                ("o", pa.struct([("x", pa.bool_())])),
                ("none", pa.struct([("x", pa.null())])),
            ]
        )
    )
    assert isinstance(inferred, dict)
    shown = {
        f["name"]: f["type"] if isinstance(f["type"], str) else f["type"]["type"]
        for f in inferred["fields"]
    }
    assert shown == {"s": "string", "n": "long", "f": "double", "l": "list", "o": "struct"}
    assert not any(f["required"] for f in inferred["fields"])


def test_a_table_is_not_made_of_nothing() -> None:
    with pytest.raises(DataError, match="Unable to create table from empty object"):
        new_table_schema(None, pa.struct([]), CONNECT)
    with pytest.raises(DataError, match="expected STRUCT"):
        new_table_schema(STRING, pa.string(), CONNECT)


def test_partition_specs_name_their_fields_as_java_does() -> None:
    row = struct(
        ("id", INT64), ("ts", timestamp()), ("name", STRING), ("in", struct(("d", date())))
    )
    made = new_table_schema(row, pa.null(), CONNECT)
    text = "days(ts), bucket(id, 16), truncate(name, 3), name, month(in.d)"
    spec = partition_spec(made, parse_partition_by(tuple(split_outside_brackets(text))))
    read = PartitionSpec.model_validate_json(json.dumps(spec))
    assert [(f.name, str(f.transform)) for f in read.fields] == [
        ("ts_day", "day"),
        ("id_bucket", "bucket[16]"),
        ("name_trunc", "truncate[3]"),
        ("name", "identity"),
        ("in.d_month", "month"),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nope", "Cannot find partition column nope"),
        ("hour(d)", "Invalid source type date"),
        ("days(id)", "Invalid source type long"),
        ("days(ts), month(ts)", "redundant"),
        ("bucket(id, 4)", "a column has that name"),
    ],
)
def test_partition_specs_that_do_not_fit_the_table_are_refused(text: str, message: str) -> None:
    row = struct(("id", INT64), ("ts", timestamp()), ("d", date()), ("id_bucket", INT32))
    made = new_table_schema(row, pa.null(), CONNECT)
    with pytest.raises(DataError, match=message):
        partition_spec(made, parse_partition_by(tuple(split_outside_brackets(text))))


LIST = {
    "type": "list",
    "element-id": 20,
    "element-required": False,
    "element": {
        "type": "struct",
        "fields": [{"id": 21, "name": "a", "required": True, "type": "int"}],
    },
}


def test_files_carry_field_ids_down_to_list_elements() -> None:
    made = arrow_schema(json.loads(table([("l", LIST)]).schema)["fields"])
    element = made.field("l").type.value_field
    assert made.field("l").metadata == {b"PARQUET:field_id": b"1"}
    assert element.metadata == {b"PARQUET:field_id": b"20"}
    assert element.type.field("a").metadata == {b"PARQUET:field_id": b"21"}
    assert not element.type.field("a").nullable


def test_columns_that_cannot_be_written_are_refused_by_name() -> None:
    with pytest.raises(DataError, match="geometry"):
        arrow_schema([{"id": 1, "name": "g", "required": False, "type": "geometry(srid:4326)"}])


def test_new_tables_that_spark_must_merge_get_no_time_columns() -> None:
    merging = TypeOptions(LogicalTypes.FULL, times=False)
    assert type_of_schema(named(Type.INT64, "io.debezium.time.MicroTime"), merging) == "long"
    assert type_of_schema(named(Type.STRING, "io.debezium.time.IsoTime"), merging) == "string"
    assert type_of_schema(time(), merging) == "int"
    assert type_of_schema(date(), merging) == "date"
