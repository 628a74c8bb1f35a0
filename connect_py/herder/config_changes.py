"""`ConfigChanges`: applies config topic updates to this worker."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from connect_py.herder.local_work.status_cleanup import StatusCleanup
from connect_py.herder.local_work.work_runner import WorkRunner
from connect_py.herder.logger_levels import LoggerLevels
from connect_py.herder.requests.restart_requests import RestartRequests
from connect_py.herder.thread.herder_thread import Startup
from connect_py.herder.thread.request_queue import RequestQueue
from connect_py.storage.config_state import (
    Change,
    LoggerLevelRequested,
    RestartRequested,
    SessionKey,
    SessionKeyChanged,
    TargetStateChanged,
)

log = logging.getLogger(__name__)


class ConfigChanges:
    """Passes changes from the config topic's reader thread to the herder's thread."""

    def __init__(
        self,
        startup: Startup,
        queue: RequestQueue,
        changed: threading.Event,
        restarts: RestartRequests,
        loggers: LoggerLevels,
        work: WorkRunner,
        cleanup: StatusCleanup,
        on_session_key: Callable[[SessionKey], None],
    ) -> None:
        """Create the component.

        Args:
            changed: Event that is set while the running connectors and tasks may differ from the
                configured ones.
            on_session_key: Called on the reader's thread with each new session key.
        """
        self._startup = startup
        self._queue = queue
        self._changed = changed
        self._restarts = restarts
        self._loggers = loggers
        self._work = work
        self._cleanup = cleanup
        self._on_session_key = on_session_key

    def add(self, changes: Sequence[Change]) -> None:
        """Process changes from the config topic. Called on the reader's thread."""
        for change in changes:
            if isinstance(change, SessionKeyChanged):
                self._on_session_key(change.key)
        is_current = self._startup.complete.is_set()  # requests read during startup are outdated
        for change in changes:
            if isinstance(change, RestartRequested) and is_current:
                self._restarts.add_pending(change.request)
            if isinstance(change, LoggerLevelRequested) and is_current:
                self._loggers.set(change.logger, change.level)
            if isinstance(change, TargetStateChanged):
                log.debug("target state of connector %s changed", change.name)
        self._changed.set()
        self._queue.wake()

    def apply(self) -> None:
        """Process due requests and restarts, then apply configuration changes.

        Called on the herder's thread in each iteration.
        """
        for action in self._queue.due():
            action()
        self._restarts.run_pending()
        if self._changed.is_set():
            self._changed.clear()
            self._work.reconcile()
            self._cleanup.clean_up()
