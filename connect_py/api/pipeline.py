"""Record pipelines: the converters, transformations, and error handling of a connector.

Each task has a pipeline. Commands that process topics in the same way as a connector also have one,
as do Spark executors, which receive the pickled factory.
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
    """A record that failed in a converter or a transformation."""

    origin: RecordOrigin
    stage: str  # `VALUE_CONVERTER`, `TRANSFORMATION`, ...
    plugin: str  # name of the plugin, as configured
    reason: FailureReason
    error: str


@dataclass(frozen=True, slots=True)
class PipelineOutput:
    """Results from a pipeline, in message order."""

    deliveries: Sequence[Batch | Sequence[SinkRecord]]  # records if the rows have no columnar form
    failures: Sequence[RecordFailure]
    # totals since the pipeline was created
    metrics: Mapping[str, float] = field(default_factory=dict)


class RecordPipeline(ABC):
    """A pipeline that returns failed records instead of handling them. Not thread-safe."""

    @abstractmethod
    def process(self, runs: Sequence[MessageRun]) -> PipelineOutput:
        """Convert and transform messages. The output contains the failed records.

        Raises:
            ConnectError: A server that a converter needs, such as a schema registry, did not
                respond in time.
        """

    @abstractmethod
    def close(self) -> None:
        """Close connections."""


class TaskPipeline(ABC):
    """Pipeline for a task. It handles failed records according to the `errors.*` properties.

    Not thread-safe.
    """

    # reports rows that the task cannot write; None if errors are not reported
    reporter: ErrantRecordReporter | None

    @abstractmethod
    def process(self, runs: Sequence[MessageRun]) -> Sequence[Batch | Sequence[SinkRecord]]:
        """Convert and transform messages. Failed records are reported.

        Raises:
            ConnectError: A record failed and errors are not tolerated, or a server did not respond
                in time.
        """

    @abstractmethod
    def keep_dead_letters(self, below: Mapping[TopicPartition, int], seconds: float) -> bool:
        """Send dead-letter records for records below these offsets and wait until they are durable.

        All other pending dead-letter records are discarded because their original records will be
        read again. Return True if all sent records became durable within `seconds`.

        Raises:
            ConnectError: A dead-letter record cannot be stored.
        """

    @abstractmethod
    def close(self) -> None:
        """Close connections."""


class PipelineFactory(ABC):
    """Creates pipelines for one connector. Can be pickled."""

    @abstractmethod
    def open(self) -> RecordPipeline:
        """Create a pipeline in this process.

        Raises:
            ConfigError: The configuration is invalid.
            ConnectError: A plugin cannot be created.
        """

    @abstractmethod
    def open_for(self, task: SinkTask, number: int) -> TaskPipeline:
        """Create a pipeline that handles failed records like the task with this number.

        Dead-letter records are passed to `task.put_dead_letter` if the configuration stores them in
        a table. Raises the same errors as `open`.
        """
