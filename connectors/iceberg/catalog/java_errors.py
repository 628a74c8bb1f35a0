"""Translation of Java exceptions into the sink's errors."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JNetworkError

from connect_py.api.errors import CommitStateUnknownError, ConnectError
from connectors.iceberg.errors import (
    CatalogUnavailableError,
    JavaError,
    SparkDiedError,
    SparkLostError,
    TableError,
    TableForbiddenError,
    TableMissingError,
    TableUnsuitableError,
)

_JAVA_FRAMES: Final = 5  # maximum number of frames per exception in a Java stack trace
EXCEPTIONS: Final = "org.apache.iceberg.exceptions."
VALIDATION: Final = f"{EXCEPTIONS}ValidationException"
REFUSED: Final = f"{EXCEPTIONS}CommitFailedException"
NOT_FOUND: Final = f"{EXCEPTIONS}NotFoundException"  # a table file or a staged file is missing
MISSING_FILE: Final = (
    NOT_FOUND,
    "java.io.FileNotFoundException",
    "java.nio.file.NoSuchFileException",
    "org.apache.spark.SparkFileNotFoundException",
)
_MISSING = {f"{EXCEPTIONS}NoSuchTableException", f"{EXCEPTIONS}NoSuchNamespaceException"}
_FORBIDDEN = {f"{EXCEPTIONS}ForbiddenException", f"{EXCEPTIONS}NotAuthorizedException"}
_UNSUITABLE = {
    NOT_FOUND,
    VALIDATION,
    f"{EXCEPTIONS}BadRequestException",
    f"{EXCEPTIONS}UnprocessableEntityException",
    "java.lang.IllegalArgumentException",
    "java.lang.UnsupportedOperationException",
    "java.lang.ClassCastException",
    "java.lang.NullPointerException",
    "org.apache.spark.sql.AnalysisException",
    "org.apache.spark.sql.catalyst.ExtendedAnalysisException",
    "org.apache.spark.sql.catalyst.parser.ParseException",
}
# Errors in a statement or in the values that it reads. A plain `SparkException` means that a job
# failed.
_OF_STATEMENT: Final = re.compile(
    r"org\.apache\.spark\.(Spark\w+Exception|sql\..*|api\.python\.PythonException)"
)
_UNKNOWN = f"{EXCEPTIONS}CommitStateUnknownException"
# Messages from the class loader or from Iceberg's search for a constructor if the AWS SDK is not on
# the class path.
_NO_LIBRARY: Final = re.compile(
    r"software[./]amazon[./]awssdk|org\.apache\.iceberg\.aws\.\S+: Cannot find constructor"
)
_WRAPPER: Final = "java.lang.reflect.InvocationTargetException"
_LINKING: Final = ("NoClassDefFoundError", "ClassNotFoundException", "IllegalArgumentException")
# Errors and their remedies. The errors are permanent, because nothing on the class path supports
# the configured scheme.
_LASTING: Final = (
    (
        re.compile(r"No suitable driver found for"),
        "iceberg.catalog.uri must be a JDBC URL such as jdbc:postgresql://..., and its driver must "
        "be one of Spark's jars",
    ),
    (re.compile(r"No FileSystem for scheme"), "see iceberg.catalog.warehouse"),
)
# Messages from Hadoop. Hadoop is used if no FileIO is configured, and if Iceberg's
# ResolvingFileIO does not find the AWS library.
_HADOOP_LACKS: Final = re.compile(
    r'No FileSystem for scheme "?s3[an]?"?$|s3a\.S3AFileSystem not found'
)
# Storage errors and their remedies.
_HINTS: Final = (
    (
        re.compile(r"Service: S3, Status Code: 40[13]"),
        "the storage refuses the credentials, see iceberg.catalog.s3.*",
    ),
    (
        re.compile(r"bucket does not exist"),
        "see iceberg.catalog.warehouse and the location of the table",
    ),
    (re.compile(r"Unable to load region"), "set iceberg.catalog.client.region or AWS_REGION"),
)
_LONGEST: Final = 300  # maximum number of characters of the Java message that follows a remedy
_LONGEST_CHAIN: Final = 10  # maximum number of exceptions to follow in a chain of causes


def java_exception_of(error: BaseException) -> Any:
    """Return the Java exception behind an error from py4j or pyspark, or None for other errors."""
    return getattr(error, "java_exception", None) or getattr(error, "_origin", None)


def is_a(error: BaseException, *names: str) -> bool:
    """Return True if the class of the outermost Java exception is listed."""
    exception = java_exception_of(error)
    return exception is not None and exception.getClass().getName() in names


def caused_by(error: BaseException, *names: str) -> bool:
    """Return True if the class of a Java exception or of one of its causes is listed."""
    return any(name in names for name, _ in _chain(java_exception_of(error)))


def is_statement_error(error: BaseException) -> bool:
    """Return True if a statement or its evaluation failed, rather than the storage or the JVM."""
    return any(_OF_STATEMENT.match(name) for name, _ in _chain(java_exception_of(error)))


@contextlib.contextmanager
def translating(subject: str, *, of_table: bool = True) -> Iterator[None]:
    """Translate errors from Java, py4j, and pyspark in the `with` block.

    Args:
        subject: The table or component with which error messages begin.
        of_table: True if the subject is the name of a table.
    """
    try:
        yield
    except ConnectError:
        raise
    except (Py4JNetworkError, ConnectionError) as error:
        raise SparkDiedError(f"{subject}: Spark's JVM has ended") from error
    except Exception as error:
        exception = java_exception_of(error)
        if exception is None:
            raise
        raised = translated(subject, exception)
        if isinstance(raised, TableError) and not of_table:
            raised = ConnectError(f"{subject}: {raised.why}")
        raise raised from JavaError(_shortened(error))


def _shortened(error: Exception) -> str:
    """Return an error's message with shortened traces, or its class if the JVM has exited."""
    try:
        message = str(error)
    except (Py4JError, OSError):
        message = type(error).__name__
    trace = getattr(error, "_stackTrace", None)  # pyspark stores the Java trace separately
    if trace and trace not in message:
        message = f"{message}\n{trace}"
    lines: list[str] = []
    frames = 0
    for line in message.splitlines():
        frames = frames + 1 if line.startswith("\tat ") else 0
        if frames <= _JAVA_FRAMES and not line.startswith("\t... "):
            lines.append(line)
    return "\n".join(lines)


