"""One run of the harness: events are produced, faults happen, everything is fixed; then the tables
must equal the source exactly.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import psutil
import pyarrow as pa
from confluent_kafka import KafkaException
from fault_bench import GROUPS, KEYS, UNAVAILABLE, FaultBench, aggregate_of, connector_config
from fault_kinds import LATE, Fault, Feature, Planned, Shape, plan_of, shape_of

from connectors.iceberg_tools.audit.table_audit import Verdict

RUNS_PER_CONNECTOR = 5
EVENTS = 300  # per run
FEED_SECONDS = 2.0
LATE_SECONDS = 60.0
SETTLE_SECONDS = 500.0  # until everything is committed, on a machine that others share


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the source."""

    key: int
    number: int  # unique in the connector
    op: str  # U or D
    text: str  # `UNAVAILABLE`: the row keeps its value


class WrongTableError(AssertionError):
    """A table differs from the source, or its ledger proves nothing."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """Events of one run."""

    seed: int
    shape: Shape
    planned: Sequence[Planned]
    faults: Mapping[Fault, int]  # that happened
    points: Mapping[str, int]  # times come by
    acted: Mapping[str, int]  # points at which something was done
    seconds: float

    def __str__(self) -> str:
        told = "; ".join(map(str, self.planned))
        return f"seed {self.seed}: {self.shape}, {told}: {self.seconds:.1f} s"


@dataclass(slots=True)
class _Connector:
    """The connector of a few runs, and all that was ever fed to it."""

    name: str
    shape: Shape
    topics: list[str]
    tables: list[str]
    config: dict[str, str]
    fed: dict[str, list[Change]] = field(default_factory=dict)
    next: int = 0

    def topic_of(self, table: str) -> str:
        """Return the topic whose rows a table gets."""
        return self.topics[self.tables.index(table) if self.shape.tables == "routed" else 0]

    def expected(self, table: str) -> list[Change]:
        """Return the rows that the table must have."""
        fed = self.fed[self.topic_of(table)]
        return list(live_rows(fed).values()) if self.shape.mode == "merge" else fed


def live_rows(changes: Sequence[Change]) -> dict[int, Change]:
    """Return the rows that changes leave, by key."""
    rows: dict[int, Change] = {}
    for change in changes:
        if change.op == "D":
            rows.pop(change.key, None)
        elif change.text == UNAVAILABLE:
            rows[change.key] = dataclasses.replace(change, text=rows[change.key].text)
        else:
            rows[change.key] = change
    return rows


class FaultRuns:
    """Runs seeds one after the other on one bench; a few of them share a connector."""

    def __init__(self, bench: FaultBench, only: Sequence[Fault] = tuple(Fault)) -> None:
        self._bench = bench
        self._only = only
        self._connector: _Connector | None = None
        self._number = -1  # of the connector
        self._timers: list[threading.Timer] = []
        self._faults: Counter[Fault] = Counter()

    def run(self, seed: int) -> RunResult:
        """Run one seed.

        Raises:
            WrongTableError: With everything that is needed to look into it.
        """
        bench, started = self._bench, time.monotonic()
        number = seed // RUNS_PER_CONNECTOR
        begins = self._connector is None or number != self._number
        self._number = number
        shape = shape_of(number)
        planned = plan_of(seed, begins, shape.feature, self._only)
        self._faults = Counter()
        self._timers = []
        bench.take_hits()
        bench.write_plan([item for each in planned for item in each.items])
        try:
            if begins or not self._connector:
                self._connector = self._begin(seed, shape)
            connector = self._connector
            if shape.feature is Feature.COMPACTION:
                for table in connector.tables:
                    bench.age_snapshots(table)
            feeder = threading.Thread(
                target=self._feed, args=(connector, random.Random(f"feed {seed}")), name="feeder"
            )
            feeder.start()
            self._act(connector, planned, started)
            feeder.join()
            acted = self._mend(connector, planned)
            self._settle(connector)
            if shape.feature is Feature.HELD:
                self._publish(connector, random.Random(f"decisions {seed}"))
            self._verify(connector)
        except Exception as error:  # report any error with the seed that caused it
            logs = "\n--\n".join(worker.log_end(60) for worker in bench.workers)
            told = "; ".join(map(str, planned))
            raise WrongTableError(f"seed {seed}, {shape}, {told}: {error!r}\n{logs}") from error
        hits = bench.take_hits()
        for each in planned:
            if each.items:
                self._faults[each.fault] += _acted(each, acted, hits)
        return RunResult(
            seed, shape, planned, self._faults, hits, acted, time.monotonic() - started
        )

    # --- a connector

    def _begin(self, seed: int, shape: Shape) -> _Connector:
        bench = self._bench
        if self._connector is not None:
            bench.ask("DELETE", f"/connectors/{self._connector.name}")
        name = f"s{seed}"
        topics = [f"{name}-{n}" for n in range(2 if shape.tables == "routed" else 1)]
        tables = [f"db.{name}_{n}" for n in range(1 if shape.tables == "one" else 2)]
        bench.create_topics(topics, shape.partitions)
        config = connector_config(shape, topics, tables, bench.lake)
        connector = _Connector(name, shape, topics, tables, config, {topic: [] for topic in topics})
        bench.ask("PUT", f"/connectors/{name}/config", config)
        return connector

    def _feed(self, connector: _Connector, chance: random.Random) -> None:
        """Produce a steady stream of changes with unique row numbers; return when all are
        acknowledged.
        """
        begun = time.monotonic()
        live_keys = {topic: set(live_rows(fed)) for topic, fed in connector.fed.items()}
        for count in range(EVENTS):
            topic = connector.topics[count % len(connector.topics)]
            key, number = chance.randrange(KEYS), connector.next
            op = "D" if chance.random() < 0.1 else "U"
            text = f"{key} was changed {number}"
            # Debezium omits a value only if the row exists
            if connector.shape.feature is Feature.PARTIAL_ROWS and key in live_keys[topic]:
                text = UNAVAILABLE if op == "U" and chance.random() < 0.3 else text
            (live_keys[topic].discard if op == "D" else live_keys[topic].add)(key)
            connector.next += 1
            connector.fed[topic].append(Change(key, number, op, text))
            value = {"id": key, "n": number, "op": op, "text": text}
            self._bench.produce(topic, str(key), value)
            if count % 10 == 0:
                time.sleep(max(0.0, begun + FEED_SECONDS * count / EVENTS - time.monotonic()))
        self._bench.flush()

    # --- faults

    def _act(self, connector: _Connector, planned: Sequence[Planned], started: float) -> None:
        begun = time.monotonic()
        for each in planned:
            time.sleep(max(0.0, begun + each.at_seconds - time.monotonic()))
            if each.items:
                continue  # the processes themselves do it
            if self._do(connector, each):
                self._faults[each.fault] += 1

    def _do(self, connector: _Connector, each: Planned) -> bool:
        """Let it happen; returns whether there was something that it could happen to."""
        bench, path = self._bench, f"/connectors/{connector.name}"
        match each.fault:
            case Fault.KILL_TASK:
                return self._signal(self._one(bench.tasks), signal.SIGKILL)
            case Fault.KILL_COORDINATOR:
                return self._signal(self._wait(bench.coordinator), signal.SIGKILL)
            case Fault.KILL_DRIVER:
                return self._signal(self._wait(bench.driver), signal.SIGKILL)
            case Fault.KILL_JVM:
                return self._signal(self._wait(bench.jvm), signal.SIGKILL)
            case Fault.KILL_WORKER:
                worker = bench.workers[0]
                worker.processes()
                return self._signal(
                    psutil.Process(worker.pid) if worker.running else None, signal.SIGKILL
                )
            case Fault.KILL_BROKER:
                bench.broker.kill()
                time.sleep(min(each.lasts_seconds, 1.5))
                bench.broker.start()
            case Fault.PAUSE_TASK:
                return self._pause(self._one(bench.tasks), each.lasts_seconds)
            case Fault.PAUSE_COORDINATOR:
                return self._pause(self._wait(bench.coordinator), each.lasts_seconds)
            case Fault.PAUSE_DRIVER:
                return self._pause(self._wait(bench.driver), each.lasts_seconds)
            case Fault.PAUSE_JVM:
                return self._pause(self._wait(bench.jvm), each.lasts_seconds)
            case Fault.PAUSE_WORKER:
                worker = bench.workers[0]
                return self._pause(
                    psutil.Process(worker.pid) if worker.running else None, each.lasts_seconds
                )
            case Fault.PAUSE_BROKER:
                bench.broker.pause()
                self._later(each.lasts_seconds, bench.broker.resume)
            case Fault.FEWER_TASKS | Fault.MORE_TASKS:
                tasks = "1" if each.fault is Fault.FEWER_TASKS else "3"
                changed = connector.config.get("tasks.max") != tasks
                connector.config["tasks.max"] = tasks
                bench.ask("PUT", f"{path}/config", connector.config)
                return changed
            case Fault.SECOND_WORKER:
                bench.wanted.add(1)
                bench.keep_running()
                time.sleep(each.lasts_seconds)
            case Fault.RESTART_CONNECTOR:
                bench.ask("POST", f"{path}/restart?includeTasks=true")
            case Fault.STOP_CONNECTOR:
                bench.ask("PUT", f"{path}/stop")
                time.sleep(min(each.lasts_seconds, 1.5))
                bench.ask("PUT", f"{path}/resume")
            case Fault.LINE_CUT:
                bench.line.cut()
                self._later(each.lasts_seconds, bench.line.mend)
            case Fault.LINE_RESET:
                bench.line.reset()
            case Fault.LINE_SLOW:
                bench.line.delay(0.15)
                self._later(each.lasts_seconds, lambda: bench.line.delay(0.0))
            case Fault.CHANNEL_EMPTIED:
                try:
                    bench.empty_channel(connector.name)
                except (KafkaException, TimeoutError):  # not made yet, or nobody answers
                    return False
            case Fault.CATALOG_LOCKED:
                self._timers.append(bench.lock_catalog(min(each.lasts_seconds, 3.0)))
            case Fault.FOREIGN_COMPACTION:
                return sum(bench.compact(table) for table in connector.tables) > 0
            case Fault.FOREIGN_EXPIRY:
                return sum(bench.expire(table) for table in connector.tables) > 0
            case _:
                raise AssertionError(f"nobody knows how to do {each.fault}")
        return True

    def _wait(self, find: Callable[[], psutil.Process | None]) -> psutil.Process | None:
        """A process that may be on its way."""
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            with contextlib.suppress(psutil.NoSuchProcess):
                if (found := find()) is not None:
                    return found
            time.sleep(0.1)
        return None

    def _one(self, find: Callable[[], list[psutil.Process]]) -> psutil.Process | None:
        return self._wait(lambda: next(iter(find()), None))

    def _signal(self, process: psutil.Process | None, number: signal.Signals) -> bool:
        if process is None:
            return False
        try:
            process.send_signal(number)
        except psutil.NoSuchProcess:
            return False
        return True

    def _pause(self, process: psutil.Process | None, seconds: float) -> bool:
        paused = self._signal(process, signal.SIGSTOP)
        self._later(seconds, lambda: self._signal(process, signal.SIGCONT))
        return paused

    def _later(self, seconds: float, action: Callable[[], object]) -> None:
        timer = threading.Timer(seconds, action)
        timer.start()
        self._timers.append(timer)

    # --- repairs

    def _mend(self, connector: _Connector, planned: Sequence[Planned]) -> Counter[str]:
        """End every fault that lasts; returns where processes acted on the plan."""
        bench = self._bench
        for timer in self._timers:
            timer.join()
        for item in (item for each in planned for item in each.items if item.startswith(LATE)):
            self._wait_until_acted(connector, item.partition("=")[0])
        stops = [e.lasts_seconds for e in planned if e.fault is Fault.STOP_AT_POINT]
        time.sleep(max(stops, default=0.0))
        acted = bench.clear_plan()
        self._wake()
        if 1 in bench.wanted:
            bench.wanted.discard(1)
            if len(planned) % 2:
                bench.workers[1].kill_group()
            else:
                bench.workers[1].stop()
        return acted

    def _wait_until_acted(self, connector: _Connector, point: str) -> None:
        """Wait for a point that may be passed only after all rows have been written."""
        deadline = time.monotonic() + LATE_SECONDS
        while time.monotonic() < deadline and not self._bench.has_acted(point):
            self._bench.keep_running()
            self._bench.revive(connector.name)
            time.sleep(0.2)

    def _wake(self) -> None:
        for worker in self._bench.workers:
            if worker.running:
                for process in worker.processes():
                    with contextlib.suppress(psutil.NoSuchProcess):
                        if process.status() == psutil.STATUS_STOPPED:
                            process.send_signal(signal.SIGCONT)

    def _settle(self, connector: _Connector) -> None:
        """Wait until the connector has committed everything; whatever failed is started again
        meanwhile."""
        bench = self._bench
        deadline = time.monotonic() + SETTLE_SECONDS
        behind = "unknown"
        looked = 0.0
        while behind:
            assert time.monotonic() < deadline, (
                f"not settled after {SETTLE_SECONDS:.0f} s: {behind}"
            )
            bench.keep_running()
            if time.monotonic() - looked > 0.7:
                bench.revive(connector.name)
                self._wake()
                looked = time.monotonic()
            behind = bench.behind(connector.name, connector.topics)
            if behind:
                time.sleep(0.1)

    # --- checks

    def _publish(self, connector: _Connector, chance: random.Random) -> None:
        """Publish held commits. Some are thrown away first, and the connector repeats them."""
        bench = self._bench
        for table in connector.tables:
            replays = chance.choice((0, 0, 1))
            deadline = time.monotonic() + SETTLE_SECONDS
            while (held := bench.held_commits(table, connector.name)) is not None:
                assert time.monotonic() < deadline, f"{table}: still held: {held}"
                replay = replays > 0 or not held.forward
                replays -= 1
                if bench.decide(table, held, publish=not replay) and replay:
                    self._wait_for_replay(connector, table)

    def _wait_for_replay(self, connector: _Connector, table: str) -> None:
        """Wait until the connector has repeated the commits that were thrown away."""
        bench = self._bench
        topic = connector.topic_of(table)
        deadline = time.monotonic() + SETTLE_SECONDS
        while not bench.is_complete(table, connector.name, topic):
            assert time.monotonic() < deadline, f"{table}: thrown away and not repeated"
            bench.keep_running()
            bench.revive(connector.name)
            time.sleep(0.5)

    def _verify(self, connector: _Connector) -> None:
        for table in connector.tables:
            expected = connector.expected(table)
            texts = connector.shape.feature is Feature.PARTIAL_ROWS
            columns = ["n", "id", "op", *(["text"] if texts else [])]
            _compare(
                table,
                _tuples(self._bench.rows(table), columns),
                [
                    (each.number, each.key, each.op, *([each.text] if texts else []))
                    for each in expected
                ],
            )
            if connector.shape.feature is Feature.AGGREGATE:
                aggregate = aggregate_of(table)
                sums = [
                    row
                    for row in _tuples(self._bench.rows(aggregate), ["grp", "rows", "total"])
                    if row[1:] != (0, 0)  # a row whose count falls to 0 stays
                ]
                _compare(aggregate, sums, _aggregated(expected))
            report = self._bench.audit(table)
            if report.verdict is not Verdict.PROVEN:
                raise AssertionError(f"{table}: the audit says {report.to_json()}")


def _tuples(rows: pa.Table, columns: Sequence[str]) -> list[tuple[object, ...]]:
    return list(zip(*(rows.column(name).to_pylist() for name in columns), strict=True))


def _compare(
    table: str, rows: Sequence[tuple[object, ...]], expected: Sequence[tuple[object, ...]]
) -> None:
    """Raise AssertionError unless both have the same rows."""
    if Counter(rows) != Counter(expected):
        raise AssertionError(f"{table}: {_difference(rows, expected)}")


def _aggregated(rows: Sequence[Change]) -> list[tuple[object, ...]]:
    """Return the count and the sum of each group."""
    groups: dict[int, list[int]] = {}
    for row in rows:
        groups.setdefault(row.key % GROUPS, []).append(row.number)
    return [(group, len(numbers), sum(numbers)) for group, numbers in groups.items()]


def _acted(each: Planned, acted: Mapping[str, int], hits: Mapping[str, int]) -> int:
    """Return True if every item of the fault had an effect; lasting faults (`@1+`) are not
    counted.
    """
    done = (acted if item[-1] != "+" else hits for item in each.items)
    return min(
        counts.get(item.split("=")[0], 0) > 0 for counts, item in zip(done, each.items, strict=True)
    )


def _difference(found: Sequence[object], wanted: Sequence[object]) -> str:
    have, need = Counter(found), Counter(wanted)
    return (
        f"{len(found)} rows, expected {len(wanted)}; missing "
        f"{sorted((need - have).elements(), key=str)[:5]}, "
        f"too many {sorted((have - need).elements(), key=str)[:5]}"
    )
