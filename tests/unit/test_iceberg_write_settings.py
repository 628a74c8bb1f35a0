"""`write.` properties of a table that staged files follow, and properties that the sink ignores."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from iceberg_staging_rows import batch, record, stage, stager, table

from connectors.iceberg.staging.write_settings import ignored_properties
from connectors.iceberg.table.table import StagedFile

COLUMNS = [("id", "long"), ("v", "string"), ("b", "boolean")]
TAGS = ("tags", {"type": "list", "element-id": 10, "element-required": False, "element": "string"})


def staged(
    folder: Path, properties: Mapping[str, str], rows: int = 4000, **settings: str
) -> list[StagedFile]:
    made = stager(table([*COLUMNS, TAGS], folder=folder, properties=properties), **settings)
    values = [{"id": i, "v": f"{i:0>100}", "b": True, "tags": [str(i)]} for i in range(rows)]
    return stage(made, batch([record(value, i) for i, value in enumerate(values)]))


def footer(file: StagedFile) -> Any:
    return pq.ParquetFile(file.path).metadata


def test_row_groups_are_as_small_as_the_table_wants_them(tmp_path: Path) -> None:
    (plain,) = staged(tmp_path, {})
    assert footer(plain).num_row_groups == 1
    (small,) = staged(tmp_path, {"write.parquet.row-group-size-bytes": "65536"})
    sizes = [footer(small).row_group(i).num_rows for i in range(footer(small).num_row_groups)]
    assert sum(sizes) == 4000
    assert max(sizes) < 1000
    assert pq.read_table(small.path)["id"].to_pylist() == list(range(4000))


def test_a_row_group_has_at_least_some_rows(tmp_path: Path) -> None:
    (file,) = staged(tmp_path, {"write.parquet.row-group-size-bytes": "1"}, rows=400)
    assert footer(file).num_row_groups <= 8


def test_connector_setting_for_file_size_overrides_the_table_property(tmp_path: Path) -> None:
    properties = {"write.target-file-size-bytes": "100000"}
    assert len(staged(tmp_path, {})) == 1
    assert len(staged(tmp_path, properties)) > 4
    assert len(staged(tmp_path, properties, ext__target_file_size_bytes=str(512 << 20))) == 1
    wanted = {"tables__write_props__write__target_file_size_bytes": "100000"}
    assert len(staged(tmp_path, {}, **wanted)) > 4


def test_bloom_filters_are_written_for_columns_the_table_names(tmp_path: Path) -> None:
    enabled = "write.parquet.bloom-filter-enabled.column."
    properties = {f"{enabled}{name}": "true" for name in ("id", "tags.element", "b", "gone")}
    (file,) = staged(tmp_path, {**properties, f"{enabled}v": "false"})
    columns = [footer(file).row_group(0).column(i) for i in range(4)]
    found = {column.path_in_schema: column.bloom_filter_length for column in columns}
    assert {name for name, length in found.items() if length} == {"id", "tags.list.element"}


def test_a_bloom_filter_is_as_large_as_the_table_allows(tmp_path: Path) -> None:
    def length(**more: str) -> int:
        written = {"write.parquet.bloom-filter-enabled.column.id": "true"}
        properties = {
            **written,
            **{f"write.parquet.bloom-filter-{k.replace('_', '-')}": v for k, v in more.items()},
        }
        return int(
            footer(staged(tmp_path, properties)[0]).row_group(0).column(0).bloom_filter_length
        )

    usual = length()
    assert length(**{"ndv.column.id": "100"}) < usual
    assert length(**{"fpp.column.id": "0.0001"}) > usual
    assert length(max_bytes="1024") <= 1200


def test_pages_and_dictionaries_are_as_large_as_the_table_says(tmp_path: Path) -> None:
    (usual,) = staged(tmp_path, {})
    (paged,) = staged(
        tmp_path,
        {
            "write.parquet.page-row-limit": "100",
            "write.parquet.page-size-bytes": "1000",
            "write.parquet.dict-size-bytes": "1000",
        },
    )
    assert paged.size > usual.size, "each page has a header"
    assert pq.read_table(paged.path).equals(pq.read_table(usual.path))


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("write.format.default", "avro", "staged files are Parquet"),
        ("write.format.default", "PARQUET", None),
        ("write.upsert.enabled", "true", "decides whether rows are upserts"),
        ("write.upsert.enabled", "false", None),
        ("write.object-storage.enabled", "true", "write.data.path"),
        ("write.location-provider.impl", "com.example.Provider", "write.data.path"),
        ("write.distribution-mode", "range", "in offset order"),
        ("write.parquet.shred-variants", "true", "not shredded"),
        ("write.parquet.stats-enabled.column.v", "false", "for every column"),
        ("write.parquet.compression-codec", "lzo", "zstd"),
        ("write.parquet.compression-codec", "SNAPPY", None),
        ("write.parquet.row-group-size-bytes", "128MB", "must be a number"),
        ("write.target-file-size-bytes", "0", "must be a number"),
        ("write.parquet.bloom-filter-fpp.column.v", "2", "between 0 and 1"),
        ("write.merge.mode", "merge-on-read", None),
        ("write.metadata.metrics.default", "none", None),
    ],
)
def test_properties_that_staged_files_do_not_follow_are_told(
    key: str, value: str, said: str | None
) -> None:
    found = ignored_properties({key: value, "owner": "us"})
    if said is None:
        assert found == []
    else:
        (text,) = found
        assert text.startswith(f"{key}={value} has no effect: ")
        assert said in text
