"""Rules for retrying and tolerating errors, in one table by stage and error class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from connect_py.api.errors import RetriableError


class Stage(Enum):
    """Processing stage in which an error occurred.

    The values appear in logs and in the headers of dead-letter records.
    """

    KEY_CONVERTER = "KEY_CONVERTER"
    VALUE_CONVERTER = "VALUE_CONVERTER"
    HEADER_CONVERTER = "HEADER_CONVERTER"
    TRANSFORMATION = "TRANSFORMATION"  # includes predicates
    KAFKA_CONSUME = "KAFKA_CONSUME"
    KAFKA_PRODUCE = "KAFKA_PRODUCE"
    TASK_POLL = "TASK_POLL"
    TASK_PUT = "TASK_PUT"  # only errors that the task itself reports


@dataclass(frozen=True, slots=True)
class Rule:
    """Error classes for which a stage is retried, and those for which its record may be skipped."""

    retried: tuple[type[Exception], ...]
    tolerated: tuple[type[Exception], ...]


_RECORD_STAGE: Final = Rule(retried=(RetriableError,), tolerated=(Exception,))
RULES: Final[Mapping[Stage, Rule]] = {
    Stage.KEY_CONVERTER: _RECORD_STAGE,
    Stage.VALUE_CONVERTER: _RECORD_STAGE,
    Stage.HEADER_CONVERTER: _RECORD_STAGE,
    Stage.TRANSFORMATION: _RECORD_STAGE,
    Stage.KAFKA_PRODUCE: Rule(retried=(RetriableError,), tolerated=(Exception,)),
    Stage.KAFKA_CONSUME: Rule(retried=(), tolerated=()),
    Stage.TASK_POLL: Rule(retried=(), tolerated=()),
    Stage.TASK_PUT: Rule(retried=(), tolerated=(Exception,)),
}


def is_retried(stage: Stage, error: Exception) -> bool:
    """Return True if the operation may be retried."""
    return isinstance(error, RULES[stage].retried)


def is_tolerable(stage: Stage, error: Exception) -> bool:
    """Return True if the record may be skipped, subject to `errors.tolerance`."""
    return isinstance(error, RULES[stage].tolerated)
