"""`TaskPipelineFactory`: opens a connector's record pipeline outside a task."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Final

from connect_py.api.batch import Batch
from connect_py.api.errors import ConnectError
from connect_py.api.message_run import MessageRun
from connect_py.api.pipeline import (
    PipelineFactory,
    PipelineOutput,
    RecordFailure,
    RecordPipeline,
    TaskPipeline,
)
from connect_py.api.record import SinkRecord, TopicPartition
from connect_py.api.task import SinkTask
from connect_py.clock import SystemClock
from connect_py.error_handling.error_config import ErrorConfig
from connect_py.error_handling.error_handler import ErrorHandler, ErrorReporter
from connect_py.error_handling.failed_record import FailedRecord
from connect_py.error_handling.later_reporter import LaterReporter
from connect_py.kafka.client_config import ClientConfigs
from connect_py.kafka.cluster_admin import ClusterAdmin
from connect_py.metrics.plugin_metrics import TaskPluginMetrics
from connect_py.model import ConnectorTaskId
from connect_py.plugins.plugin_registry import PluginRegistry
from connect_py.secret_mask import hide, masked
from connect_py.task import record_pipeline
from connect_py.task.sink.sink_pipeline import (
    SinkPipeline,
    SinkPipelineOwner,
    open_sink_pipeline,
    takes_columns,
)
from connect_py.task.task_plugins import TaskPlugins

WAIT_SECONDS: Final = 60.0  # maximum wait for a server that a converter uses


@dataclass(frozen=True, slots=True)
class TaskPipelineFactory(PipelineFactory):
    """Opens pipelines with the resolved configurations of a connector and its worker."""

    connector: Mapping[str, str]
    worker: Mapping[str, str]
    wait_seconds: float = WAIT_SECONDS
    # secret values, which the process that opens a pipeline masks in all output
    secrets: Sequence[str] = ()

    def open(self) -> RecordPipeline:
        plugins = self._plugins()
        # failed records are returned as part of the output
        config = replace(ErrorConfig.parse(self.connector), tolerate_all=True)
        failures, waits = _Failures(), _Waits(self.wait_seconds)
        errors = ErrorHandler(config, [failures], SystemClock(), waits.wait, waits.waits_for)
        task, _ = plugins.task(self.connector)
        chain = plugins.chain(errors, sink_takes_columns=takes_columns(task))
        pipeline = record_pipeline.RecordPipeline(
            plugins.converters(), chain, errors, config.replay_topic
        )
        return _Pipeline(pipeline, errors, failures)

    def open_for(self, task: SinkTask, number: int) -> TaskPipeline:
        plugins, connector = self._plugins(), self.connector["name"]
        _, class_name = plugins.task(self.connector)
        clients = ClientConfigs(self.worker, self.connector, connector, number)
        owner = SinkPipelineOwner(
            ConnectorTaskId(connector, number),
            self.connector,
            clients,
            ClusterAdmin(clients.admin()),
        )
        waits, later = _Waits(self.wait_seconds), list[LaterReporter]()

        def topic_reporter(reporter: ErrorReporter) -> ErrorReporter:
            later.append(LaterReporter(reporter))
            return later[-1]

        with ExitStack() as closing:
            pipeline = open_sink_pipeline(
                owner,
                plugins,
                task,
                class_name,
                plugins.converters(),
                SystemClock(),
                TaskPluginMetrics(),
                waits.wait,
                waits.waits_for,
                closing,
                topic_reporter,
            )
            return _TaskPipeline(pipeline, later, closing.pop_all())

    def _plugins(self) -> TaskPlugins:
        hide(self.secrets)
        paths = [
            path.strip() for path in self.worker.get("plugin.path", "").split(",") if path.strip()
        ]
        return TaskPlugins(PluginRegistry.discover(paths), self.worker, self.connector)


class _TaskPipeline(TaskPipeline):
    def __init__(
        self, pipeline: SinkPipeline, later: Sequence[LaterReporter], closing: ExitStack
    ) -> None:
        self.reporter = pipeline.reporter
        self._later = later
        self._pipeline = pipeline
        self._closing = closing

    def process(self, runs: Sequence[MessageRun]) -> Sequence[Batch | Sequence[SinkRecord]]:
        return self._pipeline.records.process(runs)

    def keep_dead_letters(self, below: Mapping[TopicPartition, int], seconds: float) -> bool:
        for reporter in self._later:
            reporter.send(below)
        return self._pipeline.errors.flush(seconds)

    def close(self) -> None:
        self._closing.close()


class _Pipeline(RecordPipeline):
    def __init__(
        self, pipeline: record_pipeline.RecordPipeline, errors: ErrorHandler, failures: _Failures
    ) -> None:
        self._pipeline = pipeline
        self._errors = errors
        self._failures = failures

    def process(self, runs: Sequence[MessageRun]) -> PipelineOutput:
        deliveries = self._pipeline.process(runs)
        return PipelineOutput(deliveries, self._failures.take(), self._errors.values())

    def close(self) -> None:
        self._pipeline.close()


class _Failures(ErrorReporter):
    def __init__(self) -> None:
        self._record_failures: list[RecordFailure] = []

    def report(self, failed: FailedRecord) -> None:
        origin = failed.original()
        assert origin is not None, "consumed records have an origin"
        self._record_failures.append(
            RecordFailure(
                origin,
                failed.stage.value,
                failed.class_name,
                failed.reason,
                masked(str(failed.error)),
            )
        )

    def take(self) -> list[RecordFailure]:
        failures, self._record_failures = self._record_failures, []
        return failures


class _Waits:
    """Waits between attempts, with a time limit on each server outage."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._began: float | None = None
        self._server = ""

    def waits_for(self, server: str, reason: str | None) -> None:
        if reason is None:
            self._began = None
        else:
            self._began = time.monotonic() if self._began is None else self._began
            self._server = f"{server}: {reason}"

    def wait(self, seconds: float) -> None:
        if self._began is not None and time.monotonic() - self._began > self._seconds:
            raise ConnectError(f"no response within {self._seconds:.0f} s from {self._server}")
        time.sleep(seconds)
