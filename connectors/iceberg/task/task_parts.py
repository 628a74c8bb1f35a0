"""`TaskParts`: creates the objects that make up a task."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from connect_py.api.task import SinkTaskContext
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.dead_letters.dead_letter_rows import DeadLetterRows
from connectors.iceberg.protocol.iceberg_metrics import IcebergMetrics
from connectors.iceberg.protocol.task_state import TaskState
from connectors.iceberg.routing.router import Router
from connectors.iceberg.staging.staging_area import StagingArea
from connectors.iceberg.staging.table_creation import TableCreation
from connectors.iceberg.table.schema_change import ChangeAction
from connectors.iceberg.table.table import WriteMode
from connectors.iceberg.task.batch_intake import BatchIntake
from connectors.iceberg.task.dead_letter_table import DeadLetterTable
from connectors.iceberg.task.features import BoundedRun, Changelogs, MissingTables, TaskFeature
from connectors.iceberg.task.key_change_stops import KeyChangeStops
from connectors.iceberg.task.pending_records import PendingRecords
from connectors.iceberg.task.table_requests import SchemaEvolution, TableRequests
from connectors.iceberg.task.task_actions import MessageWriter, TaskActions


@dataclass(frozen=True, slots=True)
class TaskParts:
    """Objects that make up one task. Used by the task thread only."""

    state: TaskState
    staging: StagingArea
    actions: TaskActions
    intake: BatchIntake
    stops: KeyChangeStops
    features: Sequence[TaskFeature]

    @classmethod
    def of(
        cls,
        config: IcebergSinkConfig,
        props: Mapping[str, str],
        context: SinkTaskContext,
        name: str,
        staging: StagingArea,
        writer: MessageWriter,
        metrics: IcebergMetrics,
        state: TaskState | None = None,
        *,
        stages_rows: bool = True,
    ) -> Self:
        """Create the objects.

        Args:
            config: The connector configuration.
            props: The same configuration as strings.
            context: The task context.
            name: The task name in channel messages.
            staging: The staging area for rows.
            writer: Sends messages to the coordinator.
            metrics: The task's metrics.
            state: The existing state of a task that continues, or None for a new task.
            stages_rows: False if other processes stage the rows.
        """
        if state is None:
            limit = config.max_staged_cycles
            state = TaskState(name, context.start_number, _new_nonce, max_staged_cycles=limit)
        pending = PendingRecords()
        actions = TaskActions(context, state, staging, pending, writer)
        creation, dead_letters = TableCreation(config), config.dead_letter_table
        stops = KeyChangeStops(
            config, context, state, staging, pending, actions, stages_rows=stages_rows
        )
        evolves = any(action is not ChangeAction.IGNORE for action in config.evolution.values())
        may_lack_tables = (
            config.auto_create or config.skip_missing or config.dynamic or config.topic_rules
        )
        features: list[TaskFeature | None] = [
            Changelogs(config) if config.changelog_suffix is not None else None,
            MissingTables(config, state) if may_lack_tables else None,
            DeadLetterTable(
                config,
                dead_letters,
                state,
                pending,
                actions,
                DeadLetterRows(config.connector, context.task, props),
            )
            if dead_letters is not None
            else None,
            SchemaEvolution(config, state, staging, creation) if evolves else None,
            BoundedRun(state) if config.stop_at is not None else None,
            stops if config.unavailable_value and config.mode is WriteMode.MERGE else None,
        ]
        used = [feature for feature in features if feature is not None]
        requests = TableRequests(creation, state, actions)
        intake = BatchIntake(
            context, state, staging, pending, actions, requests, metrics, Router(config), used
        )
        return cls(state, staging, actions, intake, stops, used)


def _new_nonce() -> str:
    return uuid.uuid4().hex
