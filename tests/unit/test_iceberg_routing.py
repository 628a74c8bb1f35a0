"""Routing of rows to tables."""

from __future__ import annotations

from typing import Any

import pytest
from iceberg_staging_rows import batch, config, record

from connect_py.api.errors import BadRows, ConnectError
from connect_py.api.schema import (
    BOOLEAN,
    FLOAT64,
    INT32,
    INT64,
    OPTIONAL_STRING,
    STRING,
    Schema,
    Struct,
    map_of,
    struct,
)
from connectors.iceberg.routing.router import Router, Routing

ROW = struct(("id", INT64), ("kind", OPTIONAL_STRING))


def rows(*kinds: str | None) -> list[Any]:
    return [record(Struct.of(ROW, id=i, kind=k), i) for i, k in enumerate(kinds)]


def where(routing: Routing) -> dict[str, list[int]]:
    return {r.table: r.batch.origin.offsets.to_pylist() for r in routing.routed}


def test_static_tables_without_route_field_take_rows_and_tombstones() -> None:
    router = Router(config(tables="db.a,db.b"))
    made = router.route(batch([*rows("x"), record(None, 1)]))
    assert where(made) == {"db.a": [0, 1], "db.b": [0, 1]}


def test_static_table_regex_takes_rows_whose_whole_value_matches() -> None:
    router = Router(
        config(
            tables="db.a,db.b,db.c",
            tables__route_field="kind",
            table__db__a__route_regex="a.*",
            table__db__b__route_regex="ab|b",
        )
    )
    made = router.route(batch([*rows("ab", "a", "b", "xb", None), record(None, 5)]))
    assert where(made) == {"db.a": [0, 1], "db.b": [0, 2]}
    assert made.unrouted == 2  # the tombstone means nothing when rows are appended


def test_dynamic_table_names_are_converted_to_lower_case() -> None:
    dynamic = {"tables__dynamic_enabled": "true", "tables__route_field": "kind"}
    made = Router(config(**dynamic)).route(batch(rows("Db.X", "db.x", None)))
    assert where(made) == {"db.x": [0, 1]}
    assert made.unrouted == 1


@pytest.mark.parametrize(
    ("schema", "value", "text"),
    [
        (INT32, 7, "7"),
        (BOOLEAN, True, "true"),
        (FLOAT64, 1.0, "1.0"),
        (FLOAT64, 1e10, "1.0e10"),
        (struct(("a", INT32)), Struct.of(struct(("a", INT32)), a=1), "struct{a=1}"),
    ],
)
def test_route_values_are_read_as_java_prints_them(schema: Schema, value: Any, text: str) -> None:
    row = struct(("f", schema))
    router = Router(config(tables__dynamic_enabled="true", tables__route_field="f"))
    assert where(router.route(batch([record(Struct(row, [value]), 0)]))) == {text: [0]}


def test_nested_route_fields_walk_structs_and_maps_and_schemaless_objects() -> None:
    router = Router(config(tables__dynamic_enabled="true", tables__route_field="a.b"))
    nested = struct(("a", struct(("b", STRING))))
    made = router.route(batch([record(Struct.of(nested, a=Struct.of(nested["a"], b="db.s")), 0)]))
    assert where(made) == {"db.s": [0]}
    mapped = struct(("a", map_of(STRING, STRING)))
    made = router.route(
        batch([record(Struct(mapped, [{"b": "db.m"}]), 0), record(Struct(mapped, [{}]), 1)])
    )
    assert where(made) == {"db.m": [0]}
    assert where(router.route(batch([record({"a": {"b": "db.j"}}, 0)]))) == {"db.j": [0]}
    assert router.route(batch([record({"x": 1}, 0)])).unrouted == 1
    without = struct(("a", struct(("other", STRING))))
    assert (
        router.route(
            batch([record(Struct.of(without, a=Struct.of(without["a"], other="x")), 0)])
        ).unrouted
        == 1
    )


def test_a_path_through_something_without_members_makes_bad_rows() -> None:
    router = Router(config(tables__dynamic_enabled="true", tables__route_field="id.x"))
    with pytest.raises(BadRows) as raised:
        router.route(batch(rows("a", "b")))
    assert "Expected a struct/map type" in str(raised.value.errors[1])


