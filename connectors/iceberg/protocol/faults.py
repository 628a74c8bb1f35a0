"""Fault points: steps at which a test can kill, suspend, delay, or fail the process.

A fault point has no effect unless the environment variable `CONNECT_PY_FAULTS` contains its name::

    before_compare_and_swap=stop@2,after_report=delay:500,before_release=kill

Items have the form `name=action[@n]`. With `@n`, the action applies when the process reaches the
point for the nth time (by default, the first time). With `@n+`, it also applies every later time.
Actions are `kill` (SIGKILL to the process), `killgroup` (SIGKILL to the worker and all of its
processes), `stop` (SIGSTOP until a test sends SIGCONT), `delay:ms`, `raise` (`FaultInjected`),
`raise:unknown` (unknown outcome), `raise:unavailable` (no response from the catalog),
`raise:forbidden` (refusal by the catalog), and `raise:full` (full disk).

If the value of the variable is `@/path/of/a/file`, the items are read from this file, which may
change while the process runs. An item in a file applies only to the first process that reaches its
point, or, with `@n+`, to all processes. Hits are counted from the last change to the file.

For each hit of a point, the process first appends `name hit-number process-id` to the file in
`CONNECT_PY_FAULTS_LOG`. Without `CONNECT_PY_FAULTS`, hits are only logged.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from connect_py.api.errors import CommitStateUnknownError
from connectors.iceberg.errors import CatalogUnavailableError, TableForbiddenError

SPEC_VARIABLE = "CONNECT_PY_FAULTS"
LOG_VARIABLE = "CONNECT_PY_FAULTS_LOG"


class FaultInjected(Exception):  # noqa: N818 - the exception is the fault itself
    """Raised by a fault point with the action `raise`. No production code catches it by name."""


_ERRORS: Mapping[str, Callable[[str], Exception]] = {
    "": FaultInjected,
    "unknown": lambda name: CommitStateUnknownError(f"injected at {name}"),
    "unavailable": lambda name: CatalogUnavailableError(f"injected at {name}"),
    "forbidden": lambda name: TableForbiddenError("", f"injected at {name}"),
    "full": lambda name: OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)} (injected at {name})"),
}
_ITEM = re.compile(
    r"(?P<name>\w+)=(?:(?P<action>kill|killgroup|stop)|delay:(?P<delay>\d+)|raise(?::(?P<error>\w+))?)"
    r"(?:@(?P<hit>\d+)(?P<repeats>\+)?)?"
)


@dataclass(frozen=True, slots=True)
class _Plan:
    """Fault to inject at one point."""

    action: str
    delay_ms: int
    first_hit: int
    repeats: bool
    error: str = ""

    def is_due(self, hit: int) -> bool:
        """Return True if the fault applies to this hit."""
        return hit == self.first_hit or (self.repeats and hit > self.first_hit)


def parse_faults(spec: str) -> dict[str, _Plan]:
    """Parse the items of the environment variable.

    Raises:
        ValueError: An item is not valid. If it were ignored, a test might pass without its faults.
    """
    plans = {}
    for item in filter(None, (part.strip() for part in spec.split(","))):
        match = _ITEM.fullmatch(item)
        if match is None or (match["error"] or "") not in _ERRORS:
            raise ValueError(f"{SPEC_VARIABLE}: invalid item {item!r}")
        plans[match["name"]] = _Plan(
            match["action"] or ("delay" if match["delay"] else "raise"),
            int(match["delay"] or 0),
            int(match["hit"] or 1),
            bool(match["repeats"]),
            match["error"] or "",
        )
    return plans


class _Faults:
    """Fault points in this process. `hit` may be called from any thread."""

    def __init__(self, spec: str, log: str | None) -> None:
        self._file = spec[1:] if spec.startswith("@") else None
        self._changed_ns = 0
        self._plans = {} if self._file is not None else parse_faults(spec)
        self._log = log
        self._hits: dict[str, int] = {}
        self._lock = threading.Lock()

    def hit(self, name: str) -> None:
        """Log a hit, and inject its fault, if any."""
        with self._lock:
            if self._file is not None:
                self._reload(self._file)
            hit = self._hits[name] = self._hits.get(name, 0) + 1
            if self._log:
                with open(self._log, "a", encoding="utf-8") as log:
                    log.write(f"{name} {hit} {os.getpid()}\n")
            plan = self._plans.get(name)
            acts = plan is not None and plan.is_due(hit) and (plan.repeats or self._is_first(name))
        if plan is not None and acts:
            self._act(name, plan)

    def _reload(self, path: str) -> None:
        try:
            changed = os.stat(path).st_mtime_ns
            if changed == self._changed_ns:
                return
            with open(path, encoding="utf-8") as file:
                self._plans = parse_faults(file.read())
        except FileNotFoundError:
            self._plans, changed = {}, 0
        self._changed_ns = changed
        self._hits.clear()

    def _is_first(self, name: str) -> bool:
        """Return True if no other process has applied this item of the file."""
        if self._file is None:
            return True
        try:
            os.close(os.open(f"{self._file}.{self._changed_ns}.{name}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def _act(self, name: str, plan: _Plan) -> None:
        match plan.action:
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "killgroup":
                # the Spark driver leads a separate process group and is a child of the worker
                if os.getpgrp() == os.getpid():
                    os.killpg(os.getpgid(os.getppid()), signal.SIGKILL)
                os.killpg(os.getpgrp(), signal.SIGKILL)
            case "stop":
                # sent to this thread, because this thread must not continue
                signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
            case "delay":
                threading.Event().wait(plan.delay_ms / 1000)
            case "raise":
                raise _ERRORS[plan.error](name)


_faults: _Faults | None = None
_exempt = threading.local()  # `active` is True while this thread ignores fault points


def fault_point(name: str) -> None:
    """Mark a step of the protocol at which tests can inject a fault through the environment."""
    if _faults is not None and not getattr(_exempt, "active", False):
        _faults.hit(name)


@contextmanager
def no_fault_points() -> Iterator[None]:
    """Ignore fault points on this thread inside the `with` block.

    Use this for work that is not a step of the protocol.
    """
    _exempt.active = True
    try:
        yield
    finally:
        _exempt.active = False


def read_environment_again() -> None:
    """Read `CONNECT_PY_FAULTS` again, and reset the hit counts.

    Use this in forked processes and tests.
    """
    global _faults
    spec, log = os.environ.get(SPEC_VARIABLE, ""), os.environ.get(LOG_VARIABLE)
    _faults = _Faults(spec, log) if spec or log else None


read_environment_again()
