"""Cases of AvroConverter: schemas from valid to absurd, and bodies written without validation."""

from __future__ import annotations

import json
import struct
from random import Random
from typing import Any, Final

import fuzz_trees
from fuzz_bytes import varint, zigzag
from fuzz_target import BOOLEANS, Case, RegistryTarget, options, polls_of, with_headers

from connect_py.converters.avro.avro_converter import AvroConverter

_PRIMITIVES: Final = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
_LOGICAL: Final = [
    "decimal",
    "date",
    "time-millis",
    "time-micros",
    "timestamp-millis",
    "timestamp-micros",
    "timestamp-nanos",
    "uuid",
    "duration",
    "local-timestamp-millis",
    "x",
]
_ATTRIBUTES: Final = {
    "connect.type": ["int8", "int16", "int32", "float32", "bytes", "x", 5],
    "connect.name": [
        "org.apache.kafka.connect.data.Date",
        "org.apache.kafka.connect.data.Decimal",
        "io.debezium.data.Json",
        "org.apache.kafka.connect.data.Time",
        "org.apache.kafka.connect.data.Timestamp",
        "",
        7,
        "a.b",
    ],
    "connect.version": [1, 0, "1", "x", 2**40],
    "connect.doc": ["d"],
    "connect.default": [0, 1, "x", None, [], {}, 2**40, True],
    "connect.parameters": [
        {"a": "b"},
        {"scale": "2"},
        {"scale": "2000000000"},
        {"connect.decimal.precision": "99"},
        [],
        "x",
    ],
    "connect.internal.type": ["MapEntry"],
    "logicalType": _LOGICAL,
    "precision": [9, 0, -1, 38, 77, 2_000_000_000, "x"],
    "scale": [0, 2, 9, -2, 77, 6000, 2_000_000_000, -2_000_000_000, "x", 1.5],
    "doc": ["d", 5],
    "namespace": ["n.s", "", "..", 5],
    "aliases": [["old"], "old", [5]],
    "size": [0, 1, 4, 16, 4096, 4097, 2**31 - 1, 2**31, -1, "4"],
}
_WORDS: Final = [
    *_PRIMITIVES,
    "record",
    "array",
    "map",
    "enum",
    "fixed",
    "error",
    "R1",
    "R2",
    "no.Such",
    ["null", "int"],
    ["int"],
    [],
    ["null"],
    ["null", "null"],
    ["int", "int"],
    ["null", ["int", "string"]],
    {"type": "int"},
    {"type": {"type": "string"}},
    {"type": "enum", "name": "E", "symbols": []},
    {"type": "enum", "name": "E", "symbols": ["A", "A"]},
    {"type": "fixed", "name": "F", "size": 0},
    {"type": "fixed", "name": "F", "size": 2**31 - 1},
    {"type": "array", "items": "null"},
    {"type": "array", "items": {"type": "record", "name": "Z", "fields": []}},
    {"type": "map", "values": "null"},
    {"type": "record", "name": "R1", "fields": [{"name": "r", "type": "R1"}]},
]
_FEW: Final = 3  # levels of values in a record that contains itself
_SYMBOLS: Final = ["A", "B", "C", "ü"]


