"""The record pipeline of a sink task, with its error handling: where records go that fail."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from connect_py.api.task import SinkTask, Task
from connect_py.clock import Clock
from connect_py.error_handling.dead_letter_counter import DeadLetterCounter
from connect_py.error_handling.dead_letter_queue import DeadLetterQueue
from connect_py.error_handling.errant_record_reporter import TaskErrantRecordReporter
from connect_py.error_handling.error_config import ErrorConfig
from connect_py.error_handling.error_handler import ErrorHandler, ErrorReporter
from connect_py.error_handling.log_reporter import LogReporter
from connect_py.error_handling.task_dead_letters import TaskDeadLetters
from connect_py.kafka.client_config import ClientConfigs
from connect_py.kafka.cluster_admin import ClusterAdmin
from connect_py.metrics.plugin_metrics import TaskPluginMetrics
from connect_py.model import ConnectorTaskId
from connect_py.task.record_pipeline import Converters, RecordPipeline
from connect_py.task.task_plugins import TaskPlugins


@dataclass(frozen=True, slots=True)
class SinkPlace:
    """Whose pipeline it is, and the cluster that dead letters go to."""

    id: ConnectorTaskId
    config: Mapping[str, str]  # the connector's
    clients: ClientConfigs
    admin: ClusterAdmin


@dataclass(frozen=True, slots=True)
class SinkPipeline:
    """Closed by the stack that it was opened in."""

    records: RecordPipeline
    errors: ErrorHandler
    reporter: TaskErrantRecordReporter | None  # None: errors are neither dead-lettered nor logged


def open_sink_pipeline(
    place: SinkPlace,
    plugins: TaskPlugins,
    task: SinkTask,
    class_name: str,
    converters: Converters,
    clock: Clock,
    metrics: TaskPluginMetrics,
    wait: Callable[[float], None],
    waits: Callable[[str, str | None], None],
    closing: ExitStack,
    topic_reporter: Callable[[ErrorReporter], ErrorReporter] = lambda reporter: reporter,
) -> SinkPipeline:
    """Make what is between consumed messages and a sink task.

    Args:
        task: Is given dead letters, if the configuration says that they go to a table.
        class_name: The task's, as configurations have it.
        wait: Waits between attempts; see `ErrorHandler`.
        waits: Called with what is waited for.
        closing: Closes it.
        topic_reporter: May put another one before what writes to the dead-letter topic.

    Raises:
        ConnectError: The dead-letter topic cannot be created, or a plugin cannot be made.
    """
    config = ErrorConfig.parse(place.config)
    reporters: list[ErrorReporter] = []
    if config.dead_letter_topic:
        producer = place.clients.dead_letter_producer()
        reporters.append(
            topic_reporter(DeadLetterQueue.open(place.id, config, producer, place.admin))
        )
    if config.dead_letter_table:
        reporters.append(TaskDeadLetters(task, clock))
    if reporters:
        reporters.append(DeadLetterCounter(metrics))
    if config.log_enable:
        reporters.append(LogReporter(place.id, include_messages=config.log_include_messages))
    errors = ErrorHandler(config, reporters, clock, wait, waits)
    closing.callback(errors.close)
    chain = plugins.chain(errors, sink_takes_columns=takes_columns(task))
    pipeline = RecordPipeline(converters, chain, errors, config.replay_topic)
    closing.callback(pipeline.close)
    return SinkPipeline(
        pipeline, errors, TaskErrantRecordReporter(errors, class_name) if reporters else None
    )


def takes_columns(task: Task) -> bool:
    """Whether a task takes batches as they are."""
    return isinstance(task, SinkTask) and type(task).put_batch is not SinkTask.put_batch
