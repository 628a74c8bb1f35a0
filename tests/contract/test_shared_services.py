"""Shared services: the contract of every `SharedServices`, including the fake for plugin authors,
and additional behavior of the worker.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import psutil
import pytest
from fixtures.echo_service import ask
from fixtures.service_plugins import echo

from connect_py.api.errors import ConnectError, RetriableError
from connect_py.api.service import ServiceAddress, SharedService, SharedServices
from connect_py.task.worker_client import TaskStoppedError
from connect_py.testing import FakeSharedServices
from connect_py.worker.local_services import LocalServices
from connect_py.worker.service_registry import FOLDER_PREFIX, ServiceRegistry
from connect_py.worker.service_runner import ServiceTimes

SECONDS = 20.0
TIMES = ServiceTimes(
    first_backoff=0.1, longest_backoff=0.4, grace=1.0, linger=0.2, early=3.0, prestart=6.0
)
TESTS = Path(__file__).parents[1]


class Host(Protocol):
    """A worker, as far as services go."""

    def user(self) -> SharedServices: ...

    def end(self, user: Any) -> None: ...


class RegistryHost:
    """The worker's own, without processes between a user and the registry."""

    def __init__(self, folder: Path) -> None:
        self.registry = ServiceRegistry(2, times=TIMES, folder=folder)

    def user(self) -> LocalServices:
        return LocalServices(
            "task orders-0", {"connect_py.echo.a": "1", "other": "2"}, self.registry
        )

    def end(self, user: Any) -> None:
        user.close()


class FakeHost:
    def __init__(self) -> None:
        self.first = FakeSharedServices(settings={"connect_py.echo.a": "1", "other": "2"})

    def user(self) -> FakeSharedServices:
        return self.first.user()

    def end(self, user: Any) -> None:
        user.release_all()


@pytest.fixture(autouse=True)
def _programs_find_the_fixtures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(TESTS), prepend=os.pathsep)


@pytest.fixture
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryHost]:
    host = RegistryHost(tmp_path_factory.mktemp("s"))
    yield host
    host.registry.close()


@pytest.fixture(params=["worker", "fake"])
def host(request: pytest.FixtureRequest) -> Iterator[Host]:
    if request.param == "worker":
        yield request.getfixturevalue("worker")
        return
    fake = FakeHost()
    yield fake
    fake.first.close()


def pid_of(address: ServiceAddress) -> int:
    return int(ask(address).split()[0])


def gone(pid: int, seconds: float = SECONDS) -> bool:
    """Return True if a process ends within this time."""
    deadline = time.monotonic() + seconds
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def test_two_users_of_equal_services_share_one_process(host: Host) -> None:
    one, other = host.user(), host.user()
    one.request_shared_service(echo({"mark": "x"}))
    first = one.shared_service(echo({"mark": "x"}))
    second = other.shared_service(echo({"mark": "x"}))
    assert first == second
    assert ask(first).split()[1] == "x"
    assert ask(ServiceAddress(first.socket, first.secret, 0), "secret") == ask(second, "secret")


def test_service_with_other_settings_runs_in_another_process(host: Host) -> None:
    user = host.user()
    assert pid_of(user.shared_service(echo())) != pid_of(user.shared_service(echo({"mark": "x"})))


def test_service_socket_is_private_and_requires_the_secret(host: Host) -> None:
    address = host.user().shared_service(echo())
    with pytest.raises(ConnectionResetError):
        ask(ServiceAddress(address.socket, "guess", 1))
    folder = Path(address.socket).parent.stat()
    assert folder.st_mode & 0o077 == 0
    assert folder.st_uid == os.getuid()


def test_user_gets_the_new_address_after_a_service_death(host: Host) -> None:
    user = host.user()
    first = user.shared_service(echo())
    dead = pid_of(first)
    os.kill(dead, signal.SIGKILL)
    second = user.shared_service(echo(), broken=first.generation)
    assert second.generation > first.generation
    assert second.secret != first.secret
    assert pid_of(second) != dead


def test_user_with_a_broken_connection_gets_the_same_address_again(host: Host) -> None:
    user = host.user()
    first = user.shared_service(echo())
    assert user.shared_service(echo(), broken=first.generation) == first


