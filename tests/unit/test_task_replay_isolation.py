"""A replay topic determines the isolation level of all topics, with a warning if the user set
another one.
"""

from __future__ import annotations

import pytest

from connect_py.model import ConnectorTaskId, TargetState
from connect_py.task.messages import TaskSpec
from connect_py.task.task_main import _warn_of_isolation

LEVEL = "isolation.level"


@pytest.mark.parametrize(
    ("worker", "connector", "warned"),
    [
        ({}, {}, False),
        ({}, {f"consumer.override.{LEVEL}": "read_committed"}, False),
        ({}, {f"consumer.override.{LEVEL}": "read_uncommitted"}, True),
        ({f"consumer.{LEVEL}": "read_uncommitted"}, {}, True),
        (
            {f"consumer.{LEVEL}": "read_uncommitted"},
            {f"consumer.override.{LEVEL}": "read_committed"},
            False,
        ),
    ],
)
def test_an_isolation_level_that_is_overruled_is_told(
    caplog: pytest.LogCaptureFixture,
    worker: dict[str, str],
    connector: dict[str, str],
    warned: bool,
) -> None:
    _warn_of_isolation(
        TaskSpec(ConnectorTaskId("c", 0), worker, connector, {}, TargetState.STARTED, 0, ())
    )
    assert ("instead of read_uncommitted" in caplog.text) == warned
