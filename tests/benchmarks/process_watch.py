"""CPU seconds and memory of a worker's processes, including processes that have ended."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

KINDS = ("worker", "coordinator task", "task", "JVM", "cluster")


@dataclass(slots=True)
class Usage:
    """Usage of one process."""

    kind: str
    cpu_seconds: float = 0.0
    pss_mb: float = 0.0  # at the last look at memory
    peak_pss_mb: float = 0.0


@dataclass(slots=True)
class ProcessWatch:
    """Samples a process and all its descendants when `look` is called. Not thread-safe.

    The CPU time of a child that has ended is added to its parent when the parent has waited for it;
    therefore the total is complete except for children that ended since the last sample and were
    not waited for.
    """

    pid: int
    cluster: tuple[int, ...] = ()  # processes of a Spark cluster, with their descendants
    used: dict[int, Usage] = field(default_factory=dict)
    peak_total_mb: float = 0.0  # of all processes together, at one look

    def look(self, *, memory: bool = False) -> float:
        """Total CPU seconds so far, of everything below `pid` and itself."""
        alive = _with_descendants(self.pid)
        if not alive:
            return self.total()
        executors = [process for pid in self.cluster for process in _with_descendants(pid)]
        alive += executors
        of_cluster = {process.pid for process in executors}
        names = {p.pid: _name(p) for p in alive}
        for process in alive:
            try:
                times = process.cpu_times()
                usage = self.used.setdefault(process.pid, Usage("other"))
                usage.kind = (
                    "cluster" if process.pid in of_cluster else self._kind(process, alive, names)
                )
                usage.cpu_seconds = (
                    times.user + times.system + times.children_user + times.children_system
                )
                if memory:
                    usage.pss_mb = _pss_mb(process.pid)
                    usage.peak_pss_mb = max(usage.peak_pss_mb, usage.pss_mb)
            except (psutil.NoSuchProcess, psutil.AccessDenied, OSError):
                continue
        gone = self.used.keys() - {p.pid for p in alive}
        for pid in gone:  # its parent has its time now
            self.used[pid].cpu_seconds = self.used[pid].pss_mb = 0.0
        self.peak_total_mb = max(self.peak_total_mb, sum(self.memory().values()))
        return self.total()

    def total(self) -> float:
        return sum(u.cpu_seconds for u in self.used.values())

    def by_kind(self) -> dict[str, float]:
        """CPU seconds by kind of process."""
        found: dict[str, float] = {}
        for usage in self.used.values():
            found[usage.kind] = round(found.get(usage.kind, 0.0) + usage.cpu_seconds, 2)
        return found

    def memory(self) -> dict[str, float]:
        """Proportional memory by kind of process at the last look at it, in MB."""
        found: dict[str, float] = {}
        for usage in self.used.values():
            found[usage.kind] = found.get(usage.kind, 0.0) + usage.pss_mb
        return found

    def peaks(self) -> dict[str, float]:
        """The largest proportional memory of any process of a kind, in MB."""
        found: dict[str, float] = {}
        for usage in self.used.values():
            found[usage.kind] = round(max(found.get(usage.kind, 0.0), usage.peak_pss_mb))
        return found

    def _kind(
        self, process: psutil.Process, alive: list[psutil.Process], names: dict[int, str]
    ) -> str:
        if process.pid == self.pid:
            return "worker"
        if names[process.pid] == "java":
            return "JVM"
        if any(names[p.pid] == "java" and p.ppid() == process.pid for p in alive):
            return "coordinator task"
        return "task" if names.get(process.ppid()) == "forkserver" else "other"


def _with_descendants(pid: int) -> list[psutil.Process]:
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _name(process: psutil.Process) -> str:
    """`java`, `forkserver` (its children, too) or something else."""
    try:
        words = process.cmdline()
    except psutil.Error:
        return ""
    if words and Path(words[0]).name == "java":
        return "java"
    return "forkserver" if "multiprocessing.forkserver" in " ".join(words) else ""


def _pss_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1000
    return 0.0


class Sampler:
    """Calls a function once per second on a separate thread until it is closed."""

    def __init__(self, sample: Callable[[], None], seconds: float = 1.0) -> None:
        self._sample = sample
        self._seconds = seconds
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler")
        self._thread.start()

    def _run(self) -> None:
        while not self._ending.wait(self._seconds):
            self._sample()

    def close(self) -> None:
        self._ending.set()
        self._thread.join()
