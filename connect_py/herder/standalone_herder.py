"""`standalone_herder`: creates the herder of a worker in standalone mode.

Only source offsets are persistent. All other state is lost when the process exits.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from connect_py.api.errors import ConnectError
from connect_py.clock import Clock, SystemClock
from connect_py.config.worker_config import StandaloneConfig
from connect_py.futures import done, failed
from connect_py.herder.config_changes import ConfigChanges
from connect_py.herder.connect_herder import ConnectHerder
from connect_py.herder.connector_configs import ConnectorConfigs
from connect_py.herder.herder import Created, ServerInfo, WorkerInfo
from connect_py.herder.herder_metrics import HerderMetrics
from connect_py.herder.local_work.status_cleanup import StatusCleanup
from connect_py.herder.local_work.status_publisher import StatusPublisher, worker_id_of
from connect_py.herder.local_work.task_config_requests import TaskConfigRequests
from connect_py.herder.local_work.task_set import write_task_configs
from connect_py.herder.local_work.work_assignment import AllItems
from connect_py.herder.local_work.work_plan import RequestedItems
from connect_py.herder.local_work.work_runner import WorkRunner
from connect_py.herder.logger_levels import LoggerLevels
from connect_py.herder.request_signature import RequestSignature
from connect_py.herder.requests.config_requests import ConfigRequests
from connect_py.herder.requests.connector_views import ConnectorViews
from connect_py.herder.requests.offset_requests import OffsetRequests
from connect_py.herder.requests.operation_requests import OperationRequests
from connect_py.herder.requests.peers import Peers
from connect_py.herder.requests.request_router import RequestRouter
from connect_py.herder.requests.restart_requests import NotFoundMessages, RestartRequests
from connect_py.herder.requests.target_state_requests import TargetStateRequests, TaskStopRequests
from connect_py.herder.requests.validation_requests import ValidationRequests, request_pool
from connect_py.herder.thread.futures import chain
from connect_py.herder.thread.herder_executor import HerderExecutor
from connect_py.herder.thread.herder_thread import HerderLoop, HerderThread, Startup
from connect_py.herder.thread.request_queue import RequestQueue
from connect_py.herder.thread.stage_board import StageBoard
from connect_py.herder.validation.validator import Validator
from connect_py.metrics.samples import AnySample
from connect_py.model import KAFKA_VERSION
from connect_py.plugins.plugin_registry import PluginRegistry
from connect_py.storage.config_store import ConfigStore
from connect_py.storage.local_storage import LocalStorage
from connect_py.storage.offset_store import OffsetStore
from connect_py.storage.status_store import StatusStore
from connect_py.storage.status_table import StatusId
from connect_py.worker.worker import Worker

log = logging.getLogger(__name__)

T = TypeVar("T")

OFFSETS: Final = "offsets"
TICK_SECONDS: Final = 1.0


class StandaloneRouter(RequestRouter):
    """Runs every request on the herder's thread."""

    def __init__(self, executor: HerderExecutor, ready: Future[None]) -> None:
        """Create the router. The worker is healthy once `ready` has completed."""
        self._executor = executor
        self._ready = ready

    def ping(self) -> Future[None]:
        return chain(self._ready, lambda _: self._executor.submit(lambda: None))

    def submit_to_leader(self, action: Callable[[], T | Future[T]]) -> Future[T]:
        return self._executor.submit(action)

    def submit_to_owner(self, item: StatusId, action: Callable[[], T | Future[T]]) -> Future[T]:
        return self._executor.submit(action)


class NoPeers(Peers):
    """Rejects requests from other workers, because a standalone worker has no group."""

    def __init__(self, url: str) -> None:
        self._worker = WorkerInfo(url, worker_id_of(url), leads=True, is_self=True)

    def workers(self) -> list[WorkerInfo]:
        return [self._worker]

    def samples(self) -> Iterable[AnySample]:
        return ()

    def put_task_configs(
        self, name: str, configs: Sequence[Mapping[str, str]], signature: RequestSignature | None
    ) -> Future[None]:
        return failed(
            ConnectError(
                "Kafka Connect in standalone mode does not support externally setting task "
                "configurations."
            )
        )

    def put_stop_request(
        self, name: str, start_number: int, reason: str, signature: RequestSignature | None
    ) -> Future[None]:
        return failed(
            ConnectError(
                "Kafka Connect in standalone mode accepts stop requests only from its own tasks."
            )
        )

    def fence_zombies(self, name: str, signature: RequestSignature | None) -> Future[None]:
        return failed(
            ConnectError(
                "Kafka Connect in standalone mode does not support exactly-once source connectors."
            )
        )


class StandaloneLoop(HerderLoop):
    """Processes requests and configuration changes until the worker stops."""

    def __init__(
        self,
        queue: RequestQueue,
        executor: HerderExecutor,
        stages: StageBoard,
        pool: ThreadPoolExecutor,
        worker: Worker,
        offsets: OffsetStore,
        changes: ConfigChanges,
    ) -> None:
        self._queue = queue
        self._executor = executor
        self._stages = stages
        self._pool = pool
        self._worker = worker
        self._offsets = offsets
        self._changes = changes

    def run(self) -> None:
        log.info("Herder starting")
        self._worker.start()
        log.info("Herder started")
        while not self._executor.stopping.is_set():
            self._changes.apply()
            self._queue.wait(TICK_SECONDS)

    def end(self) -> None:
        with self._stages.stage("stopping"):
            log.info("Herder stopping")
            try:
                self._worker.stop()
            finally:
                self._offsets.stop()
                self._pool.shutdown(wait=False, cancel_futures=True)
            log.info("Herder stopped")


