"""Option validators shared by several transformations."""

from __future__ import annotations

from connect_py.api.config import ConfigValueError, Parsed
from connect_py.java.patterns import JavaPattern
from connect_py.java.regex import JavaRegexError


def non_empty_list(name: str, value: Parsed) -> None:
    """Require at least one item."""
    if not value:
        raise ConfigValueError(name, value, "Empty list")


def non_null(name: str, value: Parsed) -> None:
    """Require a value, which may be the empty string."""
    if value is None:
        raise ConfigValueError(name, value, "entry must be non null")


def java_regex(name: str, value: Parsed) -> None:
    """Require a supported Java regular expression. As in Java, null is invalid."""
    try:
        if value is None:
            raise JavaRegexError("null")
        JavaPattern(value)
    except JavaRegexError as error:
        raise ConfigValueError(name, value, f"Invalid regex: {error}") from error
