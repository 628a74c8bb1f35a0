"""`Load`: runs a coordinator and a sink task whose ranges Spark executors read and stage.

The connector must be STOPPED. A load is equivalent to a start with one task, so all rules of the
commit protocol apply: `TaskState` and `CoordinatorState` make the decisions, and the ledgers of the
tables determine the positions. A step reads one range of each partition on the executors, which
stage the rows as tasks do. All ranges of a step are part of one report and one commit to each
table.

A crash leaves behind staged files without a report (rule 18) or commits that are ahead of the
group's offsets. The next load or the connector resumes from the ledgers. If a worker starts the
connector during a load, its coordinator fences the load's coordinator, and Kafka rejects offset
commits to a group with members. Either event ends the load.
"""

from __future__ import annotations

import logging
import pickle
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from connect_py.api.errors import ConnectError, RetriableError
from connect_py.api.record import OffsetAndMetadata, TopicPartition
from connect_py.api.sink_host import SinkHost
from connectors.iceberg.config.keys import (
    ATTEMPT_TIMEOUT,
    COMMIT_INTERVAL,
    COMMIT_MAX_FAILURES,
    FAIL_AFTER_WAITING,
    STOP_AT,
)
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.config.spark_config import worker_spark_config
from connectors.iceberg.coordinator.channel_topic import (
    ChannelReader,
    ChannelWriter,
    create_channel,
)
from connectors.iceberg.coordinator.start import start_coordinator
from connectors.iceberg.driver.lake_client import LakeClient
from connectors.iceberg.errors import SparkDiedError
from connectors.iceberg.protocol.actions import Send
from connectors.iceberg.protocol.iceberg_metrics import IcebergMetrics
from connectors.iceberg.protocol.offset_metadata import OffsetMetadata
from connectors.iceberg.task.channel_turn import ChannelTurn
from connectors.iceberg.task.task_actions import Hold, now_ms
from connectors.iceberg.task.task_parts import TaskParts
from connectors.iceberg_tools.load.kafka_ranges import KafkaRanges, read_ranges
from connectors.iceberg_tools.load.load_context import LoadContext
from connectors.iceberg_tools.load.range_stage import RangeBasis, RangeStage, StagedRange
from connectors.iceberg_tools.load.range_work import RESULT_TYPE, RangeResult, RangeStart, RangeWork

log = logging.getLogger(__name__)

STEP_SECONDS: Final = 7 * 86_400.0  # a step has no practical time limit
STOP_SECONDS: Final = 30.0  # timeout for a running commit when the load ends
_TURN_SECONDS: Final = 0.02
_INTERVAL_MS: Final = 200  # commit interval; the next cycle starts almost immediately
_ATTEMPT_MS: Final = 3_600_000  # a commit may have to wait for cores that a step uses
_RENEW_SECONDS: Final = 10.0  # maximum time that a step waits for renewed storage credentials
_MAINTENANCE: Final = ".maintenance.enabled"  # key suffix; `true` would start another driver
_FIRST_BATCH_ROWS: Final = 200
_MOST_BATCH_ROWS: Final = 10_000
_BATCH_BYTES: Final = 16 << 20
_MAX_CRASHES: Final = 3  # number of driver crashes in one step after which the load fails


Further = Callable[[LakeClient], Mapping[TopicPartition, int] | None]


@dataclass(slots=True)
class LoadProgress:
    """Progress of a load, for display."""

    # offsets at which the load starts; empty until the coordinator has responded
    begins: dict[TopicPartition, int] = field(default_factory=dict)
    staged: dict[TopicPartition, int] = field(default_factory=dict)
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    records: int = 0  # number of records that this load has read
    steps: int = 0
    waiting: Mapping[str, str] = field(default_factory=dict)  # reason for each wait
    # rows that this load has committed, by table
    rows: Mapping[str, float] = field(default_factory=dict)
    unrouted: dict[str, float] = field(default_factory=dict)  # rows without a table, by topic


