"""`TopicSelection`: which topics a sink consumes, by list or by a regular expression in Java's
syntax."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from connect_py.api.config import Type, parse
from connect_py.api.errors import ConfigError
from connect_py.error_handling.error_config import REPLAY_TOPIC
from connect_py.java.regex import JavaRegexError, compile_java_regex

INTERNAL: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
# names of topics are ASCII
_OF_TOPICS: Final[Mapping[str, str]] = {"L": "Alpha", "Lu": "Upper", "Ll": "Lower"}


def java_regex(pattern: str, key: str = "topics.regex") -> re.Pattern[str]:
    """Compile a regular expression of Java's that is to match the names of topics.

    Raises:
        ConfigError: It does not compile; `key` names it.
    """
    text = re.sub(
        r"\\p\{(?:Is)?(\w+)\}",
        lambda found: f"\\p{{{_OF_TOPICS.get(found[1], found[1])}}}",
        pattern,
    )
    try:
        return compile_java_regex(text)
    except JavaRegexError as error:
        raise ConfigError(key, f"Invalid regex: {error}") from error


class TopicSelection:
    """Parsed from `topics` or `topics.regex`, and the topic from which dead letters are tried
    again."""

    def __init__(self, props: Mapping[str, str]) -> None:
        """ConfigError when neither or both are set, or the expression does not compile."""
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
        """Whether the topics depend on what exists."""
        return self._regex is not None

    @property
    def has_replays(self) -> bool:
        """Whether dead letters are tried again; these are written in transactions, so committed
        ones are read."""
        return bool(self._replay)

    def listed(self) -> list[str]:
        """The topics by name; empty for a regular expression."""
        return list(dict.fromkeys(self._topics))

    def among(self, existing: Iterable[str]) -> list[str]:
        """Those of the existing topics that are consumed, sorted; the expression must match the
        whole name."""
        if self._regex is None:
            return sorted(set(existing) & set(self._topics))
        return sorted(
            t
            for t in existing
            if t == self._replay or (t not in INTERNAL and self._regex.fullmatch(t))
        )
