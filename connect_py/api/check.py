"""Checks that `connect-py doctor` performs before a worker or a connector runs.

A plugin package adds checks with an entry point of the group `connect_py.checks`: a function that
accepts a connector's configuration and the shared services of the command
(`connect_py.api.service.SharedServices`), and returns the checks of the connector. It returns none
for connectors of other plugins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    """Result of a check. Users see the values."""

    OK = "ok"
    WARN = "warn"  # works, or is needed in some cases only
    FAIL = "fail"  # a worker or the connector will not run


@dataclass(frozen=True, slots=True)
class Finding:
    """Outcome of a check for one subject."""

    subject: str  # the object of the check, in a few words
    verdict: Verdict
    text: str
    remedy: str = ""  # remedy for the user; empty if none


@dataclass(frozen=True, slots=True)
class Check:
    """A check with a deadline."""

    subject: str
    # a `ConnectError` or an `OSError` counts as a failure
    ask: Callable[[], Sequence[Finding]]
    seconds: float = 15.0
    needs_java: bool = False  # skipped if Java or Spark's jars are missing
