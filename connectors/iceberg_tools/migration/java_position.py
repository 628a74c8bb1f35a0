"""Position of a Java sink, derived from its tables, its consumer group, and its control topic.

The snapshots contain positions of the *control* topic instead of the source topics. The source
positions are the consumer group's offsets, which advance when tasks report their files, before the
files are committed to a table. If reported files were not committed, the group's offsets are past
rows that no table contains.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from connect_py.api.record import TopicPartition
from connect_py.plurals import pluralize
from connectors.iceberg.protocol.commit_request import COMMIT_ID_KEY, TASK_ID_KEY
from connectors.iceberg.table.table_history import TableHistory
from connectors.iceberg_tools.migration.java_event import DATA_COMPLETE, DATA_WRITTEN, JavaEvent

VALID_THROUGH_KEYS = ("kafka.connect.valid-through-ts", "kafka.connect.vtts")


@dataclass(frozen=True, slots=True)
class TableTrace:
    """Information that the Java sink left in one table."""

    table: str
    exists: bool = True
    # next offsets of the control topic by partition, or None if the sink never committed to the
    # table
    control: Mapping[int, int] | None = None
    snapshot: int | None = None
    commit: str | None = None
    by: str | None = None  # connector and task, if the summary contains them
    valid_through: str | None = None
    # False if older snapshots, which may contain a position, were expired
    complete: bool = True
    # whether this connector has already written to the table using this sink
    has_ledger: bool = False

    @staticmethod
    def of(history: TableHistory, key: str, ledger_group: str) -> TableTrace:
        """Return the trace from the newest ancestor whose summary has the key.

        Args:
            history: The snapshots of the table.
            key: `kafka.connect.offsets.<control topic>.<group>`.
            ledger_group: The connector's group in this sink. Ledgers of other connectors are
                ignored.
        """
        has_ledger_of_group = ledger_group in history.properties or any(
            ledger_group in s.groups for s in history.ancestors
        )
        for snapshot in history.ancestors:
            text = snapshot.summary.get(key)
            if text is not None:
                control = {
                    int(partition): int(offset) for partition, offset in json.loads(text).items()
                }
                through = next(
                    (snapshot.summary[k] for k in VALID_THROUGH_KEYS if k in snapshot.summary), None
                )
                return TableTrace(
                    history.table,
                    True,
                    control,
                    snapshot.id,
                    snapshot.summary.get(COMMIT_ID_KEY),
                    snapshot.summary.get(TASK_ID_KEY),
                    through,
                    history.complete,
                    has_ledger_of_group,
                )
        return TableTrace(history.table, complete=history.complete, has_ledger=has_ledger_of_group)


@dataclass(frozen=True, slots=True)
class JavaPosition:
    """Position at which this sink must start."""

    # next offsets that neither lose nor duplicate rows; empty if this sink already has ledgers
    offsets: Mapping[TopicPartition, int]
    in_group: bool  # True if the connector's group already has these offsets
    # number of events whose files were reported but never committed, by table
    uncommitted: Mapping[str, int]
    problems: tuple[str, ...] = ()  # reasons why the user must check the position


def find_position(
    traces: Iterable[TableTrace],
    events: Iterable[JavaEvent],
    source: Mapping[TopicPartition, int],
    connect: Mapping[TopicPartition, int],
) -> JavaPosition:
    """Determine the position.

    Args:
        traces: Traces of all tables of the connector, and of all tables in its events.
        events: Events from the sink's group in its control topic, in order within each partition.
        source: Offsets of the group that contains the source positions: the control group for
            Tabular's sink, otherwise the connect group.
        connect: Offsets of the group `connect-<name>`, at which this sink starts.
    """
    by_table = {trace.table: trace for trace in traces}
    tables_with_ledger = sorted(trace.table for trace in by_table.values() if trace.has_ledger)
    if tables_with_ledger:
        problem = (
            f"this sink has already written to {', '.join(tables_with_ledger)}; its ledgers are "
            "used, and nothing is imported"
        )
        return JavaPosition({}, in_group=True, uncommitted={}, problems=(problem,))
    events = list(events)
    uncommitted_events = [
        event
        for event in events
        if event.kind == DATA_WRITTEN and not _is_committed(event, by_table)
    ]
    if not uncommitted_events:
        return JavaPosition(source, in_group=dict(source) == dict(connect), uncommitted={})
    uncommitted = Counter(event.table or "?" for event in uncommitted_events)
    first: dict[int, int] = {}
    for event in uncommitted_events:
        first[event.partition] = min(event.offset, first.get(event.partition, event.offset))
    read_to = dict.fromkeys(source, -1)
    for event in events:
        if event.kind == DATA_COMPLETE and event.offset < first.get(
            event.partition, event.offset + 1
        ):
            for (topic, partition), offset in event.read_to.items():
                tp = TopicPartition(topic, partition)
                read_to[tp] = max(read_to.get(tp, -1), offset)
    problems = [
        f"table {name}: {pluralize(count, 'file report was', 'file reports were')} never committed"
        for name, count in sorted(uncommitted.items())
    ]
    ahead = [
        t.table
        for t in by_table.values()
        if any((t.control or {}).get(p, 0) > at for p, at in first.items())
    ]
    if ahead:
        problems.append(f"other tables are ahead ({', '.join(ahead)}) and would get duplicate rows")
    unchecked_tables = uncommitted.keys() - by_table.keys()
    if unchecked_tables:
        problems.append(f"tables that were not checked: {', '.join(sorted(unchecked_tables))}")
    checked = [by_table[name] for name in uncommitted.keys() - unchecked_tables]
    tables_without_position = sorted(
        trace.table for trace in checked if trace.control is None and not trace.complete
    )
    if tables_without_position:
        problems.append(
            "older snapshots were expired, so the committed position is unknown: "
            f"{', '.join(tables_without_position)}"
        )
    unknown = sorted(str(tp) for tp, offset in read_to.items() if offset < 0)
    if unknown:
        problems.append(f"the control topic has no earlier position for {', '.join(unknown)}")
    offsets = {tp: offset for tp, offset in read_to.items() if offset >= 0}
    needs_check = ahead or unchecked_tables or tables_without_position or unknown
    return JavaPosition(offsets, False, uncommitted, tuple(problems) if needs_check else ())


def _is_committed(event: JavaEvent, traces: Mapping[str, TableTrace]) -> bool:
    trace = traces.get(event.table or "")
    return (
        trace is not None
        and trace.control is not None
        and event.offset < trace.control.get(event.partition, 0)
    )
