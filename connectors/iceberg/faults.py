"""Named points at which a test may end, stop, delay or break the process.

Off unless the environment variable `CONNECT_PY_FAULTS` names points::

    before_compare_and_swap=stop@2,after_report=delay:500,before_release=kill

`name=action[@n]`, separated by commas; `@n` acts at the nth time that this process comes by (default: the
first), `@n+` from then on. Actions: `kill` (SIGKILL to this process), `killgroup` (SIGKILL to its process
group), `stop` (SIGSTOP: a sleeper, until somebody sends SIGCONT), `delay:ms`, `raise` (`FaultInjected`).

Every time a process comes by a named point it first appends `name hit-number process-id` to the file that
`CONNECT_PY_FAULTS_LOG` names, if any; with the log alone, all points are recorded and none acts.
"""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import dataclass

SPEC_VARIABLE = "CONNECT_PY_FAULTS"
LOG_VARIABLE = "CONNECT_PY_FAULTS_LOG"


class FaultInjected(Exception):  # noqa: N818 - it is the fault, not the report of one
    """Raised by a fault point that was told to; no production code catches it by name."""


@dataclass(frozen=True, slots=True)
class _Plan:
    action: str
    delay_ms: int
    at: int
    onwards: bool

    def due(self, hit: int) -> bool:
        return hit == self.at or (self.onwards and hit > self.at)


def parse_faults(spec: str) -> dict[str, _Plan]:
    """Read the form above.

    Raises:
        ValueError: The text is not in that form; a test that kills nothing must not pass.
    """
    plans = {}
    for item in filter(None, (part.strip() for part in spec.split(","))):
        name, separator, rest = item.partition("=")
        action, _, at = rest.partition("@")
        action, _, delay = action.partition(":")
        if not separator or action not in {"kill", "killgroup", "stop", "delay", "raise"}:
            raise ValueError(f"{SPEC_VARIABLE}: cannot read {item!r}")
        if bool(delay) != (action == "delay"):
            raise ValueError(f"{SPEC_VARIABLE}: {item!r}: delay:ms, and no number for other actions")
        onwards = at.endswith("+")
        plans[name.strip()] = _Plan(action, int(delay or 0), int(at.rstrip("+") or 1), onwards)
    return plans


class _Faults:
    """The points of this process. `fault_point` may be called from any thread."""

    def __init__(self, spec: str, log: str | None) -> None:
        self._plans = parse_faults(spec)
        self._log = log
        self._hits: dict[str, int] = {}
        self._lock = threading.Lock()

    def hit(self, name: str) -> None:
        with self._lock:
            hit = self._hits[name] = self._hits.get(name, 0) + 1
            if self._log:
                with open(self._log, "a", encoding="utf-8") as log:
                    log.write(f"{name} {hit} {os.getpid()}\n")
        plan = self._plans.get(name)
        if plan is not None and plan.due(hit):
            self._act(name, plan)

    def _act(self, name: str, plan: _Plan) -> None:
        match plan.action:
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "killgroup":
                os.killpg(os.getpgrp(), signal.SIGKILL)
            case "stop":
                signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # of this thread: it goes no step further
            case "delay":
                threading.Event().wait(plan.delay_ms / 1000)
            case "raise":
                raise FaultInjected(name)


def _from_environment() -> _Faults | None:
    spec, log = os.environ.get(SPEC_VARIABLE, ""), os.environ.get(LOG_VARIABLE)
    return _Faults(spec, log) if spec or log else None


_faults = _from_environment()


def fault_point(name: str) -> None:
    """A named step of the protocol; nothing happens unless the environment asks for it."""
    if _faults is not None:
        _faults.hit(name)


def read_environment_again() -> None:
    """Take `CONNECT_PY_FAULTS` as it is now; hits count from zero. For forked children and tests."""
    global _faults
    _faults = _from_environment()
