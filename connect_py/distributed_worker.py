"""The distributed worker, a member of a worker group that stores its state in Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from connect_py.config.worker_config import DistributedConfig
from connect_py.herder.connect_herder import ConnectHerder
from connect_py.herder.distributed_herder import distributed_herder
from connect_py.plugins.plugin_registry import PluginRegistry
from connect_py.rest_service import RestService
from connect_py.storage.storage_clients import StorageClients
from connect_py.worker_process import WorkerProcess, make_worker, version


class DistributedWorker(WorkerProcess[DistributedConfig]):
    """The process that `connect-distributed` runs."""

    config_type = DistributedConfig

    def make_herder(
        self,
        config: DistributedConfig,
        plugins: PluginRegistry,
        clients: StorageClients,
        cluster_id: str,
        rest: RestService,
    ) -> ConnectHerder:
        return distributed_herder(
            config,
            plugins=plugins,
            clients=clients,
            cluster_id=cluster_id,
            advertised_url=rest.advertised_url,
            commit=version(),
            leader_calls=rest.leader_calls,
            create_worker=partial(
                make_worker, config, plugins, offset_topic=config.storage_topic("offset")
            ),
        )


def run_distributed(properties: Path, log_levels: Mapping[str, str] | None = None) -> int:
    """Run a worker until SIGTERM or SIGINT, and return the exit status."""
    return DistributedWorker(log_levels).run(properties)
