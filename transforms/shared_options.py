"""Options shared by several transformations."""

from __future__ import annotations

from typing import Final

from connect_py.api.config import ConfigKey, Importance, Type

REPLACE_NULL_WITH_DEFAULT: Final = ConfigKey(
    "replace.null.with.default",
    Type.BOOLEAN,
    True,
    None,
    Importance.MEDIUM,
    "Replace null with the default of the field.",
)
TOPIC_FORMAT: Final = ConfigKey(
    "topic.format",
    Type.STRING,
    "${topic}-${timestamp}",
    None,
    Importance.HIGH,
    "Format of the new topic. ${topic} is the original topic and ${timestamp} is the formatted "
    "timestamp.",
)