def _chain(exception: Any) -> list[tuple[str, str]]:
    """Return the class and message of an exception and of each of its causes, outermost first.

    Reflection wrappers are omitted.
    """
    chain: list[tuple[str, str]] = []
    while exception is not None and len(chain) < _LONGEST_CHAIN:
        name, cause = exception.getClass().getName(), exception.getCause()
        if name != _WRAPPER or cause is None:
            chain.append((name, str(exception.getMessage() or "").strip().split("\n", 1)[0]))
        exception = cause
    return chain


def translated(subject: str, exception: Any) -> ConnectError:
    """Return the sink's error for a Java exception.

    If no message in the chain of causes is known, the outermost known class determines the error.

    Args:
        subject: The beginning of the message, which is the name of the table if there is one.
        exception: The Java exception.
    """
    chain = _chain(exception)
    if any(_NO_LIBRARY.search(message) and name.endswith(_LINKING) for name, message in chain):
        return SparkLostError(
            f"{subject}: Iceberg's library for S3 and AWS is missing: run `connect-py jars s3` on "
            "each worker and restart it; if CONNECT_PY_SPARK_JARS lists the jars, add "
            "iceberg-aws-bundle to it"
        )
    if any(_HADOOP_LACKS.search(message) for _, message in chain):
        return SparkLostError(
            f"{subject}: Hadoop has no file system for S3: set "
            "iceberg.catalog.io-impl=org.apache.iceberg.aws.s3.S3FileIO; if `connect-py jars s3` "
            "did not run on a worker before its start, run it and restart the worker"
        )
    for pattern, hint in _LASTING:
        for name, message in chain:
            if pattern.search(message):
                return TableUnsuitableError(
                    subject, f"{name.rsplit('.', 1)[-1]}: {message}: {hint}"
                )
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
    detail = f"{name.rsplit('.', 1)[-1]}: {message}"
    if root_message and root_message not in message:  # only the root cause contains the address
        detail += f" ({root.rsplit('.', 1)[-1]}: {root_message})"
    for pattern, hint in _HINTS:
        if pattern.search(detail):
            return CatalogUnavailableError(f"{subject}: {hint}: {detail[:_LONGEST]}")
    return CatalogUnavailableError(f"{subject}: {detail}")
