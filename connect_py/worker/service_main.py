"""Runs the program of a shared service.

    python -P -m connect_py.worker.service_main DESCRIPTOR MODULE [LOCATION]

DESCRIPTOR is the file descriptor of a pipe to the worker. LOCATION is the `plugin.path` folder that
contains MODULE.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import sys
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from multiprocessing.connection import Connection
from typing import Any, NoReturn

from connect_py.api.service import EXIT_FAILED, ServiceFailed, ServiceReady, ServiceStart
from connect_py.log_context import log_context
from connect_py.plugins.plugin_location import add_location
from connect_py.process.channel import Channel
from connect_py.process.child_runtime import Heartbeat, relay_logs


class RunningProgram:
    """Implements `connect_py.api.service.ServiceProgram`."""

    def __init__(self, channel: Channel) -> None:
        """Wait for the worker's first message. Exit this process if the worker has exited."""
        self._channel = channel
        self._ending = threading.Event()
        starts: list[ServiceStart] = []
        if not channel.receive(starts.append):
            sys.exit(0)
        self.socket = starts[0].socket
        self.secret = starts[0].secret
        self.settings = starts[0].settings
        channel.start_reading(lambda _: None, on_end=self._ending.set)

    def ready(self, liveness_seconds: float | None = None) -> None:
        self._channel.notify(ServiceReady(liveness_seconds))

    def failed(self, reason: str) -> NoReturn:
        self._channel.notify(ServiceFailed(reason))
        logging.shutdown()
        os._exit(EXIT_FAILED)

    def report(self, metrics: Mapping[str, float]) -> None:
        self._channel.notify(Heartbeat(dict(metrics)))

    def log_context(self, connector: str) -> AbstractContextManager[None]:
        return log_context(connector, scope="service")

    def wait_for_end(self) -> None:
        self._ending.wait()


def main(descriptor: int, module: str, location: str | None = None) -> None:
    """Run the module's main function with a `ServiceProgram` that is connected to the worker."""
    os.set_inheritable(descriptor, False)
    connection: Connection[Any, Any] = Connection(descriptor)
    channel = Channel(connection, name="service")
    relay_logs(channel)
    program = RunningProgram(channel)
    if location is not None:
        add_location(location)
    try:
        exists = importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the parent package does not exist
        exists = False
    if not exists:
        program.failed(f"module {module} not found")
    importlib.import_module(module).main(program)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
