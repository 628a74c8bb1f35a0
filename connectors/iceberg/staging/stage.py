"""All tables of a task: one `TableStager` each, under one memory budget."""

from __future__ import annotations

import dataclasses
import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.batch import Batch, Column
from connect_py.api.errors import BadRows, ConnectError, DataError
from connect_py.api.record import TopicPartition
from connectors.iceberg.config.file_io_properties import file_io_properties, lent_until_ms
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.conversion.columns import any_true, column_at
from connectors.iceberg.conversion.full_names import FullNames
from connectors.iceberg.conversion.types import TypeOptions, new_table_schema, type_of_arrow
from connectors.iceberg.protocol.positions import Epoch
from connectors.iceberg.staging.cdc import DELETED
from connectors.iceberg.staging.changelog import changelog_schema
from connectors.iceberg.staging.envelope import Envelope, shape
from connectors.iceberg.staging.row_buffer import MemoryBudget
from connectors.iceberg.staging.table_stager import StagedRows, TableStager
from connectors.iceberg.table.table import StagedFile, TableDescription, TableRequest, WriteMode

_DELETED_ID = 1_000_000  # until the catalog assigns one
_RENEW_AHEAD_MS = 300_000  # before the end of lent keys to the storage; a commit may take that long
_RENEW_SHARE = 2  # but no earlier than after half of the time that they were lent for
# closing a cycle takes so long, and must not begin with keys that end meanwhile
_WRITE_AHEAD_MS = 10_000
_WRITE_SHARE = 20


def _known_members(data: pa.Array) -> pa.DataType:
    """The type of schemaless rows without the members that no row has a value for."""
    if not pa.types.is_struct(data.type):
        return data.type
    members = zip(data.type, data.flatten(), strict=True)
    return pa.struct([field for field, values in members if values.null_count < len(values)])


def _with_refused_names(data: pa.Array) -> pa.BooleanArray | None:
    """The schemaless rows with a value for a member that no table can have beside those before it;
    None: no row."""
    if not pa.types.is_struct(data.type):
        return None
    names, found = FullNames(), None
    for field, values in zip(data.type, data.flatten(), strict=True):
        type_ = type_of_arrow(field.type)
        if (
            type_ is not None
            and values.null_count < len(values)
            and names.add((field.name,), type_) is not None
        ):
            found = values.is_valid() if found is None else pc.or_(found, values.is_valid())
    return found


