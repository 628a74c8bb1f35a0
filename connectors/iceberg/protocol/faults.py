"""Named points at which a test may end, stop, delay or break the process.

Off unless the environment variable `CONNECT_PY_FAULTS` names points::

    before_compare_and_swap=stop@2,after_report=delay:500,before_release=kill

`name=action[@n]`, separated by commas; `@n` acts at the nth time that this process comes by
(default: the first), `@n+` from then on. Actions: `kill` (SIGKILL to this process), `killgroup`
(SIGKILL to the worker and all that it started), `stop` (SIGSTOP: a sleeper, until a test sends
SIGCONT), `delay:ms`, `raise` (`FaultInjected`), `raise:unknown`, `raise:unavailable`,
`raise:forbidden`, `raise:full` (an outcome that is not known, a catalog that does not answer or
refuses, a full disk).

`@/path/of/a/file` instead: the same text stands in that file, which is looked at each time and may
change while the process runs. Then each item acts in one process only, the first that comes to it
(`@n+`: in all), and hits count from the change on.

Every time a process comes by a named point it first appends `name hit-number process-id` to the
file that `CONNECT_PY_FAULTS_LOG` names, if any; with the log alone, all points are recorded and
none acts.
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


class FaultInjected(Exception):  # noqa: N818 - it is the fault, not the report of one
    """Raised by a fault point whose action is `raise`; no production code catches it by name."""


_ERRORS: Mapping[str, Callable[[str], Exception]] = {
    "": FaultInjected,
    "unknown": lambda name: CommitStateUnknownError(f"injected at {name}"),
    "unavailable": lambda name: CatalogUnavailableError(f"injected at {name}"),
    "forbidden": lambda name: TableForbiddenError("", f"injected at {name}"),
    "full": lambda name: OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)} (injected at {name})"),
}
_ITEM = re.compile(
    r"(?P<name>\w+)=(?:(?P<action>kill|killgroup|stop)|delay:(?P<delay>\d+)|raise(?::(?P<error>\w+))?)"
    r"(?:@(?P<at>\d+)(?P<onwards>\+)?)?"
)


@dataclass(frozen=True, slots=True)
class _Plan:
    action: str
    delay_ms: int
    at: int
    onwards: bool
    error: str = ""

    def due(self, hit: int) -> bool:
        return hit == self.at or (self.onwards and hit > self.at)


def parse_faults(spec: str) -> dict[str, _Plan]:
    """Read the form above.

    Raises:
        ValueError: The text is not in that form; a test that kills nothing must not pass.
    """
    plans = {}
    for item in filter(None, (part.strip() for part in spec.split(","))):
        read = _ITEM.fullmatch(item)
        if read is None or (read["error"] or "") not in _ERRORS:
            raise ValueError(f"{SPEC_VARIABLE}: cannot read {item!r}")
        action = read["action"] or ("delay" if read["delay"] else "raise")
        plans[read["name"]] = _Plan(
            action,
            int(read["delay"] or 0),
            int(read["at"] or 1),
            bool(read["onwards"]),
            read["error"] or "",
        )
    return plans


class _Faults:
    """The points of this process. `fault_point` may be called from any thread."""

    def __init__(self, spec: str, log: str | None) -> None:
        self._file = spec[1:] if spec.startswith("@") else None
        self._changed_ns = 0
        self._plans = {} if self._file is not None else parse_faults(spec)
        self._log = log
        self._hits: dict[str, int] = {}
        self._lock = threading.Lock()

    def hit(self, name: str) -> None:
        with self._lock:
            if self._file is not None:
                self._look_again(self._file)
            hit = self._hits[name] = self._hits.get(name, 0) + 1
            if self._log:
                with open(self._log, "a", encoding="utf-8") as log:
                    log.write(f"{name} {hit} {os.getpid()}\n")
            plan = self._plans.get(name)
            acts = plan is not None and plan.due(hit) and (plan.onwards or self._is_first(name))
        if plan is not None and acts:
            self._act(name, plan)

    def _look_again(self, path: str) -> None:
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
        """Whether no other process has acted on this item of the file."""
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
            case "killgroup":  # the Spark driver has a group of its own, and is the worker's child
                if os.getpgrp() == os.getpid():
                    os.killpg(os.getpgid(os.getppid()), signal.SIGKILL)
                os.killpg(os.getpgrp(), signal.SIGKILL)
            case "stop":
                # of this thread: it goes no step further
                signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
            case "delay":
                threading.Event().wait(plan.delay_ms / 1000)
            case "raise":
                raise _ERRORS[plan.error](name)


_faults: _Faults | None = None
_exempt = threading.local()  # `active`: this thread passes fault points without an effect


def fault_point(name: str) -> None:
    """Mark a step of the protocol, at which tests inject a fault through the environment."""
    if _faults is not None and not getattr(_exempt, "active", False):
        _faults.hit(name)


@contextmanager
def no_fault_points() -> Iterator[None]:
    """Ignore fault points on this thread while the block runs.

    For work that is not a step of the protocol.
    """
    _exempt.active = True
    try:
        yield
    finally:
        _exempt.active = False


def read_environment_again() -> None:
    """Read `CONNECT_PY_FAULTS` again, and count hits from zero.

    For forked children and tests.
    """
    global _faults
    spec, log = os.environ.get(SPEC_VARIABLE, ""), os.environ.get(LOG_VARIABLE)
    _faults = _Faults(spec, log) if spec or log else None


read_environment_again()
