"""Checks that `connect-py doctor` performs before a worker or a connector runs.

A plugin package adds checks with an entry point in the group `connect_py.checks`. The entry point
refers to a function that accepts a connector's configuration and the command's shared services
(`connect_py.api.service.SharedServices`), and returns the checks for the connector. For a connector
from another plugin, the function must return no checks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    """Result of a check. The values are displayed to users."""

    OK = "ok"
    WARN = "warn"  # not a failure, but may need attention
    FAIL = "fail"  # the worker or the connector will not run


@dataclass(frozen=True, slots=True)
class Finding:
    """Outcome of a check for one subject."""

    subject: str  # short description of the checked object
    verdict: Verdict
    text: str
    remedy: str = ""  # advice for the user; empty if there is none


@dataclass(frozen=True, slots=True)
class Check:
    """A check with a time limit."""

    subject: str
    # performs the check; a `ConnectError` or an `OSError` counts as a failure
    ask: Callable[[], Sequence[Finding]]
    seconds: float = 15.0
    needs_java: bool = False  # skipped if Java or Spark's jars are missing
