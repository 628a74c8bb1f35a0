"""`ConfigReload`: resolves values from config providers again when their TTL expires.

A connector is restarted if the values in its configuration have changed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from connect_py.config.config_provider import ConfigResolver
from connect_py.herder.thread.request_queue import RequestQueue

log = logging.getLogger(__name__)

ACTION = "config.action.reload"  # connector config key; the value is none or restart


@dataclass(frozen=True, slots=True)
class _Resolution:
    """Digest and TTL of a resolved configuration. The values themselves are not stored."""

    digest: bytes
    ttl_ms: int | None  # None if the values do not expire


@dataclass(frozen=True, slots=True, eq=False)
class _WatchedConfig:
    """Configuration of a running connector or task, and the result of its last resolution."""

    config: Mapping[str, str]  # unresolved
    answer: _Resolution | None = None  # None until the first resolution completes


ResolutionHandler: TypeAlias = "Callable[[str, _WatchedConfig, _Resolution | Exception], None]"


def _run_on_thread(function: Callable[[], None]) -> None:
    threading.Thread(target=function, name="config-reload", daemon=True).start()


class ConfigReload:
    """Reloads the configurations of the connectors and tasks that run on this worker.

    Called only on the herder's thread. Config providers may block, so they are called on other
    threads, which pass the results to the herder's thread through the queue.
    """

    def __init__(
        self,
        resolver: ConfigResolver,
        queue: RequestQueue,
        restart: Callable[[str], bool],
        begin: Callable[[Callable[[], None]], None] = _run_on_thread,
    ) -> None:
        """Create a reloader that does not watch any configurations yet.

        Args:
            restart: Restarts a connector and its tasks on this worker. Returns False if neither
                the connector nor any of its tasks runs on this worker.
            begin: Runs a function on another thread and returns immediately.
        """
        self._resolver = resolver
        self._queue = queue
        self._restart = restart
        self._begin = begin
        self._watched: dict[str, _WatchedConfig] = {}

    def watch(self, name: str, config: Mapping[str, str]) -> None:
        """Watch the unresolved configuration of a connector or task that is starting.

        Never blocks. A configuration that is already being watched is not resolved again.
        Therefore, later values are compared with the values at the first start. If they differ, the
        connector and its tasks are restarted.
        """
        previous = self._watched.get(name)
        if previous is not None and previous.config == config:
            return
        self._watched.pop(name, None)
        if config.get(
            ACTION, "restart"
        ).strip().lower() == "none" or not self._resolver.placeholder_keys(config):
            return
        watched = self._watched[name] = _WatchedConfig(config)
        self._resolve(name, watched, self._on_first_resolution)

    def _resolve(self, name: str, watched: _WatchedConfig, handler: ResolutionHandler) -> None:
        def resolve() -> None:
            answer: _Resolution | Exception
            try:
                resolved = self._resolver.transform(watched.config)
                digest = hashlib.sha256(
                    json.dumps(resolved.props, sort_keys=True).encode()
                ).digest()
                answer = _Resolution(digest, resolved.ttl_ms)
            except Exception as error:  # noqa: BLE001 - reported on the herder's thread
                answer = error
            self._queue.put(partial(handler, name, watched, answer))

        self._begin(resolve)

    def _on_first_resolution(
        self, name: str, watched: _WatchedConfig, answer: _Resolution | Exception
    ) -> None:
        if self._watched.get(name) is not watched:
            return
        if isinstance(answer, Exception):
            # debug level, because starting the connector reports the same error
            log.debug("failed to resolve the configuration of connector %s", name)
            del self._watched[name]
        else:
            self._schedule(name, watched, answer)

    def _schedule(self, name: str, watched: _WatchedConfig, answer: _Resolution) -> None:
        """Schedule the next resolution for the end of the TTL. Stop watching if there is no TTL."""
        if answer.ttl_ms is None:
            del self._watched[name]
            return
        current = self._watched[name] = _WatchedConfig(watched.config, answer)
        self._queue.put(partial(self._reload, name, current), answer.ttl_ms / 1000)

    def _reload(self, name: str, watched: _WatchedConfig) -> None:
        if self._watched.get(name) is watched:
            self._resolve(name, watched, self._on_reload)

    def _on_reload(
        self, name: str, watched: _WatchedConfig, answer: _Resolution | Exception
    ) -> None:
        previous = watched.answer
        if self._watched.get(name) is not watched or previous is None:
            return
        if isinstance(answer, Exception):
            log.warning(
                "failed to reload the configuration of connector %s (%s); it continues with the "
                "previous values",
                name,
                answer,
            )
            self._schedule(name, watched, previous)
            return
        self._schedule(name, watched, answer)
        if answer.ttl_ms is not None and answer.digest == previous.digest:
            return
        log.info("restarting connector %s because config provider values have changed", name)
        if not self._restart(name):
            self._watched.pop(name, None)
