"""The standalone worker, a single process that runs the connectors on its command line."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path

from connect_py.api.errors import ConnectError
from connect_py.config.worker_config import StandaloneConfig
from connect_py.connector_file import ConnectorFile
from connect_py.herder.connect_herder import ConnectHerder
from connect_py.herder.herder import Created
from connect_py.herder.standalone_herder import standalone_herder
from connect_py.plugins.plugin_registry import PluginRegistry
from connect_py.rest_service import RestService
from connect_py.storage.storage_clients import StorageClients
from connect_py.worker_process import POLL_SECONDS, WorkerProcess, make_worker, version

log = logging.getLogger(__name__)


class StandaloneWorker(WorkerProcess[StandaloneConfig]):
    """The process that `connect-standalone` runs."""

    config_type = StandaloneConfig

    def __init__(
        self, connectors: Sequence[Path], log_levels: Mapping[str, str] | None = None
    ) -> None:
        """Create the process. `connectors` are the files of the connectors to create at startup."""
        super().__init__(log_levels)
        self._files = connectors
        self._connectors_created: Future[None] = Future()

    def make_herder(
        self,
        config: StandaloneConfig,
        plugins: PluginRegistry,
        clients: StorageClients,
        cluster_id: str,
        rest: RestService,
    ) -> ConnectHerder:
        return standalone_herder(
            config,
            plugins=plugins,
            cluster_id=cluster_id,
            advertised_url=rest.advertised_url,
            commit=version(),
            create_worker=partial(make_worker, config, plugins),
            ready=self._connectors_created,
        )

    def after_start(self, herder: ConnectHerder) -> None:
        """Create the connectors sequentially. The first failure ends the worker.

        Raises:
            OSError: A file cannot be read.
            ConnectError: A connector failed to start.
        """
        for path in self._files:
            try:
                file = ConnectorFile.read(path)
                created = herder.put_connector(
                    file.name, file.config, replace=False, initial_state=file.initial_state
                )
                if not self._finished(created, herder):
                    return
                log.info("Created connector %s", created.result().info.name)
            except (ConnectError, OSError, ValueError):
                log.error("Failed to create connector for %s", path)
                raise
        self._connectors_created.set_result(None)

    def _finished(self, created: Future[Created], herder: ConnectHerder) -> bool:
        """Wait for a connector. Return False if the worker is stopping or the herder has ended."""
        while not created.done():
            if self._stopping.wait(POLL_SECONDS) or herder.wait(0):
                return False
        return True


def run_standalone(
    properties: Path, connectors: Sequence[Path], log_levels: Mapping[str, str] | None = None
) -> int:
    """Run a worker until SIGTERM or SIGINT, and return the exit status."""
    return StandaloneWorker(connectors, log_levels).run(properties)
