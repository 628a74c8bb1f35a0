"""`distributed_herder`: creates the herder of a worker in distributed mode."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TypeAlias

from connect_py.clock import Clock, SystemClock
from connect_py.config.worker_config import DistributedConfig
from connect_py.futures import done
from connect_py.herder.config_changes import ConfigChanges
from connect_py.herder.connect_herder import ConnectHerder
from connect_py.herder.connector_configs import ConnectorConfigs
from connect_py.herder.group.group_assignment import GroupAssignment
from connect_py.herder.group.group_loop import GroupLoop, GroupTick
from connect_py.herder.group.group_member import GroupMember
from connect_py.herder.group.group_peers import GroupPeers
from connect_py.herder.group.group_router import GroupRouter
from connect_py.herder.group.group_stores import GroupStores
from connect_py.herder.group.heartbeat_sender import HeartbeatSender
from connect_py.herder.group.leader_calls import LeaderCalls
from connect_py.herder.group.leader_duties import GroupDuties
from connect_py.herder.group.leader_requests import LeaderRequests
from connect_py.herder.group.leadership import Leadership
from connect_py.herder.group.membership import Membership
from connect_py.herder.group.session_keys import SessionKeys
from connect_py.herder.group.source_gate import SourceGate
from connect_py.herder.group.start_refusals import StartRefusals
from connect_py.herder.group.status_repairs import StatusRepairs
from connect_py.herder.group.timings import Timings
from connect_py.herder.group.worker_group import WorkerGroup
from connect_py.herder.group.zombie_fencing import ZombieFencing
from connect_py.herder.herder import ServerInfo
from connect_py.herder.herder_metrics import HerderMetrics, client_id
from connect_py.herder.local_work.status_cleanup import StatusCleanup
from connect_py.herder.local_work.status_publisher import StatusPublisher, worker_id_of
from connect_py.herder.local_work.task_config_requests import TaskConfigRequests
from connect_py.herder.local_work.work_plan import RequestedItems
from connect_py.herder.local_work.work_runner import WorkRunner
from connect_py.herder.logger_levels import LoggerLevels
from connect_py.herder.requests.config_requests import ConfigRequests
from connect_py.herder.requests.connector_views import ConnectorViews
from connect_py.herder.requests.offset_requests import OffsetRequests
from connect_py.herder.requests.operation_requests import OperationRequests
from connect_py.herder.requests.restart_requests import NotFoundMessages, RestartRequests
from connect_py.herder.requests.target_state_requests import TargetStateRequests, TaskStopRequests
from connect_py.herder.requests.validation_requests import ValidationRequests, request_pool
from connect_py.herder.thread.futures import translated
from connect_py.herder.thread.herder_executor import HerderExecutor
from connect_py.herder.thread.herder_thread import HerderThread, Startup
from connect_py.herder.thread.request_queue import RequestQueue
from connect_py.herder.thread.stage_board import StageBoard
from connect_py.herder.validation.validator import Validator
from connect_py.metrics.rebalance_metrics import RebalanceMetrics
from connect_py.metrics.sampled import Window
from connect_py.model import KAFKA_VERSION
from connect_py.plugins.plugin_registry import PluginRegistry
from connect_py.storage.control_records import Items
from connect_py.storage.offset_store import OffsetStore
from connect_py.storage.storage_clients import StorageClients
from connect_py.worker.source_task_session import SourceTaskGate
from connect_py.worker.worker import Worker

WorkerFactory: TypeAlias = Callable[[StatusPublisher, OffsetStore, SourceTaskGate], Worker]

FENCING_MESSAGE = "Failed to perform zombie fencing for source connector prior to modifying offsets"


def distributed_herder(
    config: DistributedConfig,
    *,
    plugins: PluginRegistry,
    clients: StorageClients,
    cluster_id: str,
    advertised_url: str,
    commit: str,
    create_worker: WorkerFactory,
    leader_calls: LeaderCalls | None = None,
    clock: Clock | None = None,
) -> ConnectHerder:
    """Create the herder of a worker in distributed mode without starting it.

    The worker runs the connectors and tasks that the leader of its group assigns to it. It acts as
    the leader when elected.

    Args:
        config: Configuration of the worker.
        plugins: Installed plugins.
        clients: Creates the Kafka clients for the internal topics.
        cluster_id: ID of the Kafka cluster.
        advertised_url: URL at which other workers reach this one, `http://host:port`.
        commit: Version of connect-py, returned by `GET /` along with Kafka Connect's version.
        create_worker: Creates the worker from its listener, the source offset store, and the
            source task gate.
        leader_calls: Sends requests to the leader. If it is None, this worker must always be the
            leader.
        clock: Source of time.
    """
    clock = clock or SystemClock()
    worker_id = worker_id_of(advertised_url)

    # The herder's thread and the leader's queue
    queue, leader_queue = RequestQueue(clock), RequestQueue(clock)
    executor, startup, stages = HerderExecutor(queue, clock), Startup(Future()), StageBoard(clock)
    pool = request_pool()
    # set while the running connectors and tasks may differ from the configured ones
    changed = threading.Event()
    changed.set()

    def wake() -> None:
        """Wake the herder's and the leader's threads after a new record or an ownership change."""
        queue.wake()
        leader_queue.wake()

    # The group and its topics. Some components depend on each other, so lambdas refer to components
    # that are created below. The lambdas are called only after the herder has started.
    group = WorkerGroup(
        advertised_url,
        Timings.of(config),
        clock,
        config_offset=lambda: stores.config.snapshot().offset,
        on_change=wake,
        on_lease=lambda until: worker.extend_lease(until),
    )
    stores = GroupStores.of(
        config,
        clients,
        clock,
        on_config=lambda changes: config_changes.add(changes),
        on_control=group,
        pause=executor.stopping.wait,
    )
    connectors = ConnectorConfigs(stores.config, plugins)
    assignment = GroupAssignment(group, stores.config, changed)
    refusals = StartRefusals(clock)
    topic = config.control_topic().name
    member = GroupMember(
        topic,
        clients.member_settings(
            config.group_id, config["session.timeout.ms"], config["heartbeat.interval.ms"]
        ),
        wake,
        refusals.note,
    )
    sender = HeartbeatSender(
        topic,
        clients.heartbeat_settings(round(group.timings.lease * 1000)),
        group,
        refusals.note,
    )
    leadership = Leadership(
        group,
        lambda: member.owns,
        stores.leader,
        stores.control,
        stores.config,
        stores.status,
        GroupDuties(config, stores, clock),
        clock,
        leader_queue,
        on_change=queue.wake,
        on_refused=refusals.note,
        on_alone=None if config.exactly_once_sources else refusals.withdraw,
    )

    # Requests to other workers
    session_keys = SessionKeys(
        config["inter.worker.signature.algorithm"],
        config["inter.worker.verification.algorithms"],
        config["session.timeout.ms"] / 1000,
        clock,
    )
    requested = RequestedItems()
    router = GroupRouter(
        executor, queue, stages, group, leadership, assignment, requested, connectors
    )
    targets = TargetStateRequests(connectors, stores.config, router, stages, startup)
    fencing = ZombieFencing(
        stores.config,
        leader_queue,
        lambda name, count: worker.fence_producers(name, connectors.config(name), count),
    )
    leader = LeaderRequests(
        group,
        leadership,
        stores.config,
        targets,
        fencing,
        session_keys,
        leader_calls,
        pool,
        executor.stopping,
    )

    # The worker and its connectors and tasks
    task_stops = TaskStopRequests(connectors, leader.stop_connector)
    publisher = StatusPublisher(
        stores.status,
        worker_id,
        assignment,
        clock,
        track_topics=config["topic.tracking.enable"],
        version_of=connectors.version_of,
        on_tasks_requested=lambda name: queue.put(partial(task_configs.request, name)),
        on_stop_requested=lambda *request: queue.put(partial(task_stops.handle, *request)),
    )
    gate = SourceGate(leader, stores.config, executor, requested)
    worker = create_worker(publisher, stores.offset, gate)
    task_configs = TaskConfigRequests(
        worker,
        stores.config,
        publisher,
        config.resolver,
        queue,
        requested,
        leader.publish_task_configs,
    )

    def running_items() -> Items:
        return requested.items() | group.running_elsewhere()

    cleanup = StatusCleanup(connectors, stores.status, lambda: leadership.leads, running_items)
    work = WorkRunner(
        worker,
        stores.config,
        publisher,
        config.resolver,
        queue,
        requested,
        task_configs,
        assignment,
        cleanup.clean_up,
    )

    # User requests
    def fence_source(name: str) -> Future[None]:
        if not config.exactly_once_sources:
            return done(None)
        return translated(fencing.fence(name), FENCING_MESSAGE)

    validator = Validator(
        config, worker, lambda: stores.leader.alone, is_configured=connectors.exists
    )
    validations = ValidationRequests(validator, pool, clock)
    restarts = RestartRequests(
        connectors,
        stores.config,
        stores.status,
        work,
        executor,
        router,
        stages,
        clock,
        NotFoundMessages(),
    )
    loggers = LoggerLevels(clock, worker.set_log_levels)
    rebalances = RebalanceMetrics(clock, Window.of(config.props))
    peers = GroupPeers(
        group,
        router,
        connectors,
        stores.config,
        targets,
        fencing,
        session_keys,
        rebalances,
        client_id(config),
    )

    # The main loop
    config_changes = ConfigChanges(
        startup, queue, changed, restarts, loggers, work, cleanup, session_keys.take
    )
    membership = Membership(group, member, config.group_id, clock, executor.stopping)
    repairs = StatusRepairs(
        group, leadership, assignment, requested, connectors, publisher, cleanup, clock
    )
    loop = GroupLoop(
        config,
        clock=clock,
        queue=queue,
        executor=executor,
        startup=startup,
        stages=stages,
        pool=pool,
        stores=stores,
        refusals=refusals,
        connectors=connectors,
        worker=worker,
        group=group,
        member=member,
        sender=sender,
        leadership=leadership,
        membership=membership,
        router=router,
        tick=GroupTick(
            group, membership, assignment, requested, config_changes, rebalances, router, repairs
        ),
    )
    thread_name = f"DistributedHerder-connect-{config['client.id'] or worker_id}-1"
    info = ServerInfo(KAFKA_VERSION, commit, cluster_id)
    return ConnectHerder(
        info,
        thread=HerderThread(loop, executor, queue, startup, thread_name),
        executor=executor,
        startup=startup,
        is_started=startup.complete.is_set,
        stages=stages,
        router=router,
        peers=peers,
        store=stores.config,
        worker=worker,
        views=ConnectorViews(config, connectors, stores.status, plugins, executor),
        configs=ConfigRequests(
            connectors, stores.config, router, validations, stages, respond=lambda created: created
        ),
        targets=targets,
        restarts=restarts,
        offsets=OffsetRequests(
            connectors,
            stores.config,
            worker.offsets,
            executor,
            router,
            pool,
            stages,
            running_items,
            fence_source,
        ),
        operations=OperationRequests(connectors, worker, pool),
        validations=validations,
        loggers=loggers,
        metrics=HerderMetrics(config, info, worker, peers, clock),
    )