def test_the_last_user_ends_the_service(host: Host) -> None:
    one, other = host.user(), host.user()
    pid = pid_of(one.shared_service(echo()))
    other.request_shared_service(echo())
    host.end(one)
    assert not gone(pid, 0.8)
    host.end(other)
    assert gone(pid)


def test_a_service_can_be_released_and_asked_for_again(host: Host) -> None:
    user = host.user()
    pid = pid_of(user.shared_service(echo()))
    user.release_shared_service(echo())
    assert gone(pid)
    assert pid_of(user.shared_service(echo())) != pid


def test_permanent_failure_raises_its_text_and_a_new_request_retries(
    host: Host, tmp_path: Path
) -> None:
    starts = tmp_path / "starts"
    failing = echo({"fail": "Java 17 is not installed", "count.starts": str(starts)})
    user = host.user()
    for count in (1, 2):
        with pytest.raises(ConnectError, match="Java 17 is not installed") as raised:
            user.shared_service(failing)
        assert not isinstance(raised.value, RetriableError)
        assert len(starts.read_text().splitlines()) == count


def test_service_that_does_not_start_raises_a_retriable_error(host: Host, tmp_path: Path) -> None:
    switch = tmp_path / "switch"
    switch.touch()
    dying = echo({"die.while": str(switch)})
    user = host.user()
    with pytest.raises(RetriableError, match="service echo was not ready"):
        user.shared_service(dying, timeout_seconds=1.5)
    switch.unlink()

    def up() -> bool:
        try:
            return pid_of(user.shared_service(dying, timeout_seconds=2.0)) > 0
        except RetriableError:
            return False

    until(up, "the service never came up")


def test_settings_of_the_worker_are_found_by_prefix(host: Host) -> None:
    assert host.user().worker_settings("connect_py.echo.") == {"connect_py.echo.a": "1"}


def test_prints_of_a_program_do_not_disturb_the_contract(host: Host) -> None:
    user = host.user()
    address = user.shared_service(echo())
    assert ask(address, 'print {"failed": "no"}')
    assert user.shared_service(echo()) == address


# Additional behavior of the worker.


