"""`LeaderProducer`: the transactional producer that proves who leads the worker group."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NoReturn

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from connect_py.api.errors import ConnectError
from connect_py.kafka.client_log import client_log
from connect_py.storage.storage_clients import StorageClients
from connect_py.storage.storage_log import Write

log = logging.getLogger(__name__)

_FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


class FencedError(ConnectError):
    """Another worker leads now; nothing of this transaction was written."""


class WriteOutcomeUnknownError(ConnectError):
    """The transaction may or may not have been committed: read the topic before trying again."""


class LeaderProducer:
    """Writes in transactions under the group's stable id. One thread at a time (the herder's).

    After a failure that is no fencing the producer is `broken`: writes fail until `acquire` makes a new one.
    """

    def __init__(self, clients: StorageClients, group_id: str) -> None:
        self._clients = clients
        self._id = f"connect-cluster-{group_id}"
        self._producer: Producer | None = None
        self.broken = False

    def acquire(self, timeout: float) -> None:
        """Take the id: whoever held it is fenced from now on, and its open transaction aborted.

        Raises:
            ConnectError: The cluster did not answer in time.
        """
        self.release()
        producer = Producer(self._clients.leader_settings(self._id), logger=client_log)
        try:
            producer.init_transactions(timeout)
        except KafkaException as error:
            raise ConnectError(f"transactional id {self._id} was not obtained: {error.args[0].str()}") from error
        self._producer = producer
        self.broken = False

    def release(self) -> None:
        """Let go of the producer; the id stays ours until somebody else takes it."""
        self._producer = None

    def _break(self) -> None:
        self._producer = None
        self.broken = True

    def write(self, writes: Sequence[Write], timeout: float) -> int:
        """Write records in one transaction and return the offset of the last one.

        Raises:
            FencedError: Somebody else took the id.
            WriteOutcomeUnknownError: The commit was sent and no answer came; `acquire` settles it.
            ConnectError: Nothing was written.
        """
        producer = self._producer
        if producer is None and self.broken:
            raise ConnectError(f"transactional id {self._id} waits for a new producer after a failure")
        if producer is None:
            raise FencedError("this worker does not lead its group")
        offsets: list[int] = []
        try:
            producer.begin_transaction()
            for write in writes:
                producer.produce(write.topic, write.value, write.key, on_delivery=_note_offset(offsets))
        except (KafkaException, BufferError) as error:
            self._abort(producer, error)
        try:
            producer.commit_transaction(timeout)
        except KafkaException as error:
            problem: KafkaError = error.args[0]
            if problem.code() in _FENCED:
                self.release()
                raise FencedError(f"transactional id {self._id} was taken by another worker") from error
            if problem.txn_requires_abort():
                self._abort(producer, error)
            self._break()
            raise WriteOutcomeUnknownError(f"outcome of a transaction of {self._id}: {problem.str()}") from error
        return offsets[-1]

    def _abort(self, producer: Producer, error: Exception) -> NoReturn:
        problem = error.args[0] if isinstance(error, KafkaException) else None
        if problem is not None and problem.code() in _FENCED:
            self.release()
            raise FencedError(f"transactional id {self._id} was taken by another worker") from error
        try:
            producer.abort_transaction(5.0)
        except KafkaException as abort_error:
            log.warning("transaction of %s was not aborted: %s", self._id, abort_error.args[0].str())
        self._break()  # the next acquire aborts what is open
        raise ConnectError(f"a transaction of {self._id} was not written: {error}") from error


def _note_offset(offsets: list[int]) -> Callable[[KafkaError | None, Message], None]:
    def delivered(error: KafkaError | None, message: Message) -> None:
        offset = message.offset()
        if error is None and offset is not None:
            offsets.append(offset)

    return delivered
