"""Where a Java sink stood: what its tables, its consumer group and its control topic say together.

Its snapshots hold positions of the *control* topic, not of the source. The source's are in the
consumer group, which moves when tasks report their files, before these are committed to a table. So
files that were reported and not committed are rows that the group has passed and no table has.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from connect_py.api.record import TopicPartition
from connectors.iceberg.protocol.commit_request import COMMIT_ID_KEY, TASK_ID_KEY
from connectors.iceberg.table.table_history import TableHistory
from connectors.iceberg_tools.migration.java_event import DATA_COMPLETE, DATA_WRITTEN, JavaEvent

VALID_THROUGH_KEYS = ("kafka.connect.valid-through-ts", "kafka.connect.vtts")


@dataclass(frozen=True, slots=True)
class TableTrace:
    """What the Java sink left in one table."""

    table: str
    exists: bool = True
    # control partition -> next offset; None: it never committed here
    control: Mapping[int, int] | None = None
    snapshot: int | None = None
    commit: str | None = None
    by: str | None = None  # connector and task, if it said so
    valid_through: str | None = None
    # False: older snapshots were expired, with what the Java sink may have said in them
    complete: bool = True
    has_ledger: bool = False  # this connector has been here already, as one of this sink

    @staticmethod
    def of(history: TableHistory, key: str, ledger_group: str) -> TableTrace:
        """Return the trace of the newest ancestor whose summary has the key.

        Args:
            history: The snapshots of the table.
            key: `kafka.connect.offsets.<control topic>.<group>`.
            ledger_group: The group of the connector under this sink. Ledgers of other connectors
                are ignored.
        """
        ours = ledger_group in history.properties or any(
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
                    ours,
                )
        return TableTrace(history.table, complete=history.complete, has_ledger=ours)


@dataclass(frozen=True, slots=True)
class JavaPosition:
    """From where on this sink must read."""

    # Next offsets; of these partitions nothing is lost and nothing doubled. Empty: this sink's
    # ledgers say it already.
    offsets: Mapping[TopicPartition, int]
    in_group: bool  # they are what the connector's own group holds already: nothing is to be set
    # table -> events with files that were reported and never committed
    uncommitted: Mapping[str, int]
    problems: tuple[str, ...] = ()  # why a person must look first


def find_position(
    traces: Iterable[TableTrace],
    events: Iterable[JavaEvent],
    source: Mapping[TopicPartition, int],
    connect: Mapping[TopicPartition, int],
) -> JavaPosition:
    """Put it together.

    Args: traces: Of all tables of the connector, and of all that its events name. events: Of the
        sink's group on its control topic, in order within each partition. source: Offsets of the
        group that holds the source's positions: Tabular's control group, else the connect group.
        connect: Offsets of `connect-<name>`, from which this sink begins.
    """
    by_table = {trace.table: trace for trace in traces}
    begun = sorted(trace.table for trace in by_table.values() if trace.has_ledger)
    if begun:
        problem = (
            f"this sink has written before to {', '.join(begun)}: its ledgers count and "
            f"nothing is imported"
        )
        return JavaPosition({}, in_group=True, uncommitted={}, problems=(problem,))
    events = list(events)
    waiting = [
        event
        for event in events
        if event.kind == DATA_WRITTEN and not _is_committed(event, by_table)
    ]
    if not waiting:
        return JavaPosition(source, in_group=dict(source) == dict(connect), uncommitted={})
    uncommitted = Counter(event.table or "?" for event in waiting)
    first: dict[int, int] = {}
    for event in waiting:
        first[event.partition] = min(event.offset, first.get(event.partition, event.offset))
    read_to = dict.fromkeys(source, -1)
    for event in events:
        if event.kind == DATA_COMPLETE and event.offset < first.get(
            event.partition, event.offset + 1
        ):
            for (topic, partition), offset in event.read_to.items():
                place = TopicPartition(topic, partition)
                read_to[place] = max(read_to.get(place, -1), offset)
    problems = [
        f"table {name}: {count} reports of files were never committed"
        for name, count in sorted(uncommitted.items())
    ]
    ahead = [
        t.table
        for t in by_table.values()
        if any((t.control or {}).get(p, 0) > at for p, at in first.items())
    ]
    if ahead:
        problems.append(
            f"other tables are ahead of them ({', '.join(ahead)}): read again, they would get rows "
            f"twice"
        )
    unseen = uncommitted.keys() - by_table.keys()
    if unseen:
        problems.append(
            f"whether these were committed was not looked up: {', '.join(sorted(unseen))}"
        )
    known = [by_table[name] for name in uncommitted.keys() - unseen]
    silent = sorted(trace.table for trace in known if trace.control is None and not trace.complete)
    if silent:
        problems.append(
            f"their older snapshots were expired, what was committed is not known: "
            f"{', '.join(silent)}"
        )
    unknown = sorted(str(place) for place, offset in read_to.items() if offset < 0)
    if unknown:
        problems.append(
            f"the control topic does not tell where these stood before: {', '.join(unknown)}"
        )
    offsets = {place: offset for place, offset in read_to.items() if offset >= 0}
    hopeless = ahead or unseen or silent or unknown
    return JavaPosition(offsets, False, uncommitted, tuple(problems) if hopeless else ())


def _is_committed(event: JavaEvent, traces: Mapping[str, TableTrace]) -> bool:
    trace = traces.get(event.table or "")
    return (
        trace is not None
        and trace.control is not None
        and event.offset < trace.control.get(event.partition, 0)
    )
