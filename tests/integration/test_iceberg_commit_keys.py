"""Keys of every type, of several columns, of columns that were renamed, and in tables that others
made."""

from __future__ import annotations

import datetime as dt
import decimal
import itertools
import json
import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from fixtures.iceberg_commit import BY_REGION, ENGINES, Lake, Sink, lake, order, s3, s3_lake
from short_form import short_form

from connectors.iceberg.errors import TableUnsuitableError
from connectors.iceberg.protocol.commit_request import EngineName
from connectors.iceberg.table.schema_change import ChangeKind, SchemaChange
from connectors.iceberg.table.table import StagedKind, WriteMode

__all__ = ["lake", "s3", "s3_lake"]

DAY = dt.date(2026, 1, 1)
MOMENT = dt.datetime(1969, 12, 31, 23, 59, 59, 999_990)
Make = Callable[[int], object]

KEYS: dict[str, tuple[Any, Make]] = {  # an Iceberg type, and distinct keys of it by number
    "boolean": ("boolean", lambda i: bool(i % 2)),
    "int": ("int", lambda i: i - 2_147_483_648),
    "long": ("long", lambda i: i - (1 << 63)),
    "float": ("float", lambda i: (0.0, math.nan, math.inf, -math.inf, 1.5, -2.25)[i]),
    "double": ("double", lambda i: (0.0, math.nan, math.inf, -math.inf, 0.1, -2.25)[i]),
    "decimal": ("decimal(20, 3)", lambda i: decimal.Decimal(i - 2) * 1001 / 1000),
    "wide decimal": ("decimal(38, 10)", lambda i: decimal.Decimal(i - 2) * 10**20 / 8),
    "date": ("date", lambda i: DAY - dt.timedelta(i * 40_000)),
    "timestamp": ("timestamp", lambda i: MOMENT + dt.timedelta(microseconds=3 * i)),
    "timestamptz": (
        "timestamptz",
        lambda i: MOMENT.replace(tzinfo=dt.UTC) + dt.timedelta(microseconds=3 * i),
    ),
    "string": ("string", lambda i: ("", "a", "a ", "A", "k'\\", "\u00f6")[i]),
    "uuid": ("uuid", lambda i: uuid.UUID(int=i << 64 | 0x8000000000000001).bytes),
    "fixed": ("fixed[3]", lambda i: bytes([i, 255, 0])),
    "binary": ("binary", lambda i: (b"", b"\0", b"\0\0", b"\xff", b"a", b"A")[i]),
}


def table_by(lake: Lake, types: Sequence[Any], version: int) -> Sink:
    """A table with keys of these types, and a value."""
    names = [f"k{at}" for at in range(len(types))]
    fields = [
        {"id": at, "name": f"k{at - 1}", "required": True, "type": type_}
        for at, type_ in enumerate(types, 1)
    ]
    fields.append({"id": len(fields) + 1, "name": "v", "required": False, "type": "string"})
    return lake.make(
        json.dumps({"type": "struct", "schema-id": 0, "fields": fields}), None, version, names
    )


def values(sink: Sink) -> list[str]:
    return sorted(str(dict(row)["v"]) for row in sink.rows("v"))


def exact(sink: Sink, keys: Sequence[Mapping[str, object]], engine: EngineName) -> None:
    """Write, replace, and delete rows with these keys, and check the remaining rows."""

    def rows(numbers: Sequence[int], text: str) -> list[dict[str, object]]:
        return [{**keys[number], "v": f"{text}{number}"} for number in numbers]

    everything, some = range(len(keys)), range(0, len(keys), 2)
    sink.commit(sink.stage(rows(everything, "a")), engine)
    outcome = sink.commit(sink.stage(rows(some, "b")), engine)
    assert outcome.counts.replaced_rows == len(some)
    assert values(sink) == sorted(f"{'a' if number % 2 else 'b'}{number}" for number in everything)
    deletes = sink.stage([keys[-1]], StagedKind.DELETES)
    sink.commit(sink.stage(rows([0], "c")) + deletes, engine)
    expected = {number: f"{'a' if number % 2 else 'b'}{number}" for number in everything} | {
        0: "c0"
    }
    del expected[len(keys) - 1]
    assert values(sink) == sorted(expected.values())


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", short_form(KEYS, ["wide decimal"]))
def test_rows_are_replaced_by_keys_of_every_type(lake: Lake, kind: str, engine: EngineName) -> None:
    type_, make = KEYS[kind]
    sink = table_by(lake, [type_], 3 if engine is EngineName.MERGE else 2)
    exact(sink, [{"k0": make(number)} for number in range(2 if kind == "boolean" else 6)], engine)


