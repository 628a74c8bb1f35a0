"""`DeadLetterQueue`: sends records that failed to a topic, byte for byte, with headers that say
why."""

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
    """One per sink task, used on its thread. A send that fails for good fails the task at its next
    flush."""

    def __init__(
        self,
        id: ConnectorTaskId,  # noqa: A002 - Connect's word
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
        id: ConnectorTaskId,  # noqa: A002 - Connect's word
        config: ErrorConfig,
        producer_settings: Mapping[str, object],
        admin: ClusterAdmin,
    ) -> DeadLetterQueue:
        """Create the topic if it is missing, with one partition, and make the producer.

        Raises:
            ConnectError: The topic cannot be created.
        """
        if admin.create_topic(config.dead_letter_topic, 1, config.dead_letter_replication_factor):
            log.info("created dead-letter topic %s", config.dead_letter_topic)
        return cls(id, config, Producer(dict(producer_settings), logger=client_log))

    def report(self, failed: FailedRecord) -> None:
        """Send one record; `flush` tells when it is safe.

        A task that seeks back reads a bad record again, and it fails again: that makes no second
        letter.

        Raises:
            ConnectError: The producer does not take it: it is larger than `max.request.size`.
        """
        origin, shown = failed.origin, failed.shown()
        if origin is None or shown is None:
            raise ConnectError("only consumed records can be dead-lettered")
        if not self._sent.first(origin):
            return
        headers: list[tuple[str, str | bytes | None]] = list(shown.headers)
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
            except BufferError:  # the local queue is full: deliveries make room
                self._producer.poll(QUEUE_FULL_SLICE_SECONDS)
            except KafkaException as error:
                self._fail(error.args[0])
                raise self._refused() from error
        self._pending += 1
        self.produced += 1
        self._producer.poll(0)

    def context_headers(self, failed: FailedRecord) -> list[tuple[str, bytes | None]]:
        """Connect's headers about a failure: UTF-8 texts, coordinates as consumed."""
        origin = failed.shown()
        if origin is None:
            raise ConnectError("only consumed records have these headers")
        message = str(failed.error)
        texts: dict[str, str | None] = {
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
            (PREFIX + name, None if text is None else text.encode()) for name, text in texts.items()
        ]

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        self._pending -= 1
        if error is not None:
            self._fail(error)

    def _fail(self, error: KafkaError) -> None:
        self.failures += 1
        self._failure = error.str()

    def _refused(self) -> ConnectError:
        return ConnectError(
            f"a record could not be written to dead-letter topic '{self._topic}': {self._failure}"
        )

    def pending(self) -> int:
        """How many sends are not acknowledged; ConnectError when one failed for good."""
        if self._failure is not None:
            raise self._refused()
        return self._pending

    def flush(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds for acknowledgements; True when all are there. ConnectError
        as for `pending`."""
        deadline = self._clock.monotonic() + timeout
        while self.pending():
            left = deadline - self._clock.monotonic()
            if left <= 0:
                return False
            self._producer.poll(min(left, QUEUE_FULL_SLICE_SECONDS))
        return True

    def values(self) -> dict[str, float]:
        """Totals by Connect's names."""
        return {
            "deadletterqueue-produce-requests": self.produced,
            "deadletterqueue-produce-failures": self.failures,
        }

    def close(self) -> None:
        """Give up what was not acknowledged; `flush` comes first where it matters."""
        try:
            self._producer.purge()
            self._producer.poll(0)
        except KafkaException:
            log.warning("the dead-letter producer did not close cleanly", exc_info=True)
