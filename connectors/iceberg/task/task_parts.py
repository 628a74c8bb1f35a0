"""`TaskParts`: what stages the rows of a task, put together."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from connect_py.api.record import TopicPartition
from connect_py.api.task import SinkTaskContext
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.dead_letters.dead_letter_rows import DeadLetterRows
from connectors.iceberg.protocol.iceberg_metrics import IcebergMetrics
from connectors.iceberg.protocol.task_state import TaskState
from connectors.iceberg.staging.key_changes import KeyChangeWaits
from connectors.iceberg.staging.stage import Stage
from connectors.iceberg.task.key_change_stops import KeyChangeStops
from connectors.iceberg.task.poll import Poll
from connectors.iceberg.task.row_intake import RowIntake
from connectors.iceberg.task.table_needs import TableNeeds
from connectors.iceberg.task.task_actions import MessageWriter, TaskActions


@dataclass(frozen=True, slots=True)
class TaskParts:
    """Used by the task thread only."""

    state: TaskState
    stage: Stage
    poll: Poll
    actions: TaskActions
    intake: RowIntake
    stops: KeyChangeStops

    @classmethod
    def of(
        cls,
        config: IcebergSinkConfig,
        props: Mapping[str, str],
        context: SinkTaskContext,
        name: str,
        stage: Stage,
        writer: MessageWriter,
        metrics: IcebergMetrics,
        state: TaskState | None = None,
        *,
        stages_itself: bool = True,
    ) -> Self:
        """Put them together.

        Args:
            config: Of the connector.
            props: The same as text.
            context: The task's.
            name: The task's, as messages of the channel have it.
            stage: Where rows go.
            writer: Takes messages for the coordinator.
            metrics: The task's.
            state: Where the task goes on; None: it begins.
            stages_itself: Whether rows pass `stage`.
        """
        if state is None:
            limit = config.max_staged_cycles
            state = TaskState(name, context.start_number, _new_nonce, max_staged_cycles=limit)
        poll, waits = Poll(), KeyChangeWaits(config.key_change_wait_ms)
        actions = TaskActions(context, state, stage, poll, writer)
        needs = TableNeeds(config, state, stage, actions, metrics)
        dead_letters = DeadLetterRows(config.connector, context.task, props)
        intake = RowIntake(context, config, state, stage, poll, actions, needs, waits, dead_letters)
        stops = KeyChangeStops(
            context,
            state,
            stage,
            poll,
            actions,
            waits,
            null_unknown=config.null_unknown,
            stages_itself=stages_itself,
        )
        return cls(state, stage, poll, actions, intake, stops)

    def end_poll(self, consumed: Mapping[TopicPartition, int]) -> None:
        """Stage what the poll brought, and its dead letters: from now on everything below
        `consumed` is handled."""
        self.actions.guard.check()
        self.intake.convert_dead_letters(consumed)
        consumed = self.stops.limit(consumed)
        with self.actions.guard:
            for table, rows, firsts in self.poll.converted:
                if rows is not None:
                    self.stage.add(rows)
                for tp, first in firsts.items():
                    self.state.handled(tp, table, first)
        for tp, following in consumed.items():
            if self.state.is_reading(tp):
                self.state.advance(tp, following, self.poll.latest.get(tp))
        self.poll.clear()
        self.stops.hold()


def _new_nonce() -> str:
    return uuid.uuid4().hex
