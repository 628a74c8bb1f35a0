"""`ResponseHeaders`: headers of the worker's owner on every answer (`response.http.headers.config`)."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from email.utils import formatdate
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from connect_py.api.errors import ConfigError

KEY: Final = "response.http.headers.config"
ACTIONS: Final = ("set", "add", "setDate", "addDate")
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


@dataclass(frozen=True, slots=True)
class HeaderRule:
    """One header: `set` replaces what is there, `add` comes beside it."""

    name: bytes
    value: bytes
    replaces: bool

    @staticmethod
    def of(text: str) -> HeaderRule:
        """Read `set X-Frame-Options: DENY`; dates are given in ms since the epoch.

        Raises:
            ConfigError: It is not of that form.
        """
        action, blank, header = text.strip().partition(" ")
        name, colon, value = header.strip().partition(":")
        name, value = name.strip(), value.strip()
        if action not in ACTIONS:
            raise ConfigError(KEY, f"Invalid header config '{text}': the action must be one of {', '.join(ACTIONS)}")
        if not blank or not colon or _TOKEN.fullmatch(name) is None:
            raise ConfigError(KEY, f"Invalid header config '{text}': expected [action] [header name]:[header value]")
        if action.endswith("Date"):
            if not value.isdigit():
                raise ConfigError(KEY, f"Invalid header config '{text}': a date is a number of milliseconds")
            value = formatdate(int(value) / 1000, usegmt=True)
        try:
            return HeaderRule(name.lower().encode(), value.encode("latin-1"), action.startswith("set"))
        except UnicodeEncodeError as error:
            raise ConfigError(KEY, f"the value of {name} has characters that no header can hold") from error


def header_rules(text: str) -> list[HeaderRule]:
    """Read the whole property: rules apart by commas, in quotes where they hold commas themselves.

    Raises:
        ConfigError: A rule is not of the right form.
    """
    if not text.strip():
        return []
    return [HeaderRule.of(item) for item in next(csv.reader([text], skipinitialspace=True))]


class ResponseHeaders:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, rules: Sequence[HeaderRule]) -> None:
        self._app = app
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                for rule in self._rules:
                    if rule.replaces:
                        headers = [(name, value) for name, value in headers if name.lower() != rule.name]
                    headers.append((rule.name, rule.value))
                message = {**message, "headers": headers}
            await send(message)

        await self._app(scope, receive, send_with)
