"""`GroupPeers`: lists the workers in a group and handles their signed requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future

from connect_py.api.errors import ConnectError
from connect_py.api.plugin import PluginKind
from connect_py.futures import failed
from connect_py.herder.connector_configs import ConnectorConfigs
from connect_py.herder.group.session_keys import SessionKeys
from connect_py.herder.group.worker_group import WorkerGroup
from connect_py.herder.group.zombie_fencing import ZombieFencing
from connect_py.herder.herder import BadRequestError, WorkerInfo
from connect_py.herder.local_work.status_publisher import worker_id_of
from connect_py.herder.local_work.task_set import write_task_configs
from connect_py.herder.request_signature import RequestSignature
from connect_py.herder.requests.peers import Peers
from connect_py.herder.requests.request_router import RequestRouter
from connect_py.herder.requests.target_state_requests import TargetStateRequests
from connect_py.metrics.rebalance_metrics import RebalanceMetrics
from connect_py.metrics.samples import AnySample
from connect_py.model import ConnectorTaskId
from connect_py.storage.config_store import ConfigStore


class GroupPeers(Peers):
    """Verifies the signature of each request, and then runs it on the leader's thread."""

    def __init__(
        self,
        group: WorkerGroup,
        router: RequestRouter,
        connectors: ConnectorConfigs,
        store: ConfigStore,
        targets: TargetStateRequests,
        fencing: ZombieFencing,
        session_keys: SessionKeys,
        rebalances: RebalanceMetrics,
        client_id: str,
    ) -> None:
        self._group = group
        self._router = router
        self._connectors = connectors
        self._store = store
        self._targets = targets
        self._fencing = fencing
        self._session_keys = session_keys
        self._rebalances = rebalances
        self._client_id = client_id

    def workers(self) -> list[WorkerInfo]:
        leader = self._group.leader_url()
        return [
            WorkerInfo(url, worker_id_of(url), url == leader, url == self._group.url)
            for url in self._group.urls()
        ]

    def samples(self) -> Iterable[AnySample]:
        share = self._group.share()
        tasks = sum(isinstance(item, ConnectorTaskId) for item in share.items)
        return self._rebalances.samples(
            generation=share.generation,
            leader_url=self._group.leader_url(),
            connectors=len(share.items) - tasks,
            tasks=tasks,
            client_id=self._client_id,
        )

    def put_task_configs(
        self, name: str, configs: Sequence[Mapping[str, str]], signature: RequestSignature | None
    ) -> Future[None]:
        return self._signed(signature, lambda: write_task_configs(self._store, name, configs))

    def put_stop_request(
        self, name: str, start_number: int, reason: str, signature: RequestSignature | None
    ) -> Future[None]:
        def stop() -> None:
            self._connectors.state_with(name)
            self._targets.stop_for_task(name, start_number, reason)

        return self._signed(signature, stop)

    def fence_zombies(self, name: str, signature: RequestSignature | None) -> Future[None]:
        def fence() -> Future[None]:
            self._connectors.state_with(name)
            if self._connectors.type_of(name) != PluginKind.SOURCE.value:
                raise BadRequestError(f"Connector {name} is not a source connector")
            return self._fencing.fence(name)

        return self._signed(signature, fence)

    def _signed(
        self, signature: RequestSignature | None, action: Callable[[], Future[None] | None]
    ) -> Future[None]:
        try:
            self._session_keys.check(signature)
        except (ConnectError, PermissionError) as error:
            return failed(error)
        return self._router.submit_to_leader(action)
