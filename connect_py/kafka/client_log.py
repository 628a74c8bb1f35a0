"""What the Kafka client library says, without its floods: it reports each of forty connection
attempts a second."""

from __future__ import annotations

import logging
import re
import threading

from connect_py.clock import Clock, SystemClock

QUIET_SECONDS = 30.0
PATIENCE_SECONDS = 10.0
_SUBJECT = re.compile(r"(\S+) \[([^\]]*)\]")  # facility and client
_PASSING = "GETPID "  # until a coordinator has loaded, which takes a moment at every first start


class RepeatFilter(logging.Filter):
    """Lets one record of each kind and client through in a while, and says how many it held back.

    Warnings of what passes by itself are infos until it has lasted.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: dict[
            tuple[int, str], tuple[float, int]
        ] = {}  # when one was let through, how many since
        self._passing: dict[str, tuple[float, float]] = {}  # heard first and last

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        found = _SUBJECT.match(text)
        subject = found[0] if found else text
        now = self._clock.monotonic()
        with self._lock:
            if (
                text.startswith(_PASSING)
                and record.levelno == logging.WARNING
                and not self._has_lasted(subject, now)
            ):
                record.levelno, record.levelname = logging.INFO, logging.getLevelName(logging.INFO)
            key = (record.levelno, subject)
            last, suppressed = self._seen.get(key, (now - QUIET_SECONDS, 0))
            if now - last < QUIET_SECONDS:
                self._seen[key] = (last, suppressed + 1)
                return False
            self._seen[key] = (now, 0)
        if suppressed:
            record.msg, record.args = (
                f"{text} ({suppressed} more like this in {now - last:.0f} s)",
                None,
            )
        return True

    def _has_lasted(self, subject: str, now: float) -> bool:
        first, last = self._passing.get(subject, (now, now))
        if now - last >= QUIET_SECONDS:  # another time
            first = now
        self._passing[subject] = (first, now)
        return now - first >= PATIENCE_SECONDS


client_log = logging.getLogger("connect_py.kafka.client")
client_log.addFilter(RepeatFilter(SystemClock()))
