"""`OperationRequests`: runs connector operations."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

from connect_py.api.errors import ConnectError
from connect_py.futures import pass_on
from connect_py.herder.connector_configs import ConnectorConfigs
from connect_py.herder.herder import RunningOperation
from connect_py.worker.connector_offsets import REQUEST_SECONDS
from connect_py.worker.worker import Worker


class OperationRequests:
    """Runs connector operations.

    Configurations are resolved on a thread pool, because config providers may block.
    """

    def __init__(
        self, connectors: ConnectorConfigs, worker: Worker, pool: ThreadPoolExecutor
    ) -> None:
        self._connectors = connectors
        self._worker = worker
        self._pool = pool

    def run(self, name: str, operation: str, arguments: Mapping[str, Any]) -> Future[Any]:
        """See `Herder.operate_connector`."""

        def run() -> Any:
            config = self._connectors.config(name)
            try:
                return self._worker.operate(name, config, operation, arguments).result(
                    REQUEST_SECONDS
                )
            except TimeoutError as error:
                raise ConnectError(
                    f"Timed out while connector {name} was running operation {operation}"
                ) from error

        return self._pool.submit(run)

    def start(self, name: str, operation: str, arguments: Mapping[str, Any]) -> RunningOperation:
        """See `Herder.start_operation`."""
        running = RunningOperation()

        def start() -> None:
            try:
                config = self._connectors.config(name)
                result, cancel = self._worker.start_operation(
                    name, config, operation, arguments, running.show
                )
            except Exception as error:  # noqa: BLE001 - set on the client's future
                running.result.set_exception(error)
                return
            running.started(cancel)
            result.add_done_callback(partial(pass_on, running.result))

        def submitted(start: Future[None]) -> None:
            if start.cancelled():
                running.result.set_exception(ConnectError("the worker is stopping"))

        self._pool.submit(start).add_done_callback(submitted)
        return running
