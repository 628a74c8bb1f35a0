"""Errors in the Connect API.

The class of an error determines how the worker reacts. The attributes contain the details.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any


class FailureReason(Enum):
    """Reason why a record became a dead-letter record.

    The values are used as metric labels and in the column `_dlq_reason`. The set is small and
    fixed.
    """

    KEY_CONVERTER = "key_converter"
    VALUE_CONVERTER = "value_converter"
    HEADER_CONVERTER = "header_converter"
    TRANSFORMATION = "transformation"  # includes predicates
    # reported by sinks: the message is not a valid change event
    NO_CHANGE_EVENT = "no_change_event"
    DOES_NOT_FIT = "does_not_fit"  # reported by sinks: a value cannot be stored in its column
    NULL_KEY = "null_key"  # reported by sinks: a row for a table with key columns has no key
    UNROUTED = "unrouted"  # reported by sinks: the record is not routed to any table
    SINK = "sink"  # any other error that the sink task reported


class ConnectError(Exception):
    """A Connect operation failed. Unless a subclass specifies otherwise, the task fails."""

    # class name for dead-letter headers and stack traces
    java_name = "org.apache.kafka.connect.errors.ConnectException"


class RetriableError(ConnectError):
    """The operation may succeed later. The worker retries it after a delay."""

    java_name = "org.apache.kafka.connect.errors.RetriableException"


class UnavailableError(RetriableError):
    """A server that a converter or transformation needs is unavailable.

    The error is not caused by a record. The worker therefore retries indefinitely, regardless of
    `errors.retry.timeout`, and no record becomes a dead-letter record.
    """

    def __init__(self, *args: object, server: str = "server") -> None:
        """Create an error. The task status shows `server` as the subject of the wait."""
        super().__init__(*args)
        self.server = server


class DataError(ConnectError):
    """The bytes, the schema, or a value of a record is invalid.

    Subject to `errors.tolerance`.
    """

    java_name = "org.apache.kafka.connect.errors.DataException"

    def __init__(self, *args: object, reason: FailureReason | None = None) -> None:
        """Create an error. Sink tasks may set `reason`. The default is `FailureReason.SINK`."""
        super().__init__(*args)
        self.reason = reason


class SchemaBuilderError(DataError):
    """A schema is invalid, for example because two fields have the same name."""

    java_name = "org.apache.kafka.connect.errors.SchemaBuilderException"


class ConfigError(ConnectError):
    """A configuration value is invalid.

    The message contains the value only if the caller includes it, because it may be a secret.
    """

    java_name = "org.apache.kafka.common.config.ConfigException"

    def __init__(self, key: str, why: str) -> None:
        super().__init__(f"{key}: {why}" if key else why)
        self.key = key
        self.why = why

    def __reduce__(self) -> tuple[type[ConfigError], tuple[str, str]]:
        """Pickle a subclass as a ConfigError with the same message."""
        return ConfigError, (self.key, self.why) if type(self) is ConfigError else ("", str(self))


class NotFoundError(ConnectError):
    """The connector, task, or plugin does not exist."""

    java_name = "org.apache.kafka.connect.errors.NotFoundException"


class AlreadyExistsError(ConnectError):
    """The name is already in use."""

    java_name = "org.apache.kafka.connect.errors.AlreadyExistsException"


class CommitStateUnknownError(ConnectError):
    """The outcome of a commit is unknown. Read the table before the next attempt."""


class NotColumnar(ConnectError):  # noqa: N818 - requests processing by row; not a failure
    """A batch has no exact columnar form. Its rows are processed one at a time."""


class BadRows(ConnectError):  # noqa: N818 - names the rows, not the failure
    """Some rows of a batch cannot be processed.

    The worker applies `errors.tolerance` to these rows, exactly as if processing each of them
    separately had raised the error. It repeats the call with the other rows unless their results
    are attached.
    """

    def __init__(
        self, errors: Mapping[int, Exception], results: Sequence[Any] | None = None
    ) -> None:
        """Create an error. `errors` maps the index of each bad row in the batch to its error.

        `results` contains the batches that `apply_batch` would have returned for the other rows.
        Only transformations provide it. It is None if the other rows have not been processed.
        """
        if not errors:
            raise ValueError("BadRows requires at least one row")
        super().__init__(f"rows that cannot be processed: {len(errors)}; first row: {min(errors)}")
        self.errors = dict(errors)
        self.results = results
