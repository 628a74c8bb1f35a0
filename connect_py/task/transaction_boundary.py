"""`TransactionBoundary`: where the transactions of a source end; and what its tasks say about
that."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from connect_py.api.errors import ConnectError
from connect_py.api.record import SourceRecord


class TransactionBoundary(Enum):
    """`transaction.boundary`; the values are the user's."""

    POLL = "poll"  # after the records of each poll
    INTERVAL = "interval"  # every so often
    CONNECTOR = "connector"  # where the task says

    @classmethod
    def of(cls, config: Mapping[str, str]) -> TransactionBoundary:
        """Read a connector's configuration; it was validated."""
        return cls((config.get("transaction.boundary") or cls.POLL.value).strip().lower())


class WorkerTransactionContext:
    """Satisfies `connect_py.api.task.TransactionContext`; the committer takes what was asked
    for."""

    def __init__(self) -> None:
        self._commit_batch = False
        self._abort_batch = False
        # identities of records that the task holds, or has just returned
        self._commit_after: set[int] = set()
        self._abort_after: set[int] = set()
        self._kept: list[SourceRecord] = []  # so that no identity is used twice

    def commit_transaction(self, record: SourceRecord | None = None) -> None:
        """See there."""
        if record is None:
            if self._abort_batch:
                raise ConnectError(
                    "the end of this batch aborts the transaction already, it cannot commit it too"
                )
            self._commit_batch = True
        else:
            if id(record) in self._abort_after:
                raise ConnectError(
                    "this record aborts the transaction already, it cannot commit it too"
                )
            self._commit_after.add(id(record))
            self._kept.append(record)

    def abort_transaction(self, record: SourceRecord | None = None) -> None:
        """See there."""
        if record is None:
            if self._commit_batch:
                raise ConnectError(
                    "the end of this batch commits the transaction already, it cannot abort it too"
                )
            self._abort_batch = True
        else:
            if id(record) in self._commit_after:
                raise ConnectError(
                    "this record commits the transaction already, it cannot abort it too"
                )
            self._abort_after.add(id(record))
            self._kept.append(record)

    def take_batch(self) -> tuple[bool, bool]:
        """Whether to commit, whether to abort at the end of this batch; asked once."""
        asked = (self._commit_batch, self._abort_batch)
        self._commit_batch = self._abort_batch = False
        return asked

    def take_record(self, record: SourceRecord) -> tuple[bool, bool]:
        """The same right after a record."""
        if not self._kept:
            return (False, False)
        identity = id(record)
        asked = (identity in self._commit_after, identity in self._abort_after)
        if any(asked):
            self._commit_after.discard(identity)
            self._abort_after.discard(identity)
            self._kept = [kept for kept in self._kept if kept is not record]
        return asked
