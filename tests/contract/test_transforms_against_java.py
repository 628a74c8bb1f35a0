"""Built-in transformations, predicates, and JsonConverter compared with Kafka's classes, on
generated records and messages.

Every difference is in `KNOWN`, with its name in docs/compatibility.md; differences that no longer
exist must be removed from the list.
"""

from __future__ import annotations

import functools
import importlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from random import Random
from typing import Any, Final

import pytest
from example_counts import examples
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from java_differences import (
    Difference,
    Known,
    changed,
    check,
    configured,
    differences,
    error_texts,
    outcome,
    undocumented,
)
from java_plugins import JavaPlugins, Node, comparable, record_node, side_node
from json_strategies import ODD_MESSAGES, ODD_PAYLOADS, ODD_TEXTS, SCHEMAS, objects
from transforms_options import LITERALS, Options
from transforms_records import Events
from transforms_rows import Rows

from connect_py.api.errors import ConfigError, DataError
from connect_py.api.plugin import PluginKind
from connect_py.api.record import SinkRecord
from connect_py.api.schema import (
    INT32,
    OPTIONAL_BYTES,
    OPTIONAL_STRING,
    Schema,
    SchemaAndValue,
    Type,
    array,
    date,
    decimal,
    struct,
    time,
    timestamp,
    validate_value,
)
from connect_py.converters import PLUGINS as CONVERTERS
from connect_py.converters.json.json_converter import JsonConverter
from connect_py.java.strings import to_float32

