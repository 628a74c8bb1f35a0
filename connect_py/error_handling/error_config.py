"""`ErrorConfig`: a connector's `errors.*` settings, parsed once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from connect_py.api.config import ConfigDef, Importance, Type, one_of

DEAD_LETTER_TABLE = "errors.deadletterqueue.iceberg.table"
REPLAY_TOPIC = "errors.deadletterqueue.iceberg.replay.topic"

_DEF = (
    ConfigDef()
    .define(
        "errors.retry.timeout",
        Type.LONG,
        default=0,
        importance=Importance.MEDIUM,
        doc="Maximum time to retry a failed operation, in milliseconds. -1 means no limit.",
    )
    .define(
        "errors.retry.delay.max.ms",
        Type.LONG,
        default=60_000,
        importance=Importance.MEDIUM,
        doc="Maximum delay between two attempts, in milliseconds.",
    )
    .define(
        "errors.tolerance",
        Type.STRING,
        default="none",
        validator=one_of("none", "all"),
        importance=Importance.MEDIUM,
        doc="Whether failed records are skipped (all) or fail the task (none).",
    )
    .define(
        "errors.log.enable",
        Type.BOOLEAN,
        default=False,
        importance=Importance.MEDIUM,
        doc="Log each failed record.",
    )
    .define(
        "errors.log.include.messages",
        Type.BOOLEAN,
        default=False,
        importance=Importance.MEDIUM,
        doc="Log the coordinates of failed records.",
    )
    .define(
        "errors.deadletterqueue.topic.name",
        Type.STRING,
        default="",
        importance=Importance.MEDIUM,
        doc="Topic for failed records. If empty, failed records are not sent to a topic.",
    )
    .define(
        "errors.deadletterqueue.topic.replication.factor",
        Type.SHORT,
        default=3,
        importance=Importance.MEDIUM,
        doc="Replication factor of the dead-letter topic if the worker creates it.",
    )
    .define(
        "errors.deadletterqueue.context.headers.enable",
        Type.BOOLEAN,
        default=False,
        importance=Importance.MEDIUM,
        doc="Add headers with the location of the record and the reason for the failure.",
    )
    .define(
        DEAD_LETTER_TABLE,
        Type.STRING,
        default="",
        importance=Importance.MEDIUM,
        doc="Table for failed records. If empty, failed records are not stored in a table.",
    )
    .define(
        REPLAY_TOPIC,
        Type.STRING,
        default="",
        importance=Importance.MEDIUM,
        doc="Topic from which dead-letter records are retried. If empty, no records are retried.",
    )
)


@dataclass(frozen=True, slots=True)
class ErrorConfig:
    """Settings for handling failed records."""

    retry_timeout_ms: int = 0  # -1 means no limit
    retry_delay_max_ms: int = 60_000
    tolerate_all: bool = False
    log_enable: bool = False
    log_include_messages: bool = False
    dead_letter_topic: str = ""
    dead_letter_replication_factor: int = 3
    dead_letter_headers: bool = False
    dead_letter_table: str = ""
    replay_topic: str = ""

    @classmethod
    def parse(cls, props: Mapping[str, str]) -> Self:
        """Read a connector's configuration. Raises ConfigError if a value is invalid."""
        parsed = _DEF.parse(props)
        return cls(
            retry_timeout_ms=parsed["errors.retry.timeout"],
            retry_delay_max_ms=parsed["errors.retry.delay.max.ms"],
            tolerate_all=parsed["errors.tolerance"] == "all",
            log_enable=parsed["errors.log.enable"],
            log_include_messages=parsed["errors.log.include.messages"],
            dead_letter_topic=(parsed["errors.deadletterqueue.topic.name"] or "").strip(),
            dead_letter_replication_factor=parsed[
                "errors.deadletterqueue.topic.replication.factor"
            ],
            dead_letter_headers=parsed["errors.deadletterqueue.context.headers.enable"],
            dead_letter_table=(parsed[DEAD_LETTER_TABLE] or "").strip(),
            replay_topic=(parsed[REPLAY_TOPIC] or "").strip(),
        )
