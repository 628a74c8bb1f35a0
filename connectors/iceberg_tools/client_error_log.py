"""`ClientErrorLog`: records the connection errors of a command's Kafka clients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException

from connect_py.api.errors import RetriableError

# log level "critical"; by default, the client writes log lines to standard error
_NO_LINES: Final = 2
# settings of a consumer that reads topics from beginning to end
TO_THE_END: Final[Mapping[str, Any]] = {
    "enable.auto.commit": False,
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    "allow.auto.create.topics": False,
}


class ClientErrorLog:
    """Records the last connection error of a client.

    A client may repeat such an error 40 times per second.
    """

    def __init__(self) -> None:
        self._reason = ""

    def quiet(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return client settings that record errors here and disable log lines.

        A log level in `settings` takes precedence.
        """
        return {"log_level": _NO_LINES, **settings, "error_cb": self._record}

    def _record(self, error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # which only summarizes other errors
            self._reason = error.str()

    def of(self, error: KafkaException, client: Any = None) -> str:
        """Return the reason for a failure: the broker's response or the last connection error.

        The client is polled first because it reports connection errors only when it is polled.
        """
        problem: KafkaError = error.args[0]
        if problem.code() > 0:  # positive codes come from a broker
            return problem.str()
        if client is not None:
            client.poll(0)
        return f"{problem.str()} ({self._reason})" if self._reason else problem.str()


@contextmanager
def consumer_of(settings: dict[str, Any], subject: str) -> Iterator[Consumer]:
    """Provide a consumer, and raise its errors as RetriableErrors that begin with `subject`."""
    errors = ClientErrorLog()
    try:
        consumer = Consumer(errors.quiet(settings))
    except KafkaException as error:
        raise RetriableError(f"{subject}: {errors.of(error)}") from error
    try:
        yield consumer
    except KafkaException as error:
        raise RetriableError(f"{subject}: {errors.of(error, consumer)}") from error
    finally:
        consumer.close()