class Load:
    """Loads ranges of topics into tables. It runs once, on one thread."""

    def __init__(
        self,
        props: Mapping[str, str],
        host: SinkHost,
        ends: Mapping[TopicPartition, int],
        step_rows: int,
        begins: Mapping[TopicPartition, int] | None = None,
        split: int = 1,
    ) -> None:
        """Create a load.

        Args:
            props: The connector's configuration.
            host: Provides the services of a worker.
            ends: For each partition that the connector consumes, the offset after the last message
                to load.
            step_rows: Number of messages per step, across all partitions.
            begins: Offsets at which the load must start, or None to start at the connector's
                positions.
            split: Number of ranges of a partition that are read in parallel. Each range is a
                separate step.
        """
        requested = IcebergSinkConfig.parse(props)
        load_settings = {
            COMMIT_INTERVAL: str(_INTERVAL_MS),
            ATTEMPT_TIMEOUT: str(max(_ATTEMPT_MS, requested.commit_attempt_timeout_ms)),
        }
        if requested.commit_max_failures is not None:  # a load has shorter intervals
            times = max(1, requested.commit_interval_ms // _INTERVAL_MS)
            load_settings[COMMIT_MAX_FAILURES] = str(requested.commit_max_failures * times)
        connector_settings = {
            key: value
            for key, value in props.items()
            if key != STOP_AT
            and (not key.endswith(_MAINTENANCE) or value.strip().lower() == "false")
        }
        self._props = {**connector_settings, **load_settings}
        self._config = config = IcebergSinkConfig.parse(self._props)
        self._host = host
        self._ends = dict(ends)
        self._step_rows = step_rows
        self._begins = begins
        self._split = split
        self._context = context = LoadContext(host, self._props, frozenset(ends))
        self._name = f"{config.connector}-load"  # name of the task
        self._stage = RangeStage(config, self._name, context.partition_count)
        # tables to which the router has sent rows from each partition so far, by topic
        self._tables_by_topic: dict[TopicPartition, Mapping[str, Sequence[str]]] = {}
        self._read = self._read_bytes = 0  # number of messages read, and their size in bytes
        # monotonic time since which a table's storage credentials have been about to expire
        self._expiring_since: float | None = None
        self.progress = LoadProgress()

    def run(
        self,
        report: Callable[[LoadProgress], None] = lambda _: None,
        further: Further | None = None,
    ) -> LoadProgress:
        """Load the ranges and commit the group's offsets.

        Args:
            report: Called with the progress at regular intervals.
            further: Called when the tables contain all ranges. It returns the offsets up to which
                the load continues, or None to end the load.

        Raises:
            ConnectError: The load cannot continue. Completed commits remain. To resume, run the
                load again or start the connector.
        """
        config, context = self._config, self._context
        spark = worker_spark_config(config, context.worker_settings)
        with ExitStack() as stack:
            create_channel(context.client_config, config.channel_topic)
            reader = stack.enter_context(
                closing(ChannelReader(context.client_config, config.channel_topic))
            )
            reader.start_at_end()
            writer = stack.enter_context(
                closing(ChannelWriter(context.client_config, config.channel_topic))
            )
            stack.callback(self._stage.close)
            metrics = IcebergMetrics(context.metrics)
            context.bound_waiting(config.fail_after_waiting_ms, FAIL_AFTER_WAITING)
            self._parts = parts = TaskParts.of(
                config,
                self._props,
                context,
                self._name,
                self._stage,
                writer,
                metrics,
                stages_rows=False,
            )
            coordinator = start_coordinator(config, context, restarts=False, maintains=False)
            stack.callback(coordinator.stop, STOP_SECONDS)
            turn = ChannelTurn(
                context,
                parts.state,
                self._stage,
                reader,
                writer,
                parts.actions,
                parts.features,
                metrics,
                coordinator,
                max_staged_bytes=config.max_staged_bytes,
            )
            self._lake = stack.enter_context(
                LakeClient(
                    context, spark, user=f"{config.connector} (load)", deadline_seconds=STEP_SECONDS
                )
            )
            parts.actions.assign(sorted(self._ends))
            ends: Mapping[TopicPartition, int] | None = self._ends
            while ends is not None:
                self._ends.update(ends)
                self._load(turn, report)
                ends = further(self._lake) if further is not None else None
        return self.progress

    def _load(self, turn: ChannelTurn, report: Callable[[LoadProgress], None]) -> None:
        """Run steps until the tables contain all ranges.

        Raises:
            ConnectError: The load cannot continue.
        """
        parts = self._parts
        while not self._done():
            if parts.state.staged_cycles or not self._stage.empty:
                parts.stops.waits.restart_timeouts(now_ms())
            turn.take()
            self._try_commit_offsets()
            self._context.check_waiting()
            self._report_progress(report)
            if not self._run_step():
                time.sleep(_TURN_SECONDS)
        self._context.commit_requested = True
        self._commit_offsets()
        self._report_progress(report)

    # --- end and progress

    def _done(self) -> bool:
        """Return True if the tables contain all ranges."""
        state = self._parts.state
        return state.is_attached() and all(
            (state.committed_to(tp) or 0) >= end for tp, end in self._ends.items()
        )

    def _report_progress(self, report: Callable[[LoadProgress], None]) -> None:
        """Update and report the progress.

        Raises:
            ConnectError: The load does not start at the requested offsets.
        """
        progress, state = self.progress, self._parts.state
        for tp in self._ends:
            at = state.read_to(tp)
            if at is not None and state.is_attached():
                if (
                    tp not in progress.begins
                    and self._begins is not None
                    and at != self._begins[tp]
                ):
                    raise ConnectError(
                        f"{tp} is at offset {at} in its tables, expected {self._begins[tp]}"
                    )
                progress.begins.setdefault(tp, at)
                progress.staged[tp] = at
            progress.committed[tp] = state.committed_to(tp) or progress.committed.get(tp, 0)
        progress.waiting = {
            subject: reason for subject, (reason, _) in list(self._context.waiting.items())
        }
        progress.rows = self._context.metrics.by_label("iceberg_added_rows_total", "table")
        report(progress)

    def _commit_offsets(self) -> None:
        """Commit the tables' positions to the consumer group.

        Raises:
            ConnectError: The group has members because the connector was started, or its offsets
                were altered.
        """
        if not self._context.commit_requested:
            return
        self._context.commit_requested = False
        marks = self._marks()
        for tp, committed in self._host.committed(marks).items():
            metadata = OffsetMetadata.from_text(committed.metadata)
            if metadata is not None and (metadata.generation, metadata.epoch) > (
                marks[tp].generation,
                marks[tp].epoch,
            ):
                raise ConnectError(
                    f"the offsets of {tp} were altered or the connector was started; run the load "
                    f"again"
                )
        offsets = self._parts.state.offsets_to_commit()
        self._host.commit(
            {
                tp: OffsetAndMetadata(offsets[tp].offset, mark.to_text())
                for tp, mark in marks.items()
            }
        )

    def _marks(self) -> dict[TopicPartition, OffsetMetadata]:
        """Return the offset metadata of the attached partitions."""
        return {
            tp: at.mark
            for tp, at in self._parts.state.offsets_to_commit().items()
            if at.mark is not None
        }

    def _try_commit_offsets(self) -> None:
        """Commit the group's offsets, or retry later if the cluster does not respond."""
        try:
            self._commit_offsets()
        except RetriableError as error:
            log.warning("failed to commit the group's offsets, retrying later: %s", error)
            self._context.commit_requested = True

    # --- steps

    def _run_step(self) -> bool:
        """Process staged ranges or run another step. Return False if neither is possible yet.

        Raises:
            ConnectError: A range failed permanently.
        """
        # files from the previous step remain unreported until the stage is empty
        if not self._stage.empty or self._awaits_credentials():
            return False
        if self._process_staged():
            return True
        ranges = self._next_ranges()
        if ranges:
            self._read_ahead(ranges)
            self._process_staged()
        return bool(ranges)

    def _next_ranges(self) -> dict[TopicPartition, list[tuple[int, int]]]:
        """Return the ranges to read for the next steps, by partition."""
        state, limit = self._parts.state, self._parts.stops.waits.limit
        ends = {
            tp: end if (stop := limit(tp)) is None else min(end, stop)
            for tp, end in self._ends.items()
            if tp not in self._context.paused and state.is_reading(tp)
        }
        remaining = {
            tp: end - state.next_offset(tp)
            for tp, end in ends.items()
            if end > state.next_offset(tp)
        }
        share = max(1, self._step_rows // max(1, len(remaining)))
        count = self._split if self._read else 1  # the first step may have to open tables
        return {
            tp: [
                (at, min(at + share, ends[tp]))
                for at in range(ends[tp] - rows, ends[tp], share)[:count]
            ]
            for tp, rows in remaining.items()
        }

    def _read_ahead(self, ranges: Mapping[TopicPartition, Sequence[tuple[int, int]]]) -> None:
        """Read and stage ranges on the executors."""
        state, context = self._parts.state, self._context
        marks = self._marks()
        starts = {
            tp: [
                RangeStart(
                    begin,
                    end,
                    marks[tp].topic_id,
                    self._stage.alone(tp),
                    self._tables_by_topic.get(tp, {}),
                    number > 0,
                )
                for number, (begin, end) in enumerate(each)
            ]
            for tp, each in ranges.items()
        }
        counts = {topic: context.partition_count(topic) for topic in {tp.topic for tp in ranges}}
        assigned = frozenset(self._ends)
        work = RangeWork(
            self._props,
            self._host.pipelines,
            self.progress.steps + 1,
            state,
            assigned,
            starts,
            counts,
        )
        started_at = time.monotonic()
        properties, rows = self._host.consumer_properties(), self._batch_rows()
        requests = [
            KafkaRanges(
                properties,
                {tp: each[number] for tp, each in ranges.items() if number < len(each)},
                rows,
            )
            for number in range(max(map(len, ranges.values())))
        ]
        results = map(pickle.loads, self._run(requests, work))
        results_by_range: dict[tuple[TopicPartition, int], RangeResult] = {
            (each.partition, each.begin): each for each in results
        }
        context.passed_over(time.monotonic() - started_at)
        for tp, each in ranges.items():
            self._stage.add_ahead(
                tp,
                [
                    self._staged(tp, begin, end, results_by_range.get((tp, begin)))
                    for begin, end in each
                ],
            )

    def _staged(
        self, tp: TopicPartition, begin: int, end: int, result: RangeResult | None
    ) -> StagedRange:
        """Return a range with the state on which its files depend."""
        handled = result.handled if result is not None else None
        parts = handled.tables if handled is not None else {}
        tables = {
            table: (self._parts.state.answer(table), part.filter) for table, part in parts.items()
        }
        topic_tables = (
            self._tables_by_topic.get(tp, {})
            if result is not None and result.routed_by_history
            else None
        )
        return StagedRange(begin, end, result, RangeBasis(tables, topic_tables))

    def _basis(self, tp: TopicPartition, staged: StagedRange) -> RangeBasis:
        """Return the state with which a range would be staged now."""
        state, basis = self._parts.state, staged.basis
        tables = {
            table: (state.answer(table), state.filter_position(table, tp)) for table in basis.tables
        }
        return RangeBasis(
            tables, None if basis.topic_tables is None else self._tables_by_topic.get(tp, {})
        )

    def _process_staged(self) -> bool:
        """Process the next staged range of each partition. Return True if there was one.

        Raises:
            ConnectError: A range failed permanently.
        """
        state, has_staged_range = self._parts.state, False
        for tp in self._ends:
            if tp in self._context.paused or not state.is_reading(tp):
                continue
            staged = self._stage.next_ahead(tp, state.next_offset(tp), partial(self._basis, tp))
            if staged is None:
                continue
            has_staged_range = True
            if staged.result is None:
                state.advance(tp, staged.end)
            else:
                self._process(staged.result)
        if has_staged_range:
            self.progress.steps += 1
            self._parts.stops.poll_staged()
        return has_staged_range

    def _batch_rows(self) -> int:
        """Return the maximum number of messages per batch.

        The maximum is low until the average message size is known.
        """
        if not self._read:
            return _FIRST_BATCH_ROWS
        return min(max(_BATCH_BYTES * self._read // max(1, self._read_bytes), 1), _MOST_BATCH_ROWS)

    def _run(self, requests: Sequence[KafkaRanges], work: RangeWork) -> list[bytes]:
        """Return the executors' results. If the driver crashes, run the step again."""
        for attempt in range(1, _MAX_CRASHES + 1):
            try:
                if not self._lake.alive():
                    self._lake.start()
                return self._lake.run("a step", read_ranges, requests, work, RESULT_TYPE)
            except SparkDiedError as error:
                if attempt == _MAX_CRASHES:
                    raise
                log.warning("the Spark driver crashed during a step, retrying: %s", error)
        raise AssertionError("returned or raised")

    def _process(self, result: RangeResult) -> None:
        """Process a range as if this process had staged it.

        Raises:
            ConnectError: The range failed permanently.
        """
        if result.error:
            raise ConnectError(result.error)
        tp, parts, handled = result.partition, self._parts, result.handled
        assert handled is not None
        self.progress.records += result.records
        self._tables_by_topic[tp] = result.topic_tables
        self._read, self._read_bytes = (
            self._read + result.messages,
            self._read_bytes + result.message_bytes,
        )
        for topic, rows in (result.unrouted or {}).items():
            self.progress.unrouted[topic] = self.progress.unrouted.get(topic, 0.0) + rows
        for table, part in handled.tables.items():
            self._describe(table)
            parts.state.handled(tp, table, part.first)
            self._stage.take(tp, table, part.files)
        parts.state.advance(tp, handled.next, handled.timestamp_ms)
        if result.unread is not None:
            self._describe(result.unread.table)
            parts.stops.waits.begin(tp, result.unread, now_ms())
        elif result.waits:
            *ahead, question = result.questions
            parts.actions.carry_out([Send(each) for each in ahead])
            parts.actions.hold(tp, Hold(question.table, question.need, question.schema))

    def _describe(self, table: str) -> None:
        """Update the stage's table description, which contains open key changes and credentials."""
        answer, epoch = self._parts.state.answer(table), self._parts.state.epoch
        if answer is not None and epoch is not None:
            self._stage.description(table, answer, epoch)

    def _awaits_credentials(self) -> bool:
        """Return True while the load waits for renewed storage credentials.

        The wait has a time limit, because the catalog may never renew them.
        """
        if not self._stage.expiring():
            self._expiring_since = None
            return False
        self._expiring_since = self._expiring_since or time.monotonic()
        return time.monotonic() - self._expiring_since < _RENEW_SECONDS
