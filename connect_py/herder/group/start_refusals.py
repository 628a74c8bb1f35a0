"""`StartRefusals`: tracks permissions that the cluster denies to a worker during startup."""

from __future__ import annotations

import logging
import threading
from typing import Final

from connect_py.clock import Clock
from connect_py.kafka.authorization_errors import RefusedError

PATIENCE_SECONDS: Final = 60.0  # time for an administrator to grant a missing permission

log = logging.getLogger(__name__)


class StartRefusals:
    """Tracks denied permissions.

    Any thread may report a denied permission. The herder's thread checks the reports during
    startup.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._since: dict[str, float] = {}  # time of the first report of each message

    def note(self, refusal: str) -> None:
        """Report a denied permission. Repeated reports are ignored."""
        with self._lock:
            if refusal in self._since:
                return
            self._since[refusal] = self._clock.monotonic()
        log.warning("%s; retrying for %g s", refusal, PATIENCE_SECONDS)

    def withdraw(self, refusal: str) -> None:
        """Remove a report, because the worker can run without this permission."""
        with self._lock:
            self._since.pop(refusal, None)

    def check(self) -> None:
        """Check whether a permission has been denied for at least one minute.

        Raises:
            RefusedError: A permission has been denied for that long. The message lists all denied
                permissions.
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
                "The documentation lists all ACLs that a worker needs in Kafka"
            )
