"""`TaskMain`: creates one task from its configuration, runs it, and reports the result.

This module does not depend on how the task process is started.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial

from confluent_kafka import Producer

from connect_py.api.errors import ConnectError
from connect_py.api.task import SinkTask, SourceTask
from connect_py.clock import Clock, SystemClock
from connect_py.error_handling.error_config import REPLAY_TOPIC, ErrorConfig
from connect_py.error_handling.error_handler import ErrorHandler, ErrorReporter
from connect_py.error_handling.failed_record import stack_trace
from connect_py.error_handling.log_reporter import LogReporter
from connect_py.kafka.client_config import ClientConfigs, exactly_once_sources, transactional_id
from connect_py.kafka.client_log import client_log
from connect_py.kafka.cluster_admin import ClusterAdmin
from connect_py.metrics.client_statistics import INTERVAL_MS, ClientStatistics
from connect_py.metrics.plugin_metrics import TaskPluginMetrics
from connect_py.metrics.sampled import Window
from connect_py.metrics.sink_metrics import SinkMetrics
from connect_py.metrics.source_metrics import SourceMetrics
from connect_py.metrics.task_report import TaskReport
from connect_py.model import TargetState
from connect_py.plugins.plugin_registry import PluginRegistry
from connect_py.secret_mask import hide
from connect_py.storage.storage_clients import ConnectorStorageClients, Settings
from connect_py.task.messages import Failed, Paused, Stopped, TaskSpec, TopicUsed, Waits, Warns
from connect_py.task.record_pipeline import Converters
from connect_py.task.sink.sink_consumer import SinkConsumer
from connect_py.task.sink.sink_loop import LoopSettings, SinkTaskRunner
from connect_py.task.sink.sink_pipeline import SinkPipeline, SinkPipelineOwner, open_sink_pipeline
from connect_py.task.sink.sink_task_context import WorkerSinkTaskContext
from connect_py.task.source.at_least_once_committer import AtLeastOnceCommitter
from connect_py.task.source.exactly_once_committer import ExactlyOnceCommitter
from connect_py.task.source.source_committer import SourceCommitter
from connect_py.task.source.source_loop import SourceTaskRunner
from connect_py.task.source.source_producer import SourceProducer
from connect_py.task.source.source_task_context import (
    WorkerOffsetStorageReader,
    WorkerSourceTaskContext,
)
from connect_py.task.source.topic_creation import TopicCreation
from connect_py.task.source.topic_keeper import TopicKeeper
from connect_py.task.source.transaction_boundary import (
    TransactionBoundary,
    WorkerTransactionContext,
)
from connect_py.task.source.transaction_outcome import is_committed
from connect_py.task.task_attributes import chain_attributes, task_attributes
from connect_py.task.task_control import TaskControl
from connect_py.task.task_plugins import TaskPlugins
from connect_py.task.topic_selection import TopicSelection
from connect_py.task.used_topics import UsedTopics
from connect_py.task.wait_board import WaitBoard
from connect_py.task.worker_client import TaskStoppedError

_READ_COMMITTED = "read_committed"

log = logging.getLogger(__name__)


class TaskMain:
    """Runs one task on the thread that calls `execute`."""

    def __init__(self, spec: TaskSpec, control: TaskControl, clock: Clock | None = None) -> None:
        self._spec = spec
        hide(spec.secrets)
        self._control = control
        self._clock = clock or SystemClock()
        self._sink: SinkTaskRunner | None = None
        self._source: SourceTaskRunner | None = None
        self._errors: ErrorHandler | None = None
        self._plugin_metrics = TaskPluginMetrics()
        self._waits = WaitBoard(
            self._clock,
            lambda waiting: control.notify(Waits(waiting)),
            lambda warnings: control.notify(Warns(warnings)),
        )
        self._statistics: list[tuple[str, ClientStatistics]] = []
        self._attributes: Mapping[str, str] = {}
        self._links: Sequence[tuple[str, str, str, str]] = ()

    def execute(self) -> None:
        """Run the task until it stops or fails.

        The last message to the worker is `Stopped` or `Failed`. Errors are not raised.
        """
        try:
            if self._spec.target is not TargetState.STARTED:
                self._control.notify(Paused())
                self._control.wait_while_paused()
            self._control.check()
            self._run()
        except TaskStoppedError:
            pass
        except BaseException as error:
            log.exception(
                "Task threw an uncaught and unrecoverable exception. Task is being killed and "
                "will not recover until manually restarted",
                extra={"action": "task_failed"},
            )
            self._control.notify(Failed(stack_trace(error)))
            return
        self._control.notify(Stopped())

    def send_waiting(self) -> None:
        """Send the reason why the task is waiting if the reason has changed.

        Thread-safe. Works while the task's thread is busy.
        """
        self._waits.send_changes()

    def report(self) -> TaskReport:
        """Return the current metrics of the task. Thread-safe."""
        running = self._sink or self._source
        errors = self._errors
        if running is None or errors is None:
            return TaskReport()
        return TaskReport(
            "sink" if self._sink is not None else "source",
            running.metrics.values() | errors.values(),
            self._attributes,
            self._links,
            [(which, s.report) for which, s in self._statistics if s.report is not None],
            self._plugin_metrics.values(),
        )

    def _run(self) -> None:
        spec = self._spec
        registry = PluginRegistry(spec.plugins)
        plugins = TaskPlugins(registry, spec.worker_props, spec.connector_config)
        task, class_name = plugins.task(spec.task_config)
        converters = plugins.converters()
        self._attributes = task_attributes(registry, plugins, task, class_name, converters)
        self._links = chain_attributes(registry, spec.connector_config)
        if isinstance(task, SinkTask):
            self._run_sink(task, class_name, plugins, converters)
        elif isinstance(task, SourceTask):
            self._run_source(task, plugins, converters)
        else:
            raise ConnectError(f"{class_name} is neither a sink task nor a source task")

    def _run_source(self, task: SourceTask, plugins: TaskPlugins, converters: Converters) -> None:
        spec = self._spec
        config = spec.connector_config
        clients = ClientConfigs(spec.worker_props, config, spec.id.connector, spec.id.task)
        error_config = ErrorConfig.parse(config)
        may_create = (
            spec.worker_props.get("topic.creation.enable", "true").strip().lower() == "true"
        )
        rules = TopicCreation.parse(config, enabled=may_create)
        metrics = SourceMetrics(self._clock, Window.of(spec.worker_props))
        with ExitStack() as closing:
            reporters: list[ErrorReporter] = []
            if error_config.log_enable:
                reporters.append(
                    LogReporter(spec.id, include_messages=error_config.log_include_messages)
                )
            errors = self._errors = ErrorHandler(
                error_config, reporters, self._clock, self._wait_between_tries, self._waits.waits
            )
            closing.callback(converters.close)
            chain = plugins.chain(errors)
            closing.callback(chain.close)
            closing.callback(task.stop)
            exactly_once = exactly_once_sources(spec.worker_props)
            settings = clients.transactional_producer() if exactly_once else clients.producer()
            statistics = ClientStatistics("producer")
            self._statistics.append(("producer", statistics))
            config_with_stats = {
                "statistics.interval.ms": INTERVAL_MS,
                **settings,
                "stats_cb": statistics.take,
            }
            producer = SourceProducer(lambda: Producer(config_with_stats, logger=client_log))
            transactions = None
            if exactly_once and TransactionBoundary.of(config) is TransactionBoundary.CONNECTOR:
                transactions = WorkerTransactionContext()
            committer = self._committer(task, producer, settings, metrics, transactions)
            topics = TopicKeeper(
                rules,
                ClusterAdmin(clients.admin()),
                producer,
                self._control.wait,
                UsedTopics(lambda topic: self._control.notify(TopicUsed(topic)), self._clock),
            )
            runner = self._source = SourceTaskRunner(
                task,
                spec.task_config,
                producer,
                topics,
                committer,
                converters,
                chain,
                errors,
                self._control,
                metrics,
                self._clock,
                self._waits,
            )
            reader = WorkerOffsetStorageReader(self._control)
            task.initialize(
                WorkerSourceTaskContext(
                    spec.id,
                    spec.task_config,
                    reader,
                    transactions,
                    self._plugin_metrics,
                    self._control,
                    spec.worker_props,
                    self._waits,
                )
            )
            runner.run()

    def _wait_between_tries(self, seconds: float) -> None:
        self._waits.check()
        self._control.wait(seconds)

    def _committer(
        self,
        task: SourceTask,
        producer: SourceProducer,
        client_settings: Mapping[str, object],
        metrics: SourceMetrics,
        transactions: WorkerTransactionContext | None,
    ) -> SourceCommitter:
        spec = self._spec
        settings = LoopSettings.of(spec.worker_props, None)
        if not exactly_once_sources(spec.worker_props):
            return AtLeastOnceCommitter(
                task,
                producer,
                self._control,
                metrics,
                self._clock,
                commit_interval_ms=settings.commit_interval_ms,
                commit_timeout_ms=settings.commit_timeout_ms,
            )
        config = spec.connector_config
        return ExactlyOnceCommitter(
            task,
            producer,
            transactional_id(spec.worker_props, spec.id.connector, spec.id.task),
            self._control,
            metrics,
            self._clock,
            boundary=TransactionBoundary.of(config),
            interval_ms=int(
                config.get("transaction.boundary.interval.ms") or settings.commit_interval_ms
            ),
            timeout_ms=int(str(client_settings["transaction.timeout.ms"])),
            transactions=transactions,
            copies_offsets=bool(config.get("offsets.storage.topic")),
            is_committed=partial(is_committed, self._reader_settings(), check=self._control.check),
        )

    def _reader_settings(self) -> Settings:
        """Return settings for a consumer that reads from the cluster of the task's producer."""
        spec = self._spec
        configs = ClientConfigs(
            spec.worker_props, spec.connector_config, spec.id.connector, spec.id.task
        )
        return ConnectorStorageClients.of(configs).consumer_settings("outcome", read_committed=True)

    def _run_sink(
        self, task: SinkTask, class_name: str, plugins: TaskPlugins, converters: Converters
    ) -> None:
        spec = self._spec
        config = spec.connector_config
        clients = ClientConfigs(spec.worker_props, config, spec.id.connector, spec.id.task)
        admin = ClusterAdmin(clients.admin())
        error_config = ErrorConfig.parse(config)
        topics = TopicSelection(_subscription(spec.task_config, config))
        settings = LoopSettings.of(
            spec.worker_props, clients.max_poll_records(), clients.topics_interval_ms()
        )
        metrics = SinkMetrics(self._clock, Window.of(spec.worker_props))
        with ExitStack() as closing:

            def create_pipeline(wait: Callable[[float], None]) -> SinkPipeline:
                return open_sink_pipeline(
                    SinkPipelineOwner(spec.id, config, clients, admin),
                    plugins,
                    task,
                    class_name,
                    converters,
                    self._clock,
                    self._plugin_metrics,
                    wait,
                    self._waits.waits,
                    closing,
                )

            def create_consumer(runner: SinkTaskRunner) -> SinkConsumer:
                consumer_settings = clients.consumer()
                if error_config.replay_topic:
                    create_replay_topic(admin, error_config.replay_topic)
                    # replayed records are written in transactions
                    consumer_settings["isolation.level"] = _READ_COMMITTED
                    _warn_of_isolation(spec)
                consumer = SinkConsumer(consumer_settings, runner, runner.on_commit)
                closing.callback(consumer.close)
                self._statistics.append(("consumer", consumer.statistics))
                return consumer

            runner = SinkTaskRunner(
                task,
                spec.task_config,
                topics,
                settings,
                self._control,
                self._clock,
                create_pipeline,
                create_consumer,
                metrics,
                self._waits,
            )
            # `stop` is the last call to the task, even if the task failed to start. It is made
            # while the consumer is still in the group.
            closing.callback(task.stop)
            self._errors = runner.errors
            self._sink = runner
            task.initialize(
                WorkerSinkTaskContext(
                    spec.id,
                    spec.start_number,
                    spec.task_config,
                    clients,
                    admin,
                    runner,
                    runner.reporter,
                    topics,
                    self._plugin_metrics,
                    self._control,
                    spec.worker_props,
                    self._waits,
                )
            )
            runner.run()


