"""`SourceProducer`: the producer of a source task, which can be replaced by a new one with the same
settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

from confluent_kafka import KafkaError, KafkaException, Message, Producer

OnDelivery: TypeAlias = Callable[[KafkaError | None, Message], None]


@dataclass(frozen=True, slots=True)
class OutgoingRecord:
    """A record as it goes to Kafka, any number of times."""

    topic: str
    value: bytes | None
    key: bytes | None
    headers: Sequence[tuple[str, str | bytes | None]]
    timestamp: int  # ms; 0: the time of sending
    partition: int | None  # None: chosen by the key
    on_delivery: OnDelivery  # inside the client's `poll`


class SourceProducer:
    """Used on the task thread only."""

    def __init__(self, make: Callable[[], Producer]) -> None:
        """Make the first client."""
        self._make = make
        # of the client: what waits for a delivery must not keep an old one alive
        self._generation = 0
        self.client = make()

    def send(self, record: OutgoingRecord) -> None:
        """Hand a record to the client; `on_delivery` gets its outcome unless the client is replaced
        before.

        Raises:
            BufferError: The local queue is full.
            KafkaException: The client takes no record, or not this one.
        """
        generation = self._generation

        def delivered(error: KafkaError | None, message: Message) -> None:
            if generation == self._generation:
                record.on_delivery(error, message)

        arguments: dict[str, Any] = (
            {} if record.partition is None else {"partition": record.partition}
        )
        self.client.produce(
            record.topic,
            value=record.value,
            key=record.key,
            headers=list(record.headers) or None,
            timestamp=record.timestamp,
            on_delivery=delivered,
            **arguments,
        )

    def poll(self, timeout: float) -> None:
        """Serve delivery reports. A fatal error is left to the next send or commit, which raises it
        again."""
        with suppress(KafkaException):
            self.client.poll(timeout)

    def renew(self) -> None:
        """Have a new client in place of the old one, whose records are forgotten."""
        self._generation += 1
        self.client.purge()
        self.poll(0)  # it lets go of the delivery reports that waited
        self.client = self._make()
