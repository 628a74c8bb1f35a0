"""`ConfigStore`: reads the config topic into a snapshot and writes its records in a safe order."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence

from connect_py.api.errors import ConnectError
from connect_py.model import ConnectorTaskId, TargetState
from connect_py.storage import compact_json
from connect_py.storage.config_state import (
    COMMIT_PREFIX,
    CONNECTOR_PREFIX,
    FENCING_PREFIX,
    LOGGER_PREFIX,
    RESTART_PREFIX,
    SESSION_KEY,
    TARGET_STATE_PREFIX,
    Change,
    ClusterConfigState,
    ConfigTable,
    RestartRequest,
    SessionKey,
    target_state_value,
    task_key,
)
from connect_py.storage.leader_producer import FencedError
from connect_py.storage.log_store import LogStore
from connect_py.storage.storage_log import LogMaker, LogRecord, TransactionWriter, Write

log = logging.getLogger(__name__)

WRITE_SECONDS = 30.0  # timeout for a write, and for reading it back
FENCED_MESSAGE = (
    "Failed to write to config topic; this may be due to a transient error and the "
    "request can be safely retried"
)


class ConfigStore(LogStore):
    """Reads the config topic and writes changes to it.

    Records are applied on the log's thread. Writes run on the caller's thread, and each step blocks
    for at most `WRITE_SECONDS`.

    All writes except target states and logger levels require leadership. A write raises FencedError
    if another worker is the leader. Any other failure raises ConnectError with Connect's message;
    the record may have been written.
    """

    def __init__(
        self,
        topic: str,
        logs: LogMaker,
        leader: TransactionWriter,
        on_change: Callable[[Sequence[Change]], None],
    ) -> None:
        """Create the store.

        `on_change` is called on the log's thread with the changes made by each record, including
        records read during startup.
        """
        self._leader = leader
        self._on_change = on_change
        self._table = ConfigTable()
        self._snapshot: ClusterConfigState | None = ClusterConfigState()
        self._lock = threading.Lock()
        super().__init__(topic, logs.log(topic, "configs", self._apply, read_committed=True))

    def snapshot(self) -> ClusterConfigState:
        """Return the current state. Thread-safe."""
        with self._lock:
            if self._snapshot is None:
                self._snapshot = self._table.snapshot()
            return self._snapshot

    def _apply(self, record: LogRecord) -> None:
        with self._lock:
            changes = self._table.apply(record.offset, record.key, record.value)
            self._snapshot = None
        if changes:
            self._on_change(changes)

    def put_connector_config(
        self, name: str, config: Mapping[str, str | None], target_state: TargetState | None = None
    ) -> None:
        """Create or replace a connector. The target state, if specified, is written first."""
        writes = [[self._write(f"{CONNECTOR_PREFIX}{name}", {"properties": dict(config)})]]
        if target_state is not None:
            writes.insert(
                0, [self._write(f"{TARGET_STATE_PREFIX}{name}", target_state_value(target_state))]
            )
        self._write_as_leader(writes, "connector configuration")

    def remove_connector_config(self, name: str) -> None:
        """Delete a connector's configuration, and then its target state."""
        self._write_as_leader(
            [
                [self._write(f"{CONNECTOR_PREFIX}{name}", None)],
                [self._write(f"{TARGET_STATE_PREFIX}{name}", None)],
            ],
            "removal of connector configuration",
        )

    def put_task_configs(self, name: str, configs: Sequence[Mapping[str, str | None]]) -> None:
        """Publish a task set. The old task set remains valid until the commit record is written."""
        if configs:
            self.refresh(WRITE_SECONDS)
            tasks = [
                self._write(task_key(ConnectorTaskId(name, number)), {"properties": dict(config)})
                for number, config in enumerate(configs)
            ]
            # one transaction is safe because these records have no effect before the commit record
            self._write_as_leader([tasks], "task configurations")
        self._write_as_leader(
            [[self._write(f"{COMMIT_PREFIX}{name}", {"tasks": len(configs)})]],
            "task configurations",
        )

    def put_target_state(self, name: str, state: TargetState) -> None:
        """Pause or resume a connector.

        Any worker may write these states. Only the leader may stop a connector; see `put_stop`.
        """
        self._write_as_member(
            f"{TARGET_STATE_PREFIX}{name}", target_state_value(state), "target state"
        )

    def put_stop(self, name: str, reason: str | None = None) -> None:
        """Stop a connector and remove its tasks.

        The empty task set and the target state are written in one transaction. Otherwise, a crash
        between the two writes could leave a started connector without tasks.

        `reason` is set only if the connector was not stopped by a user.
        """
        target = target_state_value(TargetState.STOPPED, reason)
        empty = self._write(f"{COMMIT_PREFIX}{name}", {"tasks": 0})
        self._write_as_leader(
            [[empty, self._write(f"{TARGET_STATE_PREFIX}{name}", target)]], "target state"
        )

    def put_restart_request(self, request: RestartRequest) -> None:
        """Request that every worker restart its instances of a connector."""
        value = {"include-tasks": request.include_tasks, "only-failed": request.only_failed}
        self._write_as_leader(
            [[self._write(f"{RESTART_PREFIX}{request.connector}", value)]], "restart request"
        )

    def put_task_count_record(self, name: str, count: int) -> None:
        """Record how many source producers may exist after the previous ones have been fenced."""
        self._write_as_leader(
            [[self._write(f"{FENCING_PREFIX}{name}", {"task-count": count})]], "task count record"
        )

    def put_session_key(self, key: SessionKey) -> None:
        value = {
            "key": key.key,
            "algorithm": key.algorithm,
            "creation-timestamp": key.creation_timestamp,
        }
        self._write_as_leader([[self._write(SESSION_KEY, value)]], "session key")

    def put_logger_level(self, logger: str, level: str) -> None:
        """Request that every worker set a logger level. The level is stored as received."""
        self._write_as_member(f"{LOGGER_PREFIX}{logger}", {"level": level}, "logger level")

    def _write(self, key: str, value: object | None) -> Write:
        return Write(
            self.topic, key.encode(), None if value is None else compact_json.encode(value)
        )

    def _write_as_leader(self, transactions: Sequence[Sequence[Write]], label: str) -> None:
        """Write transactions in order and read the last one back.

        If Java workers use the topic later, they may read uncommitted records. Therefore, each
        record in a transaction must be harmless without the other records.
        """
        try:
            last = -1
            for writes in transactions:
                last = self._leader.write(writes, WRITE_SECONDS)
            self._log.await_offset(last, WRITE_SECONDS)
        except FencedError:
            raise
        except ConnectError as error:
            log.error("failed to write the %s: %s", label, error)  # the caller logs the stack trace
            raise ConnectError(f"Error writing {label} to Kafka") from error

    def _write_as_member(self, key: str, value: object, label: str) -> None:
        try:
            self._log.write(key.encode(), compact_json.encode(value), WRITE_SECONDS)
            self.refresh(WRITE_SECONDS)
        except ConnectError as error:
            log.error("failed to write the %s: %s", label, error)  # the caller logs the stack trace
            raise ConnectError(f"Error writing {label} to Kafka") from error
