"""`OffsetRequests`: reads and changes the offsets of a connector."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from connect_py.api.errors import ConnectError
from connect_py.api.plugin import PluginKind
from connect_py.futures import done
from connect_py.herder.connector_configs import ConnectorConfigs, without_nulls
from connect_py.herder.herder import BadRequestError, RequestConflictError
from connect_py.herder.requests.request_router import RequestRouter
from connect_py.herder.requests.sink_offsets import parse_sink_offsets
from connect_py.herder.thread.futures import chain
from connect_py.herder.thread.herder_executor import HerderExecutor
from connect_py.herder.thread.stage_board import StageBoard
from connect_py.model import ConnectorOffset, ConnectorTaskId, TargetState
from connect_py.storage.config_state import ClusterConfigState
from connect_py.storage.config_store import ConfigStore
from connect_py.storage.control_records import Items
from connect_py.worker.connector_offsets import ConnectorOffsets

CONFIG_READ_SECONDS = 30.0  # timeout for reading the config topic before offsets are changed
CONFLICT_MESSAGE = (
    "Cannot complete request because of a conflicting operation (e.g. worker rebalance)"
)


class OffsetRequests:
    """Reads offsets, and changes a stopped connector's offsets once its tasks have ended."""

    def __init__(
        self,
        connectors: ConnectorConfigs,
        store: ConfigStore,
        offsets: ConnectorOffsets,
        executor: HerderExecutor,
        router: RequestRouter,
        pool: ThreadPoolExecutor,
        stages: StageBoard,
        running_items: Callable[[], Items],
        fence_source: Callable[[str], Future[None]],
    ) -> None:
        """Create the component.

        Args:
            running_items: Returns the connectors and tasks that may be running on any worker.
                Called on the herder's thread.
            fence_source: Prevents a stopped source connector's zombie tasks from committing
                offsets. Called on the thread that changes the config topic.
        """
        self._connectors = connectors
        self._store = store
        self._offsets = offsets
        self._executor = executor
        self._router = router
        self._pool = pool
        self._stages = stages
        self._running_items = running_items
        self._fence_source = fence_source
        self._in_progress: set[str] = set()  # connectors whose offsets are being changed

    def read(self, name: str) -> Future[list[ConnectorOffset]]:
        """Return the committed offsets of a connector. The connector may be in any state."""
        return self._executor.submit(
            lambda: self._offsets.read(name, self._connectors.config(name))
        )

    def alter(self, name: str, offsets: Sequence[ConnectorOffset] | None) -> Future[str]:
        """Change a stopped connector's offsets, or reset all of them if `offsets` is None.

        A separate thread reads the config topic to its end before the connector's state is checked.
        If the connector was stopped recently, the request waits for its tasks to end.
        """

        def check_tasks() -> Future[bool]:
            def settled() -> bool:
                state = self._connectors.state()
                stopped = state.target_state(name) is TargetState.STOPPED and not state.tasks(name)
                return not stopped or not self._has_running_tasks(name)

            return chain(
                self._pool.submit(self._read_configs),
                lambda _: self._executor.submit_when(
                    settled, lambda: self._has_running_tasks(name)
                ),
            )

        def alter(has_running_tasks: bool) -> Future[str]:
            self._stopped_state(name)
            if has_running_tasks or name in self._in_progress:
                raise RequestConflictError(CONFLICT_MESSAGE)
            self._in_progress.add(name)
            with self._stages.stage(f"modifying offsets for connector {name}"):
                altered = chain(
                    chain(done(None), lambda _: self._fence(name)),
                    lambda _: self._alter(name, offsets),
                )
            altered.add_done_callback(lambda _: self._in_progress.discard(name))
            return altered

        return self._router.submit_to_leader(
            lambda: chain(
                check_tasks(),
                lambda has_running_tasks: self._router.submit_to_leader(
                    lambda: alter(has_running_tasks)
                ),
            )
        )

    def _read_configs(self) -> None:
        try:
            self._store.refresh(CONFIG_READ_SECONDS)
        except ConnectError as error:
            raise ConnectError(
                "Failed to read to end of config topic before modifying connector offsets"
            ) from error

    def _stopped_state(self, name: str) -> ClusterConfigState:
        """Return the current snapshot of the config topic.

        Raises:
            BadRequestError: The connector has tasks, or its target state is not STOPPED.
        """
        state = self._connectors.state_with(name)
        if state.target_state(name) is not TargetState.STOPPED or state.tasks(name):
            raise BadRequestError(
                "Connectors must be in the STOPPED state before their offsets can be modified. "
                "This can be done for the specified connector by issuing a 'PUT' request to the "
                f"'/connectors/{name}/stop' endpoint"
            )
        return state

    def _has_running_tasks(self, name: str) -> bool:
        """Return True if a stopped connector's tasks may still be running.

        Called on the herder's thread.
        """
        return any(
            isinstance(item, ConnectorTaskId) and item.connector == name
            for item in self._running_items()
        )

    def _fence(self, name: str) -> Future[None]:
        if self._connectors.type_of(name) != PluginKind.SOURCE.value:
            return done(None)
        return self._fence_source(name)

    def _alter(self, name: str, offsets: Sequence[ConnectorOffset] | None) -> Future[str]:
        state = self._stopped_state(name)
        config, number = without_nulls(state.configs[name]), state.start_numbers.get(name, 0)
        if self._connectors.type_of(name) != PluginKind.SINK.value:
            return self._offsets.alter_source(name, config, offsets, number)
        new_offsets = None if offsets is None else parse_sink_offsets(offsets)
        return self._offsets.alter_sink(name, config, new_offsets, number)