class Stage:
    """Owned by the task thread. Tables are known by name and by the coordinator's answer, a
    description as text."""

    def __init__(
        self,
        config: IcebergSinkConfig,
        task: str,
        partition_count: Callable[[str], int] = lambda _: 1,
    ) -> None:
        """`partition_count` asks how many partitions a topic has; what it raises goes through."""
        self._config = config
        self._partition_count = partition_count
        self._task = task
        self._options = TypeOptions.of(config)
        self._budget = MemoryBudget(config.staging_memory_bytes)
        self._epoch: Epoch | None = None
        self._stagers: dict[
            str, tuple[str, TableStager]
        ] = {}  # by table: the answer it was made from
        self._clock: Callable[[], int] = lambda: int(time.time() * 1000)  # milliseconds since 1970
        self._taken_ms: dict[str, int] = {}  # by table: when that answer was taken
        self._replaced: set[str] = set()  # tables of which the newest answer is another table's

    @property
    def staged_bytes(self) -> int:
        """Bytes of rows of the open cycle, in memory and on disk."""
        return self._budget.used + self._budget.spilled

    def creation(self, table: str, batch: Batch) -> str:
        """What to ask for when a table is not open: how these rows would create it."""
        config = self._config
        found = config.table(table).id_columns or self._key_of(table, batch)
        try:
            schema = self._new_schema(self.rows(table, batch), found)
            if config.is_changelog(table):
                return TableRequest(changelog_schema(schema)).to_text()
            if config.marks_deletes(table) and all(f["name"] != DELETED for f in schema["fields"]):
                schema["fields"].append(
                    {"id": _DELETED_ID, "name": DELETED, "required": False, "type": "boolean"}
                )
            return TableRequest(schema, keys=found).to_text()
        except DataError as error:
            return TableRequest(None, str(error), keys=found).to_text()

    def not_creating(self, table: str, batch: Batch) -> BadRows | None:
        """The rows because of which a missing table cannot be created; None: these rows can create
        it."""
        if self._holds_events(table):
            try:
                Envelope.of(batch.value)
            except BadRows as bad:
                return bad  # whatever the table will be
        rows = self.rows(table, batch)
        try:
            self._new_schema(rows, ())
            return None
        except DataError as error:
            why = DataError(f"table {table} does not exist: {error}")
        to_blame = None if rows.schema is not None else _with_refused_names(rows.data)
        if to_blame is None or not any_true(to_blame):
            to_blame = rows.data.is_valid()
        return BadRows(
            dict.fromkeys(pc.indices_nonzero(to_blame).to_pylist() or range(len(batch)), why)
        )

    def _new_schema(self, rows: Column, keys: Sequence[str]) -> dict[str, Any]:
        """The schema of a table for these rows; see `new_table_schema`."""
        try:
            return new_table_schema(rows.schema, rows.data.type, self._options, keys)
        except DataError:
            known = _known_members(rows.data) if rows.schema is None else rows.data.type
            if known == rows.data.type:
                raise
            # rows that were refused left their members
            return new_table_schema(None, known, self._options, keys)

    def _key_of(self, table: str, batch: Batch) -> tuple[str, ...]:
        """The fields of the records' keys, if these are to be the key of a table."""
        if not self._config.record_keys or self._config.mode_of(table) is WriteMode.APPEND:
            return ()
        for column in (batch.key, column_at(batch.value, ("_cdc", "key"))):
            if column is not None and column.is_struct() and column.null_count < len(column):
                return tuple(field.name for field in column.data.type)
        return ()

    def description(self, table: str, answer: str, epoch: Epoch) -> TableDescription:
        """Of an open table; the same object until the answer changes."""
        return self._stager(table, answer, epoch).description

    def rows(self, table: str, batch: Batch) -> Column:
        """What shows the columns of a batch's rows."""
        return shape(batch.value) if self._holds_events(table) else batch.value

    def _holds_events(self, table: str) -> bool:
        return self._config.envelopes and table != self._config.dead_letter_table

    def convert(self, table: str, answer: str, epoch: Epoch, batch: Batch) -> StagedRows:
        """Convert rows of an open table; nothing is kept.

        Raises:
            BadRows: These rows do not fit.
        """
        return self._stager(table, answer, epoch).prepare(batch)

    def add(self, converted: StagedRows) -> None:
        """Keep converted rows until the cycle closes.

        Raises: ConnectError: The table was replaced since they were converted, so no stager would
            write them.
        """
        if all(stager is not converted.stager for _, stager in self._stagers.values()):
            raise ConnectError(
                "a table was replaced while rows of a poll waited; the task must start again"
            )
        converted.stager.add(converted)

    def known_pairs(self, table: str) -> Counter[str]:
        """See `TableStager.known_pairs`; of a table for which nothing is staged, none."""
        known = self._stagers.get(table)
        return Counter() if known is None else known[1].known_pairs()

    def stage_alone(self, table: str, partition: TopicPartition, offset: int) -> None:
        """See `TableStager.stage_alone`."""
        if (known := self._stagers.get(table)) is not None:
            known[1].stage_alone(partition, offset)

    def _stager(self, table: str, answer: str, epoch: Epoch) -> TableStager:
        if epoch != self._epoch:
            self.close()  # what was staged in another epoch is not committed any more
            self._epoch = epoch
        known = self._stagers.get(table)
        if known is not None and known[0] == answer:
            return known[1]
        described = TableDescription.from_json(json.loads(answer))
        storage = file_io_properties(
            {**self._config.catalog_properties(), **described.io_properties}
        )
        description = dataclasses.replace(described, io_properties=storage)
        if known is not None and known[1].description.uuid == description.uuid:
            stager = known[1]
            stager.evolve(description)
        else:
            if known is not None:
                known[1].discard()
            count = self._partition_count
            stager = TableStager(
                description, self._config, epoch, self._task, self._budget, partition_count=count
            )
        self._stagers[table] = (answer, stager)
        self._taken_ms[table] = self._clock()
        self._replaced.discard(table)
        return stager

    def expiring(self) -> list[str]:
        """Tables whose keys to the storage, lent by the catalog, end soon: it is time to ask for
        newer ones."""
        return [
            table
            for table in self._stagers
            if self._ends_within(table, _RENEW_AHEAD_MS, _RENEW_SHARE)
        ]

    def ended(self) -> list[str]:
        """Tables with rows to write whose lent keys have ended, or will while they are written."""
        filled = [table for table, (_, stager) in self._stagers.items() if stager.partitions()]
        return [
            table for table in filled if self._ends_within(table, _WRITE_AHEAD_MS, _WRITE_SHARE)
        ]

    def _ends_within(self, table: str, milliseconds: int, share: int) -> bool:
        """Whether a table's keys end so soon, or are in the last part of their life."""
        end = lent_until_ms(self._stagers[table][1].description.io_properties)
        if end is None or table in self._replaced:
            return False
        return end - self._clock() <= max(
            0, min(milliseconds, (end - self._taken_ms[table]) // share)
        )

    def renew(self, answer: Callable[[str], str | None]) -> None:
        """Go on with newer answers for the same tables, which may bring newer credentials; no rows
        are touched."""
        for table, (known, stager) in list(self._stagers.items()):
            newer = answer(table)
            if newer is None or newer == known or self._epoch is None:
                continue
            if json.loads(newer)["uuid"] == stager.description.uuid:
                self._stager(table, newer, self._epoch)
            else:
                self._replaced.add(table)

    def close_cycle(self, cycle: int) -> dict[tuple[TopicPartition, str], list[StagedFile]]:
        """Write everything that is staged; the files by partition and table.

        Raises:
            OSError, ConnectError: The storage refuses.
        """
        return {
            (partition, table): stager.close_cycle(cycle, partition)
            for table, (_, stager) in self._stagers.items()
            for partition in stager.partitions()
        }

    def discard(self, partition: TopicPartition) -> None:
        """Throw away what is staged for a partition."""
        for _, stager in self._stagers.values():
            stager.drop_partition(partition)

    def close(self) -> None:
        """Throw everything away."""
        for _, stager in self._stagers.values():
            stager.discard()
        self._stagers.clear()
        self._taken_ms.clear()
        self._replaced.clear()
