"""`LeaderProducer`: the transactional producer that proves leadership.

A worker that is alone in its group can use a producer without transactions instead.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence, Set
from typing import NoReturn

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from connect_py.api.errors import ConnectError
from connect_py.kafka.authorization_errors import REFUSALS, NoTransactionsError, RefusedError
from connect_py.kafka.client_log import client_log
from connect_py.plurals import pluralize
from connect_py.storage.storage_clients import StorageClients
from connect_py.storage.storage_log import Write

log = logging.getLogger(__name__)

ADMIN_SECONDS = 5.0
TRANSACTION_STATE = "__transaction_state"  # internal topic of the transaction coordinators
_FACTOR = "transaction.state.log.replication.factor"  # broker setting for TRANSACTION_STATE
_FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


class FencedError(ConnectError):
    """Another worker has become the leader. No record of this transaction was written."""


class WriteOutcomeUnknownError(ConnectError):
    """It is unknown whether the transaction was committed. Read the topic before retrying."""


class LeaderProducer:
    """Writes transactions with the group's transactional ID. Used by one thread at a time.

    After any failure except fencing, the producer is `broken`: writes fail until `acquire` creates
    a new producer.
    """

    def __init__(self, clients: StorageClients, group_id: str) -> None:
        self._clients = clients
        self._id = f"connect-cluster-{group_id}"
        self._producer: Producer | None = None
        self.broken = False
        # reason for writing without transactions, or None if the producer uses them
        self.alone: str | None = None

    def go_alone(self, reason: str) -> None:
        """Stop using transactions at the next `acquire`. Other leaders are then no longer fenced.

        `reason` explains why transactions are not used.
        """
        self.alone = reason

    def acquire(self, timeout: float) -> None:
        """Acquire the transactional ID. This fences the previous owner and aborts its transaction.

        Raises:
            NoTransactionsError: This worker is not authorized to use transactions, or the cluster
                does not support them.
            ConnectError: The cluster did not respond in time.
        """
        self.release()
        if self.alone is not None:
            self._producer = Producer(self._clients.lone_leader_settings(), logger=client_log)
            self.broken = False
            return
        producer = Producer(self._clients.leader_settings(self._id), logger=client_log)
        try:
            producer.init_transactions(timeout)
        except KafkaException as error:
            problem: KafkaError = error.args[0]
            if problem.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
                raise NoTransactionsError(
                    f"not authorized to use transactional id '{self._id}' (required ACL: Write "
                    f"and Describe on TransactionalId '{self._id}')"
                ) from error
            if (
                problem.code() == KafkaError._TIMED_OUT
                and (reason := self._impossible()) is not None
            ):
                raise NoTransactionsError(
                    f"failed to acquire transactional id '{self._id}': {reason}"
                ) from error
            raise ConnectError(
                f"failed to acquire transactional id {self._id}: {problem.str()}"
            ) from error
        self._producer = producer
        self.broken = False

    def _impossible(self) -> str | None:
        """Return the reason why the cluster does not support transactions.

        Return None if it supports them or if this is unknown.
        """
        admin = self._clients.admin()
        try:
            cluster = admin.list_topics(timeout=ADMIN_SECONDS)
        except KafkaException:
            return None
        brokers = len(cluster.brokers)
        if TRANSACTION_STATE in cluster.topics or not brokers:
            return None
        factor = _broker_setting(admin, str(next(iter(cluster.brokers))), _FACTOR)
        if factor is not None and int(factor) <= brokers:
            return None
        return (
            f"the cluster has no topic {TRANSACTION_STATE}; {_FACTOR} is {factor or 'unknown'}, "
            f"the number of brokers is {brokers}"
        )

    def release(self) -> None:
        """Release the producer. The ID remains acquired until another worker acquires it."""
        self._producer = None

    def _break(self) -> None:
        self._producer = None
        self.broken = True

    def write(self, writes: Sequence[Write], timeout: float) -> int:
        """Write records in one transaction and return the offset of the last one.

        Raises:
            FencedError: Another worker has acquired the ID.
            WriteOutcomeUnknownError: The commit was not acknowledged. After the next `acquire`, the
                outcome can be read from the topic.
            ConnectError: Nothing was written.
        """
        producer = self._producer
        if producer is None and self.broken:
            raise ConnectError(f"transactional id {self._id} needs a new producer after a failure")
        if producer is None:
            raise FencedError("this worker is not the leader of its group")
        if self.alone is not None:
            return self._write_alone(producer, writes, timeout)
        offsets: list[int] = []
        refused: set[str] = set()
        try:
            producer.begin_transaction()
            for write in writes:
                producer.produce(
                    write.topic, write.value, write.key, on_delivery=_note_offset(offsets, refused)
                )
        except (KafkaException, BufferError) as error:
            self._abort(producer, error)
        try:
            producer.commit_transaction(timeout)
        except KafkaException as error:
            problem: KafkaError = error.args[0]
            if problem.code() in _FENCED:
                self.release()
                raise FencedError(
                    f"transactional id {self._id} was acquired by another worker"
                ) from error
            if problem.txn_requires_abort():
                self._abort(producer, error, refused)
            self._break()
            raise WriteOutcomeUnknownError(
                f"unknown outcome of a transaction with transactional id {self._id}: "
                f"{problem.str()}"
            ) from error
        return offsets[-1]

    def _write_alone(self, producer: Producer, writes: Sequence[Write], timeout: float) -> int:
        offsets: list[int] = []
        refused: set[str] = set()
        try:
            for write in writes:
                producer.produce(
                    write.topic, write.value, write.key, on_delivery=_note_offset(offsets, refused)
                )
            producer.flush(timeout)
        except (KafkaException, BufferError) as error:
            log.warning("failed to write the leader's records: %s", error)
        if refused:
            self._break()
            raise _not_writable(refused)
        if len(offsets) < len(writes):
            self._break()
            missing = pluralize(len(writes) - len(offsets), "record was", "records were")
            raise WriteOutcomeUnknownError(f"{missing} not acknowledged")
        return offsets[-1]

    def _abort(
        self, producer: Producer, error: Exception, refused: Set[str] = frozenset()
    ) -> NoReturn:
        problem = error.args[0] if isinstance(error, KafkaException) else None
        if problem is not None and problem.code() in _FENCED:
            self.release()
            raise FencedError(
                f"transactional id {self._id} was acquired by another worker"
            ) from error
        try:
            producer.abort_transaction(5.0)
        except KafkaException as abort_error:
            log.warning(
                "failed to abort a transaction with transactional id %s: %s",
                self._id,
                abort_error.args[0].str(),
            )
        self._break()  # the next `acquire` aborts the transaction if it is still open
        if refused:
            raise _not_writable(refused) from error
        raise ConnectError(
            f"failed to write a transaction with transactional id {self._id}: {error}"
        ) from error


def _not_writable(topics: Set[str]) -> RefusedError:
    return RefusedError(
        "; ".join(
            f"not authorized to write to topic '{topic}' (required ACL: Write)"
            for topic in sorted(topics)
        )
    )


def _broker_setting(admin: AdminClient, broker: str, name: str) -> str | None:
    """Return a broker setting, or None if this client is not authorized to read it."""
    resource = ConfigResource(ResourceType.BROKER, broker)
    try:
        configs = admin.describe_configs([resource], request_timeout=ADMIN_SECONDS)[
            resource
        ].result(ADMIN_SECONDS + 1)
    except (KafkaException, TimeoutError):
        return None
    return None if name not in configs else configs[name].value


def _note_offset(
    offsets: list[int], refused: set[str]
) -> Callable[[KafkaError | None, Message], None]:
    def delivered(error: KafkaError | None, message: Message) -> None:
        offset = message.offset()
        if error is None and offset is not None:
            offsets.append(offset)
        if error is not None and error.code() in REFUSALS:
            refused.add(str(message.topic()))

    return delivered