class Avro(RegistryTarget):
    """AvroConverter."""

    name = "avro"
    made = AvroConverter

    def case(self, random: Random, number: int) -> Case:
        configs = options(
            random,
            {
                "enhanced.avro.schema.support": BOOLEANS,
                "generalized.sum.type.support": BOOLEANS,
                "flatten.singleton.unions": BOOLEANS,
                "connect_py.aliases": BOOLEANS,
                "schemas.cache.config": ("1", "2"),
            },
        )
        schemas: dict[int, Any] = {}
        good: list[list[bytes]] = []
        for place in range(random.choice([1, 1, 2])):
            schema_id = number * 4 + place + 1
            drawn = _Drawn(random)
            tree = doubling(random) if random.random() < 0.01 else drawn.type(3)
            bodies = [drawn.body(tree, 0) for _ in range(random.choice([1, 4, 30]))]
            if random.random() < 0.25:
                tree = fuzz_trees.damaged(random, tree, _WORDS)
                # bodies of the current schema are valid more often
                if random.random() < 0.7:
                    bodies = [drawn.body(tree, 0) for _ in bodies]
            text = json.dumps(tree)
            if random.random() < 0.01:
                text = random.choice(
                    [
                        "",
                        "{",
                        text[: len(text) // 2],
                        "5",
                        "null",
                        text.encode().decode("utf-16-le", "replace"),
                    ]
                )
            schemas[schema_id] = {"schema": text}
            # another registered schema, by reference; at times it is missing, or this one
            if random.random() < 0.05:
                subject = random.choice(["other", "missing", "own"])
                schemas[schema_id]["references"] = [
                    {"name": "no.Such", "subject": subject, "version": 1}
                ]
                schemas[schema_id]["subjects"] = [{"subject": "own", "version": 1}]
                other = {
                    "type": "record",
                    "name": "no.Such",
                    "fields": [{"name": "x", "type": "int"}],
                }
                schemas[schema_id + 2] = {
                    "schema": json.dumps(other),
                    "subjects": [{"subject": "other", "version": 1}],
                }
            good.append([struct.pack(">bI", 0, schema_id) + body for body in bodies])
        polls = with_headers(random, polls_of(random, self.rows, good), 5)
        return Case(configs, polls, schemas, json.dumps(list(schemas.values()))[:20_000])


def doubling(random: Random) -> Any:
    """A small schema that is of any size once its names are written out."""
    made: Any = "int"
    for level in range(random.choice([4, 10, 30, 60])):
        fields = [
            {"name": "a", "type": made},
            {"name": "b", "type": f"D{level - 1}" if level else made},
        ]
        made = {"type": "record", "name": f"D{level}", "fields": fields}
    return made


class _Drawn:
    """Draws a schema, and bodies of it."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._named: dict[str, Any] = {}

    def _name(self, kind: str) -> str:
        if self._random.random() < 0.03:
            return self._random.choice(fuzz_trees.NAMES)
        return f"{kind}{len(self._named)}"

    def type(self, depth: int) -> Any:
        random = self._random
        made: Any = self._plain(depth, "record" if depth == 3 and random.random() < 0.7 else None)
        if random.random() < 0.12:
            made = dict(made) if isinstance(made, dict) else {"type": made}
            for _ in range(random.choice([1, 1, 2, 3])):
                attribute = random.choice(list(_ATTRIBUTES))
                made[attribute] = random.choice(_ATTRIBUTES[attribute])
        if random.random() < 0.2:
            return (
                random.choice([["null", made], [made, "null"]])
                if not isinstance(made, list)
                else made
            )
        return made

    def _plain(self, depth: int, kind: str | None) -> Any:
        random = self._random
        kinds = [
            *_PRIMITIVES[1:],
            *_PRIMITIVES[2:],
            "logical",
            "enum",
            "fixed",
            *(["record", "record", "array", "map", "union"] if depth else []),
        ]
        kind = kind or random.choice(kinds)
        match kind:
            case "logical":
                return self._logical()
            case "enum":
                made = {
                    "type": "enum",
                    "name": self._name("E"),
                    "symbols": random.sample(_SYMBOLS, random.randint(1, 4)),
                }
            case "fixed":
                made = {
                    "type": "fixed",
                    "name": self._name("F"),
                    "size": random.choice([0, 1, 2, 12, 16, 40]),
                }
            case "record":
                made = {"type": "record", "name": self._name("R"), "fields": []}
                self._named[made["name"]] = made
                made["fields"] = [
                    self._field(place, depth) for place in range(random.choice([0, 1, 2, 3, 6]))
                ]
                if depth == 3 and random.random() < 0.02:
                    made["fields"] = [
                        {"name": f"w{place}", "type": self.type(0)} for place in range(400)
                    ]
                return made
            case "array":
                return {"type": "array", "items": self.type(depth - 1)}
            case "map":
                return {"type": "map", "values": self.type(depth - 1)}
            case "union":
                return [self.type(depth - 1) for _ in range(random.choice([0, 1, 2, 2, 3, 5]))]
            case _:
                return (
                    random.choice(list(self._named))
                    if self._named and random.random() < 0.03
                    else kind
                )
        self._named[made["name"]] = made
        return made

    def _field(self, place: int, depth: int) -> Any:
        random = self._random
        name = random.choice(fuzz_trees.NAMES) if random.random() < 0.05 else f"f{place}"
        made = {"name": name, "type": self.type(depth - 1)}
        if random.random() < 0.05:
            made["default"] = random.choice([None, 0, "x", [], {}, 1.5, True])
        return made

    def _logical(self) -> Any:
        random = self._random
        if random.random() < 0.4:
            precision, scale = random.choice([(9, 2), (18, 0), (38, 10), (64, 2), (76, 5), (2, 5)])
            base: dict[str, Any] = random.choice(
                [
                    {"type": "bytes"},
                    {
                        "type": "fixed",
                        "name": self._name("F"),
                        "size": random.choice([1, 5, 16, 40]),
                    },
                ]
            )
            return {**base, "logicalType": "decimal", "precision": precision, "scale": scale}
        return {
            "type": random.choice(["int", "long", "long", "string"]),
            "logicalType": random.choice(_LOGICAL),
        }

    def body(self, tree: Any, depth: int) -> bytes:
        """Bytes of a type, as far as it means anything."""
        random = self._random
        if isinstance(tree, list):
            if not tree:
                return b"\0"
            index = random.randrange(len(tree))
            return zigzag(index) + self.body(tree[index], depth + 1)
        if isinstance(tree, dict):
            kind = tree.get("type")
            if isinstance(kind, str) and kind in self._CONTAINERS and depth < 60:
                return self._CONTAINERS[kind](self, tree, depth + 1)
            return self.body(kind, depth + 1) if depth < 60 else b"\0"
        if tree in self._named if isinstance(tree, str) else False:
            return self.body(self._named[tree], depth + 20) if depth < 20 * _FEW else b""
        writer = self._WRITERS.get(tree) if isinstance(tree, str) else None
        return random.randbytes(random.randint(0, 4)) if writer is None else writer(random)

    def _record(self, tree: Any, depth: int) -> bytes:
        fields = tree.get("fields")
        members = (
            [f.get("type") for f in fields if isinstance(f, dict)]
            if isinstance(fields, list)
            else []
        )
        return b"".join([self.body(member, depth) for member in members])

    def _items(self, tree: Any, depth: int) -> bytes:
        random = self._random
        made = b""
        for _ in range(random.choice([0, 1, 1, 2])):
            count = random.randint(1, 3)
            items = b"".join([self._entry(tree, depth) for _ in range(count)])
            made += (
                zigzag(count) + items
                if random.random() < 0.9
                else zigzag(-count) + zigzag(len(items)) + items
            )
        if random.random() < 0.002:  # items of no bytes
            made += random.choice(
                [zigzag(2**40), zigzag(2**62), zigzag(-(2**63)) + b"\2", zigzag(-(2**62)) + b"\0"]
            )
        return made + b"\0"

    def _entry(self, tree: Any, depth: int) -> bytes:
        if tree.get("type") == "map":
            return self._WRITERS["string"](self._random) + self.body(tree.get("values"), depth)
        return self.body(tree.get("items"), depth)

    def _fixed(self, tree: Any, depth: int) -> bytes:
        size = tree.get("size")
        return self._random.randbytes(size) if isinstance(size, int) and 0 <= size < 5000 else b"\0"

    def _enum(self, tree: Any, depth: int) -> bytes:
        symbols = tree.get("symbols")
        return zigzag(
            self._random.randrange(max(1, len(symbols) if isinstance(symbols, list) else 1))
        )

    _CONTAINERS: Final[dict[str, Any]] = {
        "record": _record,
        "error": _record,
        "array": _items,
        "map": _items,
        "fixed": _fixed,
        "enum": _enum,
    }
    _WRITERS: Final[dict[str, Any]] = {
        "null": lambda r: b"",
        "boolean": lambda r: r.choice([b"\0", b"\1"]),
        "int": lambda r: zigzag(
            r.choice([0, -1, r.randint(-(2**31), 2**31 - 1), r.randint(0, 86_400_000)])
        ),
        "long": lambda r: zigzag(
            r.choice([0, -1, 2**63 - 1, -(2**63), r.randint(-(10**15), 10**15)])
        ),
        "float": lambda r: r.choice(
            [b"\0\0\xc0\x7f", b"\0\0\0\x80", struct.pack("<f", r.uniform(-9, 9))]
        ),
        "double": lambda r: r.choice(
            [b"\0\0\0\0\0\0\xf8\x7f", struct.pack("<d", r.uniform(-9, 9))]
        ),
        "bytes": lambda r: _sized(r.randbytes(r.choice([0, 1, 2, 8, 17, 40]))),
        "string": lambda r: _sized(
            r.choice([b"", b"x", "ü".encode(), b"longer text", "\U0001f600".encode()])
        ),
    }


def _sized(data: bytes) -> bytes:
    return varint(len(data) << 1) + data
