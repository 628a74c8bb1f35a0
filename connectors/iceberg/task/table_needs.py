"""`TableNeeds`: which partitions must be held because a table is not open, or lacks columns."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow.compute as pc

from connect_py.api.errors import BadRows, ConnectError, DataError
from connect_py.api.record import TopicPartition
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.config.sink_options import Unrouted
from connectors.iceberg.conversion.table_evolution import TableEvolution
from connectors.iceberg.protocol.actions import Send
from connectors.iceberg.protocol.iceberg_metrics import IcebergMetrics
from connectors.iceberg.protocol.messages import Need, OpenTable
from connectors.iceberg.protocol.task_state import TaskState
from connectors.iceberg.routing.router import Routed
from connectors.iceberg.staging.stage import Stage
from connectors.iceberg.table.table import TableRequest
from connectors.iceberg.task.row_converter import epoch_of
from connectors.iceberg.task.task_actions import TaskActions

log = logging.getLogger(__name__)

ASK_SECONDS = 5.0  # between questions for a table that nothing waits for yet
UNROUTED_SECONDS = 60.0  # between warnings about rows without a table


class BlockedBy(NamedTuple):
    """Why a partition must be held."""

    table: str
    need: Need
    request: str


class TableNeeds:
    """Used by the task thread only."""

    def __init__(
        self,
        config: IcebergSinkConfig,
        state: TaskState,
        stage: Stage,
        actions: TaskActions,
        metrics: IcebergMetrics,
    ) -> None:
        self._config = config
        self._state = state
        self._stage = stage
        self._actions = actions
        self._metrics = metrics
        self._unrouted = 0  # rows since the start that no table took
        self._tell_unrouted_at = 0.0
        self._evolutions: dict[str, TableEvolution] = {}  # by table
        self._ask_again_at: dict[str, float] = {}  # by table that was asked for ahead of need

    def with_tables(self, routed: Sequence[Routed]) -> tuple[list[Routed], int]:
        """What goes to tables that are there, and how many rows go to others: they count as those
        without a table.

        Raises:
            BadRows: Rows for missing tables, if those without a table are dead letters.
        """
        found, lost = [], 0
        for item in routed:
            if self._state.is_uncreated(item.table):
                # which say nothing about a table that was never there
                rest = item.without_tombstones()
                if rest is not None:
                    found.append(rest)
            elif not self._state.is_skipped(item.table):
                found.append(item)
            elif self._config.unrouted is Unrouted.DLQ and not self._config.skip_missing:
                error = DataError(f"table {item.table} does not exist")
                raise item.in_whole_batch(BadRows(dict.fromkeys(range(len(item.batch)), error)))
            else:
                lost += len(item.batch)
        return found, lost

    def count_unrouted(self, topic: str, rows: int) -> None:
        """Say now and then, not for every batch, that rows went nowhere."""
        self._unrouted += rows
        self._metrics.unrouted(topic, rows)
        now = time.monotonic()
        if now >= self._tell_unrouted_at:
            self._tell_unrouted_at = now + UNROUTED_SECONDS
            log.warning(
                "no table takes %d rows so far, the latest of topic %s; iceberg.ext.unrouted says "
                "what becomes of them",
                self._unrouted,
                topic,
                extra={"action": "unrouted"},
            )

    def blocked(self, routed: Sequence[Routed]) -> dict[int, BlockedBy]:
        """Which partitions must be held, and why.

        All tables that are not open are asked for at once. A partition waits for the last of them,
        because answers come in the order of the questions.

        Raises: BadRows: Rows that cannot create a missing table, or that need a change which makes
            dead letters.
        """
        blocked: dict[int, BlockedBy] = {}
        closed_tables: list[BlockedBy] = []
        for item in routed:
            if item.table == self._config.dead_letter_table:
                raise ConnectError(f"rows are routed to {item.table}, which is for dead letters")
            origin, answer = item.batch.origin, self._state.answer(item.table)
            partitions = pc.unique(origin.partitions).to_pylist()
            closed = [
                p
                for p in partitions
                if self._state.filter_position(item.table, TopicPartition(origin.topic, p)) is None
            ]
            if closed or answer is None:
                why = self._creation(item)
                closed_tables.append(why)
                blocked.update(dict.fromkeys(closed if answer is not None else partitions, why))
            if answer is not None and len(closed) < len(partitions):
                lacking = self._lacking(item, answer)
                if lacking is not None:
                    for partition in partitions:
                        blocked.setdefault(partition, BlockedBy(item.table, Need.EVOLVE, lacking))
        for why in closed_tables[:-1]:
            self._ask_ahead(why)
        return blocked

    def _creation(self, item: Routed) -> BlockedBy:
        if self._state.is_uncreated(item.table):
            refused = self._stage.not_creating(item.table, item.batch)
            if refused is not None:
                raise item.in_whole_batch(refused)
        return BlockedBy(item.table, Need.CREATE, self._stage.creation(item.table, item.batch))

    def _lacking(self, item: Routed, answer: str) -> str | None:
        """What to ask for when an open table lacks columns of these rows; None when it lacks
        nothing."""
        description = self._stage.description(item.table, answer, epoch_of(self._state))
        known = self._evolutions.get(item.table)
        if known is None or known.description is not description:
            known = self._evolutions[item.table] = TableEvolution(description, self._config)
        try:
            changes = known.wanted(self._stage.rows(item.table, item.batch))
        except BadRows as bad:
            raise item.in_whole_batch(bad) from bad
        return TableRequest(None, "", changes, description.schema_id).to_text() if changes else None

    def _ask_ahead(self, why: BlockedBy) -> None:
        """Ask for a table that no partition waits for yet; again only after a while."""
        now = time.monotonic()
        if now >= self._ask_again_at.get(why.table, now):
            self._ask_again_at[why.table] = now + ASK_SECONDS
            question = OpenTable(
                self._state.task, epoch_of(self._state), why.table, why.need, why.request
            )
            self._actions.carry_out([Send(question)])
