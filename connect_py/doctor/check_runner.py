"""`run_checks`: asks one check after the other, none longer than its deadline."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence

from connect_py.api.check import Check, Finding, Verdict
from connect_py.api.errors import ConnectError


def run_checks(checks: Iterable[Check]) -> Iterator[Finding]:
    """The findings of all checks, as soon as each is there."""
    for check in checks:
        yield from _answer(check)


def _answer(check: Check) -> Sequence[Finding]:
    found: list[Finding] = []

    def ask() -> None:
        try:
            found.extend(check.ask())
        except (ConnectError, OSError, ValueError) as error:
            found.append(Finding(check.subject, Verdict.FAIL, str(error) or type(error).__name__))

    # one that hangs ends with us
    thread = threading.Thread(target=ask, name=f"check {check.subject}", daemon=True)
    thread.start()
    thread.join(check.seconds)
    if thread.is_alive():
        return [Finding(check.subject, Verdict.FAIL, f"no answer in {check.seconds:g} s")]
    return found