# in every run: test_rows_are_replaced_by_keys_of_every_type, S3 in test_iceberg_storage_errors.py
@pytest.mark.long
@pytest.mark.parametrize(("kind", "version"), list(itertools.product(KEYS, (2, 3))))
def test_rows_on_s3_are_replaced_by_keys_of_every_type(
    s3_lake: Lake, kind: str, version: int
) -> None:
    type_, make = KEYS[kind]
    sink = table_by(s3_lake, [type_], version)
    assert sink.description().data_location.startswith("s3://")
    exact(
        sink,
        [{"k0": make(number)} for number in range(2 if kind == "boolean" else 6)],
        EngineName.MERGE,
    )


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("version", short_form([2, 3], [2]))
def test_rows_are_replaced_by_keys_of_several_columns(
    lake: Lake, version: int, engine: EngineName
) -> None:
    kinds = ["uuid", "decimal", "string", "date"]
    sink = table_by(lake, [KEYS[kind][0] for kind in kinds], version)
    numbers = [(0, 0, 0, 0), (0, 0, 0, 1), (0, 0, 1, 0), (0, 1, 0, 0), (1, 0, 0, 0), (1, 1, 1, 1)]
    keys = [
        {f"k{at}": KEYS[kinds[at]][1](number) for at, number in enumerate(row)} for row in numbers
    ]
    exact(sink, keys, engine)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("there", "comes"), [(0.0, -0.0), (-0.0, 0.0), (math.nan, -math.nan)])
def test_numbers_that_are_equal_are_one_key(
    lake: Lake, there: float, comes: float, engine: EngineName
) -> None:
    sink = table_by(lake, ["double"], 3)
    sink.commit(sink.stage([{"k0": there, "v": "a"}, {"k0": 1.0, "v": "a1"}]))
    sink.commit(sink.stage([{"k0": comes, "v": "b"}]), engine)
    assert values(sink) == ["a1", "b"]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("version", short_form([2, 3], [3]))
def test_keys_and_values_are_found_under_renamed_column_names(
    lake: Lake, version: int, engine: EngineName
) -> None:
    sink = lake.make(version=version, spec=BY_REGION)
    sink.commit(sink.stage([order(1, "a"), order(1, "b"), order(1, "c", notes=["kept"])]))
    # one takes another's name
    renamed = {"number": "no", "region": "area", "amount": "number", "notes": "remarks"}
    before = sink.stage([order(1, "a", "south")])
    for old, new in renamed.items():
        lake.catalog.evolve(sink.name, [SchemaChange(ChangeKind.RENAME, (old,), name=new)])
    sink.key_columns = ("shop", "no")
    sink.commit(before, engine)
    found = {dict(row)["no"]: dict(row)["area"] for row in sink.rows("no, area")}
    assert found == {"a": "south", "b": "north", "c": "north"}
    patch = {
        renamed.get(name, name): value for name, value in order(1, "c", "east", notes=None).items()
    }
    sink.commit(sink.stage([patch], StagedKind.CHANGES, ["remarks"]), engine)
    sink.commit(sink.stage([{"shop": 1, "no": "b"}], StagedKind.DELETES), engine)
    found = {dict(row)["no"]: dict(row) for row in sink.rows("no, area, remarks")}
    assert found == {
        "a": {"no": "a", "area": "south", "remarks": ["a", None]},
        "c": {"no": "c", "area": "east", "remarks": ["kept"]},
    }


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("version", short_form([2, 3], [2]))
def test_rows_staged_before_a_key_column_change_are_merged(
    lake: Lake, version: int, engine: EngineName
) -> None:
    sink = lake.make(version=version)
    sink.commit(sink.stage([order(shop, "a", notes=[str(shop)]) for shop in range(4)]))
    staged = sink.stage([order(0, "a", "south"), order(9, "a")])
    staged += sink.stage([order(1, "a", "east", notes=None)], StagedKind.CHANGES, ["notes"])
    staged += sink.stage([{"shop": 2, "number": "a"}], StagedKind.DELETES)
    changes = [
        SchemaChange(ChangeKind.WIDEN, ("shop",), '"long"'),
        SchemaChange(ChangeKind.RENAME, ("number",), name="no"),
        SchemaChange(ChangeKind.ADD, ("number",), '"string"'),
    ]
    lake.catalog.evolve(sink.name, changes)
    sink.key_columns = ("shop", "no")
    sink.commit(staged, engine)
    found = {
        dict(row)["shop"]: (dict(row)["region"], dict(row)["notes"])
        for row in sink.rows("shop, region, notes")
    }
    assert found == {
        0: ("south", ["a", None]),
        1: ("east", ["1"]),
        3: ("north", ["3"]),
        9: ("north", ["a", None]),
    }


