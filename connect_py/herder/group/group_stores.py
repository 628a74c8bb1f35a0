"""`GroupStores`: the stores that read and write the internal topics of a worker group."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

from connect_py.api.errors import ConfigError, ConnectError
from connect_py.clock import Clock
from connect_py.config.worker_config import DistributedConfig
from connect_py.herder.group.start_refusals import StartRefusals
from connect_py.herder.thread.stage_board import StageBoard
from connect_py.kafka.authorization_errors import RefusedError
from connect_py.storage.config_state import Change
from connect_py.storage.config_store import ConfigStore
from connect_py.storage.control_store import ControlListener, ControlStore
from connect_py.storage.kafka_based_log import KafkaLogs
from connect_py.storage.leader_producer import LeaderProducer
from connect_py.storage.offset_store import OffsetStore
from connect_py.storage.status_store import StatusStore
from connect_py.storage.storage_clients import StorageClients
from connect_py.storage.topic_admin import TopicAdmin

log = logging.getLogger(__name__)

# maximum time for which the internal topics may be unreadable during startup
STARTUP_SECONDS = 15 * 60.0
STARTUP_PAUSE_SECONDS = 10.0
READ_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class GroupStores:
    """Stores for the internal topics. The herder creates, starts, and stops them."""

    config: ConfigStore
    status: StatusStore
    offset: OffsetStore
    control: ControlStore
    leader: LeaderProducer
    topics: TopicAdmin

    @classmethod
    def of(
        cls,
        config: DistributedConfig,
        clients: StorageClients,
        clock: Clock,
        on_config: Callable[[Sequence[Change]], None],
        on_control: ControlListener,
        pause: Callable[[float], bool],
    ) -> Self:
        """Create the stores without reading the topics.

        `on_config` and `on_control` receive new records. `pause` is described in `TopicAdmin`.
        """
        leader = LeaderProducer(clients, config.group_id)
        create = config["internal.topics.automatic.creation.enable"]
        logs = KafkaLogs(clients)
        return cls(
            ConfigStore(config.storage_topic("config").name, logs, leader, on_config),
            StatusStore(config.storage_topic("status").name, logs, clock),
            OffsetStore(config.storage_topic("offset").name, logs),
            ControlStore(config.control_topic().name, clients, leader, on_control),
            leader,
            TopicAdmin(clients.admin(), clock, create=create, pause=pause),
        )

    @property
    def logs(self) -> Sequence[ConfigStore | StatusStore | OffsetStore | ControlStore]:
        """All stores that read a topic."""
        return self.config, self.status, self.offset, self.control

    def start(
        self,
        config: DistributedConfig,
        clock: Clock,
        stages: StageBoard,
        refusals: StartRefusals,
        stopping: threading.Event,
    ) -> bool:
        """Create or check the topics, and read them to their ends, within 15 minutes.

        Returns False if the worker is stopping.

        Raises:
            ConfigError: The settings of a topic are invalid.
            RefusedError: The cluster denies permissions that this worker needs.
            ConnectError: The topics cannot be read.
        """
        deadline = clock.monotonic() + STARTUP_SECONDS
        started = False
        while not stopping.is_set():
            try:
                with stages.stage("initializing and reading to the end of internal topics"):
                    topics = (
                        *map(config.storage_topic, ("config", "status", "offset")),
                        config.control_topic(),
                    )
                    for topic in topics:
                        self.topics.ensure(topic)
                    if not started:
                        for store in self.logs:
                            store.start()
                        started = True
                    for store in self.logs:
                        store.refresh_unless(stopping, READ_SECONDS)
                return True
            except ConfigError:
                raise
            except ConnectError as error:
                if stopping.is_set():
                    break
                if isinstance(error, RefusedError):
                    refusals.note(str(error))
                self.check_refusals(refusals)
                if clock.monotonic() > deadline:
                    raise
                log.warning(
                    "internal topics are not ready, retrying in %g s: %s",
                    STARTUP_PAUSE_SECONDS,
                    error,
                )
                stopping.wait(STARTUP_PAUSE_SECONDS)
        return False

    def check_refusals(self, refusals: StartRefusals) -> None:
        """Check whether the cluster has denied a permission for at least one minute.

        Raises:
            RefusedError: The cluster has denied a permission for that long.
        """
        for store in self.logs:
            if store.refusal is not None:
                refusals.note(store.refusal)
        refusals.check()

    def stop(self) -> None:
        """Stop reading the topics, and release the leader's producer."""
        for store in self.logs:
            store.stop()
        self.leader.release()
