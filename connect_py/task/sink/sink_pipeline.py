"""The record pipeline of a sink task and its error handling."""

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
class SinkPipelineOwner:
    """The task that owns a pipeline, with access to the cluster of its dead-letter topic."""

    id: ConnectorTaskId
    config: Mapping[str, str]  # connector configuration
    clients: ClientConfigs
    admin: ClusterAdmin


@dataclass(frozen=True, slots=True)
class SinkPipeline:
    """A pipeline. The exit stack that was passed to `open_sink_pipeline` closes it."""

    records: RecordPipeline
    errors: ErrorHandler
    reporter: TaskErrantRecordReporter | None  # None if errors are neither dead-lettered nor logged


def open_sink_pipeline(
    owner: SinkPipelineOwner,
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
    """Create the pipeline between consumed messages and a sink task.

    Args:
        owner: The task that owns the pipeline, with access to its cluster.
        plugins: Creates the transformations.
        task: Receives dead-letter records if the configuration sends them to a table.
        class_name: Class name of the task, as used in configurations.
        converters: The task's converters.
        clock: Source of time.
        metrics: Metrics of the task's plugins.
        wait: Waits between attempts; see `ErrorHandler`.
        waits: Called with the name of an unavailable server and the reason for waiting.
        closing: Exit stack that closes the pipeline.
        topic_reporter: Wraps the reporter that writes to the dead-letter topic.

    Raises:
        ConnectError: The dead-letter topic or a plugin cannot be created.
    """
    config = ErrorConfig.parse(owner.config)
    reporters: list[ErrorReporter] = []
    if config.dead_letter_topic:
        producer = owner.clients.dead_letter_producer()
        reporters.append(
            topic_reporter(DeadLetterQueue.open(owner.id, config, producer, owner.admin))
        )
    if config.dead_letter_table:
        reporters.append(TaskDeadLetters(task, clock))
    if reporters:
        reporters.append(DeadLetterCounter(metrics))
    if config.log_enable:
        reporters.append(LogReporter(owner.id, include_messages=config.log_include_messages))
    errors = ErrorHandler(config, reporters, clock, wait, waits)
    closing.callback(errors.close)
    chain = plugins.chain(errors, sink_takes_columns=takes_columns(task))
    pipeline = RecordPipeline(converters, chain, errors, config.replay_topic)
    closing.callback(pipeline.close)
    return SinkPipeline(
        pipeline, errors, TaskErrantRecordReporter(errors, class_name) if reporters else None
    )


def takes_columns(task: Task) -> bool:
    """Return True if a task accepts batches."""
    return isinstance(task, SinkTask) and type(task).put_batch is not SinkTask.put_batch
