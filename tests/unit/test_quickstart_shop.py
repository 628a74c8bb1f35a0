"""The quickstart's shop: its tables result from its events."""

from __future__ import annotations

import base64
import json
from decimal import Decimal
from itertools import islice
from typing import Any

from connect_py.quickstart.envelope import key_bytes, value_bytes
from connect_py.quickstart.shop import KEYS, Shop


def _decoded(payload: dict[str, Any] | None) -> dict[str, Any] | None:
    if payload is None:
        return None
    return {
        name: Decimal(int.from_bytes(base64.b64decode(value), "big", signed=True)).scaleb(-2)
        if name in ("credit", "total", "price")
        else value
        for name, value in payload.items()
    }


def _visits(shop: Shop, count: int) -> list[Any]:
    return [
        change for visit in range(count) for change in shop.changes(1_760_000_000_000_000 + visit)
    ]


def test_replaying_the_events_gives_the_shops_tables() -> None:
    shop = Shop(seed=3)
    replayed: dict[str, dict[Any, Any]] = {table: {} for table in KEYS}
    for number, change in enumerate(_visits(shop, 3000)):
        key = json.loads(key_bytes(change))["payload"]
        event = json.loads(value_bytes(change, number, 1))["payload"]
        row_key = tuple(key[name] for name in KEYS[change.table])
        assert _decoded(event["before"]) == replayed[change.table].get(row_key)
        after = _decoded(event["after"])
        if after is None:
            del replayed[change.table][row_key]
        else:
            replayed[change.table][row_key] = after
    assert replayed == shop.tables
    assert {change.op for change in _visits(Shop(seed=3), 3000)} == {"c", "u", "d"}


def test_the_same_seed_makes_the_same_changes() -> None:
    assert _visits(Shop(seed=5), 200) == _visits(Shop(seed=5), 200)
    assert list(islice(_visits(Shop(seed=5), 200), 50)) != list(
        islice(_visits(Shop(seed=6), 200), 50)
    )


def test_no_order_outlives_its_customer_and_no_line_its_order() -> None:
    shop = Shop(seed=11)
    _visits(shop, 3000)
    customers, orders, lines = (shop.tables[t] for t in ("customers", "orders", "order_lines"))
    assert {(row["customer_id"],) for row in orders.values()} <= set(customers)
    assert {(row["order_id"],) for row in lines.values()} <= set(orders)
