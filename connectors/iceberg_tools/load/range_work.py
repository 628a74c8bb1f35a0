"""`RangeWork`: processes the messages of one range on an executor and writes staged files.

The object and its results are pickled. If Spark retries a range, the failed attempt may leave
behind staged files that are not part of a report. They have unique names and are removed like the
files of a crashed task (rule 18 of the commit protocol).
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain

import pyarrow as pa

from connect_py.api.batch import Batch
from connect_py.api.dead_letter import DeadLetter
from connect_py.api.errors import ConnectError
from connect_py.api.message_run import MessageRun
from connect_py.api.pipeline import PipelineFactory
from connect_py.api.record import TopicPartition
from connect_py.api.task import SinkTask
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.protocol.actions import CloseFiles
from connectors.iceberg.protocol.iceberg_metrics import IcebergMetrics
from connectors.iceberg.protocol.messages import Message, OpenTable, Range, Report
from connectors.iceberg.protocol.task_state import TaskState
from connectors.iceberg.staging.key_changes import UnreadPair
from connectors.iceberg.staging.staging_area import StagingArea
from connectors.iceberg.task.task_parts import TaskParts
from connectors.iceberg_tools.load.range_context import RangeContext

RESULT_COLUMN = "result"
RESULT_TYPE = f"{RESULT_COLUMN} binary"  # as a Spark type
_POLL = 10_000  # messages per batch, as in a task's poll
_FLUSH_SECONDS = 60.0  # timeout for writing dead-letter records


@dataclass(frozen=True, slots=True)
class RangeStart:
    """One range to process in a step."""

    begin: int  # first offset
    end: int  # offset after the last message
    # read when the load's task was attached; the load reads it again before it sends a report
    topic_id: str
    # (table, offset) for each key-change insert that no longer waits for its delete
    alone: Sequence[tuple[str, int]] = ()
    # tables to which the router sent rows from earlier ranges, by topic
    topic_tables: Mapping[str, Sequence[str]] = field(default_factory=dict)
    # whether earlier ranges are read at the same time, so `topic_tables` lacks their tables
    is_ahead: bool = False


@dataclass(frozen=True, slots=True)
class RangeResult:
    """Result of one range."""

    partition: TopicPartition
    begin: int  # first offset of the range
    records: int = 0
    message_bytes: int = 0  # size of all messages that were read
    messages: int = 0  # number of messages that were read
    handled: Range | None = None  # includes the staged files; None if `error` is set
    questions: Sequence[OpenTable] = ()  # table requests to send
    waits: bool = False  # whether the partition must wait for the response to the last request
    unread: UnreadPair | None = None  # insert of a key change that waits for its delete
    unrouted: Mapping[str, float] | None = None  # rows without a table, by topic
    # tables to which the router sent rows from this and earlier ranges, by topic
    topic_tables: Mapping[str, Sequence[str]] = field(default_factory=dict)
    routed_by_history: bool = False  # whether tombstones were routed with `topic_tables`
    error: str = ""  # reason why the load must not continue, or empty


@dataclass(frozen=True, slots=True)
class RangeWork:
    """Function that Spark's `mapInArrow` calls with the messages of one range, in offset order."""

    connector: Mapping[str, str]
    pipelines: PipelineFactory
    cycle: int
    state: TaskState  # state of the load; each range uses its own copy
    partitions: frozenset[TopicPartition]  # partitions of that state
    starts: Mapping[TopicPartition, Sequence[RangeStart]]
    partition_counts: Mapping[str, int]  # by topic

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        batches_with_rows = (batch for batch in batches if batch.num_rows)
        first = next(batches_with_rows, None)
        if first is None:
            return
        partition = TopicPartition(
            first.column("topic")[0].as_py(), first.column("partition")[0].as_py()
        )
        offset = first.column("offset")[0].as_py()
        start = next(start for start in self.starts[partition] if start.begin <= offset < start.end)
        try:
            with ExitStack() as closing:
                result = _RangeTask(self, partition, start, closing).run(
                    chain([first], batches_with_rows)
                )
        except ConnectError as error:
            result = RangeResult(partition, start.begin, error=str(error))
        yield pa.RecordBatch.from_pydict({RESULT_COLUMN: [pickle.dumps(result)]})


