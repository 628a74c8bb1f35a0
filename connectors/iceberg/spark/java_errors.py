"""Our error for a Java exception, said once."""

from __future__ import annotations

from typing import Any, Final

from connect_py.api.errors import CommitStateUnknownError, ConnectError
from connectors.iceberg.spark.errors import (
    CatalogUnavailableError,
    TableForbiddenError,
    TableMissingError,
    TableUnsuitableError,
)

_ICEBERG: Final = "org.apache.iceberg.exceptions."
_MISSING = {f"{_ICEBERG}NoSuchTableException", f"{_ICEBERG}NoSuchNamespaceException"}
_FORBIDDEN = {f"{_ICEBERG}ForbiddenException", f"{_ICEBERG}NotAuthorizedException"}
_UNSUITABLE = {
    f"{_ICEBERG}NotFoundException",  # a file of the table, or a staged one
    f"{_ICEBERG}ValidationException",
    f"{_ICEBERG}BadRequestException",
    f"{_ICEBERG}UnprocessableEntityException",
    "java.lang.IllegalArgumentException",
    "java.lang.UnsupportedOperationException",
    "java.lang.ClassCastException",
    "java.lang.NullPointerException",
    "org.apache.spark.sql.AnalysisException",
    "org.apache.spark.sql.catalyst.ExtendedAnalysisException",
    "org.apache.spark.sql.catalyst.parser.ParseException",
}
_UNKNOWN = f"{_ICEBERG}CommitStateUnknownException"


def translated(subject: str, exception: Any) -> ConnectError:
    """Judge by the outermost class that says something. `subject` begins the message, and names the table if any."""
    chain: list[tuple[str, str]] = []
    cause = exception
    while cause is not None and len(chain) < 10:
        chain.append((cause.getClass().getName(), str(cause.getMessage() or "").split("\n", 1)[0]))
        cause = cause.getCause()
    for name, message in chain:
        if name == _UNKNOWN:
            return CommitStateUnknownError(f"{subject}: {message}")
        if name in _MISSING:
            return TableMissingError(subject, message)
        if name in _FORBIDDEN:
            return TableForbiddenError(subject, message)
        if name in _UNSUITABLE:
            return TableUnsuitableError(subject, f"{name.rsplit('.', 1)[-1]}: {message}")
    (name, message), (root, root_message) = chain[0], chain[-1]
    told = f"{name.rsplit('.', 1)[-1]}: {message}"
    if root_message and root_message not in message:  # what REST clients say first names no address
        told += f" ({root.rsplit('.', 1)[-1]}: {root_message})"
    return CatalogUnavailableError(f"{subject}: {told}")
