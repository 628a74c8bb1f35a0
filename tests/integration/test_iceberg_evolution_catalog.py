"""Changes of tables in a real catalog: renames, versions of columns, many that ask at once."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import pytest
from fixtures.iceberg_commit import KEY, Lake, LocalLake, Sink, lake, lake_config
from fixtures.iceberg_staging_rows import batch, record, stage, stager, wanted_by
from fixtures.iceberg_table_managers import table_manager

from connect_py.api.record import TopicPartition
from connect_py.api.schema import INT32, INT64, STRING, Schema, Struct, Type, decimal, struct
from connectors.iceberg.conversion.column_names import HISTORY
from connectors.iceberg.coordinator.table_manager import TableManager
from connectors.iceberg.driver.lake_session import LakeSession
from connectors.iceberg.errors import SchemaChangesPendingError
from connectors.iceberg.protocol.actions import PrepareTable, Send
from connectors.iceberg.protocol.commit_request import EngineSettings
from connectors.iceberg.protocol.coordinator_state import CoordinatorState
from connectors.iceberg.protocol.messages import Need, OpenTable, TableOpened
from connectors.iceberg.protocol.source_progress import CoordinatorSettings, TopicInfo
from connectors.iceberg.table.schema_change import ChangeKind, SchemaChange
from connectors.iceberg.table.table import TableDescription, TableRequest, WriteMode

__all__ = ["lake"]

TASKS = 16


def columns(lake: Lake, name: str) -> dict[str, tuple[int, Any]]:
    schema = json.loads(lake.catalog.load(name, KEY).description.schema)
    return {field["name"]: (field["id"], field["type"]) for field in schema["fields"]}


def make(lake: Lake, fields: Sequence[tuple[str, Any]], version: int = 3) -> str:
    name = f"shop.t{uuid.uuid4().hex[:10]}"
    schema = {
        "type": "struct",
        "schema-id": 0,
        "fields": [
            {"id": at, "name": column, "required": False, "type": type_}
            for at, (column, type_) in enumerate(fields, 1)
        ],
    }
    lake.catalog.create(name, json.dumps(schema), None, {"format-version": str(version)})
    return name


def describe(keeper: TableManager, name: str) -> TableDescription:
    _, answer = keeper.prepare(name, Need.CREATE, TableRequest(None).to_text())
    return TableDescription.from_json(json.loads(answer))


def evolve(keeper: TableManager, name: str, rows: Any, **props: str) -> TableDescription:
    """Apply the requests of a task until nothing is missing."""
    description = describe(keeper, name)
    for _ in range(5):
        wanted = wanted_by(stager(description, **props), rows.value)
        if not wanted:
            return description
        wish = TableRequest(None, "", wanted, description.schema_id).to_text()
        description = TableDescription.from_json(
            json.loads(keeper.prepare(name, Need.EVOLVE, wish)[1])
        )
    raise AssertionError(f"still lacking {wanted}")


def append(lake: Lake, description: TableDescription, *batches: Any, **props: str) -> None:
    files = stage(stager(description, **props), *batches, partition=TopicPartition("orders", 0))
    Sink(lake, description.name, WriteMode.APPEND, ()).commit(files)


def test_renamed_column_keeps_its_id_and_takes_both_names(lake: Lake) -> None:
    props = {"ext__evolution__rename": "apply", "tables__evolve_schema_enabled": "true"}
    name = make(lake, [("id", "int"), ("b", "string")])
    props["table__" + name.replace(".", "__") + "__renamed"] = "b_new:b"
    keeper = table_manager(LocalLake(lake.catalog), **props)
    old, new = (
        struct(("id", INT32), ("b", STRING)),
        struct(("id", INT32), ("b_new", STRING), ("more", INT32)),
    )
    first = evolve(keeper, name, batch([record(Struct(old, [1, "x"]), 0)]), **props)
    append(lake, first, batch([record(Struct(old, [1, "x"]), 0)]), **props)
    second = evolve(keeper, name, batch([record(Struct(new, [2, "y", 7]), 1)]), **props)
    assert columns(lake, name) == {"id": (1, "int"), "b_new": (2, "string"), "more": (3, "int")}
    assert json.loads(second.properties[HISTORY]) == {"names": {"2": ["b"]}}
    late = batch([record(Struct(old, [3, "z"]), 2)])
    append(lake, second, batch([record(Struct(new, [2, "y", 7]), 1)]), late, **props)
    assert [dict(row) for row in lake.rows(name)] == [
        {"id": 1, "b_new": "x"},
        {"id": 2, "b_new": "y", "more": 7},
        {"id": 3, "b_new": "z"},
    ]
    assert not lake.catalog.evolve(name, [SchemaChange(ChangeKind.RENAME, ("b",), name="b_new")])


def test_incompatible_type_change_adds_a_new_version_of_the_column(lake: Lake) -> None:
    props = {"ext__evolution__incompatible": "apply", "ext__logical_types": "full"}
    name = make(lake, [("id", "int"), ("c", "decimal(6, 2)")])
    keeper = table_manager(LocalLake(lake.catalog), **props)
    types = [
        decimal(2, parameters={"connect.decimal.precision": "6"}),
        decimal(4, parameters={"connect.decimal.precision": "12"}),
        STRING,
    ]
    values = [Decimal("1.25"), Decimal("12345.6789"), "a lot"]
    for number, (type_, value) in enumerate(zip(types, values, strict=True)):
        rows = batch([record(Struct(struct(("id", INT32), ("c", type_)), [number, value]), number)])
        append(lake, evolve(keeper, name, rows, **props), rows, **props)
    assert columns(lake, name) == {
        "id": (1, "int"),
        "c": (2, "decimal(6, 2)"),
        "c_v2": (3, "decimal(12, 4)"),
        "c_v3": (4, "string"),
    }
    shown = "id, coalesce(c_v3, CAST(c_v2 AS STRING), CAST(c AS STRING)) AS c"
    assert [dict(row) for row in lake.rows(name, shown)] == [
        {"id": 0, "c": "1.25"},
        {"id": 1, "c": "12345.6789"},
        {"id": 2, "c": "a lot"},
    ]


def test_older_rows_get_the_field_default_where_the_format_allows(lake: Lake) -> None:
    props = {"tables__evolve_schema_enabled": "true", "ext__logical_types": "full"}
    row = struct(
        ("id", INT32),
        ("n", Schema(Type.INT32, default=3)),
        ("d", decimal(3, default=Decimal("1.250"), parameters={"connect.decimal.precision": "9"})),
        ("day", Schema(Type.INT32, name="io.debezium.time.Date", default=18_321)),
        ("at", Schema(Type.INT64, name="io.debezium.time.MicroTimestamp", default=1_000)),
    )
    old = batch([record(Struct(struct(("id", INT32)), [1]), 0)])
    for version in (2, 3):
        name = make(lake, [("id", "int")], version)
        keeper = table_manager(LocalLake(lake.catalog), **props)
        append(lake, evolve(keeper, name, old, **props), old, **props)
        evolve(
            keeper, name, batch([record(Struct(row, [2, 4, Decimal("1.250"), 1, 1]), 1)]), **props
        )
        fresh = (
            {"n": 3, "d": 1.25, "day": "2020-02-29", "at": "1970-01-01T00:00:00.001"}
            if version == 3
            else {}
        )
        assert [dict(row) for row in lake.rows(name)] == [{"id": 1, **fresh}]


def test_what_must_wait_waits_until_somebody_has_changed_the_table(lake: Lake) -> None:
    props = {"ext__evolution__add_column": "hold"}
    name = make(lake, [("id", "int")])
    keeper = table_manager(LocalLake(lake.catalog), **props)
    rows = batch([record(Struct(struct(("id", INT32), ("new", STRING)), [1, "x"]), 0)])
    for _ in range(2):
        with pytest.raises(SchemaChangesPendingError, match="add column new of type string"):
            evolve(keeper, name, rows, **props)
    assert "new" not in columns(lake, name)
    held = describe(keeper, name)
    wish = TableRequest(
        None, "", wanted_by(stager(held, **props), rows.value), held.schema_id
    ).to_text()
    lake.catalog.evolve(name, [SchemaChange(ChangeKind.ADD, ("new",), '"string"')])  # somebody
    answer = TableDescription.from_json(json.loads(keeper.prepare(name, Need.EVOLVE, wish)[1]))
    assert wanted_by(stager(answer, **props), rows.value) == ()


def test_sixteen_tasks_that_request_the_same_column_get_one(lake: Lake) -> None:
    """One coordinator gets the requests of all tasks; its answer to one request reaches all
    tasks.
    """
    props = {"tables__evolve_schema_enabled": "true"}
    name = make(lake, [("id", "int")])
    keeper = table_manager(LocalLake(lake.catalog), **props)
    state = CoordinatorState(
        CoordinatorSettings("k-1", 1, 1000, 300), "x", lambda: str(uuid.uuid4())
    )
    state.begin({"orders": TopicInfo("id-1", (0,) * TASKS)}, {}, {name: keeper.view(name)}, None, 0)
    answers: list[TableOpened] = []

    def all_ask(description: TableDescription) -> list[Any]:
        """Return the missing columns of each task; every second one also needs a separate
        column.
        """
        asked: list[Any] = []
        for task in range(TASKS):
            own = [(f"own_{task}", INT32)] * (task % 2)
            wide = struct(("id", INT64), ("new", STRING), *own)
            rows = batch([record(Struct(wide, [None] * len(wide.fields)), 0)])
            wanted = wanted_by(stager(description, **props), rows.value)
            if wanted:
                wish = TableRequest(None, "", wanted, description.schema_id).to_text()
                asked += state.on_message(
                    OpenTable(str(task), state.epoch, name, Need.EVOLVE, wish)
                )
        return asked

    asked = all_ask(describe(keeper, name))
    while asked:
        (action,) = asked  # while one request is carried out, others wait for its answer
        assert isinstance(action, PrepareTable)
        view, answer = keeper.prepare(action.table, action.need, action.schema)
        for sent in state.on_table_prepared(name, view, answer):
            assert isinstance(sent, Send)
            assert isinstance(sent.message, TableOpened)
            answers.append(sent.message)
        asked = all_ask(TableDescription.from_json(json.loads(answers[-1].answer)))
    found = columns(lake, name)
    assert found["id"][1] == "long"
    assert set(found) == {"id", "new", *(f"own_{task}" for task in range(1, TASKS, 2))}
    assert len(answers) == 1 + TASKS // 2


def test_concurrent_schema_changes_by_two_writers_are_each_applied_once(lake: Lake) -> None:
    """A coordinator and another writer: the catalog's compare-and-swap decides, and the change is
    retried.
    """
    name = make(lake, [("id", "int")])
    same = SchemaChange(ChangeKind.ADD, ("new",), '"string"')

    def writer(number: int) -> None:
        session = lake.runtime.new_session(lake_config(lake.folder).session_settings())
        catalog = LakeSession(session, "lake", EngineSettings())
        for at in range(4):
            catalog.evolve(
                name, [same, SchemaChange(ChangeKind.ADD, (f"own_{number}_{at}",), '"int"')]
            )

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(writer, range(2)))
    found = columns(lake, name)
    assert set(found) == {"id", "new", *(f"own_{n}_{at}" for n in range(2) for at in range(4))}
    assert len({id_ for id_, _ in found.values()}) == len(found)


def test_json_stored_as_variant_is_readable_by_spark(lake: Lake) -> None:
    props = {"ext__json_type": "variant", "tables__evolve_schema_enabled": "true"}
    name = make(lake, [("id", "int")])
    row = struct(
        ("id", INT32), ("doc", Schema(Type.STRING, name="io.debezium.data.Json", optional=True))
    )
    texts = ['{"a": {"b": [1, 2.5, "x", null, true]}, "c": 5000000000}', None, "[]"]
    rows = batch([record(Struct(row, [at, text]), at) for at, text in enumerate(texts)])
    append(
        lake,
        evolve(table_manager(LocalLake(lake.catalog), **props), name, rows, **props),
        rows,
        **props,
    )
    assert columns(lake, name)["doc"][1] == "variant"
    found = lake.rows(name, "id, to_json(doc) AS doc, variant_get(doc, '$.a.b[1]', 'double') AS b")
    assert [dict(one) for one in found] == [
        {"id": 0, "doc": '{"a":{"b":[1,2.5,"x",null,true]},"c":5000000000}', "b": 2.5},
        {"id": 1},
        {"id": 2, "doc": "[]"},
    ]
