"""Checks of options that several transformations share."""

from __future__ import annotations

from connect_py.api.config import ConfigValueError, Parsed


def non_empty_list(name: str, value: Parsed) -> None:
    """At least one item."""
    if not value:
        raise ConfigValueError(name, value, "Empty list")


def non_null(name: str, value: Parsed) -> None:
    """Given, if only as an empty text."""
    if value is None:
        raise ConfigValueError(name, value, "entry must be non null")
