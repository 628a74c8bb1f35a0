"""`BasicAuth`: authentication by user name and password, like Connect's extension of that name."""

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
    """Users and their passwords. Without users, everybody is permitted, as in Java."""

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = dict(users)

    def permits(self, authorization: str | None) -> bool:
        """Return True if a request with this header is permitted.

        Raises:
            RestError: 500, the credentials are not base64. Java responds the same way.
        """
        credentials = _credentials(authorization)
        if not self._users:
            return True
        if credentials is None:
            return False
        user, password = credentials
        expected = self._users.get(user)
        return expected is not None and hmac.compare_digest(expected.encode(), password.encode())


def _credentials(authorization: str | None) -> tuple[str, str] | None:
    scheme, _, encoded = (authorization or "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        credentials = base64.b64decode(encoded, validate=True).decode("utf-8", "replace")
    except (binascii.Error, ValueError) as error:
        raise RestError(500, "Illegal base64 character in the Authorization header") from error
    user, colon, password = credentials.partition(":")
    return (user, password) if user and colon else None
