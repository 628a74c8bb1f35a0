"""The client library's floods are dammed."""

from __future__ import annotations

import logging

from connect_py.kafka.client_log import QUIET_SECONDS, RepeatFilter


class FakeClock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def time_ms(self) -> int:
        return 0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def record(text: str) -> logging.LogRecord:
    return logging.LogRecord("x", logging.ERROR, "x", 1, text, None, None)


def test_one_of_each_kind_and_client_is_let_through_in_a_while_with_the_number_held_back() -> None:
    clock = FakeClock()
    repeats = RepeatFilter(clock)
    assert repeats.filter(record("FAIL [a#consumer-1] [thrd:x]: refused (after 1ms)"))
    assert repeats.filter(record("FAIL [b#consumer-2] [thrd:x]: refused"))
    for _ in range(3):
        assert not repeats.filter(record("FAIL [a#consumer-1] [thrd:y]: refused (after 2ms)"))
    assert repeats.filter(record("TXNERR [a#consumer-1] something else"))
    clock.sleep(QUIET_SECONDS)
    later = record("FAIL [a#consumer-1] [thrd:x]: refused")
    assert repeats.filter(later)
    assert later.getMessage() == "FAIL [a#consumer-1] [thrd:x]: refused (3 more like this in 30 s)"
