"""Translates Java's cipher suite names to OpenSSL's."""

from __future__ import annotations

import re
from collections.abc import Iterable


def openssl_ciphers(names: Iterable[str]) -> str | None:
    """Return OpenSSL's cipher list for cipher suite names, or None if the list is empty.

    TLS 1.3 suites are omitted because OpenSSL does not select them with this list. Names that are
    already in OpenSSL's form remain unchanged.
    """
    stripped = [name.strip() for name in names if name.strip()]
    older = [
        _openssl_name(name) for name in stripped if "_WITH_" in name or not name.startswith("TLS_")
    ]
    return ":".join(older) or None


def _openssl_name(name: str) -> str:
    """Translate Java's name for a cipher suite to OpenSSL's.

    For example, `TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256` becomes `ECDHE-RSA-AES128-SHA256`.
    """
    if "_WITH_" not in name:
        return name
    exchange, _, cipher = name.removeprefix("TLS_").partition("_WITH_")
    cipher = (
        re.sub(r"AES_(\d+)_", r"AES\1_", cipher)
        .replace("_CBC", "")
        .replace("POLY1305_SHA256", "POLY1305")
    )
    cipher = cipher.replace("_", "-")
    return cipher if exchange == "RSA" else f"{exchange.replace('_', '-')}-{cipher}"
