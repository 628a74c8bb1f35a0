"""`FakeSharedServices`: shared services that run as child processes or have fixed addresses."""

from __future__ import annotations

import itertools
import json
import os
import secrets
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from multiprocessing import Pipe
from pathlib import Path
from typing import Final

from connect_py.api.errors import ConnectError, RetriableError
from connect_py.api.service import (
    EXIT_FAILED,
    WAIT_SECONDS,
    ServiceAddress,
    ServiceFailed,
    ServiceReady,
    ServiceStart,
    SharedService,
)
from connect_py.process.channel import Channel
from connect_py.process.child_process import ChildProcess

_GRACE_SECONDS: Final = 5.0
_MAIN: Final = ("-P", "-m", "connect_py.worker.service_main")


class _FakeServiceProcess:
    """One service, run as a child process of the test.

    After the process has exited, the next request starts it again.
    """

    def __init__(self, service: SharedService, folder: Path, generations: Iterable[int]) -> None:
        self.users: set[FakeSharedServices] = set()
        self.failed: str | None = None
        self._service = service
        self._folder = folder
        self._generations = iter(generations)
        self._process: ChildProcess | None = None
        self._channel: Channel | None = None
        self._address: ServiceAddress | None = None
        self._ready = threading.Event()
        self._lock = threading.RLock()  # several threads may request the next process

    def start(self) -> None:
        """Start the program unless it is running."""
        with self._lock:
            if self._process is not None and self._process.status is None:
                return
            self.stop()
            generation = next(self._generations)
            address = ServiceAddress(
                str(self._folder / f"{generation}.socket"), secrets.token_hex(16), generation
            )
            self.failed, self._address, self._ready = None, address, threading.Event()
            ours, theirs = Pipe()
            with theirs:
                self._process = ChildProcess(
                    [sys.executable, *_MAIN, str(theirs.fileno()), self._service.program],
                    None,
                    connection=theirs,
                )
            channel = self._channel = Channel(ours, name="fake-service")
            channel.notify(ServiceStart(address.socket, address.secret, self._service.settings))
            reasons: list[str] = []
            channel.start_reading(
                partial(self._process_message, self._ready, reasons),
                partial(self._ended, self._process, self._ready, reasons),
            )

    def _process_message(self, ready: threading.Event, reasons: list[str], message: object) -> None:
        match message:
            case ServiceReady():
                ready.set()
            case ServiceFailed(reason):
                reasons.append(reason)

    def _ended(self, process: ChildProcess, ready: threading.Event, reasons: Sequence[str]) -> None:
        process.wait()
        if reasons and process.status == EXIT_FAILED:
            self.failed = reasons[-1]
        ready.set()

    def address(self, broken: int | None, timeout_seconds: float) -> ServiceAddress:
        """Wait until the program is listening, and return its address.

        Raises the same errors as `shared_service`.
        """
        if (
            self._process is not None
            and self._address is not None
            and self._address.generation == broken
        ):
            self._process.wait(1.0)
        with self._lock:
            if self.failed is None:
                self.start()
            ready, process, address = self._ready, self._process, self._address
        assert process is not None
        assert address is not None
        in_time = ready.wait(timeout_seconds)
        if (failed := self.failed) is not None:
            self.failed = None
            raise ConnectError(failed)
        if not in_time or process.status is not None:
            raise RetriableError(f"service {self._service.name} was not ready")
        return address

    def stop(self) -> None:
        """Stop the program."""
        process, self._process = self._process, None
        channel, self._channel = self._channel, None
        if process is None or channel is None:
            return
        channel.end()
        if not process.wait(_GRACE_SECONDS):
            process.kill()
        channel.close()


class FakeSharedServices:
    """Shared services for one user, which run as child processes of the test.

    Services in `addresses` are not started; `shared_service` returns their addresses by name.

    Use the object in a `with` block or call `close`, which stops all running programs. `user`
    creates another user of the same programs. `requested` contains the requested services in order.
    """

    def __init__(
        self,
        addresses: Mapping[str, ServiceAddress] | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Create the services. `settings` are the worker's properties."""
        self.addresses = dict(addresses or {})
        self.settings = dict(settings or {})
        self.requested: list[SharedService] = []
        self._lock = threading.RLock()
        self._generations = itertools.count(1)
        self._folder: Path | None = None
        self._running: dict[str, _FakeServiceProcess] = {}
        self._first = self

    def user(self) -> FakeSharedServices:
        """Return the services for another user, for example another task on the same worker.

        Call `release_all` on the returned object when that user ends.
        """
        other = FakeSharedServices(self.addresses, self.settings)
        other._first = self._first
        return other

    def shared_service(
        self,
        service: SharedService,
        *,
        broken: int | None = None,
        timeout_seconds: float = WAIT_SECONDS,
    ) -> ServiceAddress:
        """See `SharedServices`."""
        self.requested.append(service)
        if service.name in self.addresses:
            return self.addresses[service.name]
        try:
            return self._used(service).address(broken, timeout_seconds)
        except RetriableError:
            raise
        except ConnectError:
            self.release_shared_service(service)
            raise

    def request_shared_service(self, service: SharedService) -> None:
        """See `SharedServices`."""
        self.requested.append(service)
        if service.name not in self.addresses:
            self._used(service).start()

    def release_shared_service(self, service: SharedService) -> None:
        """See `SharedServices`."""
        with self._first._lock:
            self._leave(self._key(service))

    def worker_settings(self, prefix: str) -> Mapping[str, str]:
        """See `SharedServices`."""
        return {key: value for key, value in self.settings.items() if key.startswith(prefix)}

    def release_all(self) -> None:
        """Release all of this user's services, as a task does when it ends."""
        with self._first._lock:
            for key in list(self._first._running):
                self._leave(key)

    def close(self) -> None:
        """Stop all programs, including programs in use."""
        first = self._first
        with first._lock:
            for running in first._running.values():
                running.stop()
            first._running.clear()
            if first._folder is not None:
                shutil.rmtree(first._folder, ignore_errors=True)
                first._folder = None

    def __enter__(self) -> FakeSharedServices:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @staticmethod
    def _key(service: SharedService) -> str:
        return json.dumps([service.name, service.program, sorted(service.settings.items())])

    def _used(self, service: SharedService) -> _FakeServiceProcess:
        first = self._first
        with first._lock:
            if first._folder is None:
                first._folder = Path(tempfile.mkdtemp(prefix=f"connect-py-fake-{os.getpid()}-"))
            running = first._running.get(self._key(service))
            if running is None:
                running = _FakeServiceProcess(service, first._folder, first._generations)
                first._running[self._key(service)] = running
            running.users.add(self)
            return running

    def _leave(self, key: str) -> None:
        running = self._first._running.get(key)
        if running is None:
            return
        running.users.discard(self)
        if not running.users:
            del self._first._running[key]
            running.stop()


class ServicesOfContext:
    """Implements the context methods that request and release services."""

    services: FakeSharedServices

    def shared_service(
        self,
        service: SharedService,
        *,
        broken: int | None = None,
        timeout_seconds: float = WAIT_SECONDS,
    ) -> ServiceAddress:
        return self.services.shared_service(service, broken=broken, timeout_seconds=timeout_seconds)

    def request_shared_service(self, service: SharedService) -> None:
        self.services.request_shared_service(service)

    def release_shared_service(self, service: SharedService) -> None:
        self.services.release_shared_service(service)

    def worker_settings(self, prefix: str) -> Mapping[str, str]:
        return self.services.worker_settings(prefix)
