"""`StartRefusals`: what the cluster does not grant to a worker that starts."""

from __future__ import annotations

import logging
import threading
from typing import Final

from connect_py.clock import Clock
from connect_py.kafka.authorization_errors import RefusedError

PATIENCE_SECONDS: Final = 60.0  # an administrator may be granting it just now

log = logging.getLogger(__name__)


class StartRefusals:
    """Noted by the parts that are refused, on any thread; looked at by the herder's thread until it
    has started."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._since: dict[str, float] = {}  # by text

    def note(self, refusal: str) -> None:
        """Something was refused; what was noted before is passed over."""
        with self._lock:
            if refusal in self._since:
                return
            self._since[refusal] = self._clock.monotonic()
        log.warning("%s; it is tried for %g s", refusal, PATIENCE_SECONDS)

    def withdraw(self, refusal: str) -> None:
        """The worker can do without this."""
        with self._lock:
            self._since.pop(refusal, None)

    def check(self) -> None:
        """Give up once something has been refused for a minute.

        Raises:
            RefusedError: With everything that was refused.
        """
        with self._lock:
            refused = list(self._since)
            lasts = any(
                self._clock.monotonic() - since >= PATIENCE_SECONDS
                for since in self._since.values()
            )
        if lasts:
            raise RefusedError(
                f"the cluster does not grant what this worker needs: {'; '.join(refused)}. "
                "The manual lists all access control entries of a worker under 'What the worker "
                "may do in Kafka'"
            )
