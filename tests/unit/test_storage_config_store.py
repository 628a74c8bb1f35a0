"""Writes of the config topic that fail."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from connect_py.api.errors import ConnectError
from connect_py.model import TargetState
from connect_py.storage.config_store import ConfigStore


def refused(*_: Any, **__: Any) -> None:
    raise ConnectError("Local: Message timed out")


# by anyone, and by the leader
@pytest.mark.parametrize(
    "write",
    [
        lambda store: store.put_target_state("orders", TargetState.PAUSED),
        lambda store: store.put_stop("orders"),
    ],
)
def test_failed_write_logs_one_line_and_raises_the_cause(
    write: Callable[[ConfigStore], None], caplog: pytest.LogCaptureFixture
) -> None:
    broken: Any = SimpleNamespace(write=refused)
    store = ConfigStore(
        "configs", cast(Any, SimpleNamespace(log=lambda *_, **__: broken)), broken, lambda _: None
    )
    with pytest.raises(ConnectError, match="Error writing target state to Kafka") as failed:
        write(store)
    assert isinstance(failed.value.__cause__, ConnectError)
    assert caplog.messages == ["failed to write the target state: Local: Message timed out"]
    assert caplog.records[0].exc_info is None
