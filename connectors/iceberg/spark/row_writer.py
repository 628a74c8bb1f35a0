"""Files that the coordinator itself writes for a commit: nobody refers to them until it lands."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from connectors.iceberg.staging.file_output import FileOutput
from connectors.iceberg.staging.ordering import ORDER, order_field
from connectors.iceberg.staging.partitioning import Partitioner
from connectors.iceberg.staging.projection import with_hidden_values
from connectors.iceberg.table import StagedFile, StagedKind, TableDescription

if TYPE_CHECKING:
    from connectors.iceberg.spark.commit_request import CommitRequest


class RowWriter:
    """For one attempt at a commit. Names begin as those of staged files do, so that clean-up finds them."""

    def __init__(
        self, description: TableDescription, request: CommitRequest, schema: pa.Schema, write_props: Mapping[str, str]
    ) -> None:
        """`schema`: of rows that join the table, field ids included. `write_props`: of `FileOutput`."""
        self._description = description
        self._prefix = f"{request.file_prefix}{request.commit_id}-made-"
        self._schema = schema
        self._write_props = write_props
        self._output: FileOutput | None = None
        self._written: list[str] = []

    def rows(self, rows: pa.Table) -> Iterator[StagedFile]:
        """Write whole rows of the table, with their order if they have one: a file per partition."""
        partitioner = Partitioner(self._description.schema, self._description.spec)
        schema = self._schema
        if rows.schema.get_field_index(ORDER) >= 0:
            schema = schema.append(order_field(json.loads(self._description.schema)["fields"]))
        for values, part in partitioner.split(rows):
            columns = [with_hidden_values(part.column(f.name), f.type) for f in schema]
            exact = pa.Table.from_arrays(columns, schema=schema)
            uri, size = self._write(exact)
            yield StagedFile(
                StagedKind.ROWS, uri, part.num_rows, size, self._description.schema_id, partitioner.spec_id,
                tuple(values),
            )  # fmt: skip

    def again(self, rows: pa.Table) -> tuple[str, int]:
        """Write rows as they are; returns the file's URI and its size in bytes."""
        return self._write(rows)

    def _write(self, rows: pa.Table) -> tuple[str, int]:
        if self._output is None:
            self._output = FileOutput(self._description, self._write_props)
        uri, size = self._output.write(f"{self._prefix}{uuid.uuid4().hex[:12]}.parquet", rows)
        self._written.append(uri)
        return uri, size

    def discard(self) -> None:
        """Remove what was written: no commit refers to it, and none will."""
        while self._written and self._output is not None:
            self._output.remove(self._written.pop())
