"""`SourceProducer`: a source task's producer, whose client can be replaced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

from confluent_kafka import KafkaError, KafkaException, Message, Producer

OnDelivery: TypeAlias = Callable[[KafkaError | None, Message], None]


@dataclass(frozen=True, slots=True)
class OutgoingRecord:
    """A serialized record that can be sent several times."""

    topic: str
    value: bytes | None
    key: bytes | None
    headers: Sequence[tuple[str, str | bytes | None]]
    timestamp: int  # ms; 0 means the time of sending
    partition: int | None  # None if the client's partitioner chooses it
    on_delivery: OnDelivery  # called from the client's `poll`


class SourceProducer:
    """Sends records with a client that can be replaced. Used only on the task's thread."""

    def __init__(self, make: Callable[[], Producer]) -> None:
        """Create the first client. `make` also creates its replacements."""
        self._make = make
        # number of replacements; delivery reports from a replaced client are ignored
        self._generation = 0
        self.client = make()

    def send(self, record: OutgoingRecord) -> None:
        """Hand a record to the client.

        `on_delivery` receives the result unless the client is replaced first.

        Raises:
            BufferError: The local queue is full.
            KafkaException: The client rejects the record.
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
        """Serve delivery reports. Fatal errors are ignored; the next send or commit raises them."""
        with suppress(KafkaException):
            self.client.poll(timeout)

    def renew(self) -> None:
        """Replace the client. Drops the old client's undelivered records."""
        self._generation += 1
        self.client.purge()
        self.poll(0)  # releases the pending delivery reports
        self.client = self._make()
