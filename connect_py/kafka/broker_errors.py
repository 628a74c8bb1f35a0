"""`LastBrokerError`: the reason why a client cannot reach a broker."""

from __future__ import annotations

from confluent_kafka import KafkaError


class LastBrokerError:
    """Stores the last reason, which a client reports when it is polled.

    Requests only fail with "timed out".
    """

    def __init__(self) -> None:
        self.reason = ""  # empty: no error was reported

    def record(self, error: KafkaError) -> None:
        """Handle an error; used as a client's `error_cb`."""
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # summarizes the other errors
            self.reason = error.str()
