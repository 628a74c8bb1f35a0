"""Logger for the Kafka client library that suppresses repeated messages.

The library reports up to 40 failed connection attempts per second.
"""

from __future__ import annotations

import logging
import re
import threading

from connect_py.clock import Clock, SystemClock

QUIET_SECONDS = 30.0
PATIENCE_SECONDS = 10.0
_SUBJECT = re.compile(r"(\S+) \[([^\]]*)\]")  # facility and client name
# prefix of an error that occurs after a broker's first start, until the coordinator has loaded
_TEMPORARY = "GETPID "


class RepeatFilter(logging.Filter):
    """Passes one record per level, client, and interval, and adds the number of suppressed records.

    Warnings about temporary conditions are logged at INFO until the condition has persisted.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._lock = threading.Lock()
        # time of the last record that passed, and the number of records suppressed since
        self._passed_records: dict[tuple[int, str], tuple[float, int]] = {}
        # times of the first and last record in the current occurrence
        self._temporary: dict[str, tuple[float, float]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        match = _SUBJECT.match(message)
        subject = match[0] if match else message
        now = self._clock.monotonic()
        with self._lock:
            if (
                message.startswith(_TEMPORARY)
                and record.levelno == logging.WARNING
                and not self._is_persistent(subject, now)
            ):
                record.levelno, record.levelname = logging.INFO, logging.getLevelName(logging.INFO)
            key = (record.levelno, subject)
            last, suppressed = self._passed_records.get(key, (now - QUIET_SECONDS, 0))
            if now - last < QUIET_SECONDS:
                self._passed_records[key] = (last, suppressed + 1)
                return False
            self._passed_records[key] = (now, 0)
        if suppressed:
            record.msg, record.args = (
                f"{message} ({suppressed} more like this in {now - last:.0f} s)",
                None,
            )
        return True

    def _is_persistent(self, subject: str, now: float) -> bool:
        first, last = self._temporary.get(subject, (now, now))
        if now - last >= QUIET_SECONDS:  # a separate occurrence
            first = now
        self._temporary[subject] = (first, now)
        return now - first >= PATIENCE_SECONDS


client_log = logging.getLogger("connect_py.kafka.client")
client_log.addFilter(RepeatFilter(SystemClock()))
