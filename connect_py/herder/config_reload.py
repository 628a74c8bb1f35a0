"""`ConfigReload`: looks at values of config providers again when their time is over, and restarts who uses others."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from connect_py.api.errors import ConnectError
from connect_py.config.config_provider import ConfigResolver
from connect_py.herder.request_queue import RequestQueue

log = logging.getLogger(__name__)

ACTION = "config.action.reload"  # of a connector: none or restart


@dataclass(frozen=True, slots=True, eq=False)
class _Watched:
    """A configuration in use. Of its resolved values only a digest is kept."""

    config: Mapping[str, str]  # unresolved
    digest: bytes
    ttl_ms: int


class ConfigReload:
    """Belongs to the herder's thread. One timer for each connector that runs here, or has tasks here."""

    def __init__(self, resolver: ConfigResolver, queue: RequestQueue, restart: Callable[[str], bool]) -> None:
        """Prepare. `restart` restarts all of a connector that is here; False when nothing is."""
        self._resolver = resolver
        self._queue = queue
        self._restart = restart
        self._watched: dict[str, _Watched] = {}

    def watch(self, name: str, config: Mapping[str, str]) -> None:
        """A connector or one of its tasks starts with this configuration, unresolved.

        The first start counts: what starts later, with newer values, leaves the others to be restarted.
        """
        known = self._watched.get(name)
        if known is not None and known.config == config:
            return
        self._watched.pop(name, None)
        if config.get(ACTION, "restart").strip().lower() == "none":
            return
        try:
            self._arm(name, config)
        except ConnectError:
            log.debug("values of connector %s cannot be resolved now", name)  # its start says so

    def _arm(self, name: str, config: Mapping[str, str]) -> None:
        resolved = self._resolver.transform(config)
        if resolved.ttl_ms is None:
            return
        digest = hashlib.sha256(json.dumps(resolved.props, sort_keys=True).encode()).digest()
        watched = self._watched[name] = _Watched(config, digest, resolved.ttl_ms)
        self._queue.put(partial(self._look, name, watched), resolved.ttl_ms / 1000)

    def _look(self, name: str, watched: _Watched) -> None:
        if self._watched.get(name) is not watched:
            return
        del self._watched[name]
        try:
            self._arm(name, watched.config)
        except ConnectError as error:
            log.warning(
                "values of connector %s cannot be looked at again (%s); it goes on with the old ones", name, error
            )
            self._watched[name] = watched
            self._queue.put(partial(self._look, name, watched), watched.ttl_ms / 1000)
            return
        now = self._watched.get(name)
        if now is not None and now.digest == watched.digest:
            return
        log.info("values of config providers have changed: connector %s restarts", name)
        if not self._restart(name):
            self._watched.pop(name, None)
