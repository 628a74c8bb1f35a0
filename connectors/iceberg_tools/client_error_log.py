"""`ClientErrorLog`: what the Kafka clients of a command complain of, for the one message that
people get to read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException

from connect_py.api.errors import RetriableError

# the library's log level: critical only; it would write its lines to standard error by itself
_NO_LINES: Final = 2
# Of a consumer that reads topics from their beginning to their end.
TO_THE_END: Final[Mapping[str, Any]] = {
    "enable.auto.commit": False,
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    "allow.auto.create.topics": False,
}


class ClientErrorLog:
    """Keeps the last reason why a broker was not reached; the library repeats it forty times a
    second."""

    def __init__(self) -> None:
        self._reason = ""

    def quiet(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The settings of a client that writes nothing by itself, unless they ask for a log
        level."""
        return {"log_level": _NO_LINES, **settings, "error_cb": self._heard}

    def _heard(self, error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # a sum of the others
            self._reason = error.str()

    def of(self, error: KafkaException, client: Any = None) -> str:
        """What was refused; or that no broker answered, and why: the failed client reports it when
        it is polled."""
        problem: KafkaError = error.args[0]
        if problem.code() > 0:  # a broker's own answer
            return problem.str()
        if client is not None:
            client.poll(0)
        return f"{problem.str()} ({self._reason})" if self._reason else problem.str()


@contextmanager
def consumer_of(settings: dict[str, Any], subject: str) -> Iterator[Consumer]:
    """A client for as long as the block takes; its errors are RetriableErrors about the subject."""
    news = ClientErrorLog()
    try:
        consumer = Consumer(news.quiet(settings))
    except KafkaException as error:
        raise RetriableError(f"{subject}: {news.of(error)}") from error
    try:
        yield consumer
    except KafkaException as error:
        raise RetriableError(f"{subject}: {news.of(error, consumer)}") from error
    finally:
        consumer.close()
