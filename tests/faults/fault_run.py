"""One run of the harness: events are fed, faults happen, all is mended; then tables must equal the
source exactly."""

from __future__ import annotations

import contextlib
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import psutil
from confluent_kafka import KafkaException
from fault_bench import KEYS, FaultBench, connector_config
from fault_kinds import LATE, Fault, Planned, Shape, plan_of, shape_of

from connectors.iceberg_tools.audit.table_audit import Verdict

RUNS_PER_CONNECTOR = 5
EVENTS = 300  # per run
FEED_SECONDS = 2.0
LATE_SECONDS = 30.0
SETTLE_SECONDS = 150.0  # until everything is in, on a machine that others share
Row = tuple[int, int, str]


class WrongTableError(AssertionError):
    """A table is not what the source says, or its ledger proves nothing."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """What one run met."""

    seed: int
    shape: Shape
    planned: Sequence[Planned]
    faults: Mapping[Fault, int]  # that happened
    points: Mapping[str, int]  # times come by
    acted: Mapping[str, int]  # points at which something was done
    seconds: float

    def __str__(self) -> str:
        told = "; ".join(map(str, self.planned))
        return (
            f"seed {self.seed}: {self.shape.mode}/{self.shape.engine}/{self.shape.tables}, "
            f"{told}: {self.seconds:.1f} s"
        )


@dataclass(slots=True)
class _Connector:
    """The connector of a few runs, and all that was ever fed to it."""

    name: str
    shape: Shape
    topics: list[str]
    tables: list[str]
    config: dict[str, str]
    fed: dict[str, list[Row]] = field(default_factory=dict)
    next: int = 0

    def expected(self, table: str) -> list[Row]:
        number = self.tables.index(table)
        return self.fed[self.topics[number if self.shape.tables == "routed" else 0]]


class FaultRuns:
    """Runs seeds one after the other on one bench; a few of them share a connector."""

    def __init__(self, bench: FaultBench, only: Sequence[Fault] = tuple(Fault)) -> None:
        self._bench = bench
        self._only = only
        self._connector: _Connector | None = None
        self._timers: list[threading.Timer] = []
        self._faults: Counter[Fault] = Counter()

    def run(self, seed: int) -> RunResult:
        """Run one seed.

        Raises:
            WrongTableError: With everything that is needed to look into it.
        """
        bench, started = self._bench, time.monotonic()
        begins = self._connector is None or seed % RUNS_PER_CONNECTOR == 0
        shape = shape_of(seed // RUNS_PER_CONNECTOR)
        planned = plan_of(seed, begins, shape.engine, self._only)
        self._faults = Counter()
        self._timers = []
        bench.take_hits()
        bench.write_plan([item for each in planned for item in each.items])
        try:
            if begins or not self._connector:
                self._connector = self._begin(seed, shape)
            connector = self._connector
            feeder = threading.Thread(
                target=self._feed, args=(connector, random.Random(f"feed {seed}")), name="feeder"
            )
            feeder.start()
            self._act(connector, planned, started)
            feeder.join()
            acted = self._mend(connector, planned)
            self._settle(connector)
            self._verify(connector)
        except Exception as error:  # whatever it is, it is told with the seed that brought it
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
        """A steady stream of changes, each row with a number of its own; returns when all are
        acknowledged."""
        begun = time.monotonic()
        for count in range(EVENTS):
            topic = connector.topics[count % len(connector.topics)]
            row = (chance.randrange(KEYS), connector.next, "D" if chance.random() < 0.1 else "U")
            connector.next += 1
            connector.fed[topic].append(row)
            key, number, op = row
            value = {"id": key, "n": number, "op": op, "text": f"{key} was changed {number}"}
            self._bench.produce(topic, str(key), value)
            if count % 10 == 0:
                time.sleep(max(0.0, begun + FEED_SECONDS * count / EVENTS - time.monotonic()))
        self._bench.flush()

    # --- what goes wrong

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

    # --- what is mended

    def _mend(self, connector: _Connector, planned: Sequence[Planned]) -> Counter[str]:
        """End every fault that lasts; returns where processes acted on the plan."""
        bench = self._bench
        for timer in self._timers:
            timer.join()
        if any(each.fault is Fault.STOP_AT_POINT for each in planned):
            time.sleep(
                max(
                    (e.lasts_seconds for e in planned if e.fault is Fault.STOP_AT_POINT),
                    default=0.0,
                )
            )
        for item in (item for each in planned for item in each.items if item.startswith(LATE)):
            self._wait_until_acted(connector, item.partition("=")[0])
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
        """A table is made, and swept, some seconds after its coordinator starts: all rows may be
        written already."""
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

    # --- what is right

    def _verify(self, connector: _Connector) -> None:
        for table in connector.tables:
            expected = connector.expected(table)
            columns = self._bench.rows(table).select(["id", "n", "op"]).to_pydict()
            found = sorted(zip(columns["n"], columns["id"], columns["op"], strict=True))
            if connector.shape.mode == "merge":
                last = {key: (number, key, op) for key, number, op in expected}
                wanted = sorted(row for row in last.values() if row[2] != "D")
            else:
                wanted = sorted((number, key, op) for key, number, op in expected)
            if found != wanted:
                raise AssertionError(f"{table}: {_difference(found, wanted)}")
            report = self._bench.audit(table)
            if report.verdict is not Verdict.PROVEN:
                raise AssertionError(f"{table}: the audit says {report.to_json()}")


def _acted(each: Planned, acted: Mapping[str, int], hits: Mapping[str, int]) -> int:
    """Whether every item of the fault did something; what lasts (`@1+`) is not claimed by
    anybody."""
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
