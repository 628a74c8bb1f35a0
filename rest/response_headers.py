"""`ResponseHeaders`: adds headers to every response (`response.http.headers.config`)."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from email.utils import formatdate
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from connect_py.api.errors import ConfigError
from connect_py.clock import Clock, SystemClock

KEY: Final = "response.http.headers.config"
ACTIONS: Final = ("set", "add", "setDate", "addDate")
_MILLISECONDS: Final = re.compile(r"[+-]?[0-9]{1,13}")
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


@dataclass(frozen=True, slots=True)
class HeaderRule:
    """Rule for a header. `set` replaces existing headers with its name; `add` retains them."""

    name: bytes
    content: str
    replaces: bool
    from_now_ms: int | None = None  # for a date header: time after the response

    def value(self, now_ms: int) -> bytes:
        """Return the value of the header for a response at this time."""
        if self.from_now_ms is None:
            return self.content.encode("latin-1")
        return formatdate((now_ms + self.from_now_ms) / 1000, usegmt=True).encode()

    @staticmethod
    def of(text: str) -> HeaderRule:
        """Parse a rule such as `set X-Frame-Options: DENY`. Dates are given in ms from now.

        Raises:
            ConfigError: The rule does not have this format.
        """
        action, blank, header = text.strip().partition(" ")
        pair = header.strip()
        name, colon, value = pair.partition(":")
        name, value = name.strip(), value.strip()
        if not blank:
            form = "[action] [header name]:[header value]"
            raise ConfigError("", f"Invalid format of header config '{text}'. Expected: '{form}'")
        if action not in ACTIONS:
            listed = ", ".join(ACTIONS)
            raise ConfigError(
                "", f"Invalid header config action: '{action}'. Expected one of [{listed}]"
            )
        if not colon:
            raise ConfigError(
                "",
                f"Invalid format of header name and header value pair '{pair}'. Expected: "
                "'[header name]:[header value]'",
            )
        if len(name.split()) != 1:
            raise ConfigError(
                "", f"Invalid header name '{name}'. The '[header name]' cannot contain whitespace"
            )
        if _TOKEN.fullmatch(name) is None:
            raise ConfigError(
                KEY, f"Invalid header name '{name}': header names cannot contain these characters"
            )
        key = name.lower().encode()
        if action.endswith("Date"):
            if _MILLISECONDS.fullmatch(value) is None:
                raise ConfigError(
                    KEY,
                    f"Invalid header config '{text}': a date is a number of milliseconds from now",
                )
            return HeaderRule(key, value, action == "setDate", int(value))
        try:
            value.encode("latin-1")
        except UnicodeEncodeError as error:
            raise ConfigError(
                KEY, f"the value of {name} contains characters that are not allowed in headers"
            ) from error
        return HeaderRule(key, value, action == "set")


def header_rules(text: str) -> list[HeaderRule]:
    """Parse the property, a comma-separated list of rules. Rules with commas must be quoted.

    Raises:
        ConfigError: A rule is not valid.
    """
    if not text.strip():
        return []
    return [HeaderRule.of(item) for item in next(csv.reader([text], skipinitialspace=True))]


class ResponseHeaders:
    """ASGI middleware that adds headers to every response."""

    def __init__(
        self, app: ASGIApp, rules: Sequence[HeaderRule], clock: Clock | None = None
    ) -> None:
        self._app = app
        self._rules = rules
        self._clock = clock or SystemClock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                for rule in self._rules:
                    if rule.replaces:
                        headers = [
                            (name, value) for name, value in headers if name.lower() != rule.name
                        ]
                    headers.append((rule.name, rule.value(self._clock.time_ms())))
                message = {**message, "headers": headers}
            await send(message)

        await self._app(scope, receive, send_with)
