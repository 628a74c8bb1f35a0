"""Requests to the coordinator for tables and columns that rows need."""

from __future__ import annotations

import time

from connect_py.api.errors import BadRows
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.conversion.table_evolution import TableEvolution
from connectors.iceberg.protocol.actions import Send
from connectors.iceberg.protocol.messages import Need, OpenTable
from connectors.iceberg.protocol.task_state import TaskState
from connectors.iceberg.routing.router import Routed
from connectors.iceberg.staging.staging_area import StagingArea
from connectors.iceberg.staging.table_creation import TableCreation
from connectors.iceberg.table.table import TableRequest
from connectors.iceberg.task.features import TaskFeature
from connectors.iceberg.task.task_actions import Hold, TaskActions, epoch_of

RETRY_SECONDS = 5.0  # between requests for a table that no partition waits for


class TableRequests:
    """Requests for tables that are not open. Used by the task thread only."""

    def __init__(self, creation: TableCreation, state: TaskState, actions: TaskActions) -> None:
        self._creation = creation
        self._state = state
        self._actions = actions
        self._next_request: dict[str, float] = {}  # time, by table

    def hold(self, item: Routed) -> Hold:
        """Return the request for a table, with the schema for these rows.

        Raises:
            BadRows: Rows that cannot create the table, by their index in the batch that was routed.
        """
        if self._state.is_uncreated(item.table):
            refused = self._creation.refused_rows(item.table, item.batch)
            if refused is not None:
                raise item.in_whole_batch(refused)
        return Hold(item.table, Need.CREATE, self._creation.request(item.table, item.batch))

    def send(self, hold: Hold) -> None:
        """Request a table that no partition waits for yet, but not too often."""
        now = time.monotonic()
        if now >= self._next_request.get(hold.table, now):
            self._next_request[hold.table] = now + RETRY_SECONDS
            epoch = epoch_of(self._state)
            request = OpenTable(self._state.task, epoch, hold.table, hold.need, hold.request)
            self._actions.carry_out([Send(request)])


class SchemaEvolution(TaskFeature):
    """Changes of tables for new fields and types of rows."""

    def __init__(
        self,
        config: IcebergSinkConfig,
        state: TaskState,
        staging: StagingArea,
        creation: TableCreation,
    ) -> None:
        self._config = config
        self._state = state
        self._staging = staging
        self._creation = creation
        self._evolutions: dict[str, TableEvolution] = {}  # by table

    def hold(self, item: Routed, answer: str) -> Hold | None:
        description = self._staging.description(item.table, answer, epoch_of(self._state))
        evolution = self._evolutions.get(item.table)
        if evolution is None or evolution.description is not description:
            evolution = self._evolutions[item.table] = TableEvolution(description, self._config)
        try:
            changes = evolution.requested(self._creation.columns(item.table, item.batch))
        except BadRows as bad:
            raise item.in_whole_batch(bad) from bad
        if not changes:
            return None
        request = TableRequest(None, "", changes, description.schema_id).to_text()
        return Hold(item.table, Need.EVOLVE, request)