@pytest.mark.parametrize("engine", ENGINES)
def test_commit_fails_naming_the_key_column_that_is_missing(lake: Lake, engine: EngineName) -> None:
    sink = lake.make()
    sink.commit(sink.stage([order(1, "a")]))
    staged = sink.stage([order(1, "a", "south")])
    lake.catalog.evolve(sink.name, [SchemaChange(ChangeKind.RENAME, ("number",), name="no")])
    with pytest.raises(TableUnsuitableError, match="has no key column number"):
        sink.commit(staged, engine)
    assert [dict(row)["name"] for row in lake.rows(f"{sink.name}.refs", "name")] == ["main"]
    assert [dict(row)["region"] for row in sink.rows("region")] == ["north"]


@pytest.mark.parametrize(
    ("mode", "version"),
    short_form(
        itertools.product([None, "copy-on-write", "merge-on-read"], (2, 3)),
        [("copy-on-write", 3)],
    ),
)
def test_foreign_tables_are_merged_according_to_their_write_mode(
    lake: Lake, version: int, mode: str | None
) -> None:
    name = f"shop.t{uuid.uuid4().hex[:10]}"
    properties = f"'format-version' = '{version}'" + (
        f", 'write.merge.mode' = '{mode}'" if mode else ""
    )
    lake.sql(
        f"CREATE TABLE lake.{name} (id BIGINT, v STRING, at TIMESTAMP) USING iceberg PARTITIONED "
        f"BY (bucket(3, id)) TBLPROPERTIES ({properties})"
    )
    lake.sql(f"INSERT INTO lake.{name} SELECT id, 'theirs', current_timestamp() FROM range(20)")
    lake.sql(f"DELETE FROM lake.{name} WHERE id = 19")
    sink = Sink(lake, name, WriteMode.MERGE, ("id",))
    description = sink.description()
    staged = sink.stage(
        [{"id": 3, "v": "ours"}, {"id": 30, "v": "ours"}], StagedKind.CHANGES, ["at"]
    )
    deletes = sink.stage([{"id": 4}, {"id": 19}], StagedKind.DELETES)
    outcome = sink.commit(staged + deletes)
    assert outcome.engine is (
        EngineName.MERGE if mode == "merge-on-read" else EngineName.FULL_MERGE
    )
    found = {
        int(str(dict(row)["id"])): dict(row) for row in sink.rows("id, v, at IS NOT NULL AS told")
    }
    assert sorted(found) == sorted({*range(19), 30} - {4})
    assert {id_ for id_, row in found.items() if row["v"] == "ours"} == {3, 30}
    assert {id_ for id_, row in found.items() if not row["told"]} == {30}
    kept = {
        key: value
        for key, value in sink.description().properties.items()
        if key.startswith("write.")
    }
    assert kept == {
        key: value for key, value in description.properties.items() if key.startswith("write.")
    }
    deleted = lake.rows(f"{name}.delete_files", "file_path")
    assert bool(deleted) is (mode == "merge-on-read")
