"""`run_checks`: runs checks sequentially, each with its own deadline."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence

from connect_py.api.check import Check, Finding, Verdict
from connect_py.api.errors import ConnectError


def run_checks(checks: Iterable[Check]) -> Iterator[Finding]:
    """Run the checks in order and yield the findings of each check when it finishes."""
    for check in checks:
        yield from _run(check)


def _run(check: Check) -> Sequence[Finding]:
    findings: list[Finding] = []

    def run() -> None:
        try:
            findings.extend(check.ask())
        except (ConnectError, OSError, ValueError) as error:
            message = str(error) or type(error).__name__
            findings.append(Finding(check.subject, Verdict.FAIL, message))

    # a daemon thread, because a check that hangs must not prevent the exit
    thread = threading.Thread(target=run, name=f"check {check.subject}", daemon=True)
    thread.start()
    thread.join(check.seconds)
    if thread.is_alive():
        return [Finding(check.subject, Verdict.FAIL, f"no response in {check.seconds:g} s")]
    return findings
