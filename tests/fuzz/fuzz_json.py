"""Cases of JsonConverter: plain JSON, and payloads with Connect's schemas."""

from __future__ import annotations

import base64
import json
from random import Random
from typing import Any, Final

import fuzz_trees
from fixtures.seeded_json import shape
from fuzz_target import BOOLEANS, Case, FuzzTarget, options, polls_of

from connect_py.api.converter import Converter
from connect_py.converters.json.json_converter import JsonConverter

_LOGICAL: Final = [
    "org.apache.kafka.connect.data.Decimal",
    "org.apache.kafka.connect.data.Date",
    "org.apache.kafka.connect.data.Time",
    "org.apache.kafka.connect.data.Timestamp",
    "io.debezium.data.Json",
    "io.debezium.time.MicroTimestamp",
    "",
    "x.y",
]
_TYPES: Final = ["int8", "int16", "int32", "int64", "float", "double", "boolean", "string", "bytes"]
_WORDS: Final = [
    *_TYPES,
    *_LOGICAL,
    "struct",
    "array",
    "map",
    "float32",
    "INT32",
    "decimal",
    {"type": "int32"},
    {"type": "string", "optional": True},
    {"type": "struct", "fields": []},
    {"type": "array", "items": {"type": "int64"}},
    {"scale": "2"},
    {"scale": "2000000000"},
    {"scale": "-3", "connect.decimal.precision": "9"},
    {"type": "map", "keys": {"type": "int32"}, "values": {"type": "string"}},
    {
        "type": "map",
        "keys": {"type": "array", "items": {"type": "int8"}},
        "values": {"type": "string"},
    },
]
_NUMBERS: Final = [
    0,
    1,
    -1,
    2,
    127,
    128,
    300,
    2**31,
    2**63 - 1,
    2**63,
    1.5,
    1e300,
    -0.0,
    86_400_000,
    86_400_001,
    10**40,
]


class SchemalessJson(FuzzTarget):
    """JsonConverter without schemas."""

    name = "json"

    def case(self, random: Random, number: int) -> Case:
        good: list[list[bytes]] = []
        for _ in range(random.choice([1, 1, 2])):
            made = shape(random, random.choice([1, 2, 3]))
            values = [made(random) for _ in range(random.choice([1, 5, 40]))]
            if random.random() < 0.3:
                values = [
                    fuzz_trees.damaged(random, v) if random.random() < 0.2 else v for v in values
                ]
            good.append(
                [
                    fuzz_trees.text_of(random, value) if random.random() < 0.1 else _dumped(value)
                    for value in values
                ]
            )
        return Case({"schemas.enable": "false"}, polls_of(random, self.rows, good))

    def converter(self, case: Case) -> Converter:
        return _configured(case)


class JsonWithSchema(FuzzTarget):
    """JsonConverter with a schema in every message, or one for all."""

    name = "json_with_schema"

    def case(self, random: Random, number: int) -> Case:
        configs = options(
            random, {"replace.null.with.default": BOOLEANS, "schemas.cache.size": ("1", "3")}
        )
        schemas: list[Any] = []
        good: list[list[bytes]] = []
        fixed = random.random() < 0.15
        for _ in range(1 if fixed else random.choice([1, 1, 2, 3])):
            schema = _schema(random, 3)
            payloads = [_payload(random, schema) for _ in range(random.choice([1, 4, 30]))]
            if random.random() < 0.25:
                schema = fuzz_trees.damaged(random, schema, _WORDS)
            if random.random() < 0.3:
                payloads = [
                    fuzz_trees.damaged(random, p, _NUMBERS) if random.random() < 0.2 else p
                    for p in payloads
                ]
            schemas.append(schema)
            good.append([_dumped(p) if fixed else _envelope(random, schema, p) for p in payloads])
        if fixed:
            configs["schema.content"] = _dumped(schemas[0]).decode("utf-8", "replace")
        return Case(configs, polls_of(random, self.rows, good), what=json.dumps(schemas))

    def converter(self, case: Case) -> Converter:
        return _configured(case)


