"""Rows with unavailable values become whole rows: what the source did not send is read from the table, with Arrow.

A row is looked up under its own key, or, if its key was changed, under the one it had: in the table as it is, then as
it was before rows were removed from it, because the delete of the old key may have been committed in an earlier cycle.
What is found nowhere is null, and counted.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import logging
import uuid
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from connectors.iceberg.spark.commit_request import CommitOutcome, CommitRequest, CommitStatus
from connectors.iceberg.spark.errors import CatalogUnavailableError, TableUnsuitableError
from connectors.iceberg.spark.key_join import KeyJoin, NotJoinable
from connectors.iceberg.spark.table_files import TableFiles
from connectors.iceberg.staging.columns import any_true, as_array
from connectors.iceberg.staging.completion import plain_array
from connectors.iceberg.staging.file_output import FileOutput
from connectors.iceberg.staging.kernels.container_kernels import missing_column
from connectors.iceberg.staging.partitioning import Partitioner
from connectors.iceberg.staging.projection import project, with_hidden_values
from connectors.iceberg.staging.table_stager import OLD_KEY_COLUMN
from connectors.iceberg.staging.types import FIELD_ID, arrow_schema, writable_fields
from connectors.iceberg.table import StagedFile, StagedKind, TableDescription

if TYPE_CHECKING:
    from connectors.iceberg.spark.session import SparkDriver

log = logging.getLogger(__name__)

LARGEST_BYTES = 256 << 20  # of staged patches, compressed; more is work for Spark
FLUSH_BYTES = 128 << 20  # of values found, before they are written
REMOVALS = 50  # snapshots that removed rows, as far back as old keys are looked for
_BATCH_ROWS = 8192  # of a file of the table: values that the source does not send again are large
_PATCH, _NUMBER = "__connect_py_patch", "__connect_py_row"


@dataclass(slots=True)
class _Patches:
    """The rows of one staged file."""

    rows: pa.Table  # the table's columns
    keys: pa.Table  # under which the rows are looked up, and `_PATCH`: the row, counted over all files
    lacking: tuple[str, ...]
    moved: bool
    first: int  # number of the first row


class PatchCompletion:
    """For one request; makes files that nobody refers to until the commit lands."""

    def __init__(
        self, driver: SparkDriver, description: TableDescription, request: CommitRequest, files: TableFiles
    ) -> None:
        self._driver = driver
        self._request = request
        self._files = files
        fields = writable_fields(json.loads(description.schema)["fields"])
        self._schema = arrow_schema(fields)
        self._defaults = {f["name"]: f.get("initial-default") for f in fields}
        self._required = {f["name"] for f in fields if f["required"]}
        self._keys = list(request.key_columns)
        self._output = FileOutput(description, {})
        self._partitioner = Partitioner(description.schema, description.spec)
        self._schema_id = description.schema_id
        self._truncated = any(file.kind is StagedKind.TRUNCATES for file in request.files)
        self.written: list[StagedFile] = []
        self.unmatched = 0  # rows of which some value was found nowhere

    def complete(self, patches: Sequence[StagedFile]) -> list[StagedFile]:
        """The files that stand for these patches from now on.

        Raises:
            NotJoinable: The table, or so many rows, are not for this process.
            TableUnsuitableError: A required column would be null.
            CatalogUnavailableError: Files cannot be read or written, or the catalog does not answer.
        """
        if sum(file.size for file in patches) > LARGEST_BYTES:
            raise NotJoinable(f"more than {LARGEST_BYTES >> 20} MB of rows with unavailable values are staged")
        try:
            waiting: dict[int, _Patches] = {}
            first = 0
            for file in patches:
                waiting[first] = self._read(file, first)
                first += file.rows
            done: set[int] = set()
            if not self._truncated:
                self._look_up(list(waiting.values()), None, done)
                self._look_back([part for part in waiting.values() if part.moved], done)
            self._write_unmatched(list(waiting.values()), done)
        except OSError as error:
            raise CatalogUnavailableError(f"table {self._request.table}: files cannot be read: {error}") from error
        return self.written

    def concluded(self, outcome: CommitOutcome) -> CommitOutcome:
        """Tell what was completed, or take back what was written when the commit surely did not land."""
        if outcome.status is CommitStatus.COMMITTED:
            unmatched = outcome.counts.unmatched_patches + self.unmatched
            return dataclasses.replace(outcome, counts=dataclasses.replace(outcome.counts, unmatched_patches=unmatched))
        if outcome.status is not CommitStatus.UNKNOWN:
            self.discard()
        return outcome

    def discard(self) -> None:
        """Remove what was written: no commit refers to it, and none will."""
        for file in self.written:
            self._output.remove(file.path)
        self.written = []

    def _read(self, file: StagedFile, first: int) -> _Patches:
        with self._files.open(file.path) as opened:
            rows = pq.read_table(opened, use_threads=False)
        names = [OLD_KEY_COLUMN + name if file.moved else name for name in self._keys]
        columns = [plain_array(rows.column(name)) for name in names]
        numbers = pa.array(range(first, first + len(rows)), pa.int64())
        keys = pa.table([*columns, numbers], names=[*self._keys, _PATCH])
        if file.moved:
            rows = rows.drop_columns(names)
        return _Patches(project(rows, self._nullable), keys, tuple(file.unavailable), file.moved, first)

    @property
    def _nullable(self) -> pa.Schema:
        return pa.schema([field.with_nullable(True) for field in self._schema])

    # --- finding

    def _look_up(self, parts: Sequence[_Patches], snapshot: str | None, done: set[int]) -> None:
        """Complete what the table has at a snapshot (None: now) of these rows, if they are not done."""
        keys = _without(pa.concat_tables([part.keys for part in parts]), done) if parts else None
        if keys is None or not keys.num_rows:
            return
        plan = self._driver.call(self._request.table, "TableRows", "plan", json.dumps(self._bounds(keys, snapshot)))
        if not plan["files"]:
            return
        if not plan["plain"]:
            raise NotJoinable("the table has equality deletes, or files that are not Parquet")
        columns = sorted({name for part in parts for name in part.lacking})
        distinct = keys.drop_columns(_PATCH).group_by(self._keys, use_threads=False).aggregate([])
        join = KeyJoin(distinct, [self._field_id(name) for name in self._keys], self._files)
        found: list[pa.Table] = []
        for file in plan["files"]:
            rows = _flags(join.rows(file["path"], file["rows"]), file["rows"])
            if file["deletes"] and any_true(rows):
                answer = self._driver.call(self._request.table, "TableRows", "deleted", plan["plan"], file["path"])
                gone = zlib.decompress(base64.b64decode(answer["rows"]))
                rows = pc.and_not(rows, _flags(gone, file["rows"]))
            if any_true(rows):
                found += self._values(file["path"], rows, columns)
            if sum(values.nbytes for values in found) > FLUSH_BYTES:
                self._write_found(parts, keys, pa.concat_tables(found), done)
                found = []
        if found:
            self._write_found(parts, keys, pa.concat_tables(found), done)

    def _look_back(self, moved: Sequence[_Patches], done: set[int]) -> None:
        """Look for old keys whose delete was committed before, in the table as it was before each removal."""
        if all(number in done for part in moved for number in part.keys.column(_PATCH).to_pylist()):
            return
        request = self._request
        answer = self._driver.call(
            request.table, "TableRows", "beforeRemovals", request.table, request.ref, str(REMOVALS)
        )
        for snapshot in answer["snapshots"]:
            self._look_up(moved, snapshot, done)

    def _bounds(self, keys: pa.Table, snapshot: str | None) -> dict[str, Any]:
        """What `TableRows.plan` asks: the first key column prunes files, where its order is plain."""
        values = as_array(keys.column(self._keys[0]))
        asked: dict[str, Any] = {"table": self._request.table, "ref": self._request.ref, "snapshot": snapshot}
        asked |= {"column": self._keys[0], "low": None, "high": None}
        kind = self._schema.field(self._keys[0]).type
        if pa.types.is_integer(kind) or pa.types.is_string(kind):
            ends = pc.min_max(values).as_py()
            asked |= {"low": json.dumps(ends["min"]), "high": json.dumps(ends["max"])}
        return asked

    def _field_id(self, name: str) -> int:
        return int(self._schema.field(name).metadata[FIELD_ID])

    def _values(self, path: str, rows: pa.BooleanArray, columns: Sequence[str]) -> list[pa.Table]:
        """Keys and columns of these rows of a file, as the table has them now."""
        wanted = pa.schema([self._nullable.field(name) for name in [*self._keys, *columns]])
        found = []
        with self._files.open(path) as opened, pq.ParquetFile(opened) as file:
            by_id = {(f.metadata or {}).get(FIELD_ID): f.name for f in file.schema_arrow}
            names = [by_id[f.metadata[FIELD_ID]] for f in wanted if f.metadata[FIELD_ID] in by_id]
            start = 0
            for batch in file.iter_batches(_BATCH_ROWS, columns=names, use_threads=False):
                mask = rows.slice(start, len(batch))
                start += len(batch)
                if any_true(mask):
                    found.append(project(pa.Table.from_batches([batch.filter(mask)]), wanted))
        for name in columns:
            if wanted.field(name).metadata[FIELD_ID] not in by_id and self._defaults[name] is not None:
                found = [self._with_default(part, name) for part in found]
        return found

    def _with_default(self, rows: pa.Table, name: str) -> pa.Table:
        """A column that is younger than the file shows its initial default."""
        at = rows.schema.get_field_index(name)
        field = rows.schema.field(at)
        made = missing_column({"write-default": self._defaults[name]}, field.type, rows.num_rows)
        return rows.set_column(at, field, made)

    # --- writing

    def _write_found(self, parts: Sequence[_Patches], keys: pa.Table, found: pa.Table, done: set[int]) -> None:
        plain = pa.table([*(plain_array(found.column(k)) for k in self._keys)], names=self._keys)
        plain = plain.append_column(_NUMBER, pa.array(range(len(plain)), pa.int64()))
        pairs = _without(keys, done).join(plain, self._keys, join_type="inner", use_threads=False)
        pairs = pairs.group_by(_PATCH, use_threads=False).aggregate([(_NUMBER, "min")])  # one, if the table has several
        numbers, sources = as_array(pairs.column(_PATCH)), as_array(pairs.column(f"{_NUMBER}_min"))
        for part in parts:
            mine = pc.and_(
                pc.greater_equal(numbers, part.first), pc.less(numbers, part.first + part.rows.num_rows)
            )  # fmt: skip
            if not any_true(mine):
                continue
            rows = part.rows.take(pc.subtract(numbers.filter(mine), part.first))
            values = found.take(sources.filter(mine))
            for name in part.lacking:
                at = rows.schema.get_field_index(name)
                rows = rows.set_column(at, rows.schema.field(at), values.column(name))
            self._write(rows)
        done.update(numbers.to_pylist())

    def _write_unmatched(self, parts: Sequence[_Patches], done: set[int]) -> None:
        for part in parts:
            left = _without(part.keys, done)
            if not left.num_rows:
                continue
            self.unmatched += left.num_rows
            required = self._required.intersection(part.lacking)
            if required:
                raise TableUnsuitableError(
                    self._request.table,
                    f"{left.num_rows} rows lack a value that the source did not send, for the required column "
                    f"{min(required)}, and the table does not have these rows",
                )
            self._write(part.rows.take(pc.subtract(left.column(_PATCH), part.first)))
        if self.unmatched:
            log.warning(
                "table %s: %d rows have values that the source did not send, and that the table does not have: they "
                "are null", self._request.table, self.unmatched,
                extra={"action": "values_unavailable", "table": self._request.table},
            )  # fmt: skip

    def _write(self, rows: pa.Table) -> None:
        for values, part in self._partitioner.split(rows):
            columns = [with_hidden_values(part.column(f.name), f.type) for f in self._schema]
            exact = pa.Table.from_arrays(columns, schema=self._schema)
            name = f"{self._request.file_prefix}{self._request.commit_id}-completed-{uuid.uuid4().hex[:12]}.parquet"
            uri, size = self._output.write(name, exact)
            self.written.append(
                StagedFile(
                    StagedKind.ROWS, uri, part.num_rows, size, self._schema_id, self._partitioner.spec_id, tuple(values)
                )
            )


def _without(keys: pa.Table, done: set[int]) -> pa.Table:
    if not done:
        return keys
    return keys.filter(pc.invert(pc.is_in(keys.column(_PATCH), value_set=pa.array(sorted(done), pa.int64()))))


def _flags(bits: bytes, length: int) -> pa.BooleanArray:
    """A row per bit, the lowest first; what is not there is false."""
    whole = bits[: (length + 7) // 8].ljust((length + 7) // 8, b"\0")
    return pa.Array.from_buffers(pa.bool_(), length, [None, pa.py_buffer(whole)])
