"""Session keys: rotation by the leader, and the keys that a worker accepts."""

from __future__ import annotations

import base64

import pytest

from connect_py.herder.group.session_keys import successor
from connect_py.storage.config_state import SessionKey

HOUR = 3_600_000
KNOWN = SessionKey(base64.b64encode(bytes(32)).decode(), "HmacSHA256", 1_000)


def test_the_first_leader_ever_makes_one() -> None:
    made = successor(None, "HmacSHA256", None, HOUR, 5_000)
    assert made is not None
    assert (len(base64.b64decode(made.key)), made.algorithm, made.creation_timestamp) == (
        32,
        "HmacSHA256",
        5_000,
    )
    other = successor(None, "HmacSHA256", None, HOUR, 5_000)
    assert other is not None
    assert other.key != made.key


@pytest.mark.parametrize(
    ("algorithm", "bits", "ttl_ms", "now_ms"),
    [
        ("HmacSHA256", None, HOUR, 1_000 + HOUR),
        ("HmacSHA256", 256, HOUR, 2_000),
        ("HmacSHA256", None, 0, 2**40),
    ],
)
def test_valid_session_key_is_kept_without_a_successor(
    algorithm: str, bits: int | None, ttl_ms: int, now_ms: int
) -> None:
    assert successor(KNOWN, algorithm, bits, ttl_ms, now_ms) is None


@pytest.mark.parametrize(
    ("algorithm", "bits", "ttl_ms", "now_ms"),
    [
        ("HmacSHA256", None, HOUR, 1_001 + HOUR),
        ("HmacSHA512", None, HOUR, 2_000),
        ("HmacSHA256", 512, HOUR, 2_000),
    ],
)
def test_session_key_too_old_or_of_other_kind_is_replaced(
    algorithm: str, bits: int | None, ttl_ms: int, now_ms: int
) -> None:
    made = successor(KNOWN, algorithm, bits, ttl_ms, now_ms)
    assert made is not None
    assert (made.algorithm, made.creation_timestamp) == (algorithm, now_ms)
    assert 8 * len(base64.b64decode(made.key)) == (bits or 256)