def test_topics_go_to_tables_by_pattern_as_rerouted() -> None:
    router = Router(config(ext__topic_to_table=r"ord(\w+):db.o{1}"))
    assert where(router.route(batch(rows("a")))) == {"db.oers": [0]}
    assert router.route(batch([record(Struct.of(ROW, id=1), 0, topic="other")])).unrouted == 1


@pytest.mark.parametrize("unrouted", ["dlq", "fail"])
def test_tombstones_read_ahead_are_judged_in_their_turn(unrouted: str) -> None:
    """A tombstone is not a dead-letter record if an earlier row names its table."""
    more = {
        "tables__dynamic_enabled": "true",
        "tables__route_field": "kind",
        "tables__upsert_mode_enabled": "true",
    }
    router = Router(config(**more, ext__unrouted=unrouted))
    router.is_ahead = True
    with pytest.raises(ConnectError) as refused:
        router.route(batch([record(None, 0)]))
    assert not isinstance(refused.value, BadRows)
    router = Router(config(**more, ext__unrouted=unrouted))
    router.route(batch(rows("db.x")))
    router.is_ahead = True
    assert router.route(batch([record(None, 0)])).unrouted == 0


def test_unrouted_rows_fail_or_become_dead_letters_if_asked() -> None:
    dynamic = {"tables__dynamic_enabled": "true", "tables__route_field": "kind"}
    with pytest.raises(BadRows) as raised:
        Router(config(**dynamic, ext__unrouted="dlq")).route(batch(rows("db.x", None)))
    assert list(raised.value.errors) == [1]
    with pytest.raises(ConnectError, match="no table for this row"):
        Router(config(**dynamic, ext__unrouted="fail")).route(batch(rows(None)))


def test_merge_mode_tombstone_follows_the_rows_of_its_topic() -> None:
    router = Router(
        config(
            tables__dynamic_enabled="true",
            tables__route_field="kind",
            tables__upsert_mode_enabled="true",
        )
    )
    assert router.route(batch([record(None, 0)])).unrouted == 1
    router.route(batch(rows("db.x", "db.y")))
    made = router.route(batch([record(None, 7), *[record(Struct.of(ROW, id=1, kind="db.x"), 8)]]))
    assert where(made) == {"db.x": [7, 8], "db.y": [7]}


def test_bad_rows_of_a_part_keep_their_whole_batch_position() -> None:
    router = Router(config(tables__dynamic_enabled="true", tables__route_field="kind"))
    made = router.route(batch(rows("db.x", "db.y", "db.x")))
    part = next(r for r in made.routed if r.table == "db.x")
    assert list(part.in_whole_batch(BadRows({1: ValueError()})).errors) == [2]


def test_a_topic_may_go_to_several_tables() -> None:
    router = Router(config(ext__topic_to_table=r"shop\.(\w+):db.{1}+audit.{topic}+db.{1}"))
    value = Struct.of(ROW, id=1)
    made = router.route(batch([record(value, 0, topic="shop.a")]))
    assert where(made) == {"db.a": [0], "audit.shop.a": [0]}


def test_tombstone_goes_to_every_table_with_a_route_regex() -> None:
    router = Router(
        config(
            tables="db.a,db.b,db.c",
            tables__route_field="kind",
            tables__upsert_mode_enabled="true",
            table__db__a__route_regex="a",
            table__db__b__route_regex="b",
        )
    )
    made = router.route(batch([record(None, 0, key=1, key_schema=INT32)]))
    assert where(made) == {"db.a": [0], "db.b": [0]}
    assert made.unrouted == 0


def test_tombstone_goes_to_the_table_named_by_its_key() -> None:
    router = Router(
        config(
            tables__dynamic_enabled="true",
            tables__route_field="kind",
            tables__upsert_mode_enabled="true",
        )
    )
    key = struct(("kind", STRING), ("id", INT32))
    deleted = [
        record(None, i, key=Struct(key, [kind, i])) for i, kind in enumerate(("db.x", "DB.Y"))
    ]
    assert where(router.route(batch(deleted))) == {"db.x": [0], "db.y": [1]}


def test_text_that_cannot_name_a_table_is_not_routed() -> None:
    router = Router(config(tables__dynamic_enabled="true", tables__route_field="kind"))
    made = router.route(batch(rows("db.x", "", "db..x", " . ", "db.")))
    assert where(made) == {"db.x": [0]}
    assert made.unrouted == 4
