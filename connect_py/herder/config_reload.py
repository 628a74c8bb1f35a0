"""`ConfigReload`: looks at values of config providers again when their time is over, and restarts
who uses others."""

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
from connect_py.herder.request_queue import RequestQueue

log = logging.getLogger(__name__)

ACTION = "config.action.reload"  # of a connector: none or restart


@dataclass(frozen=True, slots=True)
class _Answer:
    """What providers say of a configuration. Of its resolved values only a digest is kept."""

    digest: bytes
    ttl_ms: int | None  # None: the values hold for ever


@dataclass(frozen=True, slots=True, eq=False)
class _Watched:
    """A configuration in use."""

    config: Mapping[str, str]  # unresolved
    answer: _Answer | None = None  # None: it is waited for


Heard: TypeAlias = "Callable[[str, _Watched, _Answer | Exception], None]"


def _on_a_thread(question: Callable[[], None]) -> None:
    threading.Thread(target=question, name="config-reload", daemon=True).start()


class ConfigReload:
    """Belongs to the herder's thread. One timer for each connector that runs here, or has tasks
    here.

    Providers may take their time: they are asked on other threads, and their answers come back
    through the queue.
    """

    def __init__(
        self,
        resolver: ConfigResolver,
        queue: RequestQueue,
        restart: Callable[[str], bool],
        begin: Callable[[Callable[[], None]], None] = _on_a_thread,
    ) -> None:
        """Prepare.

        Args:
            restart: Restarts all of a connector that is here; False when nothing is.
            begin: Has a question asked elsewhere, and returns at once.
        """
        self._resolver = resolver
        self._queue = queue
        self._restart = restart
        self._begin = begin
        self._watched: dict[str, _Watched] = {}

    def watch(self, name: str, config: Mapping[str, str]) -> None:
        """A connector or one of its tasks starts with this configuration, unresolved. Returns at
        once.

        The first start counts: what starts later, with newer values, leaves the others to be
        restarted.
        """
        known = self._watched.get(name)
        if known is not None and known.config == config:
            return
        self._watched.pop(name, None)
        if config.get(
            ACTION, "restart"
        ).strip().lower() == "none" or not self._resolver.placeholder_keys(config):
            return
        watched = self._watched[name] = _Watched(config)
        self._ask(name, watched, self._first_heard)

    def _ask(self, name: str, watched: _Watched, heard: Heard) -> None:
        def question() -> None:
            answer: _Answer | Exception
            try:
                resolved = self._resolver.transform(watched.config)
                digest = hashlib.sha256(
                    json.dumps(resolved.props, sort_keys=True).encode()
                ).digest()
                answer = _Answer(digest, resolved.ttl_ms)
            except Exception as error:  # noqa: BLE001 - the herder's thread gets it
                answer = error
            self._queue.put(partial(heard, name, watched, answer))

        self._begin(question)

    def _first_heard(self, name: str, watched: _Watched, answer: _Answer | Exception) -> None:
        if self._watched.get(name) is not watched:
            return
        if isinstance(answer, Exception):
            log.debug("values of connector %s cannot be resolved now", name)  # its start says so
            del self._watched[name]
        else:
            self._arm(name, watched, answer)

    def _arm(self, name: str, watched: _Watched, answer: _Answer) -> None:
        """Look again when the values' time is over; not at all if they have none."""
        if answer.ttl_ms is None:
            del self._watched[name]
            return
        now = self._watched[name] = _Watched(watched.config, answer)
        self._queue.put(partial(self._look, name, now), answer.ttl_ms / 1000)

    def _look(self, name: str, watched: _Watched) -> None:
        if self._watched.get(name) is watched:
            self._ask(name, watched, self._heard_again)

    def _heard_again(self, name: str, watched: _Watched, answer: _Answer | Exception) -> None:
        known = watched.answer
        if self._watched.get(name) is not watched or known is None:
            return
        if isinstance(answer, Exception):
            log.warning(
                "values of connector %s cannot be looked at again (%s); it goes on with the old "
                "ones",
                name,
                answer,
            )
            self._arm(name, watched, known)
            return
        self._arm(name, watched, answer)
        if answer.ttl_ms is not None and answer.digest == known.digest:
            return
        log.info("values of config providers have changed: connector %s restarts", name)
        if not self._restart(name):
            self._watched.pop(name, None)
