"""`TopicSelection`: topics of a sink connector, from a list or a Java regular expression."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from connect_py.api.config import Type, parse
from connect_py.api.errors import ConfigError
from connect_py.error_handling.error_config import REPLAY_TOPIC
from connect_py.java.regex import JavaRegexError, compile_java_regex

INTERNAL: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
# POSIX classes that are equivalent to Unicode categories in topic names, which are ASCII
_OF_TOPICS: Final[Mapping[str, str]] = {"L": "Alpha", "Lu": "Upper", "Ll": "Lower"}


def java_regex(pattern: str, key: str = "topics.regex") -> re.Pattern[str]:
    """Compile a Java regular expression that matches topic names.

    Raises:
        ConfigError: The expression is invalid. The error names `key`.
    """
    text = re.sub(
        r"\\p\{(?:Is)?(\w+)\}",
        lambda match: f"\\p{{{_OF_TOPICS.get(match[1], match[1])}}}",
        pattern,
    )
    try:
        return compile_java_regex(text)
    except JavaRegexError as error:
        raise ConfigError(key, f"Invalid regex: {error}") from error


class TopicSelection:
    """Selects topics by `topics` or `topics.regex`, and the replay topic with retried records."""

    def __init__(self, props: Mapping[str, str]) -> None:
        """Parse the properties.

        Raises:
            ConfigError: Neither or both properties are set, or the expression is invalid.
        """
        self._topics = [
            topic for topic in parse("topics", props.get("topics") or "", Type.LIST) if topic
        ]
        regex = (props.get("topics.regex") or "").strip()
        if self._topics and regex:
            raise ConfigError(
                "", "topics and topics.regex are mutually exclusive options, but both are set."
            )
        if not self._topics and not regex:
            raise ConfigError("", "Must configure one of topics or topics.regex")
        self._regex = java_regex(regex) if regex else None
        replay = (props.get(REPLAY_TOPIC) or "").strip()
        if replay and not regex:
            self._topics.append(replay)
        self._replay = replay

    @property
    def is_regex(self) -> bool:
        """Return True if a regular expression selects the topics."""
        return self._regex is not None

    @property
    def has_replays(self) -> bool:
        """Return True if dead-letter records are retried.

        Retried records are written in transactions, so the consumer must read only committed
        records.
        """
        return bool(self._replay)

    def listed(self) -> list[str]:
        """Return the topics in the list, or an empty list for a regular expression."""
        return list(dict.fromkeys(self._topics))

    def among(self, existing: Iterable[str]) -> list[str]:
        """Return the existing topics that are selected, sorted by name.

        A regular expression must match the entire name.
        """
        if self._regex is None:
            return sorted(set(existing) & set(self._topics))
        return sorted(
            t
            for t in existing
            if t == self._replay or (t not in INTERNAL and self._regex.fullmatch(t))
        )
