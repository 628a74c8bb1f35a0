"""`BrokerNews`: why a client does not reach a broker."""

from __future__ import annotations

from confluent_kafka import KafkaError


class BrokerNews:
    """Keeps the last reason, which a client tells when it is polled; the outcome of a request says
    "timed out" only."""

    def __init__(self) -> None:
        self.reason = ""  # empty: nothing was heard

    def heard(self, error: KafkaError) -> None:
        """A client's `error_cb`."""
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # the sum of the others
            self.reason = error.str()
