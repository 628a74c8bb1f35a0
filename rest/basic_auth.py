"""`BasicAuth`: HTTP basic authentication, like Kafka Connect's basic authentication extension."""

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
    """Verifies user names and passwords.

    As in Java, all requests are permitted if there are no users.
    """

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = dict(users)

    def permits(self, authorization: str | None) -> bool:
        """Return True if a request with this Authorization header is permitted.

        Raises:
            RestError: 500 if the credentials are not valid base64, as in Java.
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
