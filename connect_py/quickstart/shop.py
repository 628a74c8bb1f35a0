"""`Shop`: generates changes to customers, orders, and order lines, and stores the rows."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

CITIES = ("Aarhus", "Bilbao", "Cork", "Debrecen", "Espoo", "Faro", "Graz", "Haarlem")
NAMES = (
    "Ada",
    "Bruno",
    "Chloé",
    "Dmitri",
    "Edith",
    "Farid",
    "Greta",
    "Hugo",
    "Ines",
    "Jürgen",
    "Kaya",
    "Łukasz",
)
PRODUCTS = ("kettle", "lamp", "chair", "rug", "mirror", "shelf", "clock", "vase", "stool", "bowl")
STATUSES = ("new", "paid", "packed", "shipped")

Row = dict[str, Any]
Key = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """A change to one row: an insert if `before` is None, or a delete if `after` is None."""

    table: str
    before: Row | None
    after: Row | None

    @property
    def op(self) -> str:
        if self.before is None:
            return "c"
        return "d" if self.after is None else "u"

    @property
    def row(self) -> Row:
        row = self.after or self.before
        assert row is not None
        return row


KEYS: Mapping[str, tuple[str, ...]] = {
    "customers": ("id",),
    "orders": ("id",),
    "order_lines": ("order_id", "line_no"),
}


@dataclass
class Shop:
    """Generates changes that depend only on a seed. The caller provides the timestamps."""

    seed: int = 7
    tables: dict[str, dict[Key, Row]] = field(default_factory=lambda: {table: {} for table in KEYS})

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._next_customer = 1
        self._next_order = 1000

    def changes(self, now_us: int) -> Iterator[Change]:
        """Yield the changes from one visit to the shop. They affect a few rows.

        `now_us` is the time in microseconds since the epoch.
        """
        roll = self._random.random()
        customers, orders = self.tables["customers"], self.tables["orders"]
        if len(customers) < 20 or roll < 0.10:
            yield self._new_customer(now_us)
        elif roll < 0.20:
            yield self._move(self._any(customers))
        elif roll < 0.60 or not orders:
            yield from self._order(self._any(customers), now_us)
        elif roll < 0.85:
            yield self._advance(self._any(orders))
        elif roll < 0.95:
            yield from self._cancel(self._any(orders))
        else:
            yield from self._close_account(self._any(customers))

    def _any(self, rows: Mapping[Key, Row]) -> Row:
        return rows[self._random.choice(list(rows)[-500:])]

    def _apply(self, change: Change) -> Change:
        key = tuple(change.row[name] for name in KEYS[change.table])
        if change.after is None:
            del self.tables[change.table][key]
        else:
            self.tables[change.table][key] = change.after
        return change

    def _new_customer(self, now_us: int) -> Change:
        id_ = self._next_customer
        self._next_customer += 1
        name = self._random.choice(NAMES)
        row = {
            "id": id_,
            "name": name,
            "email": f"customer{id_}@example.org",
            "city": self._random.choice(CITIES),
            "credit": Decimal(self._random.randrange(0, 500_000)).scaleb(-2),
            "since": now_us,
        }
        return self._apply(Change("customers", None, row))

    def _move(self, customer: Row) -> Change:
        return self._apply(
            Change("customers", customer, {**customer, "city": self._random.choice(CITIES)})
        )

    def _order(self, customer: Row, now_us: int) -> Iterator[Change]:
        id_ = self._next_order
        self._next_order += 1
        lines: list[Row] = [
            {
                "order_id": id_,
                "line_no": number,
                "product": self._random.choice(PRODUCTS),
                "quantity": self._random.randrange(1, 6),
                "price": Decimal(self._random.randrange(500, 40_000)).scaleb(-2),
            }
            for number in range(1, self._random.randrange(2, 5))
        ]
        total = sum((line["quantity"] * line["price"] for line in lines), Decimal(0))
        order = {
            "id": id_,
            "customer_id": customer["id"],
            "status": "new",
            "total": total,
            "ordered_at": now_us,
            "note": "please ring twice" if self._random.random() < 0.1 else None,
        }
        yield self._apply(Change("orders", None, order))
        for line in lines:
            yield self._apply(Change("order_lines", None, line))

    def _advance(self, order: Row) -> Change:
        next_status = STATUSES[min(STATUSES.index(order["status"]) + 1, len(STATUSES) - 1)]
        return self._apply(Change("orders", order, {**order, "status": next_status}))

    def _cancel(self, order: Row) -> Iterator[Change]:
        lines = [row for key, row in self.tables["order_lines"].items() if key[0] == order["id"]]
        for line in lines:
            yield self._apply(Change("order_lines", line, None))
        yield self._apply(Change("orders", order, None))

    def _close_account(self, customer: Row) -> Iterator[Change]:
        for order in [
            row for row in self.tables["orders"].values() if row["customer_id"] == customer["id"]
        ]:
            yield from self._cancel(order)
        yield self._apply(Change("customers", customer, None))