KAFKA: Final = "org.apache.kafka.connect.transforms"
JSON: Final = "org.apache.kafka.connect.json.JsonConverter"
RECORDS: Final = examples(8_000)  # at least
VALUES: Final = examples(2_400)
DAMAGED: Final = examples(6_000)
DAY: Final = 86_400_000
JSON_CONFIGS: Final = [
    {"schemas.enable": enable, "decimal.format": decimals, "replace.null.with.default": replace}
    for enable in ("true", "false")
    for decimals in ("BASE64", "numeric")
    for replace in ("true", "false")
]
CORNERS: Final = [  # where the known differences are, for certain
    ("Cast$Value", {"spec": "string"}),
    ("Cast$Key", {"spec": "int64"}),
    ("MaskField$Value", {"fields": "price"}),
    ("MaskField$Value", {"fields": "weight,big", "replacement": "1.5e1"}),
    ("SetSchemaMetadata$Value", {"schema.name": "n"}),
    ("TimestampConverter$Value", {"target.type": "Timestamp", "field": "ts_ms"}),
    ("TimestampConverter$Value", {"target.type": "Date", "field": "ts_ms"}),
    ("TimestampConverter$Value", {"target.type": "Date", "field": "hour"}),
    ("ReplaceField$Value", {"include": "inner,small", "renames": "hour:inner,small:op"}),
    ("ReplaceField$Value", {"exclude": "big", "renames": "at:small"}),
    ("HeaderFrom$Value", {"fields": "nosuch", "headers": "h", "operation": "copy"}),
    ("TimestampRouter", {}),
    ("InsertHeader", {"header": "h", "value.literal": "12:30"}),
    ("InsertHeader", {"header": "h", "value.literal": "1500-01-01"}),
    ("InsertHeader", {"header": "h", "value.literal": '[1,"a"]'}),
    ("InsertField$Key", {"topic.field": "t!"}),
    ("ExtractField$Value", {"field": "text.x", "field.syntax.version": "V2"}),
]
PREDICATES: Final = [
    ("TopicNameMatches", {"pattern": "t.*"}),
    ("TopicNameMatches", {"pattern": r"s\.public\.\w"}),
    ("TopicNameMatches", {"pattern": "opi"}),
    ("HasHeaderKey", {"name": "h"}),
    ("RecordIsTombstone", {}),
]
REFUSED: Final = [
    ("Cast$Value", {}),
    ("Cast$Value", {"spec": ""}),
    ("Cast$Value", {"spec": "a:bytes"}),
    ("Cast$Value", {"spec": "a:int8:b"}),
    ("Cast$Value", {"spec": "int8,b:int8"}),
    ("Cast$Key", {"spec": "array"}),
    ("DropHeaders", {}),
    ("DropHeaders", {"headers": ""}),
    ("ExtractField$Value", {}),
    ("ExtractField$Value", {"field": "a", "field.syntax.version": "V3"}),
    ("ExtractField$Value", {"field": "a.`b", "field.syntax.version": "V2"}),
    ("ExtractField$Value", {"field": "a", "replace.null.with.default": "yes"}),
    ("HeaderFrom$Value", {"fields": "a", "headers": "a,b", "operation": "copy"}),
    ("HeaderFrom$Value", {"fields": "a", "headers": "a", "operation": "COPY"}),
    ("HeaderFrom$Value", {"fields": "", "headers": "a", "operation": "copy"}),
    ("HoistField$Value", {}),
    ("InsertField$Value", {}),
    ("InsertHeader", {"header": "h"}),
    ("MaskField$Value", {}),
    ("MaskField$Value", {"fields": "a", "replacement": ""}),
    ("MaskField$Value", {"fields": ""}),
    ("RegexRouter", {}),
    ("ReplaceField$Value", {"renames": "a"}),
    ("ReplaceField$Value", {"renames": "a:b:c"}),
    ("SetSchemaMetadata$Value", {}),
    ("SetSchemaMetadata$Value", {"schema.version": "x"}),
    ("TimestampConverter$Value", {}),
    ("TimestampConverter$Value", {"target.type": "date"}),
    ("TimestampConverter$Value", {"target.type": "string"}),
    ("ValueToKey", {}),
    ("ValueToKey", {"fields": ""}),
    ("predicates.TopicNameMatches", {}),
    ("predicates.HasHeaderKey", {}),
    ("predicates.HasHeaderKey", {"name": ""}),
]
REFUSED_IN_OWN_WORDS: Final = [
    ("Cast$Value", {"spec": "a:foo"}),
    ("InsertField$Value", {"static.field": "a"}),
    ("RegexRouter", {"regex": "(", "replacement": "a"}),
    ("predicates.TopicNameMatches", {"pattern": "("}),
    ("TimestampConverter$Value", {"target.type": "Date", "unix.precision": "days"}),
    ("TimestampConverter$Value", {"target.type": "string", "format": "bbb"}),
]
ODD_BASE64: Final = [
    b'"9dhb8bbU="',
    b'"AQ=="',
    b'"AQ="',
    b'"AQ"',
    b'"AQI="',
    b'"===="',
    b'"AQID\\nBAUG"',
    b'" AQID"',
    b'"AR=="',
    b'"AQ==AQ=="',
    b'"AQID "',
    b'"AQ ID"',
    b'"A-_D"',
    b'" "',
    b'"AQID="',
]
ODD_WHOLE: Final = [
    b"-0.0",
    b'{"a":-0.0}',
    b'{"a":1}\xff',
    b"nullx",
    b"null$",
    b"null_",
    b'true"a"',
    b'"a"b',
    b"1[",
    b"[1]x",
    b"0009",
    b"-007",
    b"00.5",
    b"0 1",
    b"[00]",
    b'{"a":"\xed\xa0\x80"}',
    b'{"\xc3":1}',
    b'{"a":"\xc0\x80"}',
    b'"\\u0000"',
    b'{"a\\ud83d\\ude00":1}',
    b"null\xc3\xa9",
    b"null\xff",
    b"1\xff",
    b"1 \xff",
    b"1e99999999999",
    b"1e-3000000000",
    b'{"schema":{"type":"int8","version":1e51},"payload":1}',
    b'{"schema":{"type":"int8","version":"x"},"payload":1}',
    b'{"schema":{"type":"int8","version":5000000000},"payload":1}',
    b'{"a":1e400}',
    b'{"\\ud800":1}',
    b'{"a":"\\ud800"}',
    *(
        word + part.encode()
        for word in (b"null", b"true", b"1")
        for part in "~\x7f\x85\xad\xb2\u05d0\u05be\u2028€"
    ),
]
FLOAT: Final = re.compile(r"-?\d+\.\d+(?:E-?\d+)?")
CONNECT: Final = "org.apache.kafka.connect"
HEADER: Final = "storage.SimpleHeaderConverter"
SIMPLE: Final = [
    "storage.StringConverter",
    "converters.ByteArrayConverter",
    "converters.BooleanConverter",
    *(f"converters.{kind}Converter" for kind in ("Short", "Integer", "Long", "Float", "Double")),
]
pytestmark = pytest.mark.timeout(400)