def standalone_herder(
    config: StandaloneConfig,
    *,
    plugins: PluginRegistry,
    cluster_id: str,
    advertised_url: str,
    commit: str,
    create_worker: Callable[[StatusPublisher, OffsetStore], Worker],
    ready: Future[None],
    clock: Clock | None = None,
) -> ConnectHerder:
    """Create the herder of a worker in standalone mode without starting it.

    The herder handles every request itself. This function reads the offset file.

    Args:
        config: Configuration of the worker.
        plugins: Installed plugins.
        cluster_id: ID of the Kafka cluster.
        advertised_url: URL of the REST API, `http://host:port`.
        commit: Version of connect-py, returned by `GET /` along with Kafka Connect's version.
        create_worker: Creates the worker from its listener and the source offset store.
        ready: Completes when the connectors from the command line have been created. From
            then on, the worker is healthy.
        clock: Source of time.

    Raises:
        ConnectError: The offset file cannot be used.
    """
    clock = clock or SystemClock()

    # The herder's thread
    queue = RequestQueue(clock)
    executor, startup, stages = HerderExecutor(queue, clock), Startup.skipped(), StageBoard(clock)
    pool = request_pool()
    # set while the running connectors and tasks may differ from the configured ones
    changed = threading.Event()
    changed.set()

    # The stores. Some components depend on each other, so lambdas refer to components that are
    # created below. The lambdas are called only after the herder has started.
    storage = LocalStorage(OFFSETS, Path(config.offset_file), clock)
    offset_store = OffsetStore(OFFSETS, storage)
    offset_store.start()
    statuses = StatusStore("statuses", storage, clock)
    store = ConfigStore(
        "configs", storage, storage, on_change=lambda changes: config_changes.add(changes)
    )
    connectors = ConnectorConfigs(store, plugins)
    router = StandaloneRouter(executor, ready)
    targets = TargetStateRequests(connectors, store, router, stages, startup)

    # The worker and its connectors and tasks
    def stop_connector(name: str, start_number: int, reason: str) -> Future[None]:
        return executor.submit(lambda: targets.stop_for_task(name, start_number, reason))

    def publish_task_configs(name: str, configs: Sequence[Mapping[str, str]]) -> Future[None]:
        try:
            write_task_configs(store, name, configs)
        except ConnectError as error:
            return failed(error)
        return done(None)

    task_stops = TaskStopRequests(connectors, stop_connector)
    assignment, requested = AllItems(), RequestedItems()
    publisher = StatusPublisher(
        statuses,
        worker_id_of(advertised_url),
        assignment,
        clock,
        track_topics=config["topic.tracking.enable"],
        version_of=connectors.version_of,
        on_tasks_requested=lambda name: queue.put(partial(task_configs.request, name)),
        on_stop_requested=lambda *request: queue.put(partial(task_stops.handle, *request)),
    )
    worker = create_worker(publisher, offset_store)
    task_configs = TaskConfigRequests(
        worker, store, publisher, config.resolver, queue, requested, publish_task_configs
    )
    cleanup = StatusCleanup(connectors, statuses, lambda: True, requested.items)
    work = WorkRunner(
        worker,
        store,
        publisher,
        config.resolver,
        queue,
        requested,
        task_configs,
        assignment,
        cleanup.clean_up,
    )

    # User requests
    views = ConnectorViews(config, connectors, statuses, plugins, executor)

    def respond(created: Created) -> Future[Created]:
        """Return the response once the connector is running and its tasks are configured.

        The future fails if the connector fails to start or to return its task configurations.
        """
        work.reconcile()  # start the connector now, because `settled` waits for its latest start
        name = created.info.name
        return chain(
            work.settled(name),
            lambda _: executor.submit(lambda: Created(created.created, views.info(name))),
        )

    validator = Validator(config, worker, is_configured=connectors.exists)
    validations = ValidationRequests(validator, pool, clock)
    restarts = RestartRequests(
        connectors,
        store,
        statuses,
        work,
        executor,
        router,
        stages,
        clock,
        NotFoundMessages("Connector {} not found", "Task {} not found"),
    )
    loggers = LoggerLevels(clock, worker.set_log_levels)
    peers = NoPeers(advertised_url)

    # The main loop
    config_changes = ConfigChanges(
        startup, queue, changed, restarts, loggers, work, cleanup, on_session_key=lambda _: None
    )
    loop = StandaloneLoop(queue, executor, stages, pool, worker, offset_store, config_changes)
    info = ServerInfo(KAFKA_VERSION, commit, cluster_id)
    return ConnectHerder(
        info,
        thread=HerderThread(loop, executor, queue, startup, "StandaloneHerder-connect-1"),
        executor=executor,
        startup=startup,
        is_started=ready.done,
        stages=stages,
        router=router,
        peers=peers,
        store=store,
        worker=worker,
        views=views,
        configs=ConfigRequests(connectors, store, router, validations, stages, respond),
        targets=targets,
        restarts=restarts,
        offsets=OffsetRequests(
            connectors,
            store,
            worker.offsets,
            executor,
            router,
            pool,
            stages,
            requested.items,
            fence_source=lambda _: done(None),
        ),
        operations=OperationRequests(connectors, worker, pool),
        validations=validations,
        loggers=loggers,
        metrics=HerderMetrics(config, info, worker, peers, clock),
    )
