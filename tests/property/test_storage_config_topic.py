"""The config topic under compaction and crashes: its remaining records are a valid task set or
none, never a mixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from connect_py.model import TargetState
from connect_py.storage import compact_json
from connect_py.storage.config_state import ClusterConfigState, ConfigTable, target_state_value

Record: TypeAlias = tuple[str, object]
NAMES = ("a", "a-1")
KINDS = (
    "config",
    "tasks",
    "pause",
    "resume",
    "stop",
    "delete",
    "fence",
    "restart",
    "session key",
    "logger level",
)
Operation: TypeAlias = tuple[str, str, int]

operations = st.lists(
    st.tuples(st.sampled_from(KINDS), st.sampled_from(NAMES), st.integers(0, 3)),
    max_size=25,
)


def records(history: list[Operation]) -> Iterator[Record]:
    """The records of each operation in the order in which they are written; values carry the
    operation's number."""
    for number, (kind, name, count) in enumerate(history):
        if kind == "config":
            yield f"connector-{name}", {"properties": {"v": str(number)}}
        elif kind == "tasks":
            for task in range(count):
                yield f"task-{name}-{task}", {"properties": {"v": str(number)}}
            yield f"commit-{name}", {"tasks": count}
        elif kind == "pause":
            yield f"target-state-{name}", target_state_value(TargetState.PAUSED)
        elif kind == "resume":
            yield f"target-state-{name}", target_state_value(TargetState.STARTED)
        elif kind == "stop":
            yield f"commit-{name}", {"tasks": 0}
            yield f"target-state-{name}", target_state_value(TargetState.STOPPED)
        elif kind == "delete":
            yield f"connector-{name}", None
            yield f"target-state-{name}", None
        elif kind == "fence":
            yield f"tasks-fencing-{name}", {"task-count": count}
        elif kind == "restart":
            yield f"restart-connector-{name}", {"include-tasks": True, "only-failed": False}
        elif kind == "session key":
            yield (
                "session-key",
                {"key": f"{number}", "algorithm": "HmacSHA256", "creation-timestamp": number},
            )
        else:
            yield f"logger-cluster-{name}", {"level": "debug"}


def read(log: list[tuple[int, Record]]) -> ClusterConfigState:
    table = ConfigTable()
    for offset, (key, value) in log:
        table.apply(offset, key.encode(), None if value is None else compact_json.encode(value))
    return table.snapshot()


@given(operations)
def test_task_sets_are_never_mixed_wherever_a_writer_dies(history: list[Operation]) -> None:
    log = list(enumerate(records(history)))
    for end in range(len(log) + 1):
        state = read(log[:end])
        for name in NAMES:
            versions = {config["v"] for config in state.all_task_configs(name)}
            assert len(versions) <= 1


@given(operations, st.data())
def test_compaction_loses_no_configuration_and_mixes_no_task_set(
    history: list[Operation], data: st.DataObject
) -> None:
    """Up to some offset only the last record of each key is left, and up to another one tombstones
    are gone as well."""
    log = list(enumerate(records(history)))
    clean = data.draw(st.integers(0, len(log)), label="compacted up to")
    bare = data.draw(st.integers(0, clean), label="without tombstones up to")
    last = {key: offset for offset, (key, _) in log[:clean]}
    kept = [
        (offset, (key, value))
        for offset, (key, value) in log
        if offset >= clean or (last[key] == offset and (value is not None or offset >= bare))
    ]
    whole, compacted = read(log), read(kept)
    assert compacted.configs == whole.configs
    assert compacted.session_key == whole.session_key
    assert compacted.task_count_records == whole.task_count_records
    for name in whole.configs:
        assert compacted.target_state(name) is whole.target_state(name)
        found = compacted.all_task_configs(name)
        # A commit before its connector's last record is not believed; the leader publishes again.
        assert found in ([], whole.all_task_configs(name))
        if found:
            assert compacted.start_numbers[name] == whole.start_numbers[name]
            assert compacted.applied_configs[name] in (
                whole.applied_configs[name],
                whole.configs[name],
            )
        if (
            name in whole.pending_fencing
            and name not in compacted.inconsistent
            and name in compacted.task_counts
        ):
            # a new task set never starts beside producers of the old one
            assert name in compacted.pending_fencing
