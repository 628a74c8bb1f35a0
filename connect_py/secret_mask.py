"""Masks secrets in strings that leave the process.

Secrets are values from config providers, and passwords and keys in URLs.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote, quote_plus

from connect_py.api.secret_keys import SECRET_MEMBER, URL_PASSWORD

MASK: Final = "[hidden]"
SHORTEST: Final = 6  # characters; shorter values (ports, flags) also occur in unrelated strings
_LINE: Final = 16  # characters; shorter lines of a value also occur in unrelated strings


class SecretMask:
    """Replaces secrets in strings. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._secrets: frozenset[str] = frozenset()
        self._pattern: re.Pattern[str] | None = None

    def add(self, values: Iterable[str]) -> None:
        """Mask these values from now on, including their URL and JSON encodings.

        Short values are ignored.
        """
        added = {value for value in map(str.strip, values) if len(value) >= SHORTEST}
        if added <= self._secrets:
            return
        with self._lock:
            self._secrets |= added
            forms = {form for secret in self._secrets for form in _forms(secret)}
            self._pattern = re.compile(
                "|".join(map(re.escape, sorted(forms, key=len, reverse=True)))
            )

    def found_in(self, strings: Iterable[str]) -> tuple[str, ...]:
        """Return the secrets that these strings contain.

        Any process that receives the strings must also mask these secrets.
        """
        return tuple({secret for string in strings for secret in self._secrets if secret in string})

    def apply(self, text: str) -> str:
        """Return the string with all secrets masked."""
        if self._pattern is not None:
            text = self._pattern.sub(MASK, text)
        if "://" in text:
            text = URL_PASSWORD.sub(rf"\1{MASK}@", text)
        if "=" in text:
            text = SECRET_MEMBER.sub(rf"\1{MASK}", text)
        return text


def _forms(secret: str) -> set[str]:
    lines = secret.splitlines()
    long_lines = {line for line in lines if len(line) >= _LINE} if len(lines) > 1 else set()
    escaped = {
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        repr(secret)[1:-1],
    }
    return {
        secret,
        quote(secret, safe=""),
        quote(secret),
        quote_plus(secret),
        *escaped,
        *long_lines,
    }


_process_mask: Final = SecretMask()
hide = _process_mask.add
hidden_in = _process_mask.found_in
masked = _process_mask.apply
