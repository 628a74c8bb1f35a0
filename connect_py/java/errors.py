"""Errors with Java exception names, which appear in dead-letter records."""

from __future__ import annotations

from connect_py.api.errors import ConnectError


class NullPointerError(ConnectError):
    """A required value is null or missing."""

    java_name = "java.lang.NullPointerException"


class ClassCastError(ConnectError):
    """A value has a type that the option does not support."""

    java_name = "java.lang.ClassCastException"


class IllegalArgumentError(ConnectError):
    """An option is not valid for the record."""

    java_name = "java.lang.IllegalArgumentException"


class IllegalStateError(ConnectError):
    """The record is not allowed in this state."""

    java_name = "java.lang.IllegalStateException"


class IndexOutOfBoundsError(ConnectError):
    """A regular expression has no group with this index."""

    java_name = "java.lang.IndexOutOfBoundsException"


class DateTimeParseError(ConnectError):
    """The string is not a valid date or time."""

    java_name = "java.time.format.DateTimeParseException"


class UnsupportedOperationError(ConnectError):
    """A transformation does not support this kind of record."""

    java_name = "java.lang.UnsupportedOperationException"
