"""`OffsetRequests`: requests for the offsets of a connector."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from connect_py.api.errors import ConnectError, NotFoundError
from connect_py.api.plugin import PluginKind
from connect_py.clock import Clock
from connect_py.futures import done
from connect_py.herder.herder import BadRequestError, RequestConflictError
from connect_py.herder.requests.sink_offsets import parse_sink_offsets
from connect_py.herder.thread.futures import chain
from connect_py.herder.thread.herder_thread import HerderThread
from connect_py.herder.thread.request_queue import RequestQueue
from connect_py.herder.thread.stage_board import StageBoard
from connect_py.herder.work.work_runner import strings
from connect_py.model import ConnectorOffset, ConnectorTaskId, TargetState
from connect_py.storage.config_state import ClusterConfigState
from connect_py.storage.config_store import ConfigStore
from connect_py.storage.control_records import Items
from connect_py.worker.worker import Worker

T = TypeVar("T")

THREADS = 4  # threads that validate and wait for topics
CONFIG_READ_SECONDS = 30.0  # timeout for reading the config topic before offsets are changed
CONFLICT_MESSAGE = (
    "Cannot complete request because of a conflicting operation (e.g. worker rebalance)"
)


class OffsetRequests(HerderThread):
    """Offsets are changed only for a stopped connector, after all of its tasks have ended."""

    def __init__(
        self,
        configs: ConfigStore,
        worker: Worker,
        queue: RequestQueue,
        clock: Clock,
        thread_name: str,
    ) -> None:
        """Initialize without starting anything."""
        super().__init__(queue, clock, thread_name)
        self._configs = configs
        self._worker = worker
        self._stages = StageBoard(clock)
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="validate")
        self._altering: set[str] = set()  # connectors with an offset change in progress

    @abstractmethod
    def _leader_request(self, action: Callable[[], T | Future[T]]) -> Future[T]:
        """Run an action on the leader's thread."""

    @abstractmethod
    def _running_anywhere(self) -> Items:
        """Return the items that may still publish a status."""

    def _state(self) -> ClusterConfigState:
        return self._configs.snapshot()

    def _existing(self, name: str, message: str = "Connector {} not found") -> ClusterConfigState:
        state = self._state()
        if name not in state.configs:
            raise NotFoundError(message.format(name))
        return state

    def _type_of(self, name: str) -> str:
        config = self._state().configs.get(name, {})
        try:
            return self._worker.plugins.connector_of(config).kind.value
        except ConnectError:
            return "unknown"

    def connector_offsets(self, name: str) -> Future[list[ConnectorOffset]]:
        def read() -> Future[list[ConnectorOffset]]:
            return self._worker.offsets.read(name, strings(self._existing(name).configs[name]))

        return self._request(read)

    def alter_connector_offsets(
        self, name: str, offsets: Sequence[ConnectorOffset] | None
    ) -> Future[str]:
        """Change or reset the offsets of a stopped connector.

        The config topic is read to its end on a separate thread; then the state is checked again.
        The request waits for tasks of a recently stopped connector to end.
        """

        def check_tasks() -> Future[bool]:
            def settled() -> bool:
                state = self._state()
                stopped = state.target_state(name) is TargetState.STOPPED and not state.tasks(name)
                return not stopped or not self._runs_tasks(name)

            return chain(
                self._pool.submit(self._read_configs),
                lambda _: self._settled_request(settled, lambda: self._runs_tasks(name)),
            )

        def alter(runs_tasks: bool) -> Future[str]:
            self._check_stopped(name)
            if runs_tasks or name in self._altering:
                raise RequestConflictError(CONFLICT_MESSAGE)
            self._altering.add(name)
            with self._stages.stage(f"modifying offsets for connector {name}"):
                altered = chain(
                    chain(done(None), lambda _: self._before_altering(name)),
                    lambda _: self._alter_offsets(name, offsets),
                )
            altered.add_done_callback(lambda _: self._altering.discard(name))
            return altered

        return self._leader_request(
            lambda: chain(
                check_tasks(), lambda runs_tasks: self._leader_request(lambda: alter(runs_tasks))
            )
        )

    def _read_configs(self) -> None:
        try:
            self._configs.refresh(CONFIG_READ_SECONDS)
        except ConnectError as error:
            raise ConnectError(
                "Failed to read to end of config topic before modifying connector offsets"
            ) from error

    def _check_stopped(self, name: str) -> ClusterConfigState:
        """Raise unless the connector exists, its target state is STOPPED, and it has no tasks."""
        state = self._existing(name)
        if state.target_state(name) is not TargetState.STOPPED or state.tasks(name):
            raise BadRequestError(
                "Connectors must be in the STOPPED state before their offsets can be modified. "
                "This can be done for the specified connector by issuing a 'PUT' request to the "
                f"'/connectors/{name}/stop' endpoint"
            )
        return state

    def _runs_tasks(self, name: str) -> bool:
        """Return True if tasks of a stopped connector may still be running. Called on the herder's
        thread.
        """
        running = self._running_anywhere()
        return any(isinstance(item, ConnectorTaskId) and item.connector == name for item in running)

    def _before_altering(self, name: str) -> Future[None]:
        """Complete when zombie tasks of a stopped connector can no longer commit offsets."""
        return done(None)

    def _alter_offsets(self, name: str, offsets: Sequence[ConnectorOffset] | None) -> Future[str]:
        state = self._check_stopped(name)
        config, number = strings(state.configs[name]), state.start_numbers.get(name, 0)
        if self._type_of(name) != PluginKind.SINK.value:
            return self._worker.offsets.alter_source(name, config, offsets, number)
        new_offsets = None if offsets is None else parse_sink_offsets(offsets)
        return self._worker.offsets.alter_sink(name, config, new_offsets, number)
