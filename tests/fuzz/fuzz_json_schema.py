"""Cases of JsonSchemaConverter: JSON Schemas from sound to absurd, with references to themselves
and to nothing."""

from __future__ import annotations

import json
import struct
from random import Random
from typing import Any, Final

import fuzz_trees
from fuzz_target import BOOLEANS, Case, RegistryTarget, options, polls_of, with_headers

from connect_py.converters.json_schema.json_schema_converter import JsonSchemaConverter

_SCALARS: Final = ["integer", "number", "string", "boolean"]
_MEMBERS: Final = ["id", "b", "c", "before", "ü", "x y", "", "\\", "a.b", "wide"]
_DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
_CONNECT: Final = {
    "integer": ["int8", "int16", "int32", "int64", "bytes"],
    "number": ["float32", "float64", "bytes", "int8"],
    "string": ["bytes", "string", "int64"],
    "boolean": ["boolean", "x"],
}
_WORDS: Final = [
    *_SCALARS,
    "null",
    "object",
    "array",
    "map",
    "bytes",
    {"$ref": "#"},
    {"$ref": "#/properties/id"},
    {"$ref": "#/definitions/d"},
    {"$ref": "other.json"},
    {"$ref": "missing.json#/x"},
    {"$ref": "#/allOf/0"},
    {"$ref": 5},
    {"allOf": [{"$ref": "#"}]},
    {"allOf": []},
    {"oneOf": []},
    {"oneOf": [{"type": "null"}]},
    {"anyOf": [{"type": "string"}, {"type": "integer"}]},
    {"type": ["null", "string"]},
    {"type": []},
    {"type": ["string", "integer", "null"]},
    {"enum": []},
    {"enum": ["A", "A", 1, None]},
    {"const": None},
    True,
    False,
    {},
    {
        "type": "number",
        "title": _DECIMAL,
        "connect.type": "bytes",
        "connect.parameters": {"scale": "2000000000"},
    },
    {
        "type": "number",
        "title": _DECIMAL,
        "connect.type": "bytes",
        "connect.parameters": {"scale": "2"},
    },
    {"type": "object", "connect.type": "map", "additionalProperties": {"type": "integer"}},
    {"type": "array", "items": [{"type": "integer"}]},
    {
        "type": "array",
        "connect.type": "map",
        "items": {"properties": {"key": {"type": "integer"}, "value": {"type": "string"}}},
    },
    {"type": "string", "pattern": "^a+$"},
    {"type": "string", "pattern": "("},
    {"title": "", "type": "string"},
    {"title": 5, "type": "string"},
    {"type": "string", "default": 5},
    {"type": "integer", "default": 2**70},
    {"type": "object", "properties": {}, "default": {}},
]


