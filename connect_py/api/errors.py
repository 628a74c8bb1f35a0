"""The error tree of Connect. The class decides what the worker does; data rides on attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any


class FailureReason(Enum):
    """Why a record became a dead letter; the values label metrics and fill `_dlq_reason`. A small
    closed set."""

    KEY_CONVERTER = "key_converter"
    VALUE_CONVERTER = "value_converter"
    HEADER_CONVERTER = "header_converter"
    TRANSFORMATION = "transformation"  # predicates too
    # the sink's own: a message that is none of the events that it expects
    NO_CHANGE_EVENT = "no_change_event"
    DOES_NOT_FIT = "does_not_fit"  # the sink's own: a value that its column cannot hold
    NULL_KEY = "null_key"  # the sink's own: a row of a keyed table without a key
    UNROUTED = "unrouted"  # the sink's own: nothing takes this record
    SINK = "sink"  # any other error that the sink task reported


class ConnectError(Exception):
    """Connect could not do what was asked. Unless a subclass says otherwise, the task fails."""

    # what DLQ headers and traces show
    java_name = "org.apache.kafka.connect.errors.ConnectException"


class RetriableError(ConnectError):
    """The same call may succeed later: the worker waits and calls again."""

    java_name = "org.apache.kafka.connect.errors.RetriableException"


class UnavailableError(RetriableError):
    """A server that a conversion or a transformation needs is away. No record is to blame: the
    worker waits without limit, whatever `errors.retry.timeout` says, and nothing becomes a dead
    letter."""

    def __init__(self, *args: object, server: str = "server") -> None:
        """`server` is what the status of the task says that it waits for."""
        super().__init__(*args)
        self.server = server


class DataError(ConnectError):
    """One record does not fit: its bytes, its schema or a value. Tolerable under
    `errors.tolerance`."""

    java_name = "org.apache.kafka.connect.errors.DataException"

    def __init__(self, *args: object, reason: FailureReason | None = None) -> None:
        """`reason` tells dead letters apart that a sink task reports; None:
        `FailureReason.SINK`."""
        super().__init__(*args)
        self.reason = reason


class SchemaBuilderError(DataError):
    """A schema cannot be built as asked, for example because two fields share a name."""

    java_name = "org.apache.kafka.connect.errors.SchemaBuilderException"


class ConfigError(ConnectError):
    """A configuration value is not acceptable.

    The message never holds the value unless the caller puts it there: it may be a secret.
    """

    java_name = "org.apache.kafka.common.config.ConfigException"

    def __init__(self, key: str, why: str) -> None:
        super().__init__(f"{key}: {why}" if key else why)
        self.key = key
        self.why = why

    def __reduce__(self) -> tuple[type[ConfigError], tuple[str, str]]:
        """Errors travel between processes; one of a class below arrives as its text."""
        return ConfigError, (self.key, self.why) if type(self) is ConfigError else ("", str(self))


class NotFoundError(ConnectError):
    """The named connector, task or plugin does not exist."""

    java_name = "org.apache.kafka.connect.errors.NotFoundException"


class AlreadyExistsError(ConnectError):
    """The name is taken."""

    java_name = "org.apache.kafka.connect.errors.AlreadyExistsException"


class CommitStateUnknownError(ConnectError):
    """The commit may or may not have landed. Read the table before trying again."""


class NotColumnar(ConnectError):  # noqa: N818 - it asks for the other form; nothing went wrong
    """A batch without an exact columnar form here; the row form processes its rows."""


class BadRows(ConnectError):  # noqa: N818 - names the rows, not the failure
    """Some rows of a batch cannot be processed; the others can.

    The worker reports these rows under the error tolerance, exactly as if the row form had raised
    the error for each of them, and calls again with the rows that are left, unless they were done
    along with them.
    """

    def __init__(self, errors: Mapping[int, Exception], made: Sequence[Any] | None = None) -> None:
        """Take the error of each bad row, by its index in the batch; at least one.

        `made` is the batches that `apply_batch` would have returned for all other rows; nothing but
        a transformation gives them. None: they are still to be done.
        """
        if not errors:
            raise ValueError("BadRows needs at least one row")
        super().__init__(f"{len(errors)} rows cannot be processed, the first is row {min(errors)}")
        self.errors = dict(errors)
        self.made = made
