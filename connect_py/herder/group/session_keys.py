"""`SessionKeys`: verifies that a request was signed by a worker that can read the config topic."""

from __future__ import annotations

import base64
import secrets
import threading
from collections.abc import Sequence
from typing import Final

from connect_py.api.errors import ConnectError
from connect_py.clock import Clock
from connect_py.herder.herder import BadRequestError, UnavailableError
from connect_py.herder.request_signature import RequestSignature, sign
from connect_py.storage.config_state import SessionKey

DEFAULT_BITS: Final = 256


def successor(
    current: SessionKey | None, algorithm: str, bits: int | None, ttl_ms: int, now_ms: int
) -> SessionKey | None:
    """Return a new session key if one is due, otherwise None.

    A new key is due if there is no key, the current key is too old, or its algorithm or size does
    not match the configuration.

    Args:
        current: The current key.
        algorithm: Configured algorithm.
        bits: Configured size in bits, or None for the default.
        ttl_ms: Maximum age of a key in milliseconds. Zero or a negative value means no limit.
        now_ms: Current time in milliseconds since the epoch.
    """
    if (
        current is not None
        and current.algorithm == algorithm
        and (bits is None or 8 * len(base64.b64decode(current.key)) == bits // 8 * 8)
        and not 0 < ttl_ms < now_ms - current.creation_timestamp
    ):
        return None
    key = base64.b64encode(secrets.token_bytes((bits or DEFAULT_BITS) // 8)).decode()
    return SessionKey(key, algorithm, now_ms)


class SessionKeys:
    """Signs and verifies requests with the current session key.

    The previous key is accepted during a grace period, because workers read a new key at different
    times.
    """

    def __init__(
        self, signing: str, accepted: Sequence[str], grace_seconds: float, clock: Clock
    ) -> None:
        """Create the object without a session key.

        This worker signs requests with the algorithm `signing`. Other workers may use any algorithm
        in `accepted`.
        """
        self._signing = signing
        self._accepted = list(accepted)
        self._grace_seconds = grace_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._key: SessionKey | None = None
        # previous key and the end of its grace period, in monotonic seconds
        self._previous: tuple[SessionKey, float] | None = None

    def take(self, key: SessionKey) -> None:
        """Store a key that was read from the config topic."""
        with self._lock:
            if self._key is not None and self._key.key != key.key:
                self._previous = self._key, self._clock.monotonic() + self._grace_seconds
            self._key = key

    def headers(self, body: bytes) -> dict[str, str]:
        """Return the headers that sign a request from this worker.

        Raises:
            ConnectError: No key has been read yet.
        """
        with self._lock:
            key = self._key
        if key is None:
            raise ConnectError("no session key has been read from the config topic yet")
        return sign(body, key.key, self._signing)

    def check(self, signature: RequestSignature | None) -> None:
        """Verify the signature of a request.

        Raises:
            BadRequestError: The request is not signed, or its algorithm is not accepted.
            UnavailableError: No key has been read yet.
            PermissionError: The request was signed with a different key.
        """
        if signature is None:
            raise BadRequestError("Internal request missing required signature")
        if signature.algorithm not in self._accepted:
            raise BadRequestError(
                f"This worker does not support the '{signature.algorithm}' key signing algorithm "
                "used by other workers. This worker is currently configured to use: "
                f"[{', '.join(self._accepted)}]. Check that all workers' configuration files "
                "permit the same set of signature algorithms, and correct any misconfigured "
                "worker and restart it."
            )
        with self._lock:
            keys = [] if self._key is None else [self._key]
            if self._previous is not None and self._clock.monotonic() < self._previous[1]:
                keys.append(self._previous[0])
        if not keys:
            raise UnavailableError(
                "This worker is still starting up and has not been able to read a session key from "
                "the config topic yet"
            )
        if not any(signature.matches(key.key) for key in keys):
            raise PermissionError("Internal request contained invalid signature.")
