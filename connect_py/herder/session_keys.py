"""`SessionKeys`: decides whether a request between workers was signed by one that reads our config
topic."""

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
    known: SessionKey | None, algorithm: str, bits: int | None, ttl_ms: int, now_ms: int
) -> SessionKey | None:
    """A new key, when one is due: none is known, or it is of another kind or size, or too old.
    None: it stays.

    Args:
        bits: The size that the worker's properties ask for; None leaves it to us.
        ttl_ms: How long a key counts; 0 or less: for ever.
    """
    if (
        known is not None
        and known.algorithm == algorithm
        and (bits is None or 8 * len(base64.b64decode(known.key)) == bits // 8 * 8)
        and not 0 < ttl_ms < now_ms - known.creation_timestamp
    ):
        return None
    key = base64.b64encode(secrets.token_bytes((bits or DEFAULT_BITS) // 8)).decode()
    return SessionKey(key, algorithm, now_ms)


class SessionKeys:
    """The key in force, and for a while the one before it: rotation does not reach all workers at
    once."""

    def __init__(
        self, signing: str, accepted: Sequence[str], grace_seconds: float, clock: Clock
    ) -> None:
        """`signing` is the algorithm of our own requests, `accepted` are those that others may
        use."""
        self._signing = signing
        self._accepted = list(accepted)
        self._grace_seconds = grace_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._key: SessionKey | None = None
        # until when it counts, monotonic seconds
        self._previous: tuple[SessionKey, float] | None = None

    def take(self, key: SessionKey) -> None:
        """A key was read from the config topic."""
        with self._lock:
            if self._key is not None and self._key.key != key.key:
                self._previous = self._key, self._clock.monotonic() + self._grace_seconds
            self._key = key

    def headers(self, body: bytes) -> dict[str, str]:
        """What to send with a request of our own.

        Raises:
            ConnectError: No key was read yet.
        """
        with self._lock:
            key = self._key
        if key is None:
            raise ConnectError("no session key was read from the config topic yet")
        return sign(body, key.key, self._signing)

    def check(self, signature: RequestSignature | None) -> None:
        """Let a request pass.

        Raises: BadRequestError: It is not signed, or with an algorithm that this worker does not
            accept. UnavailableError: No key was read yet. PermissionError: It was signed with
            another key.
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
        if not any(signature.made_with(key.key) for key in keys):
            raise PermissionError("Internal request contained invalid signature.")
