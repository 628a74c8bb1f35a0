"""`GroupLoop`: the main loop of the herder's thread in distributed mode."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor

from connect_py.clock import Clock
from connect_py.config.worker_config import DistributedConfig
from connect_py.herder.config_changes import ConfigChanges
from connect_py.herder.connector_configs import ConnectorConfigs, startable_configs
from connect_py.herder.group.group_assignment import GroupAssignment
from connect_py.herder.group.group_member import GroupMember
from connect_py.herder.group.group_router import GroupRouter
from connect_py.herder.group.group_stores import GroupStores
from connect_py.herder.group.heartbeat_sender import HeartbeatSender
from connect_py.herder.group.leadership import Leadership
from connect_py.herder.group.membership import Membership
from connect_py.herder.group.start_refusals import StartRefusals
from connect_py.herder.group.status_repairs import StatusRepairs
from connect_py.herder.group.worker_group import WorkerGroup
from connect_py.herder.local_work.work_plan import RequestedItems
from connect_py.herder.thread.herder_executor import HerderExecutor
from connect_py.herder.thread.herder_thread import HerderLoop, Startup
from connect_py.herder.thread.request_queue import RequestQueue
from connect_py.herder.thread.stage_board import StageBoard
from connect_py.metrics.rebalance_metrics import RebalanceMetrics
from connect_py.model import TargetState
from connect_py.storage.control_records import NO_ITEMS
from connect_py.worker.worker import Worker

log = logging.getLogger(__name__)

TICK_SECONDS = 1.0
FLUSH_SECONDS = 5.0


class GroupTick:
    """Performs one iteration of the herder's main loop. Used only on the herder's thread."""

    def __init__(
        self,
        group: WorkerGroup,
        membership: Membership,
        assignment: GroupAssignment,
        requested: RequestedItems,
        changes: ConfigChanges,
        rebalances: RebalanceMetrics,
        router: GroupRouter,
        repairs: StatusRepairs,
    ) -> None:
        self._group = group
        self._membership = membership
        self._assignment = assignment
        self._requested = requested
        self._changes = changes
        self._rebalances = rebalances
        self._router = router
        self._repairs = repairs

    def run(self) -> None:
        """Apply the assignment, process requests, and then apply configuration changes."""
        self._membership.check()
        share = self._group.share()
        is_new = self._assignment.is_new(share)
        is_new_version = share.working and self._assignment.has_new_version(share)
        if is_new_version:
            log.info(
                "Joined group at generation %d with epoch %d", share.generation, share.version.epoch
            )
            log.info("Starting connectors and tasks using config offset %d", share.config_offset)
        elif self._assignment.working and not share.working:
            log.warning(
                "lost membership in the group because no heartbeat arrived in time: "
                "stopping connectors and tasks"
            )
        if is_new:
            self._rebalances.began()
        self._assignment.begin(share)
        if not share.working:
            # the worker rejoins with a new member ID when all of its items have stopped
            self._group.set_running(self._requested.items())
        self._changes.apply()
        if is_new_version:
            log.info("Finished starting connectors and tasks")
        if is_new and share.working:
            self._rebalances.completed()
        self._assignment.finish(share)
        self._router.run_waiting()
        self._repairs.run()


class GroupLoop(HerderLoop):
    """Reads the internal topics, joins the group, and then applies assignments and changes.

    The control topic reader, the heartbeat sender, and the leader run on separate threads, which
    never wait for each other.
    """

    def __init__(
        self,
        config: DistributedConfig,
        *,
        clock: Clock,
        queue: RequestQueue,
        executor: HerderExecutor,
        startup: Startup,
        stages: StageBoard,
        pool: ThreadPoolExecutor,
        stores: GroupStores,
        refusals: StartRefusals,
        connectors: ConnectorConfigs,
        worker: Worker,
        group: WorkerGroup,
        member: GroupMember,
        sender: HeartbeatSender,
        leadership: Leadership,
        membership: Membership,
        router: GroupRouter,
        tick: GroupTick,
    ) -> None:
        """Create the loop without starting any component."""
        self._config = config
        self._clock = clock
        self._queue = queue
        self._executor = executor
        self._startup = startup
        self._stages = stages
        self._pool = pool
        self._stores = stores
        self._refusals = refusals
        self._connectors = connectors
        self._worker = worker
        self._group = group
        self._member = member
        self._sender = sender
        self._leadership = leadership
        self._membership = membership
        self._router = router
        self._tick = tick

    def run(self) -> None:
        stopping = self._executor.stopping
        log.info("Herder starting")
        self._worker.start()  # its processes import modules while the topics are being read
        if not self._stores.start(
            self._config, self._clock, self._stages, self._refusals, stopping
        ):
            return
        self._startup.state_read.set_result(None)
        self._membership.await_lone_leader()
        if stopping.is_set():
            return
        self._prestart_services()
        self._member.start()
        self._sender.start()
        self._leadership.start()
        log.info("Rebalance started")
        self._join()
        while not stopping.is_set():
            self._tick.run()
            self._queue.wait(TICK_SECONDS)

    def _prestart_services(self) -> None:
        """Start the connectors' shared services before the tasks are assigned.

        Assigning the tasks takes several seconds, so the services can start in the meantime.
        """
        state = self._connectors.state()
        started = [
            name for name in state.connectors() if state.target_state(name) is TargetState.STARTED
        ]
        self._worker.prestart_services(
            startable_configs({name: state.configs[name] for name in started})
        )

    def _join(self) -> None:
        """Join the group. Startup is complete when the first assignment has been applied."""
        with self._stages.stage("ensuring membership in the cluster"):
            while not self._executor.stopping.is_set() and not self._startup.complete.is_set():
                if self._membership.join():
                    self._tick.run()
                    self._startup.complete.set()
                    log.info("Herder started")
                else:
                    self._stores.check_refusals(self._refusals)
                self._queue.wait(TICK_SECONDS)

    def end(self) -> None:
        """Stop tasks and connectors, leave the group, and then stop the stores.

        Pending requests fail.
        """
        with self._stages.stage("stopping"):
            log.info("Herder stopping")
            self._group.leave()
            self._worker.stop()
            self._stores.status.flush(FLUSH_SECONDS)
            self._group.set_running(NO_ITEMS)
            self._leadership.stop()
            self._sender.stop()
            self._member.stop()
            self._stores.stop()
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._router.fail_waiting()
            log.info("Herder stopped")
