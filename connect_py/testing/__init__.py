"""Test support for plugin authors.

The package contains fakes, which are backed by plain data and record requests. It also contains a
function that verifies that the row form (`apply`) and the columnar form (`apply_batch`) of a
transformation agree.

    context = FakeSinkTaskContext(topics={"orders": 2})
    task.initialize(context)
    task.start({"file": "x"})
    task.open(context.assign(TopicPartition("orders", 0)))
    task.put([sink_record("orders", value="a", offset=0)])
"""

from __future__ import annotations

from connect_py.testing.batch_form import check_batch_form
from connect_py.testing.contexts import (
    FakeConnectorContext,
    FakeOffsetStorageReader,
    FakeSinkTaskContext,
    FakeSourceTaskContext,
    FakeTransactionContext,
    FakeWaiting,
)
from connect_py.testing.fakes import (
    FakeClock,
    FakeErrantRecordReporter,
    FakeMeasurement,
    FakePluginMetrics,
    sink_record,
)
from connect_py.testing.services import FakeSharedServices

__all__ = [
    "FakeClock",
    "FakeConnectorContext",
    "FakeErrantRecordReporter",
    "FakeMeasurement",
    "FakeOffsetStorageReader",
    "FakePluginMetrics",
    "FakeSharedServices",
    "FakeSinkTaskContext",
    "FakeSourceTaskContext",
    "FakeTransactionContext",
    "FakeWaiting",
    "check_batch_form",
    "sink_record",
]
