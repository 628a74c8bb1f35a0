"""Failures that Java's plugins report by classes of the Java library; dead letters carry these
names."""

from __future__ import annotations

from connect_py.api.errors import ConnectError


class NullPointerError(ConnectError):
    """Something that had to be there is null or missing."""

    java_name = "java.lang.NullPointerException"


class ClassCastError(ConnectError):
    """A value has another type than the option that names it promises."""

    java_name = "java.lang.ClassCastException"


class IllegalArgumentError(ConnectError):
    """An option does not fit the record."""

    java_name = "java.lang.IllegalArgumentException"


class IllegalStateError(ConnectError):
    """A record came that must not come."""

    java_name = "java.lang.IllegalStateException"


class IndexOutOfBoundsError(ConnectError):
    """A regular expression has no such group."""

    java_name = "java.lang.IndexOutOfBoundsException"


class DateTimeParseError(ConnectError):
    """A text is no date or time."""

    java_name = "java.time.format.DateTimeParseException"


class UnsupportedOperationError(ConnectError):
    """A transformation does not do this kind of record."""

    java_name = "java.lang.UnsupportedOperationException"