class JsonSchema(RegistryTarget):
    """JsonSchemaConverter."""

    name = "json_schema"
    made = JsonSchemaConverter

    def case(self, random: Random, number: int) -> Case:
        configs = options(
            random,
            {
                "use.optional.for.nonrequired": BOOLEANS,
                "json.fail.invalid.schema": BOOLEANS,
                "ignore.modern.dialects": BOOLEANS,
                "preserve.additional.properties": BOOLEANS,
                "generalized.sum.type.support": BOOLEANS,
                "flatten.singleton.unions": BOOLEANS,
                "schemas.cache.config": ("1", "2"),
            },
        )
        schemas: dict[int, Any] = {}
        good: list[list[bytes]] = []
        for place in range(random.choice([1, 1, 2])):
            schema_id = number * 4 + place + 1
            tree = doubling(random) if random.random() < 0.01 else schema(random, 3)
            if random.random() < 0.3:
                tree["definitions"] = {"d": schema(random, 1)}
            values = [value(random, tree, tree, 0) for _ in range(random.choice([1, 4, 30]))]
            if random.random() < 0.25:
                tree = fuzz_trees.damaged(random, tree, _WORDS)
                if random.random() < 0.5:
                    values = [value(random, tree, tree, 0) for _ in values]
            if random.random() < 0.3:
                values = [
                    fuzz_trees.damaged(random, v) if random.random() < 0.2 else v for v in values
                ]
            text = json.dumps(tree)
            if random.random() < 0.01:
                text = random.choice(["", "{", text[: len(text) // 2], "5", "null", "[]", '"x"'])
            schemas[schema_id] = {"schema": text, "schemaType": "JSON"}
            if random.random() < 0.05:
                subject = random.choice(["other", "missing", "own"])
                schemas[schema_id]["references"] = [
                    {"name": "other.json", "subject": subject, "version": 1}
                ]
                schemas[schema_id]["subjects"] = [{"subject": "own", "version": 1}]
                other = {
                    "type": "object",
                    "properties": {
                        "x": {"$ref": random.choice(["#", "other.json", "#/no"])},
                        "y": {"type": "integer"},
                    },
                }
                schemas[schema_id + 2] = {
                    "schema": json.dumps(other),
                    "schemaType": "JSON",
                    "subjects": [{"subject": "other", "version": 1}],
                }
            prefix = struct.pack(">bI", 0, schema_id)
            good.append(
                [
                    prefix
                    + (fuzz_trees.text_of(random, v) if random.random() < 0.05 else _dumped(v))
                    for v in values
                ]
            )
        polls = with_headers(random, polls_of(random, self.rows, good), 5)
        return Case(configs, polls, schemas, json.dumps(list(schemas.values()))[:20_000])


def _dumped(tree: Any) -> bytes:
    return json.dumps(tree, separators=(",", ":"), ensure_ascii=False).encode(
        "utf-8", "surrogatepass"
    )


def doubling(random: Random) -> Any:
    """A small schema that is of any size once its references are followed."""
    levels = random.choice([4, 10, 30, 60])
    forms = [
        lambda d: {"allOf": [d, dict(d)]},
        lambda d: {"oneOf": [d, dict(d)]},
        lambda d: {"type": "object", "properties": {"a": d, "b": dict(d)}},
    ]
    form: Any = random.choice(forms)
    definitions: dict[str, Any] = {"d0": {"type": "integer"}}
    for level in range(1, levels):
        inside = {"$ref": f"#/definitions/d{level - 1}"}
        definitions[f"d{level}"] = form(inside)
    return {
        "type": "object",
        "properties": {"id": {"$ref": f"#/definitions/d{levels - 1}"}},
        "definitions": definitions,
    }


def schema(random: Random, depth: int) -> dict[str, Any]:
    """A JSON Schema, sound in most parts."""
    kinds = [
        *_SCALARS,
        *_SCALARS,
        "decimal",
        "temporal",
        "enum",
        *(
            ["object", "object", "array", "map", "entries", "oneOf", "allOf", "types", "any", "ref"]
            if depth
            else []
        ),
    ]
    kind = "object" if depth == 3 and random.random() < 0.8 else random.choice(kinds)
    match kind:
        case "object":
            names = random.sample(_MEMBERS, random.randint(0, 6))
            made: dict[str, Any] = {
                "type": "object",
                "properties": {name: schema(random, depth - 1) for name in names},
            }
            made["required"] = [name for name in names if random.random() < 0.4]
            if depth == 3 and random.random() < 0.02:
                made["properties"] |= {f"w{place}": schema(random, 0) for place in range(400)}
            if random.random() < 0.2:
                made["additionalProperties"] = random.choice([False, True, {"type": "integer"}])
        case "array":
            made = {"type": "array", "items": schema(random, depth - 1)}
        case "map":
            made = {"type": "object", "additionalProperties": schema(random, depth - 1)}
            if random.random() < 0.5:
                made["connect.type"] = "map"
        case "entries":
            entry = {
                "type": "object",
                "properties": {"key": schema(random, 0), "value": schema(random, depth - 1)},
            }
            made = {"type": "array", "connect.type": "map", "items": entry}
        case "oneOf":
            made = {
                random.choice(["oneOf", "anyOf"]): [
                    {"type": "null"},
                    *(schema(random, depth - 1) for _ in range(random.choice([1, 1, 2]))),
                ]
            }
        case "allOf":
            made = {"allOf": [schema(random, depth - 1), {"description": "d"}]}
        case "types":
            made = {"type": random.sample(["null", *_SCALARS], random.choice([1, 2, 2, 3]))}
        case "any":
            made = {}
        case "ref":
            made = {
                "$ref": random.choice(["#/definitions/d"] * 8 + ["#", "other.json", "#/no/such"])
            }
        case "decimal":
            made = {
                "type": "number",
                "title": _DECIMAL,
                "connect.type": "bytes",
                "connect.version": 1,
                "connect.parameters": {"scale": str(random.choice([0, 2, -2, 40, 76]))},
            }
        case "temporal":
            name = random.choice(["Date", "Time", "Timestamp"])
            made = {
                "type": "integer",
                "title": f"org.apache.kafka.connect.data.{name}",
                "connect.type": "int64" if name == "Timestamp" else "int32",
            }
        case "enum":
            made = {"enum": random.sample(["A", "B", "ü", 1, None], random.randint(1, 3))}
        case _:
            made = {"type": kind}
            if random.random() < 0.3:
                made["connect.type"] = random.choice(_CONNECT[kind])
    if random.random() < 0.05:
        made["default"] = random.choice([0, 1, "x", [], {}, True, 1.5])
    if random.random() < 0.05:
        made["connect.index"] = random.choice([0, 1, 5, -1, "2", 2**40])
    return made


def value(random: Random, tree: Any, whole: Any, depth: int) -> Any:
    """A value of a schema, as far as it means anything."""
    if not isinstance(tree, dict) or depth > 12:
        return random.choice([None, 1, "x", {}, []])
    if tree.get("$ref") == "#/definitions/d":
        definitions = whole.get("definitions") if isinstance(whole, dict) else None
        return value(
            random,
            definitions.get("d") if isinstance(definitions, dict) else None,
            whole,
            depth + 1,
        )
    for word in ("oneOf", "anyOf", "allOf"):
        if isinstance(tree.get(word), list) and tree[word]:
            return value(random, random.choice(tree[word]), whole, depth + 1)
    if isinstance(tree.get("enum"), list) and tree["enum"]:
        return random.choice(tree["enum"])
    kind = tree.get("type")
    if isinstance(kind, list):
        kind = random.choice(kind) if kind else None
    if kind == "object":
        properties = tree.get("properties")
        if isinstance(properties, dict):
            made = {
                n: value(random, p, whole, depth + 1)
                for n, p in properties.items()
                if random.random() < 0.9
            }
            return {**made, "more": 1} if random.random() < 0.02 else made
        return {
            random.choice(_MEMBERS): value(
                random, tree.get("additionalProperties"), whole, depth + 1
            )
            for _ in range(random.randint(0, 3))
        }
    if kind == "array":
        return [
            value(random, tree.get("items"), whole, depth + 1) for _ in range(random.randint(0, 3))
        ]
    return _scalar(random, kind, tree.get("connect.type"), tree.get("title"))


def _scalar(random: Random, kind: Any, connect_type: Any, title: Any) -> Any:
    if title == _DECIMAL:
        return random.choice(["AQ==", "AY/J", 1.5, 12, "1.5", 10**30])
    if connect_type == "bytes":
        return random.choice(["AQ==", "", "AAECAw==", "x"])
    match kind:
        case "integer":
            return random.choice(
                [0, 1, -1, 127, 128, 2**31, 86_400_000, 2**63 - 1, random.randint(-(10**9), 10**9)]
            )
        case "number":
            return random.choice(
                [0.0, -0.0, 1.5, 7, 1e300, 5e-324, random.uniform(-9, 9), 16777217]
            )
        case "string":
            return random.choice(
                [
                    "",
                    "x",
                    "ü",
                    "\U0001f600",
                    "\\",
                    '"',
                    "longer text",
                    "aaaaaaaaaaaaaaaaaaaaaaaaaaaa!",
                ]
            )
        case "boolean":
            return random.random() < 0.5
        case "null":
            return None
    return random.choice([None, 1, "x", {"a": [1]}, [1], 1.5, True])
