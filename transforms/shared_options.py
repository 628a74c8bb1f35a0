"""Options that several transformations share, defined once."""

from __future__ import annotations

from typing import Final

from connect_py.api.config import ConfigKey, Importance, Type

REPLACE_NULL_WITH_DEFAULT: Final = ConfigKey(
    "replace.null.with.default",
    Type.BOOLEAN,
    True,
    None,
    Importance.MEDIUM,
    "Put the default of a field in place of null.",
)
TOPIC_FORMAT: Final = ConfigKey(
    "topic.format",
    Type.STRING,
    "${topic}-${timestamp}",
    None,
    Importance.HIGH,
    "The new topic; ${topic} and ${timestamp} stand for the old one and for the time.",
)
