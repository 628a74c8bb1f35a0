"""`RangeWork`: what an executor does with the messages of one range: all that a task does, up to
the staged files.

It is pickled to the executors, and its results come back pickled. What Spark runs again leaves
staged files that no report names; they have a name of their own and are removed as those of a task
that died (rule 18 of the protocol).
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
RESULT_TYPE = f"{RESULT_COLUMN} binary"  # in Spark's words
_POLL = 10_000  # messages that are handled at once, as a task's poll
_FLUSH_SECONDS = 60.0  # for dead letters


@dataclass(frozen=True, slots=True)
class RangeStart:
    """One range before a step."""

    begin: int  # the first offset
    end: int  # the one behind the last
    topic_id: (
        str  # as the load's task was attached; the load itself asks for it anew before it reports
    )
    alone: Sequence[
        tuple[str, int]
    ] = ()  # tables and offsets whose inserts wait for no delete any more
    # the router's, of the ranges before
    seen: Mapping[str, Sequence[str]] = field(default_factory=dict)
    is_ahead: bool = False  # ranges before it are read in the same step: `seen` lacks their tables


@dataclass(frozen=True, slots=True)
class RangeResult:
    """What came of one range."""

    partition: TopicPartition
    begin: int  # of the range
    records: int = 0
    message_bytes: int = 0  # of these and of others that were read
    messages: int = 0  # so many
    handled: Range | None = None  # with the staged files; None: see `error`
    questions: Sequence[
        OpenTable
    ] = ()  # the last of them is what the partition waits for, if it `waits`
    waits: bool = False
    unread: UnreadPair | None = None  # an insert that waits for its delete
    unrouted: Mapping[str, float] | None = None  # rows without a table, by topic
    # by topic, the tables that rows of it went to
    seen: Mapping[str, Sequence[str]] = field(default_factory=dict)
    by_seen: bool = False  # whether tombstones went where that says
    error: str = ""  # the load must not go on


@dataclass(frozen=True, slots=True)
class RangeWork:
    """Called by Spark's `mapInArrow` with the messages of one range, in their order."""

    connector: Mapping[str, str]
    pipelines: PipelineFactory
    cycle: int
    state: TaskState  # of the load: each range goes on in a copy of it
    partitions: frozenset[TopicPartition]  # of that state
    starts: Mapping[TopicPartition, Sequence[RangeStart]]
    partition_counts: Mapping[str, int]  # by topic

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = (batch for batch in batches if batch.num_rows)
        first = next(found, None)
        if first is None:
            return
        partition = TopicPartition(
            first.column("topic")[0].as_py(), first.column("partition")[0].as_py()
        )
        offset = first.column("offset")[0].as_py()
        start = next(start for start in self.starts[partition] if start.begin <= offset < start.end)
        try:
            with ExitStack() as closing:
                result = _RangeTask(self, partition, start, closing).run(chain([first], found))
        except ConnectError as error:
            result = RangeResult(partition, start.begin, error=str(error))
        yield pa.RecordBatch.from_pydict({RESULT_COLUMN: [pickle.dumps(result)]})


class _Sent:
    """Messages for the coordinator, which the load sends."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def send(self, messages: Iterable[Message]) -> None:
        self.messages += messages


class _RangeTask(SinkTask):
    """A task with one partition, for the time of one range."""

    def __init__(
        self, work: RangeWork, partition: TopicPartition, start: RangeStart, closing: ExitStack
    ) -> None:
        config = IcebergSinkConfig.parse(work.connector)
        self._work = work
        self._partition = partition
        self._start = start
        self._sent = _Sent()
        context = self._range_context = RangeContext(
            config.connector, partition, start.topic_id, work.partition_counts
        )
        name = f"{config.connector}-load"
        staging = StagingArea(config, name, context.partition_count)
        closing.callback(staging.close)
        metrics = IcebergMetrics(context.metrics)
        self._parts = TaskParts.of(
            config, work.connector, context, name, staging, self._sent, metrics, work.state
        )
        pipeline = self._pipeline = work.pipelines.open_for(self, partition.partition)
        closing.callback(pipeline.close)
        context.errant_record_reporter = pipeline.reporter

    def start(self, props: Mapping[str, str]) -> None:
        """A range begins where its load stands: see `run`."""

    def stop(self) -> None:
        """What is open is closed with the range."""

    def put_dead_letter(self, dead_letter: DeadLetter) -> None:
        self._parts.intake.put_dead_letter(dead_letter)

    def run(self, batches: Iterable[pa.RecordBatch]) -> RangeResult:
        """Stage what the tables need of the messages.

        Raises:
            ConnectError: The load must not go on.
        """
        self._stand_alone()
        records = messages = size = 0
        for batch in batches:
            messages, size = messages + batch.num_rows, size + batch.nbytes
            for start in range(0, batch.num_rows, _POLL):
                for run in MessageRun.of(batch.slice(start, _POLL)):
                    records += self._take(run)
            if self._stops:
                break
        parts, partition = self._parts, self._partition
        if not self._stops:
            # what is missing behind the last record never comes
            parts.state.advance(partition, self._start.end)
        waits = not parts.state.is_reading(partition)
        parts.actions.carry_out([CloseFiles(self._work.cycle)])
        if not self._pipeline.keep_dead_letters(self._handled(), _FLUSH_SECONDS):
            raise ConnectError(
                f"{partition}: dead letters were not acknowledged in {_FLUSH_SECONDS:.0f} s"
            )
        reports = [each for each in self._sent.messages if isinstance(each, Report)]
        if not reports:
            raise ConnectError(
                f"{partition}: keys to the storage ended meanwhile: run it again, with smaller "
                f"--step-rows"
            )
        waiting = parts.stops.waits.partitions()
        return RangeResult(
            partition,
            self._start.begin,
            records,
            size,
            messages,
            reports[-1].ranges[partition],
            [each for each in self._sent.messages if isinstance(each, OpenTable)],
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

    def _stand_alone(self) -> None:
        """Be where the load's task is, with this partition only."""
        parts, start = self._parts, self._start
        parts.state.revoke(self._work.partitions - {self._partition})
        parts.state.advance(self._partition, start.begin)
        parts.intake.router.seen.update(
            {topic: dict.fromkeys(tables) for topic, tables in start.seen.items()}
        )
        parts.intake.router.is_ahead = start.is_ahead
        epoch = parts.state.epoch
        for table, offset in start.alone:
            answer = parts.state.answer(table)
            if answer is not None and epoch is not None:
                # has it make what stages the table's rows
                parts.staging.description(table, answer, epoch)
                parts.staging.stage_alone(table, self._partition, offset)

    def _take(self, messages: MessageRun) -> int:
        """One poll; nothing of it counts if the partition has to stop within."""
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
