"""From a connector's configuration to its record pipeline: converters, transformations, and what
fails of records.

A task has such a pipeline. So has a command that reads a topic as a connector would, or an executor
of Spark, which gets the factory pickled and opens it where the messages are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from connect_py.api.batch import Batch
from connect_py.api.errors import FailureReason
from connect_py.api.message_run import MessageRun
from connect_py.api.record import RecordOrigin, SinkRecord, TopicPartition
from connect_py.api.task import ErrantRecordReporter, SinkTask


@dataclass(frozen=True, slots=True)
class RecordFailure:
    """A record that a converter or a transformation did not take."""

    origin: RecordOrigin
    stage: str  # `VALUE_CONVERTER`, `TRANSFORMATION`, ...
    plugin: str  # as the user configured it
    reason: FailureReason
    error: str


@dataclass(frozen=True, slots=True)
class PipelineOutput:
    """What a pipeline made of messages, in their order."""

    deliveries: Sequence[Batch | Sequence[SinkRecord]]  # rows where there is no column form
    failures: Sequence[RecordFailure]
    # totals of the pipeline since it was opened
    metrics: Mapping[str, float] = field(default_factory=dict)


class RecordPipeline(ABC):
    """Used on one thread."""

    @abstractmethod
    def process(self, runs: Sequence[MessageRun]) -> PipelineOutput:
        """Convert and transform messages. Records that fail are in the output, whatever is
        tolerated.

        Raises: ConnectError: A server that a converter asks, such as a schema registry, did not
            answer in time.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of connections."""


class TaskPipeline(ABC):
    """The pipeline as a task of the connector has it: `errors.*` says what becomes of records that
    fail. One thread."""

    # for rows that the task cannot write; None: nothing is to be reported
    reporter: ErrantRecordReporter | None

    @abstractmethod
    def process(self, runs: Sequence[MessageRun]) -> Sequence[Batch | Sequence[SinkRecord]]:
        """Convert and transform messages. Records that failed were reported.

        Raises: ConnectError: A record failed and nothing is tolerated, or a server did not answer
            in time.
        """

    @abstractmethod
    def keep_dead_letters(self, below: Mapping[TopicPartition, int], seconds: float) -> bool:
        """Send the dead letters of records below these offsets to their topic, and wait until they
        are safe.

        Others are forgotten: their records are read again. Returns whether all are safe within the
        time.

        Raises:
            ConnectError: One cannot be kept.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of connections."""


class PipelineFactory(ABC):
    """Can be pickled: it is the configuration, and nothing that is open."""

    @abstractmethod
    def open(self) -> RecordPipeline:
        """A pipeline in this process.

        Raises:
            ConfigError: The configuration is not acceptable.
            ConnectError: A plugin cannot be made.
        """

    @abstractmethod
    def open_for(self, task: SinkTask, number: int) -> TaskPipeline:
        """A pipeline in this process that reports records that fail, as for the task of that
        number.

        `task` is given dead letters (`put_dead_letter`) if the configuration says that they go to a
        table. Errors as for `open`.
        """
