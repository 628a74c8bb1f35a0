"""Starts the fork server before the worker imports its own modules.

The server imports pyarrow and the modules of plugins, which takes as long as the worker's imports.
If the server is started first, both imports run at the same time.
"""

from __future__ import annotations

import logging
import resource
from typing import Final

from connect_py.log_output import configure_logging
from connect_py.plugins.plugin_registry import PluginRegistry
from connect_py.process.fork_server import ForkServer

_MOST_FILES: Final = 65_536

log = logging.getLogger(__name__)


def start_fork_server() -> None:
    """Start the server in the background.

    Call this function once, before the worker runs and after the process has become a daemon.
    """
    configure_logging()
    _raise_file_limit()  # the server and its children inherit the limit
    ForkServer(PluginRegistry.discover().preload()).start()


def _raise_file_limit() -> None:
    """Raise the limit on open files for this process and its children, as Java does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft == resource.RLIM_INFINITY or soft >= limit:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    except (OSError, ValueError) as error:  # some systems reject even the hard limit
        log.warning("failed to raise the limit on open files from %d: %s", soft, error)
    else:
        log.info("raised the limit on open files from %d to %d", soft, limit)
