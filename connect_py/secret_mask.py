"""Secrets that must not leave the process in texts: what configuration providers gave, passwords
and keys in URLs."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote, quote_plus

from connect_py.api.secret_keys import SECRET_MEMBER, URL_PASSWORD

MASK: Final = "[hidden]"
SHORTEST: Final = 6  # characters; shorter values (ports, flags) stand in texts for other reasons
_LINE: Final = 16  # characters; shorter lines of a value of several lines stand in other texts, too


class SecretMask:
    """Knows secrets and replaces them in texts. Safe on any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._secrets: frozenset[str] = frozenset()
        self._pattern: re.Pattern[str] | None = None

    def add(self, values: Iterable[str]) -> None:
        """Hide these values from now on, also as they stand in URLs and in JSON; short ones are
        left out."""
        added = {value for value in map(str.strip, values) if len(value) >= SHORTEST}
        if added <= self._secrets:
            return
        with self._lock:
            self._secrets |= added
            forms = {form for secret in self._secrets for form in _forms(secret)}
            self._pattern = re.compile(
                "|".join(map(re.escape, sorted(forms, key=len, reverse=True)))
            )

    def found_in(self, texts: Iterable[str]) -> tuple[str, ...]:
        """The secrets that stand in these texts: what a process needs to know that gets them."""
        return tuple({secret for text in texts for secret in self._secrets if secret in text})

    def apply(self, text: str) -> str:
        """The text without secrets."""
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


_of_process: Final = SecretMask()
hide = _of_process.add
hidden_in = _of_process.found_in
masked = _of_process.apply
