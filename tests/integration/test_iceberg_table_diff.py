"""The difference of two snapshots on real Spark and Iceberg, against two dictionaries."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from fixtures.iceberg_commit import ORDERS_KEY, Lake, Sink, lake, order

from connectors.iceberg.errors import TableUnsuitableError
from connectors.iceberg.table.table import StagedKind, WriteMode
from connectors.iceberg_tools.history.table_diff import DiffRequest, RowChange, TableDiff, compare

__all__ = ["lake"]

State = dict[tuple[int, str], Mapping[str, Any]]


def difference(
    lake: Lake, name: str, before: int, after: int, keys: Iterable[str] = ORDERS_KEY, **more: Any
) -> TableDiff:
    request = DiffRequest(before, after, tuple(keys), **{"limit": 1000, **more})
    return lake.catalog.run(name, compare, request)


def oracle(before: State, after: State) -> Counter[RowChange]:
    """Return the change of each key, computed with dictionaries."""
    found = Counter[RowChange]()
    for key in before.keys() | after.keys():
        if key not in before:
            found[RowChange.INSERTED] += 1
        elif key not in after:
            found[RowChange.DELETED] += 1
        elif before[key] != after[key]:
            found[RowChange.UPDATED] += 1
    return found


def changed_keys(diff: TableDiff) -> dict[tuple[int, str], str]:
    return {(row["key"]["shop"], row["key"]["number"]): row["change"] for row in diff.rows}


def head(sink: Sink) -> int:
    found = sink.lake.catalog.table(sink.name).metadata().head("main")
    assert found is not None
    return int(found["snapshot-id"])


@pytest.mark.long  # in every run: test_appended_rows_are_counted_and_keys_with_several_rows_named
@pytest.mark.parametrize("version", [2, 3])
def test_merged_tables_differ_as_dictionaries_do_also_after_compaction(
    version: int, lake: Lake
) -> None:
    sink, rng = lake.make(version=version), random.Random(version)
    state: State = {}
    history: list[tuple[int, State]] = []
    for cycle in range(5):
        rows = {f"n{rng.randrange(12)}": rng.choice([None, "north", "south"]) for _ in range(6)}
        gone = {f"n{rng.randrange(12)}" for _ in range(2)} - rows.keys()
        files = sink.stage([order(1, number, region) for number, region in rows.items()])
        if cycle:
            files += sink.stage(
                [{"shop": 1, "number": number} for number in sorted(gone)], StagedKind.DELETES
            )
            state = {key: row for key, row in state.items() if key[1] not in gone}
        state = {
            **state,
            **{(1, number): order(1, number, region) for number, region in rows.items()},
        }
        sink.commit(files)
        history.append((head(sink), state))
    lake.sql(
        f"CALL lake.system.rewrite_data_files(table => '{sink.name}', options => "
        f"map('rewrite-all','true'))"
    )
    history.append((head(sink), state))
    pairs = [(0, 4), (1, 3), (4, 5), (3, 5), (5, 0)]
    for first, second in pairs:
        (before, old), (after, new) = history[first], history[second]
        found = difference(lake, sink.name, before, after)
        assert found.counts == oracle(old, new), (first, second)
        assert changed_keys(found).keys() == {
            key for key in old.keys() | new.keys() if old.get(key) != new.get(key)
        }
        for row in found.rows:
            if row["change"] == "updated":
                assert row["changed"] == ["region"]
                key = row["key"]["shop"], row["key"]["number"]
                assert row["before"].get("region") == old[key]["region"]
                assert row["after"].get("region") == new[key]["region"]


WIDE = json.dumps(
    {
        "type": "struct",
        "schema-id": 0,
        "fields": [
            {"id": 1, "name": "id", "required": True, "type": "int"},
            {"id": 2, "name": "ratio", "required": False, "type": "float"},
            {
                "id": 3,
                "name": "tags",
                "required": False,
                "type": {
                    "type": "map",
                    "key-id": 4,
                    "key": "string",
                    "value-id": 5,
                    "value": "int",
                    "value-required": False,
                },
            },
            {
                "id": 6,
                "name": "place",
                "required": False,
                "type": {
                    "type": "struct",
                    "fields": [
                        {"id": 7, "name": "city", "required": False, "type": "string"},
                        {"id": 8, "name": "code", "required": False, "type": "int"},
                    ],
                },
            },
            {"id": 9, "name": "old name", "required": False, "type": "int"},
        ],
    }
)


def wide(lake: Lake, sink: Sink, *values: str) -> int:
    lake.sql(f"INSERT INTO lake.{sink.name} VALUES {', '.join(values)}")
    return head(sink)


def test_snapshot_difference_compares_nulls_nan_maps_and_nested_fields(lake: Lake) -> None:
    sink = lake.make(WIDE, mode=WriteMode.APPEND)
    same = (
        "(1, float('NaN'), map('a', 1, 'b', 2), named_struct('city', 'Bern', 'code', NULL), NULL)"
    )
    before = wide(lake, sink, same, "(2, NULL, map('a', 1), NULL, 1)", "(3, 0.5F, NULL, NULL, 1)")
    lake.sql(f"DELETE FROM lake.{sink.name}")
    after = wide(
        lake,
        sink,
        same.replace("'a', 1, 'b', 2", "'b', 2, 'a', 1"),
        "(2, NULL, map('a', 2), NULL, 1)",
        "(3, 0.5F, NULL, named_struct('city', NULL, 'code', NULL), NULL)",
    )
    found = difference(lake, sink.name, before, after, ["id"])
    assert {row["key"]["id"]: row["changed"] for row in found.rows} == {
        2: ["tags"],
        3: ["place", "old name"],
    }
    assert difference(lake, sink.name, before, after, []).counts == {
        RowChange.INSERTED: 2,
        RowChange.DELETED: 2,
    }


def test_columns_are_matched_by_their_ids(lake: Lake) -> None:
    sink = lake.make(WIDE, mode=WriteMode.APPEND)
    before = wide(
        lake, sink, "(1, 1.5F, map('a', 1), named_struct('city', 'Bern', 'code', 3000), 7)"
    )
    name = f"lake.{sink.name}"
    for change in (
        "RENAME COLUMN `old name` TO label",
        "ALTER COLUMN ratio TYPE double",
        "DROP COLUMN tags",
        "ADD COLUMN added string",
        "RENAME COLUMN place.city TO town",
        "ALTER COLUMN place.code TYPE bigint",
        "ADD COLUMN place.country string",
        "ADD COLUMN tags int",
    ):
        lake.sql(f"ALTER TABLE {name} {change}")
    lake.sql(f"INSERT INTO {name} (id, ratio, label) VALUES (2, 2.5D, 8)")
    after = head(sink)
    found = difference(lake, sink.name, before, after, ["id"])
    assert found.counts == {RowChange.INSERTED: 1}  # the first row is the same under its new names
    columns = found.columns
    assert (columns.added, columns.dropped, columns.renamed) == (
        ("added", "tags"),
        ("tags",),
        (("old name", "label"),),
    )
    assert set(columns.retyped) == {"ratio", "place"}
    back = difference(lake, sink.name, after, before, ["id"])
    assert back.counts == {RowChange.DELETED: 1}
    with pytest.raises(TableUnsuitableError, match=r"snapshot \d+ does not have column added"):
        difference(lake, sink.name, before, after, ["added"])
    with pytest.raises(
        TableUnsuitableError, match="column shop, which is part of the key, does not exist"
    ):
        difference(lake, sink.name, before, after)


def test_appended_rows_are_counted_and_keys_with_several_rows_named(
    lake: Lake, tmp_path: Path
) -> None:
    sink = lake.make(mode=WriteMode.APPEND)
    sink.commit(sink.stage([order(1, "a"), order(1, "a"), order(1, "b")]))
    before = head(sink)
    sink.commit(sink.stage([order(1, "a"), order(1, "c"), order(1, "c")]))
    lake.sql(f"DELETE FROM lake.{sink.name} WHERE number = 'b'")
    after = head(sink)
    folder, table = tmp_path / "changes", f"shop.changes_{sink.name.rpartition('.')[2]}"
    found = difference(lake, sink.name, before, after, [], parquet=folder.as_uri(), table=table)
    assert found.counts == {RowChange.INSERTED: 3, RowChange.DELETED: 1}
    rows = sorted(
        (r["change"], r["times"], (r["after"] or r["before"])["number"]) for r in found.rows
    )
    assert rows == [("deleted", 1, "b"), ("inserted", 1, "a"), ("inserted", 2, "c")]
    assert pq.read_table(folder).column_names == ["change", "times", "before", "after"]
    assert len(lake.rows(table)) == 3
    with pytest.raises(TableUnsuitableError, match="exists"):
        difference(lake, sink.name, before, after, [], table=table)
    by_key = difference(lake, sink.name, before, after)
    assert by_key.counts == {RowChange.SEVERAL_ROWS: 2, RowChange.DELETED: 1}  # a and c
    again = lake.catalog.spark.sql(by_key.sql)  # what --sql prints is what ran
    assert again.count() == 3