def _configured(case: Case) -> JsonConverter:
    made = JsonConverter()
    made.configure(case.configs)
    return made


def _dumped(tree: Any) -> bytes:
    return json.dumps(tree, separators=(",", ":"), ensure_ascii=False).encode(
        "utf-8", "surrogatepass"
    )


def _envelope(random: Random, schema: Any, payload: Any) -> bytes:
    draw = random.random()
    if draw < 0.97:
        return b'{"schema":' + _dumped(schema) + b',"payload":' + _dumped(payload) + b"}"
    if draw < 0.99:
        return fuzz_trees.text_of(random, {"schema": schema, "payload": payload})
    return fuzz_trees.text_of(
        random, fuzz_trees.damaged(random, {"payload": payload, "schema": schema}, _WORDS)
    )


def _schema(random: Random, depth: int) -> dict[str, Any]:
    kind = random.choice(
        [*_TYPES, *_LOGICAL[:4], *(["struct", "struct", "array", "map"] if depth else [])]
    )
    if depth == 3 and random.random() < 0.8:
        kind = "struct"
    made: dict[str, Any] = {"type": kind}
    match kind:
        case "struct":
            made["fields"] = [
                {**_schema(random, depth - 1), "field": name}
                for name in random.sample(_MEMBERS, random.randint(0, 6))
            ]
        case "array":
            made["items"] = _schema(random, depth - 1)
        case "map":
            made["keys"] = {
                "type": random.choice(["string", "string", "int32", "bytes", "double", "boolean"])
            }
            made["values"] = _schema(random, depth - 1)
        case _ if "." in kind:
            made = {
                "type": {"l": "bytes", "p": "int64"}.get(kind[-1], "int32"),
                "name": kind,
                "version": 1,
            }
            if kind == _LOGICAL[0]:
                made["parameters"] = {"scale": str(random.choice([0, 2, 5, -2, 38, 40, 76]))}
    if random.random() < 0.4:
        made["optional"] = True
    if random.random() < (0.02 if kind == "struct" else 0.1):
        made["default"] = _payload(random, made)
    return made


_MEMBERS: Final = ["id", "b", "c", "before", "ü", "x y", "", "\\", '"', "a.b", "wide", "\0"]


def _payload(random: Random, schema: Any) -> Any:
    kind, name = schema["type"], schema.get("name")
    if (schema.get("optional") or "default" in schema) and random.random() < 0.2:
        return None
    if kind == "struct":
        members = {f["field"]: _payload(random, f) for f in schema["fields"]}
        return {n: v for n, v in members.items() if v is not None or random.random() < 0.5}
    if kind == "array":
        return [_payload(random, schema["items"]) for _ in range(random.randint(0, 3))]
    if kind == "map":
        values = [_payload(random, schema["values"]) for _ in range(random.randint(0, 3))]
        if schema["keys"]["type"] == "string":
            return {random.choice(_MEMBERS): value for value in values}
        return [[_payload(random, schema["keys"]), value] for value in values]
    if name in _LOGICAL[1:3]:
        return random.randint(0, 86_400_000)
    if kind == "bytes":
        return base64.b64encode(random.randbytes(random.choice([1, 1, 2, 8, 16, 33]))).decode()
    if kind == "string":
        return random.choice(
            [
                "",
                "x",
                "ü",
                "\U0001f600",
                "\\",
                '"',
                "\n",
                "longer text",
                "\ud800" if random.random() < 0.02 else "y",
            ]
        )
    if kind == "boolean":
        return random.random() < 0.5
    if kind in ("float", "double"):
        return random.choice(
            [
                0.0,
                -0.0,
                1.5,
                1e300,
                5e-324,
                0.1,
                16777217,
                7,
                "NaN",
                "-Infinity",
                random.uniform(-9, 9),
            ]
        )
    bits = int(kind[3:]) if kind[3:].isdigit() else 32
    return random.choice([0, 1, -1, random.randint(-(1 << bits - 1), (1 << bits - 1) - 1)])
