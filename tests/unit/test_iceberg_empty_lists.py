"""Files in which a column of lists has no list: Arrow cannot make empty columns of every type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from iceberg_staging_rows import batch, read, record, stage, stager, table

from connect_py.api.schema import INT64, STRING, Struct, array, map_of, struct
from connectors.iceberg.conversion.types import arrow_schema
from connectors.iceberg.staging.projection import project

INNER = struct(("u", STRING))
UUID = {"id": 4, "name": "u", "required": True, "type": "uuid"}


def list_of(element: Any, field_id: int = 3) -> dict[str, Any]:
    return {"type": "list", "element-id": field_id, "element-required": False, "element": element}


STRUCT = {"type": "struct", "fields": [UUID]}
MAP = {
    "type": "map",
    "key-id": 7,
    "key": "string",
    "value-id": 8,
    "value-required": False,
    "value": list_of(STRUCT),
}
COLUMNS = [
    (list_of(STRUCT), array(INNER, optional=True), []),
    (list_of(list_of(STRUCT), 9), array(array(INNER), optional=True), [[]]),
    (MAP, map_of(STRING, array(INNER), optional=True), {"a": []}),
    (list_of("uuid"), array(STRING, optional=True), []),
]


@pytest.mark.parametrize(("type_", "schema", "empty"), COLUMNS)
def test_files_without_list_elements_are_written_despite_required_uuids(
    tmp_path: Path, type_: Any, schema: Any, empty: Any
) -> None:
    row = struct(("id", INT64), ("l", schema))
    for keys in ([], ["id"]):
        made = stager(table([("id", "long"), ("l", type_)], keys=keys, folder=tmp_path))
        values = [None, empty, None]
        files = stage(
            made, batch([record(Struct(row, [i, v]), i, key=i) for i, v in enumerate(values)])
        )
        found = [None if r["l"] is None else len(r["l"]) for r in read(files)]
        assert found == [None, len(empty), None]
        made.discard()


def test_empty_lists_get_the_fields_of_a_newer_schema() -> None:
    new = {
        "type": "struct",
        "fields": [UUID, {"id": 5, "name": "n", "required": False, "type": "long"}],
    }
    old_schema, new_schema = (
        arrow_schema([{"id": 1, "name": "l", "required": False, "type": list_of(element)}])
        for element in (STRUCT, new)
    )
    rows = pa.Table.from_batches(
        [pa.record_batch([pa.nulls(2, old_schema.field(0).type)], schema=old_schema)]
    )
    made = project(rows, new_schema)
    assert made.schema.equals(new_schema, check_metadata=True)
    assert made.column("l").to_pylist() == [None, None]
