"""Fuzzes converters with hostile schemas and hostile bytes, in watched processes: run by `make
fuzz`.

A finding is identified by target, seed, and case, which reproduce it: `make fuzz TARGET=avro SEED=7
CASE=123`.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

sys.path[:0] = [
    str(Path(__file__).parent),
    str(Path(__file__).parents[1]),
    str(Path(__file__).parents[1] / "fixtures"),
]

from fuzz_forms import FORMS, Tally  # noqa: E402
from fuzz_targets import TARGETS  # noqa: E402

CHILD: Final = Path(__file__).with_name("fuzz_child.py")
CASES_PER_CHILD: Final = 2000  # caches of the registry's client grow
CASE_SECONDS: Final = 60.0
SHOWN_SIGNATURES: Final = 40
CUT: Final = 4000  # characters of a finding


@dataclass
class Finding:
    """The first case of its kind, and the number of such cases."""

    kind: str  # differs, inconsistent, a class of errors, or the way in which the process crashed
    where: str
    case: int
    detail: str
    what: str = ""
    times: int = 1


@dataclass
class Result:
    """All that a run of one target found."""

    target: str
    seed: int
    tally: Tally = field(default_factory=Tally)
    findings: dict[tuple[str, str], Finding] = field(default_factory=dict)
    seconds: float = 0.0

    def add(self, finding: Finding) -> bool:
        """Note a finding; returns whether it is the first of its kind."""
        known = self.findings.setdefault((finding.kind, finding.where), finding)
        if known is finding:
            return True
        known.times += 1
        return False

    def described(self) -> str:
        """Describe all findings, each with the command that reproduces it."""
        return "\n".join(
            f"{again(self, f)}: {f.kind} {f.where}\n{f.detail[:CUT]}"
            for f in self.findings.values()
        )

    def summary(self) -> str:
        """One line for people."""
        polls = max(1, self.tally.polls)
        shares = ", ".join(f"{form} {self.tally.columnar[form] / polls:.0%}" for form in FORMS)
        return (
            f"{self.target}: seed {self.seed}, {self.tally.rows:,} rows in {self.tally.cases:,} "
            f"cases, {self.tally.refused:,} refused; polls with columns: {shares}; "
            f"{sum(f.times for f in self.findings.values())} findings of {len(self.findings)} "
            f"kinds; {self.seconds:.0f} s"
        )


def again(result: Result, finding: Finding) -> str:
    """Return the command that reproduces a finding."""
    return f"make fuzz TARGET={result.target} SEED={result.seed} CASE={finding.case}"


class FuzzRun:
    """Runs cases of one target until enough rows were read, whatever happens to the process that
    reads them."""

    def __init__(
        self, target: str, seed: int, *, first: int = 0, case_seconds: float = CASE_SECONDS
    ) -> None:
        self._result = Result(target, seed)
        self._next = first
        self._open: int | None = None  # the case that is being read
        self._case_seconds = case_seconds

    def run(self, rows: int = 0, cases: int = 0, seconds: float = 0.0) -> Result:
        """Read so many rows, or cases, or for so long."""
        began = time.monotonic()
        last = self._next + cases if cases else sys.maxsize

        def enough() -> bool:
            long = seconds and time.monotonic() - began >= seconds
            return bool(self._next >= last or (rows and self._result.tally.rows >= rows) or long)

        while not enough():
            for line in self._child(min(last, self._next + CASES_PER_CHILD)):
                self._take(line)
                if self._open is None and enough():
                    break
        self._result.seconds = time.monotonic() - began
        return self._result

    def _take(self, line: dict[str, Any]) -> None:
        if "begins" in line:
            self._open = line["begins"]
            self._next = line["begins"] + 1
            return
        self._open = None
        if "done" in line:
            self._result.tally.add(Tally(**line["tally"]))
        elif "finding" in line:
            self._result.tally.cases += 1
            self._found(
                Finding(line["finding"], line["where"], line["case"], line["detail"], line["what"])
            )

    def _found(self, finding: Finding) -> None:
        if self._result.add(finding) and len(self._result.findings) <= SHOWN_SIGNATURES:
            command = again(self._result, finding)
            print(
                f"{finding.kind} {finding.where}\n  {command}\n{finding.detail[:CUT]}\n", flush=True
            )

    def _child(self, last: int) -> Iterator[dict[str, Any]]:
        """Yield the messages of a process about the cases from the next one to `last`, or until it
        crashes.
        """
        arguments = [
            self._result.target,
            str(self._result.seed),
            str(self._next),
            str(last),
            str(self._case_seconds),
        ]
        environment = {**os.environ, "RUST_BACKTRACE": "0", "PYTHONHASHSEED": "0"}
        with tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(
                [sys.executable, str(CHILD), *arguments],
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
            )
            try:
                ended = False
                for line in self._lines(process):
                    ended = ended or "ended" in line
                    yield line
                process.wait(self._case_seconds)
                if not ended:
                    self._died(process.returncode, errors)
            finally:
                process.kill()
                process.wait()
                assert process.stdout is not None
                process.stdout.close()

    def _lines(self, process: subprocess.Popen[bytes]) -> Iterator[dict[str, Any]]:
        assert process.stdout is not None
        stream = process.stdout
        os.set_blocking(stream.fileno(), False)
        rest = b""
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            # the process ends itself sooner, if it can
            while selector.select(2 * self._case_seconds):
                data = stream.read()
                if not data:
                    return
                *whole, rest = (rest + data).split(b"\n")
                yield from map(json.loads, whole)

    def _died(self, status: int | None, errors: Any) -> None:
        errors.seek(0)
        told = errors.read().decode(errors="replace")
        kind = "hangs" if status is None or "Timeout (" in told else f"dies with status {status}"
        frames = [line.strip() for line in told.splitlines() if line.startswith("  File ")]
        self._found(Finding(kind, " ".join(frames[:3])[:300], self._next - 1, told[-CUT:]))
        self._open = None
        self._result.tally.cases += 1


def main() -> int:
    """Run targets one after the other; returns 1 if anything was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    names = [target.name for target in TARGETS]
    parser.add_argument(
        "--target", action="append", choices=names, help="one of the converters; all if left out"
    )
    parser.add_argument("--rows", type=int, default=0, help="rows of each target")
    parser.add_argument(
        "--seconds", type=float, default=0.0, help="seconds of each target, instead of rows"
    )
    parser.add_argument(
        "--seed", type=int, default=int(time.time()), help="what all random numbers come from"
    )
    parser.add_argument("--case", type=int, help="this case alone")
    parser.add_argument("--json", type=Path, help="write figures into this file")
    given = parser.parse_args()
    results = []
    for name in given.target or names:
        one = given.case is not None
        run = FuzzRun(name, given.seed, first=given.case if one else 0)
        rows = given.rows or (0 if given.seconds else 1_000_000)
        results.append(run.run(cases=1) if one else run.run(rows=rows, seconds=given.seconds))
        print(results[-1].summary(), flush=True)
        if one:
            for finding in results[-1].findings.values():
                print(finding.detail, finding.what, sep="\n\n")
    if given.json is not None:
        given.json.write_text("".join(result.summary() + "\n" for result in results))
    return int(any(result.findings for result in results))


if __name__ == "__main__":
    sys.exit(main())
