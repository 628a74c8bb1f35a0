"""`LeaderRequests`: sends this worker's requests to the leader of its group."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from connect_py.api.errors import ConnectError
from connect_py.futures import done, failed
from connect_py.herder.group.leader_calls import LeaderCalls
from connect_py.herder.group.leadership import Leadership
from connect_py.herder.group.session_keys import SessionKeys
from connect_py.herder.group.worker_group import WorkerGroup
from connect_py.herder.group.zombie_fencing import ZombieFencing
from connect_py.herder.local_work.task_set import difference, write_task_configs
from connect_py.herder.requests.target_state_requests import TargetStateRequests
from connect_py.storage.config_store import ConfigStore


class LeaderRequests:
    """Runs requests on the leader's thread if this worker is the leader, or sends them over HTTP.

    HTTP requests are signed with the session key. Thread-safe.
    """

    def __init__(
        self,
        group: WorkerGroup,
        leadership: Leadership,
        store: ConfigStore,
        targets: TargetStateRequests,
        fencing: ZombieFencing,
        session_keys: SessionKeys,
        calls: LeaderCalls | None,
        pool: ThreadPoolExecutor,
        stopping: threading.Event,
    ) -> None:
        """Create the component. If `calls` is None, this worker must always be the leader."""
        self._group = group
        self._leadership = leadership
        self._store = store
        self._targets = targets
        self._fencing = fencing
        self._session_keys = session_keys
        self._calls = calls
        self._pool = pool
        self._stopping = stopping

    def publish_task_configs(self, name: str, configs: Sequence[Mapping[str, str]]) -> Future[None]:
        """Write a task set to the config topic if it has changed."""
        if self._leadership.leads:
            return self._leadership.submit(lambda: write_task_configs(self._store, name, configs))
        if difference(self._store.snapshot(), name, configs) is None:
            return done(None)
        sign = self._session_keys.headers
        return self._send(lambda calls, url: calls.put_task_configs(url, name, configs, sign))

    def stop_connector(self, name: str, start_number: int, reason: str) -> Future[None]:
        """Stop a connector at the request of one of its tasks."""
        if self._leadership.leads:
            return self._leadership.submit(
                lambda: self._targets.stop_for_task(name, start_number, reason)
            )
        sign = self._session_keys.headers
        return self._send(
            lambda calls, url: calls.request_stop(url, name, start_number, reason, sign)
        )

    def fence_zombies(self, name: str) -> Future[None]:
        """Fence the producers of a source connector's older tasks."""
        if self._leadership.leads:
            return self._leadership.submit(lambda: self._fencing.fence(name))
        sign = self._session_keys.headers
        return self._send(lambda calls, url: calls.fence_zombies(url, name, sign))

    def _send(self, call: Callable[[LeaderCalls, str], None]) -> Future[None]:
        if self._stopping.is_set():
            return failed(ConnectError("the worker is stopping"))
        url = self._group.leader_url()
        if self._calls is None or url is None or url == self._group.url:
            return failed(ConnectError("the leader of the group is currently unknown"))
        return self._pool.submit(call, self._calls, url)
