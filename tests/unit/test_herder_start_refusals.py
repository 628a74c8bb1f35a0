"""Permissions that are denied at startup are retried for a minute, then reported in one error."""

from __future__ import annotations

import pytest
from fixtures.storage_fake_clock import FakeClock

from connect_py.herder.group.start_refusals import PATIENCE_SECONDS, StartRefusals
from connect_py.kafka.authorization_errors import RefusedError


def test_refusals_end_the_start_only_after_lasting_one_minute() -> None:
    clock = FakeClock()
    refusals = StartRefusals(clock)
    refusals.check()
    refusals.note("topic 'a' may not be read")
    clock.sleep(PATIENCE_SECONDS - 1)
    refusals.check()
    refusals.note("topic 'a' may not be read")
    refusals.note("group 'g' cannot be joined")
    clock.sleep(1)
    with pytest.raises(RefusedError, match="topic 'a' may not be read; group 'g' cannot be joined"):
        refusals.check()