class _MessageCollector:
    """Collects the messages that the load sends to the coordinator."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def send(self, messages: Iterable[Message]) -> None:
        self.messages += messages


class _RangeTask(SinkTask):
    """Sink task that processes one range of one partition."""

    def __init__(
        self, work: RangeWork, partition: TopicPartition, start: RangeStart, closing: ExitStack
    ) -> None:
        config = IcebergSinkConfig.parse(work.connector)
        self._work = work
        self._partition = partition
        self._start = start
        self._collector = _MessageCollector()
        context = self._range_context = RangeContext(
            config.connector, partition, start.topic_id, work.partition_counts
        )
        name = f"{config.connector}-load"
        staging = StagingArea(config, name, context.partition_count)
        closing.callback(staging.close)
        metrics = IcebergMetrics(context.metrics)
        self._parts = TaskParts.of(
            config, work.connector, context, name, staging, self._collector, metrics, work.state
        )
        pipeline = self._pipeline = work.pipelines.open_for(self, partition.partition)
        closing.callback(pipeline.close)
        context.errant_record_reporter = pipeline.reporter

    def start(self, props: Mapping[str, str]) -> None:
        """Do nothing: `run` starts at the beginning of the range."""

    def stop(self) -> None:
        """Do nothing: the caller closes all resources after the range."""

    def put_dead_letter(self, dead_letter: DeadLetter) -> None:
        self._parts.intake.put_dead_letter(dead_letter)

    def run(self, batches: Iterable[pa.RecordBatch]) -> RangeResult:
        """Stage the rows of the messages.

        Raises:
            ConnectError: The load must not continue.
        """
        self._restrict_to_partition()
        records = messages = size = 0
        for batch in batches:
            messages, size = messages + batch.num_rows, size + batch.nbytes
            for start in range(0, batch.num_rows, _POLL):
                for run in MessageRun.of(batch.slice(start, _POLL)):
                    records += self._process(run)
            if self._stops:
                break
        parts, partition = self._parts, self._partition
        if not self._stops:
            # the offsets after the last record have no messages
            parts.state.advance(partition, self._start.end)
        waits = not parts.state.is_reading(partition)
        parts.actions.carry_out([CloseFiles(self._work.cycle)])
        if not self._pipeline.keep_dead_letters(self._handled(), _FLUSH_SECONDS):
            raise ConnectError(
                f"{partition}: dead-letter records were not acknowledged within "
                f"{_FLUSH_SECONDS:.0f} s"
            )
        reports = [each for each in self._collector.messages if isinstance(each, Report)]
        if not reports:
            raise ConnectError(
                f"{partition}: the storage credentials expired; run the load again with a smaller "
                "value of --step-rows"
            )
        waiting = parts.stops.waits.partitions()
        return RangeResult(
            partition,
            self._start.begin,
            records,
            size,
            messages,
            reports[-1].ranges[partition],
            [each for each in self._collector.messages if isinstance(each, OpenTable)],
            waits,
            parts.stops.waits.unread(partition) if waiting else None,
            self._range_context.metrics.by_label("iceberg_unrouted_rows_total", "topic"),
            {topic: tuple(tables) for topic, tables in parts.intake.router.seen.items()},
            parts.intake.router.by_seen,
        )

    def _handled(self) -> dict[TopicPartition, int]:
        return {self._partition: self._parts.state.next_offset(self._partition)}

    @property
    def _stops(self) -> bool:
        return self._range_context.stopped or not self._parts.state.is_reading(self._partition)

    def _restrict_to_partition(self) -> None:
        """Restrict the state to this partition and move it to the start of the range."""
        parts, start = self._parts, self._start
        parts.state.revoke(self._work.partitions - {self._partition})
        parts.state.advance(self._partition, start.begin)
        parts.intake.router.seen.update(
            {topic: dict.fromkeys(tables) for topic, tables in start.topic_tables.items()}
        )
        parts.intake.router.is_ahead = start.is_ahead
        epoch = parts.state.epoch
        for table, offset in start.alone:
            answer = parts.state.answer(table)
            if answer is not None and epoch is not None:
                # creates the stager of the table
                parts.staging.description(table, answer, epoch)
                parts.staging.stage_alone(table, self._partition, offset)

    def _process(self, messages: MessageRun) -> int:
        """Process the records of one poll and return their number.

        Return 0 if the partition has to stop during the poll. The records are then discarded.
        """
        if self._stops:
            return 0
        for delivery in self._pipeline.process([messages]):
            if isinstance(delivery, Batch):
                self._parts.intake.put_batch(delivery)
            else:
                self._parts.intake.put_records(delivery)
        self._parts.intake.end_poll(messages.consumed())
        self._pipeline.keep_dead_letters(self._handled(), 0.0)
        return 0 if self._stops else len(messages)
