"""The sort order and the partition fields of the configuration on real tables, and files after a
compaction."""

from __future__ import annotations

import json

import pytest
from fixtures.iceberg_commit import BY_REGION, Lake, lake, order

from connectors.iceberg.config.layout_terms import list_items, parse_partition_by, parse_sort_by
from connectors.iceberg.errors import TableUnsuitableError

__all__ = ["lake"]


def test_sort_order_is_set_once_and_compaction_follows_it(lake: Lake) -> None:
    sink, terms = lake.make(), parse_sort_by("region desc, number, bucket(number, 4)")
    assert lake.catalog.set_layout(sink.name, terms, None)
    assert not lake.catalog.set_layout(sink.name, terms, None)
    for number in range(3):
        sink.commit(
            sink.stage(
                [order(1, f"{letter}{number}", region) for letter, region in ("cx", "ay", "bx")]
            )
        )
    lake.sql(
        f"CALL lake.system.rewrite_data_files(table => '{sink.name}', strategy => 'sort', "
        "options => map('rewrite-all', 'true'))"
    )
    rows = lake.catalog.spark.sql(
        f"SELECT region, number, _pos FROM lake.{sink.name} ORDER BY _pos"
    ).collect()
    found = [(row[0], row[1]) for row in rows]
    assert found == sorted(found, key=lambda row: (-ord(row[0]), row[1]))


def test_partition_fields_change_for_new_files_alone(lake: Lake) -> None:
    sink = lake.make(spec=BY_REGION)
    sink.commit(sink.stage([order(1, "a"), order(1, "b", "south")]))
    wanted = parse_partition_by(list_items("shop, days(placed), bucket(number, 2)"))
    assert lake.catalog.set_layout(sink.name, (), wanted)
    assert not lake.catalog.set_layout(sink.name, (), wanted)
    fields = json.loads(sink.description().spec)["fields"]
    assert [(field["name"], field["transform"]) for field in fields] == [
        ("shop", "identity"),
        ("placed_day", "day"),
        ("number_bucket", "bucket[2]"),
    ]
    lake.sql(
        f"INSERT INTO lake.{sink.name} VALUES (2, 'c', 'north', 1.0, TIMESTAMP '2026-01-02 "
        f"00:00:00', null)"
    )
    files = lake.catalog.spark.sql(
        f"SELECT spec_id, count(*) FROM lake.{sink.name}.files GROUP BY 1 ORDER BY 1"
    )
    assert [tuple(row) for row in files.collect()] == [(0, 2), (1, 1)]
    assert len(sink.rows("number")) == 3
    assert lake.catalog.set_layout(sink.name, (), parse_partition_by(list_items("region")))
    assert not lake.catalog.set_layout(sink.name, (), parse_partition_by(list_items("region")))
    assert lake.catalog.set_layout(sink.name, (), ())
    assert json.loads(sink.description().spec)["fields"] == []


def test_layouts_of_unknown_columns_are_refused(lake: Lake) -> None:
    sink = lake.make()
    with pytest.raises(TableUnsuitableError, match="Cannot find field 'regoin'"):
        lake.catalog.set_layout(sink.name, parse_sort_by("regoin"), None)
    with pytest.raises(TableUnsuitableError, match="Cannot find field 'regoin'"):
        lake.catalog.set_layout(sink.name, (), parse_partition_by(list_items("regoin")))
