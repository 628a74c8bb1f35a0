"""`TransactionBoundary`: a source connector's transaction boundaries and its tasks' requests."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from connect_py.api.errors import ConnectError
from connect_py.api.record import SourceRecord


class TransactionBoundary(Enum):
    """Values of `transaction.boundary`."""

    POLL = "poll"  # after the records from each poll
    INTERVAL = "interval"  # at an interval
    CONNECTOR = "connector"  # requested by the task

    @classmethod
    def of(cls, config: Mapping[str, str]) -> TransactionBoundary:
        """Return the boundary that a validated connector configuration specifies."""
        return cls((config.get("transaction.boundary") or cls.POLL.value).strip().lower())


class WorkerTransactionContext:
    """Stores a task's requests until the committer takes them.

    Implements `connect_py.api.task.TransactionContext`.
    """

    def __init__(self) -> None:
        self._commit_batch = False
        self._abort_batch = False
        # object IDs of records, which `_records` keeps alive to prevent reuse of the IDs
        self._commit_after: set[int] = set()
        self._abort_after: set[int] = set()
        self._records: list[SourceRecord] = []

    def commit_transaction(self, record: SourceRecord | None = None) -> None:
        """Request a commit; see `TransactionContext`."""
        if record is None:
            if self._abort_batch:
                raise ConnectError(
                    "cannot commit at the end of this batch: the task has already requested to "
                    "abort there"
                )
            self._commit_batch = True
        else:
            if id(record) in self._abort_after:
                raise ConnectError(
                    "cannot commit after this record: the task has already requested to abort there"
                )
            self._commit_after.add(id(record))
            self._records.append(record)

    def abort_transaction(self, record: SourceRecord | None = None) -> None:
        """Request an abort; see `TransactionContext`."""
        if record is None:
            if self._commit_batch:
                raise ConnectError(
                    "cannot abort at the end of this batch: the task has already requested to "
                    "commit there"
                )
            self._abort_batch = True
        else:
            if id(record) in self._commit_after:
                raise ConnectError(
                    "cannot abort after this record: the task has already requested to commit there"
                )
            self._abort_after.add(id(record))
            self._records.append(record)

    def take_batch(self) -> tuple[bool, bool]:
        """Remove and return the end-of-batch requests, as (commit, abort)."""
        requests = (self._commit_batch, self._abort_batch)
        self._commit_batch = self._abort_batch = False
        return requests

    def take_record(self, record: SourceRecord) -> tuple[bool, bool]:
        """Remove and return the requests that apply after a record, as (commit, abort)."""
        if not self._records:
            return (False, False)
        identity = id(record)
        requests = (identity in self._commit_after, identity in self._abort_after)
        if any(requests):
            self._commit_after.discard(identity)
            self._abort_after.discard(identity)
            self._records = [other for other in self._records if other is not record]
        return requests
