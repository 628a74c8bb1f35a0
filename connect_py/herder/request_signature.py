"""Signs requests between workers, and verifies the signatures.

A signature is an HMAC of the raw request body, computed with the session key from the config topic.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from connect_py.api.errors import ConnectError

AUTHORIZATION_HEADER: Final = "X-Connect-Authorization"
ALGORITHM_HEADER: Final = "X-Connect-Request-Signature-Algorithm"
HASHES: Final[Mapping[str, str]] = {  # hash name by Java's algorithm name in lower case
    "hmacmd5": "md5",
    "hmacsha1": "sha1",
    "hmacsha224": "sha224",
    "hmacsha256": "sha256",
    "hmacsha384": "sha384",
    "hmacsha512": "sha512",
}


def sign(body: bytes, key: str, algorithm: str) -> dict[str, str]:
    """Return the two headers that sign a request body.

    `key` is encoded as base64, as in the config topic.

    Raises:
        ConnectError: The algorithm is not supported.
    """
    name = HASHES.get(algorithm.lower())
    if name is None:
        raise ConnectError(f"unsupported signature algorithm: {algorithm}")
    digest = hmac.digest(base64.b64decode(key), body, name)
    return {AUTHORIZATION_HEADER: base64.b64encode(digest).decode(), ALGORITHM_HEADER: algorithm}


@dataclass(frozen=True, slots=True)
class RequestSignature:
    """Signature of a request between workers."""

    body: bytes
    algorithm: str
    digest: bytes

    @staticmethod
    def of(
        body: bytes, authorization: str | None, algorithm: str | None
    ) -> RequestSignature | None:
        """Parse the two signature headers. Return None if either is missing.

        Raises:
            ValueError: The algorithm is not supported, or the signature is not valid base64.
        """
        if authorization is None or algorithm is None:
            return None
        if algorithm.lower() not in HASHES:
            raise ValueError(f"Algorithm {algorithm} not available")
        try:
            return RequestSignature(body, algorithm, base64.b64decode(authorization, validate=True))
        except binascii.Error as error:
            raise ValueError("invalid request signature: not base64") from error

    def matches(self, key: str) -> bool:
        """Return True if the signature was created with this base64 key."""
        expected = hmac.digest(base64.b64decode(key), self.body, HASHES[self.algorithm.lower()])
        return hmac.compare_digest(expected, self.digest)
