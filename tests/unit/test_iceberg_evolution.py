"""Schema changes that rows require, the actions of the sink, and the mapping of fields."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from iceberg_staging_rows import batch, config, field_ids, record, stage, stager, table, wanted_by

from connect_py.api.batch import Column, schemaless_column
from connect_py.api.errors import BadRows, ConfigError
from connect_py.api.schema import (
    ALIASES,
    BOOLEAN,
    BYTES,
    FLOAT64,
    INT32,
    INT64,
    OPTIONAL_INT64,
    OPTIONAL_STRING,
    STRING,
    Schema,
    Struct,
    Type,
    array,
    date,
    decimal,
    map_of,
    struct,
    timestamp,
)
from connect_py.columns import arrow
from connect_py.testing import FakePluginMetrics
from connectors.iceberg.config.sink_options import LogicalTypes
from connectors.iceberg.conversion.column_names import HISTORY, ColumnHistory
from connectors.iceberg.conversion.table_evolution import TableEvolution, column_default
from connectors.iceberg.conversion.type_fit import accepts
from connectors.iceberg.conversion.types import TypeOptions
from connectors.iceberg.coordinator.pending_schema_changes import PendingSchemaChanges
from connectors.iceberg.protocol.iceberg_metrics import IcebergMetrics
from connectors.iceberg.table.schema_change import ChangeKind, SchemaChange
from connectors.iceberg.table.table import TableDescription

CONNECT = TypeOptions()
FULL = TypeOptions(LogicalTypes.FULL)
LIST = {
    "type": "list",
    "element-id": 20,
    "element-required": False,
    "element": {
        "type": "struct",
        "fields": [{"id": 21, "name": "a", "required": True, "type": "int"}],
    },
}


def changes(
    have: TableDescription, schema: Schema | None, type_: pa.DataType | None = None, **props: str
) -> tuple[SchemaChange, ...]:
    given = {"tables__evolve_schema_enabled": "true", **props}
    evolution = TableEvolution(have, config(**given))
    if type_ is None:
        type_ = pa.struct([("id", pa.int32())]) if schema is None else arrow.arrow_type(schema)
    return evolution.needed(Column(schema, pa.nulls(1, type_)))


def test_changes_are_additions_widenings_and_relaxations_at_every_depth() -> None:
    columns = [("id", "int"), ("f", "float"), ("gone", "string"), ("l", LIST)]
    row = struct(
        ("id", OPTIONAL_INT64),
        ("f", FLOAT64),
        ("new", Schema(Type.STRING, optional=True, default="x")),
        ("l", array(struct(("a", OPTIONAL_INT64), ("b", STRING)))),
    )
    made = changes(table(columns, required=["id", "gone"]), row)
    assert made == (
        SchemaChange(ChangeKind.OPTIONAL, ("id",)),
        SchemaChange(ChangeKind.WIDEN, ("id",), '"long"'),
        SchemaChange(ChangeKind.WIDEN, ("f",), '"double"'),
        SchemaChange(ChangeKind.ADD, ("new",), '"string"', '"x"'),
        SchemaChange(ChangeKind.OPTIONAL, ("l", "element", "a")),
        SchemaChange(ChangeKind.WIDEN, ("l", "element", "a"), '"long"'),
        SchemaChange(ChangeKind.ADD, ("l", "element", "b"), '"string"'),
        SchemaChange(ChangeKind.OPTIONAL, ("gone",)),
    )
    assert [SchemaChange.from_json(c.to_json()) for c in made] == list(made)
    kept = changes(table(columns, required=["id", "gone"], keys=["id"]), row)
    assert SchemaChange(ChangeKind.OPTIONAL, ("id",)) not in kept


def test_a_required_column_whose_field_is_gone_becomes_optional() -> None:
    inner = {
        "type": "struct",
        "fields": [{"id": 30, "name": "gone", "required": True, "type": "int"}],
    }
    have = table([("id", "int"), ("gone", "int"), ("s", inner)], required=["id", "gone", "s"])
    row = struct(("id", INT32), ("s", struct(("more", STRING))))
    relaxed = (
        SchemaChange(ChangeKind.OPTIONAL, ("s", "gone")),
        SchemaChange(ChangeKind.OPTIONAL, ("gone",)),
    )
    found = tuple(c for c in changes(have, row) if c.kind is ChangeKind.OPTIONAL)
    assert found == relaxed
    assert not changes(
        have, row, ext__evolution__make_optional="ignore", ext__evolution__add_column="ignore"
    )
    schemaless = changes(have, None, pa.struct([("id", pa.int32())]))
    assert schemaless == (), "the row may lack what others have"
    # Neither the key nor what Iceberg knows a row by can be null, and a column with a default is
    # not.
    for key_columns in (["gone"], []):
        schema = json.loads(table([("id", "int"), ("gone", "int")], required=["id", "gone"]).schema)
        if not key_columns:
            schema["identifier-field-ids"] = [2]
        kept = replace(
            table([("id", "int")]), schema=json.dumps(schema), key_columns=tuple(key_columns)
        )
        assert changes(kept, struct(("id", INT32))) == ()
    schema = json.loads(have.schema)
    schema["fields"][1]["write-default"] = 7
    assert changes(replace(have, schema=json.dumps(schema)), row)[-1] == relaxed[0]


def test_a_version_that_is_there_makes_the_first_column_optional() -> None:
    have = table(
        [("id", "int"), ("c", "int"), ("c_v2", "string")],
        required=["id", "c"],
        properties={HISTORY: json.dumps({"versions": {"2": [3]}})},
    )
    text = struct(("id", INT32), ("c", STRING))
    assert changes(have, text) == (SchemaChange(ChangeKind.OPTIONAL, ("c",)),)


def test_schemaless_rows_add_columns_and_widen_nothing() -> None:
    incoming = pa.struct(
        [
            ("id", pa.int64()),
            ("x", pa.null()),
            ("y", pa.string()),
            ("o", pa.struct([("z", pa.float64())])),
        ]
    )
    assert changes(
        table([("id", "int"), ("o", {"type": "struct", "fields": []})]), None, incoming
    ) == (
        SchemaChange(ChangeKind.ADD, ("y",), '"string"'),
        SchemaChange(ChangeKind.ADD, ("o", "z"), '"double"'),
    )


def test_names_are_found_without_case_or_through_the_name_mapping() -> None:
    row = struct(("id", INT64))
    assert len(changes(table([("Id", "long")]), row)) == 1
    assert changes(table([("Id", "long")]), row, tables__schema_case_insensitive="true") == ()
    mapping = {"schema.name-mapping.default": '[{"field-id":1,"names":["id"]}]'}
    assert changes(table([("Id", "long")], properties=mapping), row) == ()


def test_decimals_get_more_digits_where_the_source_tells_how_many() -> None:
    wider = decimal(2, parameters={"connect.decimal.precision": "12"})
    have = table([("c", "decimal(6, 2)")])
    assert changes(have, struct(("c", wider)), ext__logical_types="full") == (
        SchemaChange(ChangeKind.WIDEN, ("c",), '"decimal(12, 2)"'),
    )


def test_each_schema_change_follows_its_own_evolution_policy() -> None:
    have = table([("a", "int"), ("b", "int")], required=["b"])
    row = struct(("a", INT64), ("b", Schema(Type.INT32, optional=True)), ("c", STRING))
    kinds = {c.kind for c in changes(have, row)}
    assert kinds == {ChangeKind.ADD, ChangeKind.WIDEN, ChangeKind.OPTIONAL}
    for key, kind in (
        ("add_column", ChangeKind.ADD),
        ("widen", ChangeKind.WIDEN),
        ("make_optional", ChangeKind.OPTIONAL),
    ):
        assert {
            c.kind for c in changes(have, row, **{f"ext__evolution__{key}": "ignore"})
        } == kinds - {kind}
        only = changes(
            have, row, tables__evolve_schema_enabled="false", **{f"ext__evolution__{key}": "hold"}
        )
        assert {c.kind for c in only} == {kind}
    assert changes(have, row, tables__evolve_schema_enabled="false") == ()


# --- renaming


def test_field_alias_renames_the_column_of_that_name() -> None:
    renamed = Schema(Type.STRING, optional=True, parameters={ALIASES: "older,b"})
    have = table([("id", "int"), ("b", "string")])
    row = struct(("id", INT32), ("b_new", renamed))
    assert changes(have, row) == (SchemaChange(ChangeKind.ADD, ("b_new",), '"string"'),)
    rename = SchemaChange(ChangeKind.RENAME, ("b",), name="b_new")
    assert changes(have, row, ext__evolution__rename="apply") == (rename,)
    both = struct(("b", OPTIONAL_STRING), ("b_new", renamed))
    assert changes(have, both, ext__evolution__rename="apply") == (
        SchemaChange(ChangeKind.ADD, ("b_new",), '"string"'),
    )  # the column is that of the other field


def test_configured_rename_applies_together_with_a_wider_type() -> None:
    have = table([("id", "int"), ("b", "int")])
    props = {"ext__evolution__rename": "apply", "table__db__orders__renamed": "b_new:b"}
    made = changes(have, struct(("id", INT32), ("b_new", INT64)), **props)
    assert made == (
        SchemaChange(ChangeKind.RENAME, ("b",), name="b_new"),
        SchemaChange(ChangeKind.WIDEN, ("b",), '"long"'),
    )
    schemaless = pa.struct([("id", pa.int64()), ("b_new", pa.int64())])
    assert changes(have, None, schemaless, **props) == (
        SchemaChange(ChangeKind.RENAME, ("b",), name="b_new"),
    )
    with pytest.raises(ConfigError, match="new:old"):
        changes(have, None, schemaless, **{**props, "table__db__orders__renamed": "b_new"})


def test_keys_are_neither_renamed_nor_versioned() -> None:
    have = table([("id", "int"), ("b", "int")], keys=["id"])
    row = struct(("number", Schema(Type.INT32, parameters={ALIASES: "id"})), ("id2", STRING))
    made = changes(have, row, ext__evolution__rename="apply", ext__evolution__incompatible="apply")
    assert {c.kind for c in made} == {ChangeKind.ADD}
    assert changes(have, struct(("id", STRING)), ext__evolution__incompatible="apply") == ()


def test_rows_under_a_former_name_go_to_the_renamed_column(tmp_path: Any) -> None:
    history = {HISTORY: '{"names":{"2":["b"]}}'}
    made = stager(table([("id", "int"), ("b_new", "string")], folder=tmp_path, properties=history))
    old, new = struct(("id", INT32), ("b", STRING)), struct(("id", INT32), ("b_new", STRING))
    files = stage(
        made,
        batch([record(Struct(old, [1, "x"]), 0)]),
        batch([record(Struct(new, [2, "y"]), 1)]),
    )

    assert pq.read_table(files[0].path).to_pylist() == [
        {"id": 1, "b_new": "x"},
        {"id": 2, "b_new": "y"},
    ]


# --- incompatible changes


@pytest.mark.parametrize(
    ("column", "schema", "fits"),
    [
        ("int", INT64, False),
        ("long", INT32, True),
        ("long", FLOAT64, False),
        ("double", INT64, True),
        ("int", STRING, False),
        ("string", INT32, True),
        ("string", BYTES, False),
        ("string", struct(("x", INT32)), True),
        ("boolean", STRING, False),
        ("date", INT32, False),
        ("date", date(), True),
        ("date", STRING, True),
        ("int", date(), False),
        ("long", timestamp(), False),
        ("timestamptz", INT64, False),
        ("timestamp", Schema(Type.INT64, name="io.debezium.time.MicroTimestamp"), True),
        ("timestamptz", date(), True),
        ("uuid", STRING, True),
        ("uuid", BYTES, False),
        ("binary", BYTES, True),
        ("fixed[4]", BYTES, True),
        ("decimal(6, 2)", decimal(2), True),
        ("decimal(6, 2)", decimal(4), False),
        ("decimal(6, 2)", decimal(2, parameters={"connect.decimal.precision": "12"}), False),
        ("decimal(12, 4)", decimal(2, parameters={"connect.decimal.precision": "6"}), True),
        ("decimal(20, 0)", INT64, True),
        ("decimal(12, 2)", INT64, False),
        ("variant", struct(("x", INT32)), True),
        (LIST, INT32, False),
        (LIST, array(STRING), False),
        (
            {"type": "list", "element-id": 2, "element": "long", "element-required": False},
            array(INT32),
            True,
        ),
        (
            {
                "type": "map",
                "key-id": 2,
                "key": "string",
                "value-id": 3,
                "value": "int",
                "value-required": False,
            },
            map_of(STRING, BOOLEAN),
            False,
        ),
    ],
)
def test_column_accepts_a_field_only_without_loss_of_values(
    column: Any, schema: Schema, fits: bool
) -> None:
    options = FULL if column == "uuid" or (schema.name or "").startswith("io.") else CONNECT
    assert accepts(column, schema, pa.null(), options) is fits


def test_logical_types_of_new_columns_match_what_columns_accept() -> None:
    debezium = Schema(Type.INT32, name="io.debezium.time.Date")
    assert accepts("int", debezium, pa.null(), CONNECT)
    assert not accepts("int", debezium, pa.null(), FULL)
    assert accepts("date", debezium, pa.null(), CONNECT)


def test_incompatible_field_gets_its_own_versioned_column() -> None:
    have = table([("id", "int"), ("c", "decimal(6, 2)"), ("C_V2", "string")])
    row = struct(("id", INT32), ("c", decimal(4, parameters={"connect.decimal.precision": "12"})))
    props = {"ext__evolution__incompatible": "apply", "ext__logical_types": "full"}
    assert changes(have, row, ext__logical_types="full") == ()
    version = SchemaChange(ChangeKind.VERSION, ("c",), '"decimal(12, 4)"', name="c_v3")
    assert changes(have, row, **props) == (version,)
    assert (
        str(version)
        == "add column c_v3 of type decimal(12, 4) beside c, which cannot take such values"
    )
    schemaless = pa.struct([("id", pa.string())])
    assert changes(have, None, schemaless, **props) == (
        SchemaChange(ChangeKind.VERSION, ("id",), '"string"', name="id_v2"),
    )


def test_versioned_columns_take_fitting_rows_and_third_type_adds_another(tmp_path: Any) -> None:
    history = {HISTORY: '{"versions":{"2":[3]}}'}
    have = table(
        [("id", "int"), ("c", "int"), ("c_v2", "string")], folder=tmp_path, properties=history
    )
    props = {"tables__evolve_schema_enabled": "true", "ext__evolution__incompatible": "apply"}
    made = stager(have, **props)
    numbers, texts = struct(("id", INT32), ("c", INT32)), struct(("id", INT32), ("c", STRING))
    assert wanted_by(made, batch([record(Struct(texts, [1, "x"]), 0)]).value) == ()
    files = stage(
        made,
        batch([record(Struct(numbers, [1, 7]), 0)]),
        batch([record(Struct(texts, [2, "x"]), 1)]),
    )

    assert pq.read_table(files[0].path).to_pylist() == [
        {"id": 1, "c": 7, "c_v2": None},
        {"id": 2, "c": None, "c_v2": "x"},
    ]
    assert changes(have, struct(("c", BYTES)), **props) == (
        SchemaChange(ChangeKind.VERSION, ("c",), '"binary"', name="c_v3"),
    )


def test_unavailable_value_applies_to_every_version_of_its_column(tmp_path: Any) -> None:
    history = {HISTORY: '{"versions":{"2":[3]}}'}
    have = table(
        [("id", "int"), ("c", "int"), ("c_v2", "string")],
        keys=["id"],
        folder=tmp_path,
        properties=history,
    )
    row = struct(("id", INT32), ("c", STRING))
    value = Struct(row, [1, "__debezium_unavailable_value"])
    (patch,) = stage(
        stager(have, tables__upsert_mode_enabled="true"),
        batch([record(value, 0, key=1, key_schema=INT32)]),
    )
    assert set(patch.unavailable) == {"c", "c_v2"}


@pytest.mark.parametrize("text", ["", "[]", "{", '{"names":[]}', '{"versions":{"x":[1]}}'])
def test_a_property_that_is_not_ours_is_no_history(text: str) -> None:
    assert ColumnHistory.of({HISTORY: text}) == ColumnHistory()


# --- dead letters and holding


def test_rows_that_need_a_refused_change_are_bad_rows() -> None:
    evolution = TableEvolution(
        table([("id", "int")]), config(ext__evolution__add_column="dead-letter")
    )
    row = struct(("id", INT32), ("new", OPTIONAL_STRING))
    rows = batch(
        [
            record(Struct(row, [1, None]), 0),
            record(Struct(row, [2, "x"]), 1),
            record(None, 2, schema=row),
        ]
    )
    with pytest.raises(BadRows) as raised:
        evolution.requested(rows.value)
    assert {at: str(e) for at, e in raised.value.errors.items()} == {
        1: "table db.orders would have to add column new of type string"
    }
    rest = batch([record(Struct(row, [1, None]), 0), record(None, 2, schema=row)])
    assert evolution.requested(rest.value) == ()


def test_rows_with_column_names_that_iceberg_refuses_are_bad() -> None:
    inner = {
        "type": "struct",
        "fields": [{"id": 20, "name": "b", "required": False, "type": "long"}],
    }
    evolution = TableEvolution(
        table([("id", "long"), ("a", inner), ("c.d", "long")]),
        config(tables__evolve_schema_enabled="true"),
    )
    refused = [
        {"a.b": 1},
        {"": 1},
        {"a": {"": 1}},
        {"c": {"d": 1}},
        {"x.y": 1, "x": {"y": 2}},
        {"l": [{"": 1}]},
    ]
    fine = [{"id": 1}, {"a": {"b": 1}}, {"a": {"n": 1}}, {"c.d": 1}, {"x.z": 1}]
    rows = [*refused, *fine]
    column = schemaless_column(rows)
    with pytest.raises(BadRows) as bad:
        evolution.requested(column)
    assert set(bad.value.errors) == set(range(len(refused)))
    assert "empty name" in str(bad.value.errors[1])
    assert "two columns named a.b" in str(bad.value.errors[0])
    wanted = evolution.requested(
        column.where(pa.array([n >= len(refused) for n in range(len(rows))]))
    )
    assert [(c.kind, c.path) for c in wanted if c.path[0] != "x.y"] == [
        (ChangeKind.ADD, ("a", "n")),
        (ChangeKind.ADD, ("x.z",)),
    ]


def test_held_changes_are_listed_until_the_table_has_changed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    metrics = FakePluginMetrics()
    held = PendingSchemaChanges(IcebergMetrics(metrics))
    change = SchemaChange(ChangeKind.ADD, ("new",), '"string"')
    for _ in range(3):
        held.hold("db.orders", [change])
    assert [r.getMessage() for r in caplog.records] == [
        "table db.orders: rows wait until a user allows the sink to add column new of type string, "
        "or changes the table"
    ]
    labels = {"table": "db.orders", "change": "add column new of type string"}
    gauge = metrics.gauge("iceberg_held_changes", "", labels)
    assert gauge.value == 1  # type: ignore[attr-defined] # the fake's
    held.release("db.orders")
    assert gauge.value == 0  # type: ignore[attr-defined] # the fake's


# --- defaults


@pytest.mark.parametrize(
    ("schema", "type_", "text"),
    [
        (Schema(Type.INT32, default=3), "int", "3"),
        (Schema(Type.BOOLEAN, default=True), "boolean", "true"),
        (decimal(3, default=Decimal("1.250")), "decimal(9, 3)", '"1.250"'),
        (decimal(30, default=Decimal("1." + "5" * 30)), "decimal(38, 30)", '"1.' + "5" * 30 + '"'),
        (decimal(0, default=Decimal("9" * 38)), "decimal(38, 0)", '"' + "9" * 38 + '"'),
        (decimal(0, default=Decimal("9" * 39)), "decimal(38, 0)", None),
        (decimal(1, default=Decimal("0.0")), "decimal(1, 1)", '"0.0"'),
        (decimal(2, default=Decimal("0")), "decimal(2, 2)", '"0.00"'),
        (decimal(-2, default=Decimal("1.2E+3")), "decimal(9, 0)", '"1200"'),
        (Schema(Type.FLOAT64, default=float("nan")), "double", None),
        (Schema(Type.FLOAT32, default=float("-inf")), "float", None),
        (Schema(Type.FLOAT64, default=0.5), "double", "0.5"),
        (date(default=18_321), "date", '"2020-02-29"'),
        (date(default=99_999_999), "date", None),
        (timestamp(default=1), "timestamptz", '"1970-01-01T00:00:00.001000+00:00"'),
        (
            Schema(Type.INT64, name="io.debezium.time.MicroTimestamp", default=-1),
            "timestamp",
            '"1969-12-31T23:59:59.999999"',
        ),
        (
            Schema(Type.INT64, name="io.debezium.time.MicroTime", default=1),
            "time",
            '"00:00:00.000001"',
        ),
        (Schema(Type.INT64, name="io.debezium.time.MicroTime", default=1), "long", "1"),
        (Schema(Type.BYTES, default=b"x"), "binary", None),
        (Schema(Type.STRING), "string", None),
    ],
)
def test_defaults_of_fields_become_defaults_of_columns(
    schema: Schema, type_: str, text: str | None
) -> None:
    assert column_default(schema, type_) == text


def test_schemaless_rows_of_one_batch_may_have_either_name(tmp_path: Any) -> None:
    rename = {"ext__evolution__rename": "apply", "table__db__orders__renamed": "b_new:b"}
    rows = batch(
        [record({"id": 1, "b": "x"}, 0), record({"id": 2, "b_new": "y"}, 1), record({"id": 3}, 2)]
    )
    have = table([("id", "long"), ("b", "string")])
    assert changes(have, None, rows.value.data.type, **rename) == (
        SchemaChange(ChangeKind.RENAME, ("b",), name="b_new"),
    )
    history = {HISTORY: '{"names":{"2":["b"]}}'}
    renamed = table([("id", "long"), ("b_new", "string")], folder=tmp_path, properties=history)
    files = stage(stager(renamed), rows)
    assert [row["b_new"] for row in pq.read_table(files[0].path).to_pylist()] == ["x", "y", None]


def test_buffered_rows_get_the_default_of_a_column_added_later(tmp_path: Any) -> None:
    """They are older than the column: read from a file without it they would show the default
    too."""
    made = stager(table([("id", "int")], folder=tmp_path))
    row = struct(("id", INT32))
    made.add(made.prepare(batch([record(Struct(row, [1]), 0)])))
    wider = json.loads(table([("id", "int"), ("n", "decimal(9, 3)")], schema_id=1).schema)
    wider["fields"][1] |= {"initial-default": "1.250", "write-default": "1.250"}
    newer = table([("id", "int")], folder=tmp_path, schema_id=1)
    made.evolve(replace(newer, schema=json.dumps(wider)))
    files = stage(made, batch([record(Struct(row, [2]), 1)]))
    assert [row["n"] for row in pq.read_table(files[0].path).to_pylist()] == [Decimal("1.250")] * 2
    assert field_ids(files[0].path) == {"id": 1, "n": 2}


def test_list_and_map_members_are_widened_before_being_versioned() -> None:
    numbers = {"type": "list", "element-id": 20, "element": "int", "element-required": False}
    by_name = {
        "type": "map",
        "key-id": 21,
        "key": "string",
        "value-id": 22,
        "value": "float",
        "value-required": False,
    }
    have = table([("l", numbers), ("m", by_name)])
    row = struct(("l", array(OPTIONAL_INT64)), ("m", map_of(STRING, FLOAT64)))
    assert changes(have, row, ext__evolution__incompatible="apply") == (
        SchemaChange(ChangeKind.WIDEN, ("l", "element"), '"long"'),
        SchemaChange(ChangeKind.WIDEN, ("m", "value"), '"double"'),
    )
    kept = changes(have, row, ext__evolution__incompatible="apply", ext__evolution__widen="ignore")
    assert [c.name for c in kept] == ["l_v2", "m_v2"]
