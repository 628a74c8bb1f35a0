"""`TaskFeature`: the hooks of an optional feature of the sink task.

`BatchIntake` and `ChannelTurn` do not depend on optional features. Each feature is a subclass.
`TaskParts` creates the features that the configuration enables. Their hooks are called in the order
in which the features were created.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

from connect_py.api.dead_letter import DeadLetter
from connect_py.api.errors import BadRows, DataError
from connect_py.api.record import TopicPartition
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.config.sink_options import Unrouted
from connectors.iceberg.protocol.messages import Message
from connectors.iceberg.protocol.task_state import TaskState
from connectors.iceberg.routing.router import Routed, Routing, with_changelogs
from connectors.iceberg.task.pending_records import ConvertedRows
from connectors.iceberg.task.task_actions import Hold

Convert = Callable[[Routed], ConvertedRows]


class TaskFeature:
    """Hooks of one feature. By default, a hook does nothing."""

    def limit(self, partition: TopicPartition) -> int | None:
        """Return the offset at and above which a partition's rows are dropped, or None."""
        return None

    def put_dead_letter(self, dead_letter: DeadLetter) -> None:
        """Accept a dead-letter record from a partition that is being read."""

    def route(self, routing: Routing) -> Routing:
        """Return the routing, with different tables if necessary.

        Raises:
            BadRows: Some rows have no table. They are identified by their index in the routed
                batch.
        """
        return routing

    def hold(self, item: Routed, answer: str) -> Hold | None:
        """Return the reason why rows for an open table cannot be staged yet, or None if they can.

        Raises:
            BadRows: Some rows cannot be staged. They are identified by their index in the routed
                batch.
        """
        return None

    def recheck(self, item: Routed, keep: pa.BooleanArray) -> pa.BooleanArray | None:
        """Return a mask of rows to convert even though the table contains them, or None.

        `keep` is the mask of rows that the table does not contain.
        """
        return None

    def end_poll(
        self, consumed: Mapping[TopicPartition, int], convert: Convert
    ) -> Mapping[TopicPartition, int]:
        """Add rows to the pending records, and return the next offset of each partition."""
        return consumed

    def poll_staged(self) -> None:
        """Record that all rows of the poll have been staged."""

    def on_message(self, message: Message) -> None:
        """Process a message from the coordinator."""

    def check(self) -> None:
        """Check whether waiting partitions can continue. Called after every poll.

        Raises:
            ConnectError: The task must fail.
        """

    def close(self, partition: TopicPartition) -> None:
        """Discard the state of a revoked partition."""


class Changelogs(TaskFeature):
    """Routes changes to changelog tables (`iceberg.ext.changelog-suffix`)."""

    def __init__(self, config: IcebergSinkConfig) -> None:
        self._config = config

    def route(self, routing: Routing) -> Routing:
        return Routing(with_changelogs(self._config, routing.routed), routing.unrouted)


class MissingTables(TaskFeature):
    """Skips or reports rows whose table does not exist."""

    def __init__(self, config: IcebergSinkConfig, state: TaskState) -> None:
        self._config = config
        self._state = state

    def route(self, routing: Routing) -> Routing:
        routed, unrouted = [], routing.unrouted
        for item in routing.routed:
            if self._state.is_uncreated(item.table):
                rest = item.without_tombstones()  # tombstones cannot affect a new table
                if rest is not None:
                    routed.append(rest)
            elif not self._state.is_skipped(item.table):
                routed.append(item)
            elif self._config.unrouted is Unrouted.DLQ and not self._config.skip_missing:
                error = DataError(f"table {item.table} does not exist")
                raise item.in_whole_batch(BadRows(dict.fromkeys(range(len(item.batch)), error)))
            else:
                unrouted += len(item.batch)
        return Routing(routed, unrouted)


class BoundedRun(TaskFeature):
    """Stops reading partitions at their configured end offsets (`iceberg.ext.stop-at`)."""

    def __init__(self, state: TaskState) -> None:
        self._state = state

    def limit(self, partition: TopicPartition) -> int | None:
        return self._state.end(partition)
