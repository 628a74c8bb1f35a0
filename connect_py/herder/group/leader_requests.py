"""`GroupRequests`: signed requests between the workers of a group, and their processing by the
leader.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future

from connect_py.api.errors import ConnectError
from connect_py.api.plugin import PluginKind
from connect_py.futures import failed
from connect_py.herder.abstract_herder import AbstractHerder
from connect_py.herder.group.leader_calls import LeaderCalls
from connect_py.herder.group.leadership import Leadership
from connect_py.herder.group.session_keys import SessionKeys
from connect_py.herder.group.worker_group import WorkerGroup
from connect_py.herder.group.zombie_fencing import ZombieFencing
from connect_py.herder.herder import BadRequestError
from connect_py.herder.request_signature import RequestSignature


class GroupRequests(AbstractHerder):
    """Base class of `DistributedHerder`, which creates the attributes."""

    _group: WorkerGroup
    _leadership: Leadership
    _fencing: ZombieFencing
    _session_keys: SessionKeys
    _leader_calls: LeaderCalls | None
    _url: str

    # Sent to the leader

    def _call_leader(self, call: Callable[[LeaderCalls, str], None]) -> Future[None]:
        if self._stopping.is_set():
            return failed(ConnectError("the worker is stopping"))
        url = self._group.leader_url()
        if self._leader_calls is None or url is None or url == self._url:
            return failed(ConnectError("the leader of the group is currently unknown"))
        calls = self._leader_calls
        return self._pool.submit(call, calls, url)

    def _request_stop(self, name: str, start_number: int, reason: str) -> Future[None]:
        if self._leadership.leads:
            return self._leadership.submit(
                lambda: self._stop_as_requested(name, start_number, reason)
            )
        return self._call_leader(
            lambda calls, url: calls.request_stop(
                url, name, start_number, reason, self._session_keys.headers
            )
        )

    # Received from other workers

    def put_task_configs(
        self, name: str, configs: Sequence[Mapping[str, str]], signature: RequestSignature | None
    ) -> Future[None]:
        return self._signed_request(
            signature, lambda: self._work.publish_task_configs(name, configs)
        )

    def put_stop_request(
        self, name: str, start_number: int, reason: str, signature: RequestSignature | None
    ) -> Future[None]:
        def stop() -> None:
            self._existing(name)
            self._stop_as_requested(name, start_number, reason)

        return self._signed_request(signature, stop)

    def fence_zombies(self, name: str, signature: RequestSignature | None) -> Future[None]:
        def fence() -> Future[None]:
            self._existing(name)
            if self._type_of(name) != PluginKind.SOURCE.value:
                raise BadRequestError(f"Connector {name} is not a source connector")
            return self._fencing.fence(name)

        return self._signed_request(signature, fence)

    def _signed_request(
        self, signature: RequestSignature | None, action: Callable[[], Future[None] | None]
    ) -> Future[None]:
        try:
            self._session_keys.check(signature)
        except (ConnectError, PermissionError) as error:
            return failed(error)
        return self._leader_request(action)
