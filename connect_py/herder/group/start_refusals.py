"""`StartRefusals`: permissions that the cluster denies to a worker during startup."""

from __future__ import annotations

import logging
import threading
from typing import Final

from connect_py.clock import Clock
from connect_py.kafka.authorization_errors import RefusedError

PATIENCE_SECONDS: Final = 60.0  # an administrator may be granting the permission right now

log = logging.getLogger(__name__)


class StartRefusals:
    """Denied permissions.

    Reported on any thread, and checked by the herder's thread until it has started.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._since: dict[str, float] = {}  # time of the first report, by message

    def note(self, refusal: str) -> None:
        """Report a denied permission. Repeated reports are ignored."""
        with self._lock:
            if refusal in self._since:
                return
            self._since[refusal] = self._clock.monotonic()
        log.warning("%s; retrying for %g s", refusal, PATIENCE_SECONDS)

    def withdraw(self, refusal: str) -> None:
        """Remove a report because the worker can run without this permission."""
        with self._lock:
            self._since.pop(refusal, None)

    def check(self) -> None:
        """Abort the startup if a permission has been denied for a minute.

        Raises:
            RefusedError: With all denied permissions.
        """
        with self._lock:
            refused = list(self._since)
            expired = any(
                self._clock.monotonic() - since >= PATIENCE_SECONDS
                for since in self._since.values()
            )
        if expired:
            raise RefusedError(
                f"the cluster denies permissions that this worker needs: {'; '.join(refused)}. "
                "The manual lists all access control entries of a worker under 'What the "
                "worker may do in Kafka'"
            )
