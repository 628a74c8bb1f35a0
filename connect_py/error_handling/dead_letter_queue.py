"""`DeadLetterQueue`: sends failed records to a topic.

Keys and values are unchanged. Headers describe the failure.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from connect_py.api.errors import ConnectError
from connect_py.clock import Clock, SystemClock
from connect_py.error_handling.error_config import ErrorConfig
from connect_py.error_handling.error_handler import ErrorReporter
from connect_py.error_handling.failed_record import FailedRecord, error_class_name, stack_trace
from connect_py.error_handling.once import Once
from connect_py.kafka.client_log import client_log
from connect_py.kafka.cluster_admin import ClusterAdmin
from connect_py.model import ConnectorTaskId
from connect_py.secret_mask import masked

PREFIX: Final = "__connect.errors."
QUEUE_FULL_SLICE_SECONDS: Final = 0.1

log = logging.getLogger(__name__)


class DeadLetterQueue(ErrorReporter):
    """Dead-letter queue for one sink task. Used on the task's thread.

    If a send fails permanently, the task fails at its next flush.
    """

    def __init__(
        self,
        id: ConnectorTaskId,  # noqa: A002 - Connect's term
        config: ErrorConfig,
        producer: Producer,
        clock: Clock | None = None,
    ) -> None:
        self._id = id
        self._topic = config.dead_letter_topic
        self._headers = config.dead_letter_headers
        self._producer = producer
        self._clock = clock or SystemClock()
        self._sent = Once()
        self._pending = 0
        self._failure: str | None = None
        self.produced = 0
        self.failures = 0

    @classmethod
    def open(
        cls,
        id: ConnectorTaskId,  # noqa: A002 - Connect's term
        config: ErrorConfig,
        producer_settings: Mapping[str, object],
        admin: ClusterAdmin,
    ) -> DeadLetterQueue:
        """Create the producer, and create the topic with one partition if it does not exist.

        Raises:
            ConnectError: The topic cannot be created.
        """
        if admin.create_topic(config.dead_letter_topic, 1, config.dead_letter_replication_factor):
            log.info("created dead-letter topic %s", config.dead_letter_topic)
        return cls(id, config, Producer(dict(producer_settings), logger=client_log))

    def report(self, failed: FailedRecord) -> None:
        """Send one record. `flush` waits for the acknowledgment.

        A record that fails again after the task has rewound is not sent again.

        Raises:
            ConnectError: The producer rejects the record, for example because it is larger than
                `max.request.size`.
        """
        origin, original = failed.origin, failed.original()
        if origin is None or original is None:
            raise ConnectError("only consumed records can be dead-lettered")
        if not self._sent.first(origin):
            return
        headers: list[tuple[str, str | bytes | None]] = list(original.headers)
        if self._headers:
            headers += self.context_headers(failed)
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    value=origin.value,
                    key=origin.key,
                    headers=headers or None,
                    timestamp=failed.timestamp or 0,
                    on_delivery=self._delivered,
                )
                break
            except BufferError:  # wait for deliveries to free up space in the local queue
                self._producer.poll(QUEUE_FULL_SLICE_SECONDS)
            except KafkaException as error:
                self._fail(error.args[0])
                raise self._write_error() from error
        self._pending += 1
        self.produced += 1
        self._producer.poll(0)

    def context_headers(self, failed: FailedRecord) -> list[tuple[str, bytes | None]]:
        """Return Connect's headers for a failure, with UTF-8 values and the original location."""
        origin = failed.original()
        if origin is None:
            raise ConnectError("only consumed records have these headers")
        message = str(failed.error)
        values: dict[str, str | None] = {
            "topic": origin.topic,
            "partition": str(origin.partition),
            "offset": str(origin.offset),
            "connector.name": self._id.connector,
            "task.id": str(self._id.task),
            "stage": failed.stage.value,
            "class.name": failed.class_name,
            "exception.class.name": error_class_name(failed.error),
            "exception.message": masked(message) or None,
            "exception.stacktrace": masked(stack_trace(failed.error)),
        }
        return [
            (PREFIX + name, None if value is None else value.encode())
            for name, value in values.items()
        ]

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        self._pending -= 1
        if error is not None:
            self._fail(error)

    def _fail(self, error: KafkaError) -> None:
        self.failures += 1
        self._failure = error.str()

    def _write_error(self) -> ConnectError:
        return ConnectError(
            f"failed to write a record to dead-letter topic '{self._topic}': {self._failure}"
        )

    def pending(self) -> int:
        """Return the number of unacknowledged sends. Raises ConnectError if a send has failed."""
        if self._failure is not None:
            raise self._write_error()
        return self._pending

    def flush(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds for acknowledgments.

        Return True if all sends were acknowledged. Raises ConnectError if a send has failed.
        """
        deadline = self._clock.monotonic() + timeout
        while self.pending():
            remaining = deadline - self._clock.monotonic()
            if remaining <= 0:
                return False
            self._producer.poll(min(remaining, QUEUE_FULL_SLICE_SECONDS))
        return True

    def values(self) -> dict[str, float]:
        """Return totals, keyed by Connect's metric names."""
        return {
            "deadletterqueue-produce-requests": self.produced,
            "deadletterqueue-produce-failures": self.failures,
        }

    def close(self) -> None:
        """Discard unacknowledged sends. Call `flush` first to wait for them."""
        try:
            self._producer.purge()
            self._producer.poll(0)
        except KafkaException:
            log.warning("failed to close the dead-letter producer cleanly", exc_info=True)
