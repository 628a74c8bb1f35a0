"""Signatures of requests between workers: an HMAC over the raw body, made with the session key of
the config topic."""

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
HASHES: Final[Mapping[str, str]] = {  # Java's names of the algorithms, in lower case
    "hmacmd5": "md5",
    "hmacsha1": "sha1",
    "hmacsha224": "sha224",
    "hmacsha256": "sha256",
    "hmacsha384": "sha384",
    "hmacsha512": "sha512",
}


def sign(body: bytes, key: str, algorithm: str) -> dict[str, str]:
    """The two headers that go with a body; `key` is base64, as the config topic holds it.

    Raises:
        ConnectError: The algorithm is unknown here.
    """
    name = HASHES.get(algorithm.lower())
    if name is None:
        raise ConnectError(f"requests cannot be signed with {algorithm}")
    digest = hmac.digest(base64.b64decode(key), body, name)
    return {AUTHORIZATION_HEADER: base64.b64encode(digest).decode(), ALGORITHM_HEADER: algorithm}


@dataclass(frozen=True, slots=True)
class RequestSignature:
    """What a request between workers was signed with."""

    body: bytes
    algorithm: str
    digest: bytes

    @staticmethod
    def of(
        body: bytes, authorization: str | None, algorithm: str | None
    ) -> RequestSignature | None:
        """Read the two headers; None when one is missing.

        Raises:
            ValueError: The algorithm is unknown here, or the signature is no base64.
        """
        if authorization is None or algorithm is None:
            return None
        if algorithm.lower() not in HASHES:
            raise ValueError(f"Algorithm {algorithm} not available")
        try:
            return RequestSignature(body, algorithm, base64.b64decode(authorization, validate=True))
        except binascii.Error as error:
            raise ValueError("the signature of the request is not base64") from error

    def made_with(self, key: str) -> bool:
        """Whether this base64 key made the signature."""
        expected = hmac.digest(base64.b64decode(key), self.body, HASHES[self.algorithm.lower()])
        return hmac.compare_digest(expected, self.digest)