def test_secrets_appear_neither_in_process_list_nor_in_log(
    worker: RegistryHost, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    service = echo({"password": "s3cr3t-s3tting"})
    address = worker.user().shared_service(service)
    process = psutil.Process(pid_of(address))
    seen = " ".join(
        [*process.cmdline(), *process.environ().values(), repr(service), repr(address), caplog.text]
    )
    assert "fixtures.echo_service" in seen
    for secret in ("s3cr3t-s3tting", address.secret):
        assert secret not in seen


def test_service_that_dies_repeatedly_is_started_again_with_backoff(
    worker: RegistryHost, tmp_path: Path
) -> None:
    switch, starts = tmp_path / "switch", tmp_path / "starts"
    switch.touch()
    dying = echo({"die.while": str(switch), "count.starts": str(starts)})
    worker.user().request_shared_service(dying)
    until(
        lambda: starts.exists() and len(starts.read_text().splitlines()) >= 3,
        "it was not started again",
    )
    values = {s.name: s.value for s in worker.registry.samples()}
    assert values["connect_py_service_starts_total"] >= 3
    assert values["connect_py_service_deaths_total"] >= 2
    assert (values["connect_py_service_users"], values["connect_py_service_up"]) == (1, 0)


def test_metrics_of_a_service_disappear_with_its_process(worker: RegistryHost) -> None:
    def found() -> dict[str, float]:
        return {s.name: s.value for s in worker.registry.samples() if "instance" in s.tags}

    user = worker.user()
    ask(user.shared_service(echo()), "report 42")
    until(lambda: found() == {"connect_py_service_lines_total": 42.0}, "the report did not come")
    worker.end(user)
    until(lambda: not found(), "the report stayed")


def test_log_lines_come_with_the_connector_they_are_about(
    worker: RegistryHost, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    address = worker.user().shared_service(echo())
    ask(address, "log the cycle waits")
    ask(address, "print something else")

    def record(name: str) -> Any:
        return next((r for r in caplog.records if r.name == name), None)

    until(lambda: record("echo") and record("connect_py.service.echo"), "lines are missing")
    assert record("echo").getMessage() == "the cycle waits"
    assert record("echo").levelno == logging.WARNING
    assert record("echo").context.connector == "orders"
    assert record("connect_py.service.echo").getMessage() == "something else"


def test_what_a_service_started_ends_with_it(worker: RegistryHost) -> None:
    user = worker.user()
    address = user.shared_service(echo())
    child = int(ask(address, "child"))
    os.kill(pid_of(address), signal.SIGKILL)
    assert gone(child)


def test_service_that_does_not_end_is_killed_after_the_timeout(worker: RegistryHost) -> None:
    user = worker.user()
    pid = pid_of(user.shared_service(echo({"hang.at.end": "yes"})))
    worker.end(user)
    assert not gone(pid, 0.5)
    assert gone(pid, 5.0)


def test_a_program_that_breaks_its_promise_of_lines_is_replaced(worker: RegistryHost) -> None:
    user = worker.user()
    silent = echo({"silence.seconds": "1"})
    first = user.shared_service(silent)
    pid = pid_of(first)
    os.kill(pid, signal.SIGSTOP)
    assert gone(pid)
    until(lambda: user.shared_service(silent).generation > first.generation, "it was not replaced")


def test_service_requested_early_is_reused_and_ends_with_its_user(
    worker: RegistryHost, tmp_path: Path
) -> None:
    starts = tmp_path / "starts"
    early = worker.registry.user("connector orders")
    service = echo({"count.starts": str(starts)})
    worker.registry.request(early, service, hold=False)
    until(lambda: starts.exists() and starts.read_text(), "it was not started")
    pid = int(starts.read_text())
    user = worker.user()
    assert pid_of(user.shared_service(service)) == pid
    worker.end(user)
    assert gone(pid)


def test_prestarted_service_is_reused_by_its_first_user_and_ends_with_it(
    worker: RegistryHost, tmp_path: Path
) -> None:
    starts = tmp_path / "starts"
    service = echo({"count.starts": str(starts)})
    worker.registry.prestart(worker.registry.user("connector orders"), service)
    until(lambda: starts.exists() and starts.read_text(), "it was not started")
    user = worker.user()
    pid = pid_of(user.shared_service(service))
    assert pid == int(starts.read_text())
    assert not gone(pid, TIMES.prestart + 0.5)  # its user needs it for longer than that
    worker.end(user)
    assert gone(pid)


def test_prestarted_service_without_a_user_ends_after_its_time(
    worker: RegistryHost, tmp_path: Path
) -> None:
    starts = tmp_path / "starts"
    worker.registry.prestart(
        worker.registry.user("connector orders"), echo({"count.starts": str(starts)})
    )
    until(lambda: starts.exists() and starts.read_text(), "it was not started")
    pid = int(starts.read_text())
    assert not gone(pid, TIMES.prestart / 2)
    assert gone(pid, TIMES.prestart + TIMES.grace)
    assert ServiceTimes().prestart == 600.0


def test_prestarted_service_gives_its_place_to_one_that_is_needed(
    worker: RegistryHost, tmp_path: Path
) -> None:
    starts = [tmp_path / "a", tmp_path / "b", tmp_path / "c"]
    services = [echo({"count.starts": str(path)}) for path in starts]
    for service in services:  # the third is beyond the limit of two
        worker.registry.prestart(worker.registry.user("connector orders"), service)
    until(
        lambda: all(path.exists() and path.read_text() for path in starts[:2]),
        "they were not started",
    )
    users = [worker.user(), worker.user()]
    pids = [
        pid_of(user.shared_service(echo({"mark": mark})))
        for user, mark in zip(users, "xy", strict=True)
    ]
    assert all(gone(int(path.read_text())) for path in starts[:2])
    assert not starts[2].exists()
    assert all(map(psutil.pid_exists, pids))
    with pytest.raises(ConnectError, match=r"connect_py\.services\.max"):
        worker.user().shared_service(echo({"mark": "z"}))  # both places are in use now


def test_service_requested_while_it_ends_is_started_again(worker: RegistryHost) -> None:
    user, other = worker.user(), worker.user()
    slow = echo({"hang.at.end": "yes"})
    pid = pid_of(user.shared_service(slow))
    worker.end(user)
    time.sleep(0.5)  # its standard input is closed by now
    assert pid_of(other.shared_service(slow)) != pid
    assert gone(pid, 0.1)  # never two at once


def test_more_services_of_a_name_than_allowed_are_refused(worker: RegistryHost) -> None:
    user = worker.user()
    for mark in "ab":
        user.request_shared_service(echo({"mark": mark}))
    with pytest.raises(ConnectError, match=r"connect_py\.services\.max"):
        user.shared_service(echo({"mark": "c"}))
    user.release_shared_service(echo({"mark": "a"}))
    until(
        lambda: len({t.name for t in threading.enumerate() if t.name == "service-echo"}) <= 2,
        "it did not end",
    )

    def fits() -> bool:
        try:
            return pid_of(user.shared_service(echo({"mark": "c"}))) > 0
        except ConnectError:
            return False

    until(fits, "the place was not free again")


def test_a_service_may_have_a_lower_limit_of_its_own(
    worker: RegistryHost, caplog: pytest.LogCaptureFixture
) -> None:
    user = worker.user()

    def limited(mark: str) -> SharedService:
        return SharedService(
            "echo", "fixtures.echo_service", {"mark": mark}, "connect_py.echoes.max", 1
        )

    user.request_shared_service(limited("a"))
    with pytest.raises(ConnectError, match=r"connect_py\.echoes\.max"):
        user.shared_service(limited("b"))
    user.request_shared_service(echo({"mark": "c"}))  # the worker's own limit is higher
    assert "its own settings" not in caplog.text
    two = SharedService("echo", "fixtures.echo_service", {"mark": "d"}, "connect_py.echoes.max", 3)
    user.request_shared_service(two)
    assert (
        "has its own settings for service echo: starting process 3 of at most 3 on this worker"
        in caplog.text
    )


@pytest.mark.parametrize(
    ("service", "why"),
    [
        (
            SharedService("echo", "fixtures.no_such_program"),
            "module fixtures.no_such_program not found",
        ),
        (
            SharedService("echo", "no_such_package.program"),
            "module no_such_package.program not found",
        ),
        (SharedService("No Name", "fixtures.echo_service"), "invalid service name"),
    ],
)
def test_a_service_that_cannot_be_is_refused(
    worker: RegistryHost, service: SharedService, why: str
) -> None:
    with pytest.raises(ConnectError, match=why):
        worker.user().shared_service(service)


def test_failure_of_a_requested_service_reaches_its_first_user(
    worker: RegistryHost, tmp_path: Path
) -> None:
    starts = tmp_path / "starts"
    failing = echo({"fail": "no Java", "count.starts": str(starts)})
    user = worker.user()
    user.request_shared_service(failing)
    until(starts.exists, "it was not started")
    time.sleep(0.5)
    with pytest.raises(ConnectError, match="no Java"):
        user.shared_service(failing)
    assert len(starts.read_text().splitlines()) == 1


def test_who_waits_for_a_service_notices_a_stop(worker: RegistryHost, tmp_path: Path) -> None:
    switch = tmp_path / "switch"
    switch.touch()
    user = worker.user()
    stopper = threading.Timer(0.3, user.stop)
    stopper.start()
    with pytest.raises(TaskStoppedError) as raised:
        user.shared_service(echo({"die.while": str(switch)}))
    assert isinstance(raised.value, RetriableError)
    stopper.join()


def test_closing_ends_every_service_and_leaves_no_folder(worker: RegistryHost) -> None:
    address = worker.user().shared_service(echo())
    pid = pid_of(address)
    worker.registry.close()
    assert gone(pid, 0.1)
    assert not Path(address.socket).parent.exists()
    with pytest.raises(RetriableError, match="the worker is stopping"):
        worker.user().shared_service(echo())


def test_only_service_folders_of_killed_workers_are_removed(
    worker: RegistryHost, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = Path(worker.user().shared_service(echo()).socket).parent
    abandoned = folder.parent / f"{FOLDER_PREFIX}1-x"
    abandoned.mkdir()
    (abandoned / "1.socket").touch()
    other = RegistryHost(folder.parent)
    other.user().shared_service(echo())
    assert folder.exists()
    assert not abandoned.exists()
    other.registry.close()
    worker.registry.close()
    assert not list(folder.parent.iterdir())
