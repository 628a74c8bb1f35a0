"""`HerderMetrics`: collects the metrics of a worker process."""

from __future__ import annotations

from connect_py.clock import Clock
from connect_py.config.worker_config import WorkerConfig
from connect_py.herder.herder import ServerInfo
from connect_py.herder.requests.peers import Peers
from connect_py.metrics.samples import AnySample, OwnSample, Sample, TextSample
from connect_py.worker.worker import Worker

APP_INFO = "app-info"
WORKER_GROUP = "connect_py_worker_group"


class HerderMetrics:
    """Collects the metrics of the worker, its connectors and tasks, and its group. Thread-safe."""

    def __init__(
        self, config: WorkerConfig, info: ServerInfo, worker: Worker, peers: Peers, clock: Clock
    ) -> None:
        self._group_id = config.group_id
        self._client_id = client_id(config)
        self._info = info
        self._worker = worker
        self._peers = peers
        self._start_ms = clock.time_ms()

    def samples(self) -> list[AnySample]:
        """Return the current values."""
        tags = {"client-id": self._client_id}
        samples: list[AnySample] = [*self._worker.metrics(), *self._peers.samples()]
        if self._group_id is not None:
            samples.append(
                OwnSample(WORKER_GROUP, "Group ID of the worker.", 1, {"group": self._group_id})
            )
        samples += [
            TextSample(APP_INFO, "version", self._info.version, tags),
            TextSample(APP_INFO, "commit-id", self._info.commit, tags),
            Sample(APP_INFO, "start-time-ms", self._start_ms, tags),
        ]
        return samples


def client_id(config: WorkerConfig) -> str:
    """Return the client ID for the metrics' `client-id` tag."""
    return config.props.get("client.id") or "connect-1"
