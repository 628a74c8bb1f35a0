"""Questions that `connect-py doctor` asks before a worker or a connector runs. Plugins bring some
of their own.

An entry point of the group `connect_py.checks` is a function that takes a connector's configuration
and returns the checks that fit it, none for connectors of other plugins.
`connect_py.api.command.uses_java` marks a function whose checks start a JVM.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    """What an answer means; the values are what people read."""

    OK = "ok"
    WARN = "warn"  # works, or is needed in some cases only
    FAIL = "fail"  # a worker or the connector will not run


@dataclass(frozen=True, slots=True)
class Finding:
    """An answer."""

    subject: str  # what was looked at, in a few words
    verdict: Verdict
    text: str
    mend: str = ""  # what a user does about it; empty if nothing


@dataclass(frozen=True, slots=True)
class Check:
    """A question with a deadline."""

    subject: str
    # a `ConnectError` or an `OSError` is a finding, too: a failure
    ask: Callable[[], Sequence[Finding]]
    seconds: float = 15.0
