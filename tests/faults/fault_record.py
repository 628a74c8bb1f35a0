"""Counts of each kind of fault and of each fault point, over all recorded runs."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from fault_kinds import POINTS, Fault

if TYPE_CHECKING:
    from fault_run import RunResult


class FaultRecord:
    """Adds up runs; with a path, including runs of earlier processes."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self.runs = 0
        self.seconds = 0.0
        self.wrong: list[int] = []
        self.shapes: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.points: Counter[str] = Counter()
        self.acted: Counter[str] = Counter()
        if path is not None and path.exists():
            for line in path.read_text().splitlines():
                self._count(json.loads(line))

    def add(self, result: RunResult) -> None:
        self._keep(
            {
                "seed": result.seed,
                "seconds": round(result.seconds, 1),
                "shape": str(result.shape),
                "faults": {fault.name: count for fault, count in result.faults.items() if count},
                "points": dict(result.points),
                "acted": dict(result.acted),
            }
        )

    def failed(self, seed: int) -> None:
        self._keep({"seed": seed, "wrong": True})

    def _keep(self, line: dict[str, object]) -> None:
        self._count(line)
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps(line) + "\n")

    def _count(self, line: dict[str, object]) -> None:
        if line.get("wrong"):
            self.wrong.append(int(str(line["seed"])))
            return
        self.runs += 1
        self.seconds += float(str(line["seconds"]))
        self.shapes[str(line["shape"])] += 1
        for name, counter in (
            ("faults", self.faults),
            ("points", self.points),
            ("acted", self.acted),
        ):
            found = line[name]
            assert isinstance(found, dict)
            counter.update(found)

    def never(self) -> list[str]:
        """Kinds and points that no run has met."""
        kinds = [fault.name for fault in Fault if not self.faults[fault.name]]
        return kinds + [
            point for point in POINTS if not self.points[point] or not self.acted[point]
        ]

    def told(self) -> str:
        lines = [
            f"{self.runs} runs, {self.seconds / max(1, self.runs):.1f} s each; wrong: "
            f"{self.wrong or 'none'}"
        ]
        lines += [f"  {shape}: {count}" for shape, count in sorted(self.shapes.items())]
        lines += [f"fault {fault.name}: {self.faults[fault.name]}" for fault in Fault]
        lines += [
            f"point {point}: met {self.points[point]}, something done {self.acted[point]}"
            for point in POINTS
        ]
        return "\n".join(lines)


if __name__ == "__main__":
    print(FaultRecord(Path(sys.argv[1])).told())
