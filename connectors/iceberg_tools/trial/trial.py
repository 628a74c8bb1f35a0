"""`Trial`: what a connector would do with records. Nothing is staged, created or committed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from connect_py.api.batch import Batch
from connect_py.api.errors import BadRows, ConnectError, DataError, FailureReason, NotColumnar
from connect_py.api.pipeline import PipelineOutput
from connect_py.api.record import RecordOrigin, SinkRecord
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.conversion.columns import without_bad_rows
from connectors.iceberg.conversion.table_evolution import TableEvolution
from connectors.iceberg.coordinator.new_table import NewTable, new_table
from connectors.iceberg.protocol.positions import Epoch
from connectors.iceberg.routing.router import Routed, Router, with_changelogs
from connectors.iceberg.staging.schemaless_lists import column_batches
from connectors.iceberg.staging.staging_area import StagingArea
from connectors.iceberg.staging.table_creation import TableCreation
from connectors.iceberg.staging.table_stager import StagedRows
from connectors.iceberg.table.schema_change import ChangeKind, SchemaChange
from connectors.iceberg.table.table import TableDescription, TableRequest

_EPOCH: Final = Epoch(0, "try")
_OWN: Final = "__connect_py_"  # begins names of columns that no table has


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record that would be a dead letter, or fail the task."""

    topic: str
    partition: int
    offset: int
    reason: FailureReason
    error: str

    @staticmethod
    def of(origin: RecordOrigin, reason: FailureReason, error: str) -> BadRecord:
        return BadRecord(origin.topic, origin.partition, origin.offset, reason, error)


@dataclass(slots=True)
class TableTrial:
    """What would come to one table."""

    name: str
    new: NewTable | None = None  # what it would be created as; None: it is there
    refused: str = ""  # why it could not be written; empty: it could
    rows: int = 0  # upserts and deletes, or appended rows
    ignored: int = 0  # records that mean nothing to it
    # of its schema; with the rows that need each
    changes: dict[SchemaChange, int] = field(default_factory=dict)
    samples: list[dict[str, Any]] = field(default_factory=list)


class Trial:
    """Takes records as a task does. `look_up` describes a table that is there; None: it is not."""

    def __init__(
        self,
        config: IcebergSinkConfig,
        look_up: Callable[[str], TableDescription | None],
        samples: int = 3,
    ) -> None:
        self._config = config
        self._look_up = look_up
        self._samples = samples
        self._creation = TableCreation(config)
        self._staging = StagingArea(config, "try")
        self._router = Router(config)
        self._answers: dict[str, str] = {}  # descriptions of tables, as tasks get them
        self._evolutions: dict[str, TableEvolution] = {}
        self.tables: dict[str, TableTrial] = {}
        self.bad: list[BadRecord] = []
        self.unrouted: Counter[str] = Counter()  # by topic

    def take(self, output: PipelineOutput) -> None:
        """Take what the converters and transformations made of records.

        Raises: ConnectError: The catalog does not answer, or a row has no table and
            `iceberg.ext.unrouted` is fail.
        """
        self.bad += [BadRecord.of(each.origin, each.reason, each.error) for each in output.failures]
        for delivery in output.deliveries:
            for batch in (
                [delivery]
                if isinstance(delivery, Batch)
                else column_batches(delivery, self._refuse)
            ):
                self._take(batch)

    def _refuse(self, record: SinkRecord, why: NotColumnar) -> None:
        assert record.origin is not None
        self.bad.append(
            BadRecord.of(record.origin, FailureReason.DOES_NOT_FIT, f"no column can hold it: {why}")
        )

    def _take(self, batch: Batch) -> None:
        """As the sink's task takes a batch: whole, once its bad rows are left out."""
        rest: Batch | None = batch
        while rest is not None:
            reason = FailureReason.UNROUTED
            try:
                routing = self._router.route(rest)
                reason = FailureReason.DOES_NOT_FIT
                wanted = with_changelogs(self._config, routing.routed)
                converted = [(each, *self._convert(each)) for each in wanted]
            except BadRows as bad:
                rest = self._leave_out(rest, bad, reason)
                continue
            for each, rows, changes in converted:
                table, count = self.tables[each.table], len(each.batch)
                table.changes.update(
                    {change: table.changes.get(change, 0) + count for change in changes}
                )
                self._add(table, count, rows)
            self.unrouted[batch.topic] += routing.unrouted
            return

    def _convert(self, routed: Routed) -> tuple[StagedRows | None, Sequence[SchemaChange]]:
        """The rows as the table gets them, and how it must change; None: before that, they cannot
        be converted.

        Raises:
            BadRows: By their index in the batch that was routed.
        """
        answer = self._answer(routed)
        if answer is None:
            return None, ()
        rows = self._creation.columns(routed.table, routed.batch)
        try:
            changes = self._evolution(routed.table, answer).requested(rows)
            if any(change.kind is not ChangeKind.ADD for change in changes):
                return None, changes
            return self._staging.convert(routed.table, answer, _EPOCH, routed.batch), changes
        except BadRows as bad:
            raise routed.in_whole_batch(bad) from bad

    def _evolution(self, name: str, answer: str) -> TableEvolution:
        description = self._staging.description(name, answer, _EPOCH)
        known = self._evolutions.get(name)
        if known is None or known.description is not description:
            known = self._evolutions[name] = TableEvolution(description, self._config)
        return known

    def _answer(self, routed: Routed) -> str | None:
        """The description of a table; None: it could not be written.

        The catalog is asked once, and again as long as a missing table cannot be created.
        """
        name = routed.table
        table = self.tables.setdefault(name, TableTrial(name))
        if name not in self._answers:
            description = self._look_up(name)
            if description is None:
                request = TableRequest.from_text(self._creation.request(name, routed.batch))
                try:
                    table.new = new_table(self._config, name, request)
                except ConnectError as error:
                    table.refused = str(error)
                    return None
                description = _described(self._config, name, table.new)
            table.refused = ""
            self._answers[name] = json.dumps(description.to_json())
        return self._answers[name]

    def _add(self, table: TableTrial, count: int, rows: StagedRows | None) -> None:
        if rows is None:
            table.rows += count
            return
        table.ignored += rows.ignored
        for part in rows.parts.values():
            table.rows += part.num_rows
            if (wanted := self._samples - len(table.samples)) > 0:
                shown = part.select(
                    [name for name in part.column_names if not name.startswith(_OWN)]
                )
                table.samples += _rows(shown.slice(0, wanted))

    def _leave_out(self, batch: Batch, bad: BadRows, reason: FailureReason) -> Batch | None:
        for row, error in sorted(bad.errors.items()):
            said = error.reason if isinstance(error, DataError) else None
            origin = batch.origin
            place = origin.topic, origin.partitions[row].as_py(), origin.offsets[row].as_py()
            self.bad.append(BadRecord(*place, said or reason, str(error)))
        return without_bad_rows(batch, bad)


def _described(config: IcebergSinkConfig, name: str, new: NewTable) -> TableDescription:
    """A table that is not there, as if it were."""
    return TableDescription(
        name=name,
        uuid="new",
        format_version=int(new.properties["format-version"]),
        location="",
        data_location="",
        schema_id=0,
        schema=json.dumps(new.schema),
        spec=json.dumps(new.spec),
        mode=config.mode_of(name),
        key_columns=new.keys,
        properties=new.properties,
    )


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    """Rows as JSON has them: texts for what it has no form for."""
    made: list[dict[str, Any]] = json.loads(
        json.dumps(table.to_pylist(), default=_text), parse_constant=str
    )
    return made


def _text(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
