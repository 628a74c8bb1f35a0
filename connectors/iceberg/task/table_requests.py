"""Requests to the coordinator to create or change a table for new rows."""

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

RETRY_SECONDS = 5.0  # interval between requests for a table that no partition is waiting for


class TableRequests:
    """Requests tables from the coordinator. Used by the task thread only."""

    def __init__(self, creation: TableCreation, state: TaskState, actions: TaskActions) -> None:
        self._creation = creation
        self._state = state
        self._actions = actions
        self._next_request: dict[str, float] = {}  # earliest time of the next request, by table

    def hold(self, item: Routed) -> Hold:
        """Return a request to open a table, or to create it with the schema of these rows.

        Raises:
            BadRows: The table cannot be created from some rows. They are identified by their index
                in the routed batch.
        """
        if self._state.is_uncreated(item.table):
            refused = self._creation.refused_rows(item.table, item.batch)
            if refused is not None:
                raise item.in_whole_batch(refused)
        return Hold(item.table, Need.CREATE, self._creation.request(item.table, item.batch))

    def send(self, hold: Hold) -> None:
        """Request a table that no partition is waiting for, at most once every `RETRY_SECONDS`."""
        now = time.monotonic()
        if now >= self._next_request.get(hold.table, now):
            self._next_request[hold.table] = now + RETRY_SECONDS
            epoch = epoch_of(self._state)
            request = OpenTable(self._state.task, epoch, hold.table, hold.need, hold.request)
            self._actions.carry_out([Send(request)])


class SchemaEvolution(TaskFeature):
    """Requests schema changes when rows have fields or types that the table lacks."""

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
