"""`BasicAuth`: who may call the API; Connect's extension of that name."""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Mapping
from typing import Final

from rest.errors import RestError

EXTENSION: Final = (
    "org.apache.kafka.connect.rest.basic.auth.extension.BasicAuthSecurityRestExtension"
)
REFUSED: Final = "User cannot access the resource."


class BasicAuth:
    """Knows users and passwords; an empty list of users lets everybody in, as Java's login module
    does."""

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = dict(users)

    def permits(self, authorization: str | None) -> bool:
        """Whether a request with this header may pass.

        Raises:
            RestError: 500, what should be base64 is not: Java answers so.
        """
        given = _credentials(authorization)
        if not self._users:
            return True
        if given is None:
            return False
        user, password = given
        expected = self._users.get(user)
        return expected is not None and hmac.compare_digest(expected.encode(), password.encode())


def _credentials(authorization: str | None) -> tuple[str, str] | None:
    scheme, _, encoded = (authorization or "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        text = base64.b64decode(encoded, validate=True).decode("utf-8", "replace")
    except (binascii.Error, ValueError) as error:
        raise RestError(500, "Illegal base64 character in the Authorization header") from error
    user, colon, password = text.partition(":")
    return (user, password) if user and colon else None
