"""`StandaloneHerder`: herder of a single worker. Only source offsets survive its process."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import ClassVar, Final, TypeVar

from connect_py.api.errors import ConnectError
from connect_py.clock import Clock, SystemClock
from connect_py.config.worker_config import StandaloneConfig
from connect_py.futures import failed
from connect_py.herder.abstract_herder import AbstractHerder
from connect_py.herder.herder import Created, ServerInfo, WorkerInfo
from connect_py.herder.request_signature import RequestSignature
from connect_py.herder.thread.futures import chain
from connect_py.herder.thread.request_queue import RequestQueue
from connect_py.herder.work.status_publisher import StatusPublisher, worker_id_of
from connect_py.model import KAFKA_VERSION
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


class StandaloneHerder(AbstractHerder):
    """Answers every request itself. Its thread only orders them."""

    UNKNOWN_CONNECTOR: ClassVar[str] = "Connector {} not found"
    UNKNOWN_TASK: ClassVar[str] = "Task {} not found"

    def __init__(
        self,
        config: StandaloneConfig,
        *,
        cluster_id: str,
        advertised_url: str,
        commit: str,
        make_worker: Callable[[StatusPublisher, OffsetStore], Worker],
        clock: Clock | None = None,
    ) -> None:
        """Read the offsets; nothing runs yet.

        Args:
            advertised_url: URL of the REST API, `http://host:port`.
            commit: Version of connect-py, shown next to Connect's version.
            make_worker: Creates the worker, given its listener and the store of source offsets.

        Raises:
            ConnectError: The offset file is not usable.
        """
        clock = clock or SystemClock()
        storage = LocalStorage(OFFSETS, Path(config.offset_file), clock)
        self._offsets = OffsetStore(OFFSETS, storage)
        self._offsets.start()
        self._ready: Future[None] = Future()
        statuses = StatusStore("statuses", storage, clock)
        publisher = StatusPublisher(
            statuses, worker_id_of(advertised_url), track_topics=config["topic.tracking.enable"]
        )
        super().__init__(
            config,
            ServerInfo(KAFKA_VERSION, commit, cluster_id),
            configs=ConfigStore("configs", storage, storage, self._config_changed),
            statuses=statuses,
            publisher=publisher,
            worker=make_worker(publisher, self._offsets),
            queue=RequestQueue(clock),
            clock=clock,
            thread_name="StandaloneHerder-connect-1",
        )
        self._self = WorkerInfo(
            advertised_url, worker_id_of(advertised_url), leads=True, is_self=True
        )
        self._started = True  # there are no topics to read
        self._state_read.set_result(None)

    def ready(self) -> None:
        """Note that the connectors of the command line have been created: the worker is healthy
        from now on.
        """
        self._ready.set_result(None)

    def started(self) -> bool:
        return self._ready.done()

    def workers(self) -> list[WorkerInfo]:
        return [self._self]

    def ping(self) -> Future[None]:
        return chain(self._ready, lambda _: self._request(lambda: None))

    def _main(self) -> None:
        log.info("Herder starting")
        self._worker.start()
        log.info("Herder started")
        while not self._stopping.is_set():
            self._work_on_changes()
            self._queue.wait(TICK_SECONDS)

    def _end(self) -> None:
        with self._stages.stage("stopping"):
            log.info("Herder stopping")
            try:
                self._worker.stop()
            finally:
                self._offsets.stop()
                self._pool.shutdown(wait=False, cancel_futures=True)
            log.info("Herder stopped")

    def _leader_request(self, action: Callable[[], T | Future[T]]) -> Future[T]:
        return self._request(action)

    def _owner_request(self, id: StatusId, action: Callable[[], T | Future[T]]) -> Future[T]:  # noqa: A002 - Connect's word
        return self._request(action)

    def _answer_put(self, created: Created) -> Future[Created]:
        """Respond when the connector is running and its tasks are known, or fail with the error of
        its start.
        """
        self._work.reconcile()  # immediately, so that there is a start to wait for
        name = created.info.name
        return chain(
            self._work.settled(name),
            lambda _: self._request(lambda: Created(created.created, self._connector_info(name))),
        )

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
                "Kafka Connect in standalone mode accepts only the stop requests of its own tasks."
            )
        )

    def _request_stop(self, name: str, start_number: int, reason: str) -> Future[None]:
        return self._request(lambda: self._stop_as_requested(name, start_number, reason))

    def fence_zombies(self, name: str, signature: RequestSignature | None) -> Future[None]:
        return failed(
            ConnectError(
                "Kafka Connect in standalone mode does not support exactly-once source connectors."
            )
        )
