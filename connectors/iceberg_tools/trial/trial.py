"""`Trial`: determines the effect of records without staging, creating, or committing anything."""

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
_INTERNAL: Final = "__connect_py_"  # prefix of internal columns, which are not written to tables


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record that would go to the dead-letter queue or fail the task."""

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
    """Effect of the records on one table."""

    name: str
    new: NewTable | None = None  # the table that would be created, or None if the table exists
    refused: str = ""  # reason why the table could not be written, or empty
    rows: int = 0  # upserts and deletes, or appended rows
    ignored: int = 0  # records without an effect
    # number of rows that require a schema change, by change
    changes: dict[SchemaChange, int] = field(default_factory=dict)
    samples: list[dict[str, Any]] = field(default_factory=list)


class Trial:
    """Processes records like a sink task and collects their effects by table."""

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
        self._answers: dict[str, str] = {}  # table descriptions in JSON, as tasks receive them
        self._evolutions: dict[str, TableEvolution] = {}
        self.tables: dict[str, TableTrial] = {}
        self.bad: list[BadRecord] = []
        self.unrouted: Counter[str] = Counter()  # number of rows without a table, by topic

    def take(self, output: PipelineOutput) -> None:
        """Process the output of the converters and transformations.

        Raises:
            ConnectError: The catalog does not respond, or a row has no table and
                `iceberg.ext.unrouted` is `fail`.
        """
        self.bad += [BadRecord.of(each.origin, each.reason, each.error) for each in output.failures]
        for delivery in output.deliveries:
            for batch in (
                [delivery]
                if isinstance(delivery, Batch)
                else column_batches(delivery, self._refuse)
            ):
                self._process(batch)

    def _refuse(self, record: SinkRecord, why: NotColumnar) -> None:
        assert record.origin is not None
        self.bad.append(
            BadRecord.of(
                record.origin,
                FailureReason.DOES_NOT_FIT,
                f"does not fit into a column: {why}",
            )
        )

    def _process(self, batch: Batch) -> None:
        """Process all rows of a batch except the bad rows, like a sink task."""
        rest: Batch | None = batch
        while rest is not None:
            reason = FailureReason.UNROUTED
            try:
                routing = self._router.route(rest)
                reason = FailureReason.DOES_NOT_FIT
                routed = with_changelogs(self._config, routing.routed)
                converted = [(each, *self._convert(each)) for each in routed]
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
        """Return the converted rows and the required schema changes.

        The rows are None if they cannot be converted before the changes are applied.

        Raises:
            BadRows: Rows cannot be converted. Their indexes refer to the batch before routing.
        """
        response = self._answer(routed)
        if response is None:
            return None, ()
        rows = self._creation.columns(routed.table, routed.batch)
        try:
            changes = self._evolution(routed.table, response).requested(rows)
            if any(change.kind is not ChangeKind.ADD for change in changes):
                return None, changes
            return self._staging.convert(routed.table, response, _EPOCH, routed.batch), changes
        except BadRows as bad:
            raise routed.in_whole_batch(bad) from bad

    def _evolution(self, name: str, response: str) -> TableEvolution:
        description = self._staging.description(name, response, _EPOCH)
        evolution = self._evolutions.get(name)
        if evolution is None or evolution.description is not description:
            evolution = self._evolutions[name] = TableEvolution(description, self._config)
        return evolution

    def _answer(self, routed: Routed) -> str | None:
        """Return the description of a table, or None if it could not be written.

        The catalog is queried once per table, or for each batch if the table is missing and cannot
        be created.
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
            if (missing := self._samples - len(table.samples)) > 0:
                columns = part.select(
                    [name for name in part.column_names if not name.startswith(_INTERNAL)]
                )
                table.samples += _rows(columns.slice(0, missing))

    def _leave_out(self, batch: Batch, bad: BadRows, reason: FailureReason) -> Batch | None:
        for row, error in sorted(bad.errors.items()):
            failure_reason = error.reason if isinstance(error, DataError) else None
            origin = batch.origin
            position = origin.topic, origin.partitions[row].as_py(), origin.offsets[row].as_py()
            self.bad.append(BadRecord(*position, failure_reason or reason, str(error)))
        return without_bad_rows(batch, bad)


def _described(config: IcebergSinkConfig, name: str, new: NewTable) -> TableDescription:
    """Return the description of a table that does not exist yet."""
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
    """Return rows as JSON values. Values without a JSON form become strings."""
    rows: list[dict[str, Any]] = json.loads(
        json.dumps(table.to_pylist(), default=_to_string), parse_constant=str
    )
    return rows


def _to_string(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
