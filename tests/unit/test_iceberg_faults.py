from __future__ import annotations

import os
from pathlib import Path

import pytest

from connect_py.api.errors import CommitStateUnknownError
from connectors.iceberg.errors import CatalogUnavailableError, TableForbiddenError
from connectors.iceberg.protocol.faults import (
    FaultInjected,
    fault_point,
    parse_faults,
    read_environment_again,
)


@pytest.fixture(autouse=True)
def _faults_are_off_afterwards(monkeypatch: pytest.MonkeyPatch) -> object:
    yield
    monkeypatch.undo()
    read_environment_again()


def test_point_does_nothing_unless_the_environment_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CONNECT_PY_FAULTS", raising=False)
    read_environment_again()
    fault_point("before_compare_and_swap")


def test_point_acts_at_the_named_hit_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONNECT_PY_FAULTS", "a=raise@2, b=raise@2+")
    read_environment_again()
    fault_point("a")
    with pytest.raises(FaultInjected, match="a"):
        fault_point("a")
    fault_point("a")
    fault_point("b")
    for _ in range(2):
        with pytest.raises(FaultInjected):
            fault_point("b")


def test_every_hit_is_recorded_for_the_test_to_see(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log = tmp_path / "hits"
    monkeypatch.setenv("CONNECT_PY_FAULTS_LOG", str(log))
    read_environment_again()
    fault_point("a")
    fault_point("a")
    assert log.read_text() == f"a 1 {os.getpid()}\na 2 {os.getpid()}\n"


@pytest.mark.parametrize(
    "spec", ["a", "a=explode", "a=delay", "a=kill:5", "a=raise@x", "a=delay:soon", "a=raise:x"]
)
def test_unreadable_fault_plan_raises_an_error(spec: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_faults(spec)


@pytest.mark.parametrize(("action", "signal"), [("kill", 9), ("stop", 19)])
def test_process_ends_or_sleeps_at_the_point(action: str, signal: int) -> None:
    child = os.fork()
    if child == 0:
        os.environ["CONNECT_PY_FAULTS"] = f"a={action}"
        read_environment_again()
        fault_point("a")
        os._exit(0)
    _, status = os.waitpid(child, os.WUNTRACED)
    if action == "kill":
        assert os.WTERMSIG(status) == signal
    else:
        assert os.WSTOPSIG(status) == signal
        os.kill(child, 9)
        os.waitpid(child, 0)


@pytest.mark.parametrize(
    ("word", "error"),
    [
        ("unknown", CommitStateUnknownError),
        ("unavailable", CatalogUnavailableError),
        ("forbidden", TableForbiddenError),
        ("full", OSError),
    ],
)
def test_point_raises_what_the_world_would(
    word: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONNECT_PY_FAULTS", f"a=raise:{word}")
    read_environment_again()
    with pytest.raises(error, match="injected at a"):
        fault_point("a")


def test_fault_plan_file_is_reread_and_each_item_acts_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plan = tmp_path / "plan"
    monkeypatch.setenv("CONNECT_PY_FAULTS", f"@{plan}")
    read_environment_again()
    fault_point("a")
    plan.write_text("a=raise@2")
    fault_point("a")
    with pytest.raises(FaultInjected):
        fault_point("a")
    read_environment_again()  # as another process does
    for _ in range(3):
        fault_point("a")
    os.utime(plan, ns=(1, 1))  # rewritten
    fault_point("a")
    with pytest.raises(FaultInjected):
        fault_point("a")
    plan.unlink()
    for _ in range(3):
        fault_point("a")
