"""Cases of ProtobufConverter: schemas as source and as descriptors, and bodies written field by
field.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Sequence
from random import Random
from typing import Any, Final

import fuzz_bytes
from fuzz_bytes import varint
from fuzz_target import BOOLEANS, Case, RegistryTarget, options, polls_of, with_headers

from connect_py.api.errors import DataError
from connect_py.converters.protobuf.proto_compiler import compile_proto
from connect_py.converters.protobuf.protobuf_converter import ProtobufConverter

_VARINTS: Final = ["int32", "int64", "uint32", "uint64", "sint32", "sint64", "bool"]
_FIXED: Final = {"fixed32": 4, "sfixed32": 4, "float": 4, "fixed64": 8, "sfixed64": 8, "double": 8}
_SCALARS: Final = [*_VARINTS, *_FIXED, "string", "bytes"]
_KNOWN: Final = {
    "google.protobuf.Timestamp": [(1, "int64"), (2, "int32")],
    "google.type.Date": [(1, "int32"), (2, "int32"), (3, "int32")],
    "google.type.TimeOfDay": [(1, "int32"), (2, "int32"), (3, "int32"), (4, "int32")],
    "google.protobuf.StringValue": [(1, "string")],
    "google.protobuf.Int64Value": [(1, "int64")],
    "confluent.type.Decimal": [(1, "bytes"), (2, "uint32"), (3, "int32")],
    "google.protobuf.BytesValue": [(1, "bytes")],
    "google.protobuf.Duration": [(1, "int64"), (2, "int32")],
    "google.protobuf.Any": [(1, "string"), (2, "bytes")],
    "google.protobuf.Struct": [(1, "bytes")],
    "google.protobuf.Empty": [],
}
_IMPORTS: Final = [
    "google/protobuf/timestamp.proto",
    "google/protobuf/wrappers.proto",
    "google/type/date.proto",
    "google/type/timeofday.proto",
    "confluent/meta.proto",
    "confluent/type/decimal.proto",
    "google/protobuf/duration.proto",
    "google/protobuf/any.proto",
    "google/protobuf/struct.proto",
    "google/protobuf/empty.proto",
]
_PARAMETERS: Final = [
    ("connect.type", "int8"),
    ("connect.type", "int16"),
    ("connect.type", "x"),
    ("scale", "2"),
    ("scale", "2000000000"),
    ("scale", "x"),
    ("precision", "9"),
    ("precision", "-1"),
    ("precision", "2000000000"),
    ("connect.version", "x"),
]
_HEADS: Final = [
    b"\0",
    b"\0",
    b"\0",
    b"\0",
    b"\2\0",
    b"\2\2",
    b"\4\0\0",
    b"\2\x62",
    b"\xff\xff\x03",
    b"\2\1",
    b"\4\2\0",
]
Fields = list[tuple[int, Any]]  # number, and a scalar's name or the fields of a message


class Protobuf(RegistryTarget):
    """ProtobufConverter."""

    name = "protobuf"
    made = ProtobufConverter
    rows = 1500  # each schema needs a compiler process

    def case(self, random: Random, number: int) -> Case:
        names = [
            "enhanced.protobuf.schema.support",
            "int.for.enums",
            "optional.for.nullables",
            "optional.for.proto2",
            "wrapper.for.nullables",
            "wrapper.for.raw.primitives",
            "generate.struct.for.nulls",
            "generate.index.for.unions",
            "flatten.unions",
            "connect_py.timestamp.micros",
        ]
        configs = options(random, dict.fromkeys(names, BOOLEANS))
        schemas: dict[int, Any] = {}
        good: list[list[bytes]] = []
        for place in range(random.choice([1, 1, 1, 2])):
            schema_id = number * 4 + place + 1
            drawn = _Drawn(random)
            text = _special(random) if random.random() < 0.08 else drawn.file()
            fields = drawn.messages[0] if drawn.messages else [(1, "int32"), (2, "string")]
            schemas[schema_id] = {
                "schema": self._registered(random, text),
                "schemaType": "PROTOBUF",
            }
            if "other.proto" in text:
                subject = random.choice(["other", "other", "missing", "own"])
                schemas[schema_id]["references"] = [
                    {
                        "name": random.choice(
                            ["other.proto"] * 6
                            + [
                                "../x.proto",
                                "",
                                "a/b.proto",
                                "x\0.proto",
                                "x" * 300,
                                "/etc/x.proto",
                                "\ud800",
                            ]
                        ),
                        "subject": subject,
                        "version": 1,
                    }
                ]
                schemas[schema_id]["subjects"] = [{"subject": "own", "version": 1}]
                other = random.choice(
                    [
                        'syntax = "proto3"; message Other { int32 x = 1; }',
                        "no schema",
                        'syntax = "proto3"; import "schema.proto"; message Other { int32 x = 1; }',
                    ]
                )
                schemas[schema_id + 2] = {
                    "schema": other,
                    "schemaType": "PROTOBUF",
                    "subjects": [{"subject": "other", "version": 1}],
                }
            prefix = struct.pack(">bI", 0, schema_id)
            head = b"\0" if random.random() < 0.85 else random.choice(_HEADS)
            bodies = [drawn.body(fields, 0) for _ in range(random.choice([1, 8, 60]))]
            good.append([prefix + head + body for body in bodies])
        polls = with_headers(random, polls_of(random, self.rows, good), 6)
        return Case(configs, polls, schemas, str(schemas)[:20_000])

    @staticmethod
    def _registered(random: Random, text: str) -> str:
        draw = random.random()
        if draw < 0.75:
            return text
        if draw < 0.85:
            damaged = fuzz_bytes.damaged(random, text.encode(), [b"message A { int32 a = 1; }"])
            return damaged.decode("utf-8", "replace")
        try:
            descriptor: bytes = compile_proto(text).serialized_pb
        except (DataError, OSError):
            return text
        if random.random() < 0.5:
            descriptor = fuzz_bytes.damaged(random, descriptor, [descriptor])
        return base64.b64encode(descriptor).decode()


def _special(random: Random) -> str:
    """A schema that is strange as a whole."""
    levels = random.choice([3, 7, 30, 60])
    match random.randrange(6):
        case 0:
            inside = " ".join(
                f"message D{n} {{ D{n + 1} a = 1; D{n + 1} b = 2; }}" for n in range(levels)
            )
            return f'syntax = "proto3"; {inside} message D{levels} {{ int32 a = 1; }}'
        case 1:
            return 'syntax = "proto3"; message Tree { repeated Tree children = 1; int32 x = 2; }'
        case 2:
            chain = " ".join(f"message C{n} {{ C{n + 1} a = 1; }}" for n in range(levels * 2))
            return f'syntax = "proto3"; {chain} message C{levels * 2} {{ int32 a = 1; }}'
        case 3:
            return 'syntax = "proto3"; ' + "message N { " * levels + "int32 a = 1; " + "}" * levels
        case 4:
            return random.choice(
                [
                    "",
                    'syntax = "proto3";',
                    'syntax = "proto9"; message A {}',
                    'syntax = "proto3"; enum E {} message A { E e = 1; }',
                    'syntax = "proto3"; message A { int32 a = 1; int32 a = 2; }',
                    'syntax = "proto3"; message A { int32 a = 0; }',
                    'syntax = "proto3"; import "schema.proto"; message A { int32 a = 1; }',
                    'edition = "2023"; message A { int32 a = 1; }',
                    'syntax = "proto2"; message A { repeated group G = 1 { optional int32 x = 2; '
                    "} }",
                ]
            )
    return (
        'syntax = "proto3"; message Wide { '
        + " ".join(f"int32 w{n} = {n};" for n in range(1, 800))
        + " }"
    )


class _Drawn:
    """Draws the source of a schema, and bodies of its first message."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.messages: list[Fields] = []
        self._proto2 = random.random() < 0.25

    def file(self) -> str:
        random = self._random
        package = random.choice(["", "package shop.v1; ", "package shop.v1; "])
        other = 'import "other.proto"; ' if random.random() < 0.06 else ""
        imports = "".join(f'import "{name}"; ' for name in _IMPORTS)
        self.messages = [[] for _ in range(random.choice([1, 2, 3]))]
        messages = [self._message(f"M{n}", fields, 2) for n, fields in enumerate(self.messages)]
        enum = "enum State { NEW = 0; SENT = 1; BACK = -1; }"
        return (
            f'syntax = "proto{2 if self._proto2 else 3}"; {package}{imports}{other}{enum} '
            f"{' '.join(messages)}"
        )

    def _message(self, name: str, fields: Fields, depth: int) -> str:
        """Draw a message, and note its fields."""
        random = self._random
        parts: list[str] = []
        for place in range(random.choice([0, 1, 3, 5, 9] if depth == 2 else [0, 1, 2, 3])):
            number = random.choice([place + 1] * 9 + [random.choice([200, 20_000, 536_870_911])])
            parts.append(self._field(f"f{place}", number, fields, depth))
        return f"message {name} {{ {' '.join(parts)} }}"

    def _field(self, name: str, number: int, fields: Fields, depth: int) -> str:
        random = self._random
        label = random.choice(["", "", "optional ", "repeated "])
        if self._proto2:
            label = random.choice(["optional ", "optional ", "required ", "repeated "])
        kind = random.choice(
            [*_SCALARS, *_SCALARS, "State", *_KNOWN, "map", "oneof", "message", "message"]
        )
        option = ""
        if random.random() < 0.1:
            key, value = random.choice(_PARAMETERS)
            option = f' [(confluent.field_meta) = {{params: [{{key: "{key}", value: "{value}"}}]}}]'
        if kind == "confluent.type.Decimal" and not option:
            option = ' [(confluent.field_meta) = {params: [{key: "scale", value: "2"}]}]'
        match kind:
            case "map":
                values = random.choice([*_SCALARS, "State", "google.protobuf.Timestamp"])
                keys = random.choice(["string", "string", "int32", "bool", "fixed64"])
                fields.append(
                    (
                        number,
                        [
                            (1, keys),
                            (2, _KNOWN.get(values, "int32" if values == "State" else values)),
                        ],
                    )
                )
                return f"map<{keys}, {values}> {name} = {number};"
            case "oneof":
                fields += [(number, "string"), (number + 1000, "int64")]
                return f"oneof {name} {{ string {name}a = {number}; int64 {name}b = {number + 1000}; }}"  # noqa: E501 - one literal
            case "message" if depth:
                inside: Fields = []
                text = self._message(f"In{name}", inside, depth - 1)
                fields.append((number, inside))
                return f"{text} {label}In{name} {name} = {number}{option};"
            case "message":
                kind = "string"
        fields.append((number, _KNOWN.get(kind, "int32" if kind == "State" else kind)))
        if (
            self._proto2
            and label == "optional "
            and kind in _VARINTS[:6]
            and not option
            and random.random() < 0.3
        ):
            option = " [default = 7]"
        return f"{label}{kind} {name} = {number}{option};"

    def body(self, fields: Sequence[tuple[int, Any]], depth: int) -> bytes:
        """Return the fields of a message in any order; some are missing or repeated."""
        random = self._random
        made = []
        for number, kind in fields:
            made += [
                self._value(number, kind, depth) for _ in range(random.choice([0, 1, 1, 1, 1, 2]))
            ]
        if random.random() < 0.05:
            random.shuffle(made)
        if random.random() < 0.02:
            made.append(
                random.choice(
                    [
                        varint(9999 << 3) + b"\1",
                        varint(1 << 3 | 3) * random.choice([1, 50, 200]),
                        varint(7 << 3 | 2) + varint(2**31 - 1),
                        varint(1 << 3 | 4),
                        varint(1 << 3 | 2) + varint(2**63),
                        varint(0) + b"\1",
                        varint(1 << 3 | 7),
                        b"\xff" * 10,
                    ]
                )
            )
        return b"".join(made)

    def _value(self, number: int, kind: Any, depth: int) -> bytes:
        random = self._random
        if isinstance(kind, list):
            inside = self.body(kind, depth + 1) if depth < 6 else b""
            return varint(number << 3 | 2) + varint(len(inside)) + inside
        if kind in _FIXED:
            size = _FIXED[kind]
            special = (
                [b"\0\0\xc0\x7f", b"\0\0\x80\xff", b"\0\0\0\x80"]
                if size == 4
                else [b"\0\0\0\0\0\0\xf8\x7f"]
            )
            packed = struct.pack("<f" if size == 4 else "<d", random.uniform(-9, 9))
            return varint(number << 3 | (5 if size == 4 else 1)) + random.choice(
                [packed, random.choice(special)]
            )
        if kind in ("string", "bytes"):
            data = random.choice(
                [
                    b"",
                    b"x",
                    "ü".encode(),
                    b"longer text",
                    random.randbytes(5) if kind == "bytes" or random.random() < 0.02 else b"y",
                ]
            )
            return varint(number << 3 | 2) + varint(len(data)) + data
        return varint(number << 3) + varint(
            random.choice(
                [
                    0,
                    1,
                    2,
                    7,
                    31,
                    2024,
                    random.getrandbits(31),
                    2**64 - 1 if random.random() < 0.3 else 3,
                ]
            )
        )
