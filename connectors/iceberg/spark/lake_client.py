"""`LakeClient`: the methods of `LakeSession`, in the coordinator's process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from connectors.iceberg.schema_change import SchemaChange
from connectors.iceberg.spark.commit_request import CommitOutcome, CommitRequest
from connectors.iceberg.spark.driver import SparkDriver
from connectors.iceberg.spark.lake_session import LoadedTable
from connectors.iceberg.table import WriteMode


class LakeClient:
    """Asks a driver. Each method is that of `LakeSession`, and raises a `SparkDiedError` besides."""

    def __init__(
        self, driver: SparkDriver, deadline_seconds: float = 120.0, commit_deadline_seconds: float = 600.0
    ) -> None:
        """`deadline_seconds` limits each call but commits, which have `commit_deadline_seconds`."""
        self._driver = driver
        self._deadline_seconds = deadline_seconds
        self._commit_deadline_seconds = commit_deadline_seconds

    def request(self) -> None:
        """Have the driver started, and return at once."""
        self._driver.request()

    def alive(self) -> bool:
        return self._driver.alive()

    def start(self) -> None:
        """Have a session in a driver that runs; see `SparkDriver.start`."""
        self._driver.start()

    def stop(self) -> None:
        """End the session. From any thread."""
        self._driver.stop()

    def load(
        self,
        name: str,
        property_key: str,
        ref: str = "main",
        mode: WriteMode = WriteMode.APPEND,
        key_columns: Sequence[str] = (),
    ) -> LoadedTable:
        loaded: LoadedTable = self._call(name, "load", property_key, ref, mode, tuple(key_columns))
        return loaded

    def exists(self, name: str) -> bool:
        return bool(self._call(name, "exists"))

    def metadata(self, name: str) -> tuple[str, dict[str, str]]:
        found: tuple[str, dict[str, str]] = self._call(name, "metadata")
        return found

    def create(
        self, name: str, schema: str, spec: str | None = None, properties: Mapping[str, str] | None = None
    ) -> bool:
        return bool(self._call(name, "create", schema, spec, dict(properties or {})))

    def evolve(self, name: str, changes: Sequence[SchemaChange]) -> bool:
        return bool(self._call(name, "evolve", tuple(changes)))

    def set_properties(self, name: str, properties: Mapping[str, str]) -> None:
        self._call(name, "set_properties", dict(properties))

    def replace_view(self, name: str, schema: str, sql: str) -> bool:
        return bool(self._call(name, "replace_view", schema, sql))

    def remove_files(self, name: str, uuid: str, prefix: str, below: int) -> int | None:
        removed: int | None = self._call(name, "remove_files", uuid, prefix, below)
        return removed

    def drop_branches(self, name: str, prefix: str, below: int) -> int:
        return int(self._call(name, "drop_branches", prefix, below))

    def history(self, name: str, ref: str, ledger_prefix: str, file_prefix: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self._call(name, "history", ref, ledger_prefix, file_prefix)
        return found

    def commit(self, request: CommitRequest) -> CommitOutcome:
        remote = self._driver.remote() if request.mode is WriteMode.MERGE and request.files else None
        with self._driver.deadline(self._commit_deadline_seconds):
            outcome: CommitOutcome = self._driver.call(request.table, "commit", request, remote)
        return outcome

    def _call(self, name: str, method: str, *arguments: Any) -> Any:
        with self._driver.deadline(self._deadline_seconds):
            return self._driver.call(name, method, name, *arguments)
