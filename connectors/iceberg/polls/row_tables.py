"""`RowTables`: which tables the rows of a batch go to, and which partitions wait for one of them."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

import pyarrow.compute as pc

from connect_py.api.batch import Batch
from connect_py.api.errors import BadRows, ConnectError, DataError
from connect_py.api.record import TopicPartition
from connectors.iceberg.config.sink_config import CHANGELOG_SUFFIX, IcebergSinkConfig, Unrouted
from connectors.iceberg.polls.poll import BlockedPartition, TaskParts
from connectors.iceberg.polls.task_actions import TaskActions
from connectors.iceberg.protocol.actions import Send
from connectors.iceberg.protocol.messages import Need, OpenTable
from connectors.iceberg.routing.router import Routed, Router

log = logging.getLogger(__name__)

ASK_SECONDS = 5.0  # between questions for a table that nothing waits for yet
UNROUTED_SECONDS = 60.0  # between warnings about rows without a table


class RowTables:
    """Owned by the task thread."""

    def __init__(self, parts: TaskParts, actions: TaskActions) -> None:
        self._config = parts.config
        self._state = parts.state
        self._stage = parts.stage
        self._metrics = parts.metrics
        self._actions = actions
        self._router = Router(parts.config)
        self._unrouted = 0  # rows since the start that no table took
        self._warn_unrouted_at = 0.0
        self._ask_again_at: dict[str, float] = {}  # by table that was asked for ahead of need

    def of(self, batch: Batch) -> tuple[list[Routed], int]:
        """The rows by table, and how many rows no table takes.

        Raises:
            BadRows: Rows for no table, or for a missing one, if these are dead letters.
        """
        routing = self._router.route(batch)
        wanted, lost = self._with_tables(with_changelogs(self._config, routing.routed))
        return wanted, routing.unrouted + lost

    def _with_tables(self, routed: Sequence[Routed]) -> tuple[list[Routed], int]:
        """What goes to tables that are there, and how many rows go to others: they count as those without a table.

        Raises:
            BadRows: Rows for missing tables, if those without a table are dead letters.
        """
        found, lost = [], 0
        for item in routed:
            if self._state.is_uncreated(item.table):
                rest = item.without_tombstones()  # which say nothing about a table that was never there
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
        if now >= self._warn_unrouted_at:
            self._warn_unrouted_at = now + UNROUTED_SECONDS
            log.warning(
                "no table takes %d rows so far, the latest of topic %s; iceberg.ext.unrouted says what becomes of them",
                self._unrouted, topic, extra={"action": "unrouted"},
            )  # fmt: skip

    def needs(self, routed: Sequence[Routed]) -> dict[int, BlockedPartition]:
        """Which partitions must be held, because a table is not open, or lacks columns.

        All tables that are not open are asked for at once. A partition waits for the last of them, because answers
        come in the order of the questions.

        Raises:
            BadRows: Rows that cannot create a missing table, or that need a change which makes dead letters.
        """
        epoch = self._actions.epoch()
        blocked: dict[int, BlockedPartition] = {}
        closed_tables: list[BlockedPartition] = []
        for item in routed:
            if item.table == self._config.dead_letter_table:
                raise ConnectError(f"rows are routed to {item.table}, which is for dead letters")
            lacking: str | None = None
            topic = item.batch.origin.topic
            answer = self._state.answer(item.table)
            partitions = pc.unique(item.batch.origin.partitions).to_pylist()
            closed = [
                p for p in partitions if self._state.filter_position(item.table, TopicPartition(topic, p)) is None
            ]
            if closed or answer is None:
                if self._state.is_uncreated(item.table):
                    refused = self._stage.not_creating(item.table, item.batch)
                    if refused is not None:
                        raise item.in_whole_batch(refused)
                why = BlockedPartition(item.table, Need.CREATE, self._stage.creation(item.table, item.batch))
                closed_tables.append(why)
                blocked.update(dict.fromkeys(closed if answer is not None else partitions, why))
            if answer is not None and len(closed) < len(partitions):
                try:
                    lacking = self._stage.lacks(item.table, answer, epoch, item.batch)
                except BadRows as bad:
                    raise item.in_whole_batch(bad) from bad
            if lacking is not None:
                for partition in partitions:
                    blocked.setdefault(partition, BlockedPartition(item.table, Need.EVOLVE, lacking))
        for why in closed_tables[:-1]:
            self._ask_ahead(why)
        return blocked

    def _ask_ahead(self, why: BlockedPartition) -> None:
        """Ask for a table that no partition waits for yet; again only after a while."""
        now = time.monotonic()
        if now >= self._ask_again_at.get(why.table, now):
            self._ask_again_at[why.table] = now + ASK_SECONDS
            self._actions.carry_out(
                [Send(OpenTable(self._state.task, self._actions.epoch(), why.table, why.need, why.request))]
            )


def with_changelogs(config: IcebergSinkConfig, routed: Sequence[Routed]) -> Sequence[Routed]:
    """The same rows once more for the tables that hold the changes of the others.

    Raises:
        ConnectError: A table's own name is one of a changelog, so what it holds would not be clear.
    """
    suffix = config.changelog_suffix
    if suffix is None:
        return routed
    for item in routed:
        if config.is_changelog(item.table):
            raise ConnectError(
                f"rows are routed to {item.table}, whose name is one of a changelog: set another {CHANGELOG_SUFFIX}"
            )
    return [*routed, *(Routed(item.table + suffix, item.batch, item.rows) for item in routed)]