def _warn_of_isolation(spec: TaskSpec) -> None:
    """Warn that a replay topic overrides the user's isolation level."""
    override = "consumer.override.isolation.level"
    configured = (
        spec.connector_config.get(override)
        or spec.worker_props.get("consumer.isolation.level")
        or _READ_COMMITTED
    )
    if configured.strip().lower() != _READ_COMMITTED:
        log.warning(
            "%s requires reading all topics with isolation.level=%s instead of %s",
            REPLAY_TOPIC,
            _READ_COMMITTED,
            configured,
        )


def create_replay_topic(admin: ClusterAdmin, topic: str) -> None:
    """Create the replay topic with unlimited retention if it does not exist.

    The topic records which dead-letter records were retried.

    Raises:
        ConnectError: The cluster denies the request.
    """
    if admin.create_topic(
        topic, 1, -1, {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
    ):
        log.info("created topic %s for retried dead-letter records", topic)


def _subscription(
    task_config: Mapping[str, str], connector_config: Mapping[str, str]
) -> dict[str, str]:
    keys = ("topics", "topics.regex")
    source = task_config if any(task_config.get(key) for key in keys) else connector_config
    selection = {key: source[key] for key in keys if source.get(key)}
    if connector_config.get(REPLAY_TOPIC):
        selection[REPLAY_TOPIC] = connector_config[REPLAY_TOPIC]
    return selection
