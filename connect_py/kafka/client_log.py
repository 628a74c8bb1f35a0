"""What the Kafka client library says, without its floods: it reports each of forty connection attempts a second."""

from __future__ import annotations

import logging
import re
import threading

from connect_py.clock import Clock, SystemClock

QUIET_SECONDS = 30.0
_SUBJECT = re.compile(r"(\S+) \[([^\]]*)\]")  # facility and client


class RepeatFilter(logging.Filter):
    """Lets one record of each kind and client through in a while, and says how many it held back."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: dict[tuple[int, str], tuple[float, int]] = {}  # when one was let through, how many since

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        found = _SUBJECT.match(text)
        key = (record.levelno, found[0] if found else text)
        now = self._clock.monotonic()
        with self._lock:
            last, held_back = self._seen.get(key, (now - QUIET_SECONDS, 0))
            if now - last < QUIET_SECONDS:
                self._seen[key] = (last, held_back + 1)
                return False
            self._seen[key] = (now, 0)
        if held_back:
            record.msg, record.args = f"{text} ({held_back} more like this in {now - last:.0f} s)", None
        return True


client_log = logging.getLogger("connect_py.kafka.client")
client_log.addFilter(RepeatFilter(SystemClock()))
