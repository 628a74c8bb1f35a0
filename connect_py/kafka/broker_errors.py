"""`LastBrokerError`: the most recent reason why a client cannot reach a broker."""

from __future__ import annotations

from confluent_kafka import KafkaError


class LastBrokerError:
    """Stores the most recent connection error, which a client reports only while it is polled.

    Without this error, failed requests would report only "timed out".
    """

    def __init__(self) -> None:
        self.reason = ""  # empty if no error was reported

    def record(self, error: KafkaError) -> None:
        """Handle an error. Used as a client's `error_cb`."""
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # this error only summarizes others
            self.reason = error.str()
