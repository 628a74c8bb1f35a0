"""Start of the fork server before the worker imports its own modules.

The server imports pyarrow and the modules of plugins, which takes as long as the imports of the
worker. This way, both use a processor at the same time.
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

    Call it once, before the worker runs and after it has become a daemon.
    """
    configure_logging()
    _raise_file_limit()  # the server and its children inherit it
    ForkServer(PluginRegistry.discover().preload()).start()


def _raise_file_limit() -> None:
    """Allow this process and its children to open as many files as possible, like Java."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft == resource.RLIM_INFINITY or soft >= limit:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    except (OSError, ValueError) as error:  # some systems have another limit below the hard limit
        log.warning("the limit of open files stays at %d: %s", soft, error)
    else:
        log.info("the limit of open files is raised from %d to %d", soft, limit)
