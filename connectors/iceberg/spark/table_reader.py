"""Living rows of a table, read by the coordinator with Arrow: few rows, of any number of files."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from connectors.iceberg.spark.key_join import KeyJoin, NotJoinable
from connectors.iceberg.spark.table_files import TableFiles
from connectors.iceberg.staging.columns import any_true, as_array
from connectors.iceberg.staging.completion import key_type, plain_array
from connectors.iceberg.staging.ordering import ORDER, order_field
from connectors.iceberg.staging.projection import project
from connectors.iceberg.staging.types import FIELD_ID, arrow_schema, writable_fields
from connectors.iceberg.table import TableDescription

if TYPE_CHECKING:
    from connectors.iceberg.spark.session import SparkDriver

REMOVALS = 50  # snapshots that removed rows, as far back as `before_removals` goes
_BATCH_ROWS = 8192  # of a file of the table: values that a source does not send again are large


class TableReader:
    """Of one table and ref. All methods raise, besides what they say:

    NotJoinable: The table has equality deletes, files that are not Parquet, or keys that Arrow cannot compare.
    CatalogUnavailableError: The catalog does not answer, or files cannot be read.
    """

    def __init__(
        self,
        driver: SparkDriver,
        description: TableDescription,
        ref: str,
        key_columns: Sequence[str],
        files: TableFiles,
    ) -> None:
        self._driver = driver
        self._table = description.name
        self.schema_id = description.schema_id
        self._ref = ref
        self._keys = list(key_columns)
        self._files = files
        columns = json.loads(description.schema)["fields"]
        self.schema = arrow_schema(writable_fields(columns))  # of rows to write
        self.order_field = order_field(columns)  # and of their order, where they have one
        self.nullable = pa.schema([field.with_nullable(True) for field in self.schema])

    def compared(self, name: str, values: pa.ChunkedArray) -> pa.Array:
        """The values of a key column as they are compared, whatever file they are from."""
        return plain_array(values).cast(key_type(self.schema.field(name).type))

    def matching(
        self,
        keys: pa.Table,
        columns: Sequence[str],
        snapshot: str | None = None,
        matches: dict[str, bytes] | None = None,
    ) -> Iterator[pa.Table]:
        """Rows with one of these keys, as of a snapshot (None: now): key columns and `columns`.

        Args:
            keys: The key columns as they are compared (`compared`), no nulls; a row may come twice.
            columns: Besides them.
            snapshot: Its id.
            matches: By path, the rows with one of the keys, deleted ones among them: a bit per row, without false
                ones at the end. What is there is not looked for again, what is not is added.
        """
        if not keys.num_rows:
            return
        matches = {} if matches is None else matches
        plan = self._plan(self._bounds(keys), snapshot)
        distinct = keys.select(self._keys).group_by(self._keys, use_threads=False).aggregate([])
        join = KeyJoin(distinct, [self._field_id(name) for name in self._keys], self._files)
        for file in plan["files"]:
            if (bits := matches.get(file["path"])) is None:
                bits = join.rows(file["path"], file["rows"])
                matches[file["path"]] = bits = bits.rstrip(b"\0")
            rows = _flags(bits, file["rows"])
            yield from self._living(plan["plan"], file, rows, [*self._keys, *columns])

    def later(self, order: str) -> Iterator[pa.Table]:
        """Whole rows, and their `ORDER`, that say that they are later; files of other writers say nothing."""
        plan = self._plan({"low": None}, None)
        for file in plan["files"]:
            with self._files.open(file["path"]) as opened, pq.ParquetFile(opened) as parquet:
                if ORDER not in parquet.schema_arrow.names:
                    continue
                found = as_array(parquet.read(columns=[ORDER], use_threads=False).column(ORDER))
            rows = pc.greater(found, order).fill_null(False)
            yield from self._living(plan["plan"], file, rows, [*self.schema.names, ORDER])

    def before_removals(self, key: str) -> list[tuple[str | None, str | None]]:
        """The snapshots before those that removed rows, the newest first, as many as are worth a look.

        Each with what the summary of the removing one says under `key`. Those that removed nothing are there too if
        they say something; the snapshot before is null then, as it is where it is gone.
        """
        answer = self._call("beforeRemovals", self._table, self._ref, key, str(REMOVALS))
        return [(snapshot, said) for snapshot, said in answer["snapshots"]]

    def _call(self, method: str, *arguments: str) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = self._driver.call(self._table, "TableRows", method, *arguments)
        return answer

    def _plan(self, bounds: Mapping[str, Any], snapshot: str | None) -> Mapping[str, Any]:
        asked = {"table": self._table, "ref": self._ref, "snapshot": snapshot, **bounds}
        plan = self._call("plan", json.dumps(asked))
        if not plan["plain"]:
            raise NotJoinable("the table has equality deletes, or files that are not Parquet")
        return plan

    def _bounds(self, keys: pa.Table) -> dict[str, Any]:
        """The first key column prunes files, where its order is plain."""
        name = self._keys[0]
        kind = self.schema.field(name).type
        if not (pa.types.is_integer(kind) or pa.types.is_string(kind)):
            return {"low": None}
        ends = pc.min_max(keys.column(name)).as_py()
        return {"column": name, "low": json.dumps(ends["min"]), "high": json.dumps(ends["max"])}

    def _field_id(self, name: str) -> int:
        return int(self.schema.field(name).metadata[FIELD_ID])

    def _living(
        self, plan: str, file: Mapping[str, Any], rows: pa.BooleanArray, columns: Sequence[str]
    ) -> Iterator[pa.Table]:
        """These columns of these rows of a file, without the rows that are deleted, as the table has them now."""
        if file["deletes"] and any_true(rows):
            gone = zlib.decompress(base64.b64decode(self._call("deleted", plan, file["path"])["rows"]))
            rows = pc.and_not(rows, _flags(gone, file["rows"]))
        if not any_true(rows):
            return
        ordered = ORDER in columns
        wanted = pa.schema([self.nullable.field(name) for name in columns if name != ORDER])
        with self._files.open(file["path"]) as opened, pq.ParquetFile(opened) as parquet:
            by_id = {(f.metadata or {}).get(FIELD_ID): f.name for f in parquet.schema_arrow}
            names = [by_id[f.metadata[FIELD_ID]] for f in wanted if f.metadata[FIELD_ID] in by_id]
            has_order = ordered and ORDER in parquet.schema_arrow.names
            read = [*names, ORDER] if has_order else names
            groups, rows = _groups_with(rows, parquet.metadata)
            start = 0
            for batch in parquet.iter_batches(_BATCH_ROWS, row_groups=groups, columns=read, use_threads=False):
                mask = rows.slice(start, len(batch))
                start += len(batch)
                if not any_true(mask):
                    continue
                found = pa.Table.from_batches([batch.filter(mask)])
                made = project(found.select(names), wanted)
                if ordered:
                    order = found.column(ORDER) if has_order else pa.nulls(found.num_rows, pa.string())
                    made = made.append_column(pa.field(ORDER, pa.string()), order)
                yield made


def _groups_with(rows: pa.BooleanArray, metadata: pq.FileMetaData) -> tuple[list[int], pa.BooleanArray]:
    """The row groups that hold some of the rows, and the same rows counted in these groups alone."""
    groups, parts, start = [], [], 0
    for group in range(metadata.num_row_groups):
        part = rows.slice(start, metadata.row_group(group).num_rows)
        start += len(part)
        if any_true(part):
            groups.append(group)
            parts.append(part)
    return groups, pa.concat_arrays(parts)


def _flags(bits: bytes, length: int) -> pa.BooleanArray:
    """A row per bit, the lowest first; what is not there is false."""
    whole = bits[: (length + 7) // 8].ljust((length + 7) // 8, b"\0")
    return pa.Array.from_buffers(pa.bool_(), length, [None, pa.py_buffer(whole)])
