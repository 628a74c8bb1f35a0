"""The rows of a data file whose key is staged, found by Arrow: what a join in SQL would find, or a refusal to look."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.iceberg.spark import key_join
from connectors.iceberg.spark.errors import CatalogUnavailableError
from connectors.iceberg.spark.key_join import KeyJoin, NotJoinable
from connectors.iceberg.spark.table_files import TableFiles

FILES = TableFiles({})


def write(path: Path, columns: Mapping[int, pa.Array], **settings: Any) -> str:
    """A data file with columns by field id; their names are not what counts."""
    fields = [
        pa.field(f"c{number}", array.type, metadata={"PARQUET:field_id": str(number)})
        for number, array in columns.items()
    ]
    pq.write_table(pa.table(list(columns.values()), pa.schema(fields)), path, **settings)
    return str(path)


def found(keys: pa.Table, ids: Sequence[int], path: str) -> list[int]:
    count = pq.read_metadata(path).num_rows
    bits = KeyJoin(keys, ids, FILES).rows(path, count)
    assert len(bits) == (count + 7) // 8
    rows = [index for index in range(8 * len(bits)) if bits[index // 8] >> index % 8 & 1]
    assert all(row < count for row in rows)
    return rows


VALUES: Mapping[str, tuple[pa.DataType, Sequence[Any]]] = {
    "int": (pa.int32(), [-1, 0, 7]),
    "long": (pa.int64(), [-(2**60), 0, 7]),
    "string": (pa.string(), ["", "a", "ö"]),
    "binary": (pa.binary(), [b"", b"\x00", b"a"]),
    "fixed": (pa.binary(2), [b"aa", b"ab", b"\x00\x00"]),
    "date": (pa.date32(), [dt.date(1969, 1, 1), dt.date(2026, 1, 2), dt.date(1, 1, 1)]),
    "moment": (pa.timestamp("us", "UTC"), [dt.datetime(2026, 1, 2, 3, 4, 5, n, dt.UTC) for n in (0, 1, 2)]),
    "decimal": (pa.decimal128(12, 2), [decimal.Decimal(n) for n in ("-1.25", "0.00", "99.99")]),
    "boolean": (pa.bool_(), [True, False]),
}


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_row_is_found_exactly_when_all_its_key_columns_are_staged_in_one_row(data: Any) -> None:
    kinds = data.draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=3))
    staged_rows = st.tuples(*(st.sampled_from(VALUES[kind][1]) for kind in kinds))
    table_rows = st.tuples(*(st.sampled_from([*VALUES[kind][1], None]) for kind in kinds))
    staged = data.draw(st.lists(staged_rows, min_size=1, max_size=6, unique=True))
    rows = data.draw(st.lists(table_rows, max_size=40))
    types = [VALUES[kind][0] for kind in kinds]
    keys = pa.table(
        [pa.array([row[i] for row in staged], kind) for i, kind in enumerate(types)],
        names=[f"key{i}" for i in range(len(kinds))],
    )
    ids = list(range(5, 5 + len(kinds)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_join, "BATCH_ROWS", data.draw(st.sampled_from([1, 3, 500])))
        sink = pa.BufferOutputStream()
        columns = {5 + i: pa.array([row[i] for row in rows], kind) for i, kind in enumerate(types)}
        write(sink, columns, row_group_size=data.draw(st.sampled_from([2, 7, 1000])))  # type: ignore[arg-type]
        patch.setattr(FILES, "open", lambda _: pa.BufferReader(sink.getvalue()), raising=False)
        bits = KeyJoin(keys, ids, FILES).rows("buffer", len(rows))
    expected = [tuple(row) in staged for row in rows]
    assert [bool(bits[i // 8] >> i % 8 & 1) for i in range(len(rows))] == expected


def test_a_key_that_became_wider_matches_rows_of_before(tmp_path: Path) -> None:
    path = write(tmp_path / "old.parquet", {1: pa.array([1, 2, 3], pa.int32())})
    assert found(pa.table({"id": pa.array([3, 2**40], pa.int64())}), [1], path) == [2]
    path = write(tmp_path / "narrow.parquet", {1: pa.array([decimal.Decimal("1.5")], pa.decimal128(4, 2))})
    assert found(pa.table({"id": pa.array([decimal.Decimal("1.5")], pa.decimal128(20, 2))}), [1], path) == [0]


def test_columns_are_known_by_field_id_and_not_by_name(tmp_path: Path) -> None:
    path = write(tmp_path / "renamed.parquet", {2: pa.array(["x", "y"]), 1: pa.array(["y", "z"])})
    assert found(pa.table({"c1": pa.array(["y"])}), [2], path) == [1]


@pytest.mark.parametrize(
    ("keys", "column"),
    [
        (pa.array([1.5]), pa.array([1.5])),  # NaN and signed zeros are equal in SQL
        (pa.array([{"a": 1}]), pa.array([{"a": 1}])),
        (pa.array([1], pa.int32()), pa.array([2**40], pa.int64())),  # Iceberg narrows nothing: not our table's file
    ],
)
def test_unusual_keys_are_left_to_spark(tmp_path: Path, keys: pa.Array, column: pa.Array) -> None:
    path = write(tmp_path / "unusual.parquet", {1: column})
    with pytest.raises(NotJoinable):
        found(pa.table({"id": keys}), [1], path)


def test_files_that_are_not_as_expected_are_left_to_spark(tmp_path: Path) -> None:
    keys = pa.table({"id": pa.array([1])})
    path = write(tmp_path / "other.parquet", {2: pa.array([1])})
    with pytest.raises(NotJoinable, match="field id 1"):
        found(keys, [1], path)
    pq.write_table(pa.table({"id": pa.array([1])}), tmp_path / "imported.parquet")
    with pytest.raises(NotJoinable, match="field id 1"):
        found(keys, [1], str(tmp_path / "imported.parquet"))
    with pytest.raises(NotJoinable, match="manifest says 9"):
        KeyJoin(keys, [2], FILES).rows(path, 9)


def test_file_that_is_gone_may_be_there_later() -> None:
    keys = pa.table({"id": pa.array([1])})
    with pytest.raises(CatalogUnavailableError, match=r"gone\.parquet"):
        KeyJoin(keys, [1], FILES).rows("file:/nowhere/gone.parquet", 1)