# --- differences that docs/compatibility.md names


def _nameless(node: Node) -> Node:
    """Remove logical names; moments become integers."""
    if isinstance(node, dict) and "parameters" in node:
        return {**node, "name": None, "version": None, "parameters": {}}
    return ["integer", node[1]] if isinstance(node, list) and node[:1] == ["moment"] else node


def _whole_cast(found: Difference) -> bool:
    whole = found.plugin.startswith("Cast$") and ":" not in found.configs["spec"]
    return whole and changed(found.java, _nameless) == changed(found.ours, _nameless)


def _zero_decimals(found: Difference) -> bool:
    def scaleless(node: Node) -> Node:
        is_zero = isinstance(node, list) and node[:1] == ["decimal"] and Decimal(node[1]) == 0
        return ["decimal", "0"] if is_zero else node

    return found.plugin.startswith("MaskField$") and changed(found.java, scaleless) == changed(
        found.ours, scaleless
    )


def _schemaless_moments(found: Difference) -> bool:
    def number(node: Node) -> Node:
        if not isinstance(node, list) or node[:1] != ["moment"]:
            return node
        millis = int(node[1])
        return ["integer", str(millis // DAY if found.configs["target.type"] == "Date" else millis)]

    return (
        found.plugin.startswith("TimestampConverter$") and changed(found.java, number) == found.ours
    )


def _mixed_collections(found: Difference) -> bool:
    def untyped(node: Node) -> Node:
        is_mixed = (
            isinstance(node, dict)
            and node.get("type") in ("ARRAY", "MAP")
            and node["values"] is None
        )
        return None if is_mixed else node

    return found.plugin == "InsertHeader" and changed(found.java, untyped) == found.ours


def _header_text(found: Difference) -> bool:
    is_header = found.plugin == "InsertHeader" and "made" in found.ours
    return is_header and ["text", found.configs["value.literal"]] in _pairs(found.ours)


def _pairs(node: Node) -> list[Node]:
    """All kinds with their contents in a tree."""
    if isinstance(node, dict):
        return [pair for member in node.values() for pair in _pairs(member)]
    return (
        [node, *(pair for item in node for pair in _pairs(item))] if isinstance(node, list) else []
    )


def _old_dates(found: Difference) -> bool:
    return found.plugin == "InsertHeader" and found.configs["value.literal"].startswith("1500-")


def _negative_zeros(found: Difference) -> bool:
    def positive(node: Node) -> Node:
        return ["float", "0.0"] if node == ["float", "-0.0"] else node

    return found.plugin == "JsonConverter" and changed(found.ours, positive) == changed(
        found.java, positive
    )


def _not_finite(found: Difference) -> bool:
    def zero(node: Node) -> Node:
        return (
            ["float", "0.0"]
            if node in (["float", "nan"], ["float", "inf"], ["float", "-inf"])
            else node
        )

    return found.plugin == "JsonConverter" and changed(found.ours, zero) == found.java


def _half_characters(found: Difference) -> bool:
    def whole(node: Node) -> Node:
        return re.sub("[\ud800-\udfff]", "\ufffd", node) if isinstance(node, str) else node

    return found.plugin == "JsonConverter" and changed(found.java, whole) == found.ours


def _no_text(found: Difference) -> bool:
    if not isinstance(found.given, bytes):
        return False
    try:
        found.given.decode()
    except UnicodeDecodeError:
        return "failed" in found.ours
    return False


def _tiny_numbers(found: Difference) -> bool:
    return found.given == b"1e-3000000000" and "serialization error" in found.java_text


KNOWN: Final[Known] = {
    "`Cast` of a whole value keeps the name of a logical type": _whole_cast,
    "`MaskField` makes decimals of scale 0": _zero_decimals,
    "a schemaless Date of `TimestampConverter` is an object": _schemaless_moments,
    "`SetSchemaMetadata` fails on all but structs": lambda found: (
        found.plugin.startswith("SetSchemaMetadata$")
        and found.java_text == "Cannot list fields on non-struct type"
        and "made" in found.ours
    ),
    "arrays and maps of several types in headers have a schema without member "
    "types": _mixed_collections,
    "a header that begins with a value ends where that does": _header_text,
    "dates before 15 October 1582 in headers are Julian": _old_dates,
    "texts of `NullPointerException` and its like, and texts that print a record": error_texts,
    "JsonConverter reads -0.0 as 0.0": _negative_zeros,
    'JsonConverter reads `"NaN"` and infinities as 0.0': _not_finite,
    "JsonConverter keeps halves of characters (lone surrogates)": _half_characters,
    "JsonConverter refuses numbers with exponents below -2147483648": _tiny_numbers,
    "JsonConverter takes some bytes that are no UTF-8": _no_text,
    "JsonConverter takes the schema of a Decimal without a scale": lambda found: (
        "Decimal schema" in str(found.ours.get("failed"))
    ),
    "JsonConverter takes numbers of decimals beyond a scale of 76": lambda found: (
        "made" in found.java
        and "The scale of a decimal must be between -76 and 76" in str(found.ours.get("failed"))
    ),
}


# --- both sides


@pytest.fixture(scope="module")
def java() -> Iterator[JavaPlugins]:
    with JavaPlugins() as plugins:
        yield plugins


def rows_of(seed: int) -> list[SinkRecord]:
    return Rows(seed).records() if seed % 4 else Events(seed).records()


# --- transformations and predicates


def test_stock_transformations_do_what_javas_do(java: JavaPlugins) -> None:
    seed = count = 0
    found: list[Difference] = []
    while count < RECORDS:
        seed += 1
        name, configs = Options(seed).draw()
        rows = rows_of(seed)
        count += len(rows)
        found += differences(
            java, "apply", f"{KAFKA}.{name}", PluginKind.TRANSFORMATION, configs, rows
        )
    rows = [row for seed in range(16) for row in rows_of(seed)]
    literals = [("InsertHeader", {"header": "h", "value.literal": literal}) for literal in LITERALS]
    for name, configs in literals:
        found += differences(
            java, "apply", f"{KAFKA}.{name}", PluginKind.TRANSFORMATION, configs, rows[:1]
        )
    for name, configs in CORNERS:
        found += differences(
            java, "apply", f"{KAFKA}.{name}", PluginKind.TRANSFORMATION, configs, rows
        )
    check(
        found, {name: explains for name, explains in KNOWN.items() if "JsonConverter" not in name}
    )


def test_stock_predicates_say_what_javas_say(java: JavaPlugins) -> None:
    rows = [row for seed in range(16) for row in rows_of(seed)]
    for name, configs in PREDICATES:
        kind = PluginKind.PREDICATE
        assert not differences(java, "test", f"{KAFKA}.predicates.{name}", kind, configs, rows), (
            name,
            configs,
        )


@pytest.mark.parametrize(("name", "configs"), REFUSED)
def test_configurations_are_refused_in_javas_words(
    java: JavaPlugins, name: str, configs: dict[str, str]
) -> None:
    theirs = java.ask("apply", f"{KAFKA}.{name}", configs, [])
    assert "refused" in theirs
    kind = PluginKind.PREDICATE if name.startswith("predicates.") else PluginKind.TRANSFORMATION
    assert configured(f"{KAFKA}.{name}", kind, configs) == theirs


@pytest.mark.parametrize(("name", "configs"), REFUSED_IN_OWN_WORDS)
def test_configurations_that_java_refuses_are_refused(
    java: JavaPlugins, name: str, configs: dict[str, str]
) -> None:
    theirs = java.ask("apply", f"{KAFKA}.{name}", configs, [])
    kind = PluginKind.PREDICATE if name.startswith("predicates.") else PluginKind.TRANSFORMATION
    ours = configured(f"{KAFKA}.{name}", kind, configs)
    assert ours["refused"][0] == theirs["refused"][0] == ConfigError.java_name
    # there, Java's order is random
    assert ours["refused"][1] != theirs["refused"][1] or "unix.precision" in configs


def test_invalid_date_format_is_refused_before_the_first_record(java: JavaPlugins) -> None:
    configs = {"timestamp.format": "bbb"}
    theirs = java.ask("apply", f"{KAFKA}.TimestampRouter", configs, [record_node(rows_of(1)[0])])
    assert theirs["outcomes"][0]["failed"][0] == "java.lang.IllegalArgumentException"
    assert "refused" in configured(f"{KAFKA}.TimestampRouter", PluginKind.TRANSFORMATION, configs)


# --- JsonConverter


def drawn(strategy: st.SearchStrategy[Any], count: int) -> list[Any]:
    """The same examples in every run."""
    found: list[Any] = []

    @settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(example: Any) -> None:
        found.append(example)

    collect()
    return found


def sides() -> list[SchemaAndValue]:
    pairs = SCHEMAS.flatmap(lambda t: st.tuples(st.just(t[0]), t[1]))
    plain = objects().flatmap(lambda shape: shape)
    made = [
        SchemaAndValue(schema, value)
        for schema, value in drawn(pairs, VALUES)
        if _has_java_form(schema, value)
    ]
    return [
        *made,
        *[SchemaAndValue(None, value) for value in drawn(plain, VALUES // 3) if _fits_longs(value)],
    ]


def _fits_longs(value: Any) -> bool:
    """Integers without a schema are longs where the test sends them to Java."""
    if isinstance(value, dict | list):
        return all(map(_fits_longs, value.values() if isinstance(value, dict) else value))
    return not isinstance(value, int) or -(1 << 63) <= value < 1 << 63


def _has_java_form(schema: Schema, value: Any) -> bool:
    """Java's structs refuse nulls in required members of arrays and maps."""
    try:
        validate_value(schema, value)
    except DataError:
        return "Struct{" not in repr(value)
    return True


def converter(configs: Mapping[str, str]) -> JsonConverter:
    made = JsonConverter()
    made.configure(configs, is_key=False)
    return made


def damaged(random: Random, message: bytes) -> bytes:
    """One to three bytes lost, doubled, or others."""
    data = bytearray(message)
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(data) + 1)
        match random.randrange(4):
            case 0:
                del data[at : at + 1]
            case 1:
                data[at:at] = data[at : at + 1]
            case 2:
                data[at : at + 1] = bytes(
                    [random.choice(b'{}[],:"\\0129.eE-+tfnu \x00\x1f\x7f\xc3\xff/')]
                )
            case _:
                data[at:at] = random.choice(
                    [b"null", b"1e5", b"-", b"007", b'"', b"\\u00e9", b"\\ud800", b" ", b"[]"]
                )
    return bytes(data)


def messages() -> list[bytes | None]:
    """Return good messages of both forms, valid schemas with odd payloads, and odd or damaged
    messages.
    """
    random = Random(7)
    good: list[bytes] = []
    for enable in ("true", "false"):
        made = converter({"schemas.enable": enable, "replace.null.with.default": "false"})
        for side in sides():
            try:
                data = made.from_connect("topic", *side)
            except DataError:  # writing is the other test's
                continue
            if data is not None:
                good.append(data)
    heads = [m[: m.index(b',"payload":') + 11] for m in good if m.startswith(b'{"schema":{')]
    payloads = [
        *drawn(ODD_PAYLOADS, 40),
        *ODD_BASE64,
        b"-0.0",
        b'"NaN"',
        b'"-Infinity"',
        b'"\\ud800"',
        b'{"\\ud800":1}',
    ]
    odd = [random.choice(heads) + payload + b"}" for payload in payloads for _ in range(20)]
    simple = [
        b'{"schema":{"type":"%s"},"payload":%s}' % (k, p)
        for k in (b"bytes", b"double")
        for p in payloads
    ]
    whole = [*drawn(ODD_MESSAGES, 40), *drawn(ODD_TEXTS, 60), *ODD_WHOLE]
    return [
        None,
        *good,
        *odd,
        *simple,
        *whole,
        *[damaged(random, random.choice(good)) for _ in range(DAMAGED)],
    ]


def test_json_values_are_written_as_java_writes_them(java: JavaPlugins) -> None:
    sent = sides()
    for configs in JSON_CONFIGS:
        theirs = java.ask("write", JSON, configs, [side_node(*side) for side in sent])["outcomes"]
        made = converter(configs)
        for side, their in zip(sent, theirs, strict=True):
            our = outcome(lambda: made.from_connect("topic", *side))  # noqa: B023 - called at once
            if our.get("made") is not None:
                our["made"] = our["made"].hex()
            assert our == their or _same_text(our, their), (configs, side, their, our)


def _same_text(one: Node, other: Node) -> bool:
    """Compare except for insignificant digits of floats: Java before 19 writes some with an extra
    digit.
    """
    if not isinstance(one.get("made"), str) or not isinstance(other.get("made"), str):
        return False
    texts = [bytes.fromhex(node["made"]).decode() for node in (one, other)]
    if len({FLOAT.sub("", text) for text in texts}) > 1:
        return False
    pairs = zip(*[map(float, FLOAT.findall(text)) for text in texts], strict=True)
    return all(
        a == b or (math.isfinite(to_float32(a)) and to_float32(a) == to_float32(b))
        for a, b in pairs
    )


def test_json_messages_are_read_as_java_reads_them(java: JavaPlugins) -> None:
    sent = messages()
    hexes = [None if message is None else message.hex() for message in sent]
    found = []
    for configs in JSON_CONFIGS:
        if configs["decimal.format"] != "BASE64":  # for writing only
            continue
        made = converter(configs)
        theirs = comparable(java.ask("read", JSON, configs, hexes)["outcomes"])
        for message, their in zip(sent, theirs, strict=True):
            our = comparable(outcome(lambda: side_node(*made.to_connect("topic", message))))  # noqa: B023 - at once
            if our != their:
                found.append(Difference("JsonConverter", configs, message, their, our))
    check(found, {name: explains for name, explains in KNOWN.items() if "JsonConverter" in name})


# --- simple converters, of messages and of headers


def simple_converter(name: str, kind: PluginKind) -> Any:
    (path,) = (p.python for p in CONVERTERS if p.name == f"{CONNECT}.{name}" and p.kind is kind)
    module, _, attribute = path.partition(":")
    made = getattr(importlib.import_module(module), attribute)()
    made.configure({}, **({"is_key": False} if kind is PluginKind.CONVERTER else {}))
    return made


@pytest.mark.parametrize("name", SIMPLE)
def test_simple_messages_are_read_and_written_as_by_java(java: JavaPlugins, name: str) -> None:
    made, random = simple_converter(name, PluginKind.CONVERTER), Random(3)
    lengths = [length for length in (1, 2, 3, 4, 8, 9) for _ in range(9)]
    sent = [None, b"", b"\0", b"\1", b"\2", b"\xff\x61", *map(random.randbytes, lengths)]
    hexes = [None if data is None else data.hex() for data in sent]
    read = comparable(java.ask("read", f"{CONNECT}.{name}", {}, hexes)["outcomes"])
    sides = []
    for data, their in zip(sent, read, strict=True):
        assert comparable(outcome(lambda: side_node(*made.to_connect("topic", data)))) == their  # noqa: B023 - at once
        if "made" in their:
            sides.append(made.to_connect("topic", data))
    written = java.ask("write", f"{CONNECT}.{name}", {}, [side_node(*side) for side in sides])[
        "outcomes"
    ]
    ours = [made.from_connect("topic", *side) for side in sides]
    assert [{"made": None if data is None else data.hex()} for data in ours] == written


FOREIGN: Final[Sequence[SchemaAndValue]] = [
    SchemaAndValue(schema, value)
    for schema, values in (
        *(
            (Schema(kind, optional=True), [1])
            for kind in (Type.INT8, Type.INT16, Type.INT32, Type.INT64)
        ),
        *(
            (Schema(kind, optional=True), [1.5, math.nan, -math.inf, -0.0])
            for kind in (Type.FLOAT32, Type.FLOAT64)
        ),
        (Schema(Type.BOOLEAN, optional=True), [True, False]),
        (OPTIONAL_STRING, ["", "1"]),
        (OPTIONAL_BYTES, [b"ab"]),
        (date(optional=True), [-1, 3]),
        (time(optional=True), [5_000]),
        (timestamp(optional=True), [-1, 1_760_000]),
        (decimal(2, optional=True), [Decimal("1.25")]),
        (Schema(Type.INT32, optional=True, name="own"), [4]),
        (array(INT32, optional=True), [[1]]),
        (struct(("a", INT32), optional=True), []),
        (None, [1, 1.5, True, "a", b"x", [1], {"a": 1}]),
    )
    for value in (*values, None)
]
KNOWN_WRITTEN: Final[Known] = {
    "`StringConverter` writes bytes as a place in memory": lambda found: (
        found.plugin == "StringConverter"
        and bytes.fromhex(found.java.get("made", "")).startswith(b"[B@")
    ),
    "`ShortConverter`, `IntegerConverter` and `FloatConverter` refuse numbers without a "
    "schema": lambda found: (
        found.plugin in ("ShortConverter", "IntegerConverter", "FloatConverter")
        and found.java_text.endswith(
            ("(was class java.lang.Long): ", "(was class java.lang.Double): ")
        )
        and found.given.schema is None  # type: ignore[attr-defined] # a side
    ),
}


def test_values_of_other_schemas_convert_or_fail_as_in_java(java: JavaPlugins) -> None:
    found = []
    for name in SIMPLE:
        made = simple_converter(name, PluginKind.CONVERTER)
        theirs = java.ask("write", f"{CONNECT}.{name}", {}, [side_node(*side) for side in FOREIGN])[
            "outcomes"
        ]
        for side, their in zip(FOREIGN, theirs, strict=True):
            our = outcome(lambda: _hex(made.from_connect("topic", *side)))  # noqa: B023 - called at once
            if our != their:
                found.append(Difference(name.rpartition(".")[2], {}, side, their, our))
    check(found, KNOWN_WRITTEN)


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def test_headers_are_read_as_java_reads_them(java: JavaPlugins) -> None:
    made, random = simple_converter(HEADER, PluginKind.HEADER_CONVERTER), Random(5)
    letters = '0123456789.-+eE[]{},:"TtrueFalsnul abZ'
    texts = [
        *LITERALS,
        *("".join(random.choices(letters, k=random.randint(1, 8))) for _ in range(800)),
    ]
    texts = [text for text in texts if text.strip() != "null"]  # Java answers with no pair at all
    theirs = java.ask(
        "read header", f"{CONNECT}.{HEADER}", {}, [text.encode().hex() for text in texts]
    )["outcomes"]
    for text, their in zip(texts, comparable(theirs), strict=True):
        header = functools.partial(made.to_connect_header, "topic", "h", text.encode())
        our = comparable(outcome(lambda header=header: side_node(*header())))
        found = Difference("InsertHeader", {"value.literal": text}, text, their, our)
        assert our == their or any(explains(found) for explains in KNOWN.values()), found


def test_documentation_names_every_known_difference_from_java() -> None:
    assert undocumented({**KNOWN, **KNOWN_WRITTEN}) == []
