"""ProtobufConverter: what each kind of field becomes, and columns equal rows on generated and on
damaged messages."""

from __future__ import annotations

import base64
import math
import struct as binary
from collections import Counter
from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import cache
from typing import Any

import pytest
from fixtures.both_forms import PLANS, Plan, agree, both_forms, poll_of
from fixtures.schema_registry_stub import Stub, schema_registry
from fixtures.schema_registry_stub import impatient as unknown_is_bad
from fixtures.seeded_rows import SeededRows
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given
from hypothesis import strategies as st

from connect_py.api.errors import DataError
from connect_py.api.schema import NULL, Struct, Type
from connect_py.converters.protobuf.proto_compiler import compile_proto
from connect_py.converters.protobuf.protobuf_converter import ProtobufConverter, message_indexes
from connect_py.converters.registry.registry_converter import RegistryConverter

ORDER = """
syntax = "proto3";
package shop.v1;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/type/date.proto";
import "google/type/timeofday.proto";
import "confluent/meta.proto";
import "confluent/type/decimal.proto";

message Order {
  int64 id = 1;
  sint32 count = 2;
  uint32 wide = 3;
  fixed64 huge = 4;
  optional string note = 5;
  State state = 6;
  google.protobuf.Timestamp at = 7;
  google.type.Date day = 8;
  google.type.TimeOfDay hour = 9;
  confluent.type.Decimal price = 10 [(confluent.field_meta) = {
    params: [{key: "precision", value: "10"}, {key: "scale", value: "2"}]}];
  repeated Line lines = 11;
  map<string, int32> stock = 12;
  oneof customer { string name = 13; int64 number = 14; Person person = 15; }
  google.protobuf.StringValue alias = 16;
  bytes raw = 17;
  double weight = 18;
  float ratio = 19;
  bool paid = 20;
  repeated int32 marks = 21 [packed = true];
  int32 small = 22 [(confluent.field_meta) = {params: [{key: "connect.type", value: "int16"}]}];
  Empty nothing = 23;
}
message Line { string sku = 1; optional int32 pieces = 2; message Extra { string text = 1; } Extra extra = 3; }
message Person { string mail = 1; }
message Empty {}
enum State { NEW = 0; SENT = 1; }
"""  # noqa: E501 - a table or a literal is wider
OLD = """
syntax = "proto2";
message Old {
  required int32 a = 1;
  optional int32 b = 2 [default = 7];
  optional string c = 3;
  optional Grade d = 4;
  optional string e = 5 [default = "x"];
  optional Grade f = 6 [default = NONE];
}
enum Grade { BEST = 1; NONE = 0; }
"""
SELF = 'syntax = "proto3"; message Tree { repeated Tree children = 1; }'
OTHER = 'syntax = "proto3"; package other; message Address { string city = 1; }'
REFERRING = 'syntax = "proto3"; import "address.proto"; message Home { other.Address at = 1; }'


@pytest.fixture(scope="module")
def registry() -> Iterator[Stub]:
    address = {
        "schema": OTHER,
        "schemaType": "PROTOBUF",
        "subjects": [{"subject": "address", "version": 1}],
    }
    schemas: dict[int, Any] = {
        1: {"schema": ORDER},
        2: {"schema": OLD},
        3: {"schema": SELF},
        5: address,
    }
    schemas[4] = {
        "schema": REFERRING,
        "references": [{"name": "address.proto", "subject": "address", "version": 1}],
    }
    schemas[6] = {"schema": "not a schema"}
    with schema_registry({k: {"schemaType": "PROTOBUF", **v} for k, v in schemas.items()}) as stub:
        yield stub


def converter(registry: Stub, **configs: str) -> ProtobufConverter:
    made = ProtobufConverter()
    made.configure({"schema.registry.url": registry.url, **configs}, is_key=False)
    return made


@cache
def classes(text: str) -> dict[str, Any]:
    file = compile_proto(text)
    return {name: GetMessageClass(d) for name, d in file.message_types_by_name.items()}


def framed(schema_id: int, message: Any, indexes: bytes = b"\0") -> bytes:
    return binary.pack(">bI", 0, schema_id) + indexes + message.SerializeToString()


def order(**values: Any) -> Any:
    return classes(ORDER)["Order"](**values)


def read(registry: Stub, data: bytes | None, **configs: str) -> Any:
    made = converter(registry, **configs)
    found = made.to_connect("t", data)
    made.close()
    return found


def test_null_message_is_read_as_a_tombstone(registry: Stub) -> None:
    assert read(registry, None) == NULL


def test_absent_scalars_of_proto3_are_zero_and_absent_optionals_null(registry: Stub) -> None:
    value = read(registry, framed(1, order())).value
    assert [value[n] for n in ("id", "count", "huge", "paid", "raw", "state")] == [
        0,
        0,
        0,
        False,
        b"",
        "NEW",
    ]
    assert [
        value[n] for n in ("note", "at", "day", "hour", "price", "alias", "nothing", "customer_0")
    ] == [None] * 8
    assert (value["lines"], value["stock"], value["marks"]) == ([], {}, [])


def test_numbers_dates_and_decimals_have_connects_types(registry: Stub) -> None:
    sent = order(
        wide=4_000_000_000,
        huge=2**64 - 1,
        small=70_000,
        ratio=0.1,
        at={"seconds": -1, "nanos": 999_000_000},
        day={"year": 2024, "month": 2, "day": 29},
        hour={"hours": 24},
        price={"value": b"\xff\x85", "scale": 2},
    )
    schema, value = read(registry, framed(1, sent))
    assert (value["wide"], value["huge"], value["small"]) == (4_000_000_000, -1, 70_000 - 65_536)
    assert math.isclose(value["ratio"], 0.1, rel_tol=1e-7)
    assert (value["at"], value["day"], value["hour"]) == (-1, 19_782, 86_400_000)
    assert value["price"] == Decimal("-1.23")
    assert schema["price"].parameters["scale"] == "2"
    assert schema["small"].type is Type.INT16
    assert schema["at"].name == "org.apache.kafka.connect.data.Timestamp"


def test_timestamps_keep_microseconds_when_the_option_is_set(registry: Stub) -> None:
    sent = framed(1, order(at={"seconds": 1, "nanos": 2_003_999}))
    schema, value = read(registry, sent, **{"connect_py.timestamp.micros": "true"})
    assert value["at"] == 1_002_003
    assert schema["at"].parameters["logicalType"] == "timestamp-micros"


def test_unions_are_structs_with_one_member_set(registry: Stub) -> None:
    schema, value = read(registry, framed(1, order(person={"mail": "a@b"})))
    union = value["customer_0"]
    assert [f.name for f in schema["customer_0"].fields] == ["name", "number", "person"]
    assert (union["name"], union["number"], union["person"]["mail"]) == (None, None, "a@b")
    assert read(registry, framed(1, order(number=0))).value["customer_0"]["number"] == 0


def test_flat_unions_are_fields_of_the_struct_around(registry: Stub) -> None:
    _, value = read(registry, framed(1, order(name="Ann")), **{"flatten.unions": "true"})
    assert (value["name"], value["number"], value["person"]) == ("Ann", None, None)


def test_unions_go_without_a_number_when_told(registry: Stub) -> None:
    _, value = read(
        registry, framed(1, order(name="Ann")), **{"generate.index.for.unions": "false"}
    )
    assert value["customer"]["name"] == "Ann"


def test_enums_are_names_with_parameters_or_numbers(registry: Stub) -> None:
    schema, value = read(registry, framed(1, order(state=1)))
    assert value["state"] == "SENT"
    enum = "io.confluent.connect.protobuf.Enum"
    assert {k: v for k, v in schema["state"].parameters.items() if k.startswith(enum)} == {
        enum: "State",
        f"{enum}.NEW": "0",
        f"{enum}.SENT": "1",
    }
    assert read(registry, framed(1, order(state=9))).value["state"] == "UNKNOWN_ENUM_VALUE_State_9"
    assert (
        read(registry, framed(1, order(state=9)), **{"int.for.enums": "true"}).value["state"] == 9
    )


def test_wrappers_are_structs_or_optional_primitives(registry: Stub) -> None:
    sent = framed(1, order(alias={"value": "x"}))
    assert read(registry, sent).value["alias"]["value"] == "x"
    for option in ({"wrapper.for.nullables": "true"}, {"wrapper.for.raw.primitives": "false"}):
        assert read(registry, sent, **option).value["alias"] == "x"
        assert read(registry, framed(1, order()), **option).value["alias"] is None


def test_struct_names_have_the_package_only_when_asked(registry: Stub) -> None:
    assert read(registry, framed(1, order())).schema.name == "Order"
    full = read(registry, framed(1, order()), **{"enhanced.protobuf.schema.support": "true"}).schema
    assert (full.name, full["state"].parameters["io.confluent.connect.protobuf.Enum"]) == (
        "shop.v1.Order",
        "shop.v1.State",
    )


def test_connect_fields_carry_their_protobuf_tag_number(registry: Stub) -> None:
    schema = read(registry, framed(1, order())).schema
    assert schema["note"].parameters["io.confluent.connect.protobuf.Tag"] == "5"


def test_proto2_tells_required_default_and_absent(registry: Stub) -> None:
    sent = framed(2, classes(OLD)["Old"](a=1))
    schema, value = read(registry, sent)
    assert [schema[n].optional for n in "abc"] == [False, True, True]
    assert (schema["b"].default, value.values) == (7, [1, *[None] * 5])
    assert read(registry, sent, **{"optional.for.proto2": "false"}).value.values == [
        1,
        7,
        "",
        "BEST",
        "x",
        "NONE",
    ]


def test_optional_for_nullables_leaves_other_fields_required(registry: Stub) -> None:
    schema = read(registry, framed(1, order()), **{"optional.for.nullables": "true"}).schema
    assert (schema["id"].optional, schema["note"].optional) == (False, True)


@pytest.mark.parametrize(
    ("data", "indexes"),
    [(b"\x00", (0,)), (b"\x02\x02", (1,)), (b"\x04\x04\x02", (2, 1)), (b"\x04\x00\x00", (0, 0))],
)
def test_message_indexes_are_zigzag_varints_after_their_count(
    data: bytes, indexes: tuple[int, ...]
) -> None:
    assert message_indexes(data + b"rest", 0) == (indexes, len(data))


def test_indexes_choose_the_message_of_the_file(registry: Stub) -> None:
    line = classes(ORDER)["Line"](sku="s")
    assert read(registry, framed(1, line, b"\x02\x02")).value["sku"] == "s"
    extra = GetMessageClass(classes(ORDER)["Line"].DESCRIPTOR.nested_types[0])(text="x")
    assert read(registry, framed(1, extra, b"\x04\x02\x00")).value["text"] == "x"


def test_id_and_indexes_may_stand_in_a_header(registry: Stub) -> None:
    made = converter(registry)
    line = classes(ORDER)["Line"](sku="s")
    head = binary.pack(">bI", 0, 1) + b"\x02\x02"
    assert (
        made.to_connect("t", line.SerializeToString(), [("__value_schema_id", head)]).value["sku"]
        == "s"
    )
    made.close()


def test_protobuf_imports_are_resolved_from_the_registry(registry: Stub) -> None:
    home = b"\x0a\x07\x0a\x05Paris"
    value = read(registry, binary.pack(">bI", 0, 4) + b"\0" + home).value
    assert value["at"]["city"] == "Paris"


def as_descriptor(text: str, imports: Mapping[str, str] | None = None) -> str:
    """A schema as some serializers register it, and some registries give it back."""
    return base64.b64encode(compile_proto(text, imports).serialized_pb).decode()


@pytest.mark.parametrize("home_is_text", [True, False])
@pytest.mark.parametrize("address_is_text", [True, False])
def test_schemas_may_be_descriptors_instead_of_texts(
    home_is_text: bool, address_is_text: bool
) -> None:
    address = OTHER if address_is_text else as_descriptor(OTHER)
    home = REFERRING if home_is_text else as_descriptor(REFERRING, {"address.proto": OTHER})
    found = compile_proto(home, {"address.proto": address}).message_types_by_name["Home"]
    assert found.fields_by_name["at"].message_type.full_name == "other.Address"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"{}", "Unknown magic byte!"),
        (binary.pack(">bI", 0, 1), "message indexes are truncated"),
        (binary.pack(">bI", 0, 1) + b"\x02\x62", "the schema has no message"),
        (binary.pack(">bI", 0, 1) + b"\x00\xff", "rror"),
        (binary.pack(">bI", 0, 3) + b"\x00", "is recursive"),
        (binary.pack(">bI", 0, 6) + b"\x00", "Not a Protobuf schema"),
    ],
)
def test_bad_messages_are_data_errors_that_say_why(registry: Stub, data: bytes, text: str) -> None:
    with pytest.raises(
        DataError, match="Failed to deserialize data for topic t to Protobuf: "
    ) as caught:
        read(registry, data)
    assert text in str(caught.value.__cause__)


_texts = st.text(st.characters(codec="utf-8"), max_size=5)
_int32 = st.integers(-(2**31), 2**31 - 1)
_lines = st.fixed_dictionaries(
    {},
    optional={
        "sku": _texts,
        "pieces": _int32,
        "extra": st.fixed_dictionaries({}, optional={"text": _texts}),
    },
)
_orders = st.builds(
    lambda values, customer: order(**values, **customer),
    st.fixed_dictionaries(
        {},
        optional={
            "id": st.integers(-(2**63), 2**63 - 1),
            "count": _int32,
            "wide": st.integers(0, 2**32 - 1),
            "huge": st.integers(0, 2**64 - 1),
            "note": _texts,
            "state": st.integers(0, 3),
            "at": st.fixed_dictionaries(
                {"seconds": st.integers(-(10**10), 10**10), "nanos": st.integers(0, 10**9 - 1)}
            ),
            "day": st.fixed_dictionaries(
                {
                    "year": st.integers(1, 9999),
                    "month": st.integers(1, 12),
                    "day": st.integers(1, 28),
                }
            ),
            "hour": st.fixed_dictionaries(
                {"hours": st.integers(0, 23), "minutes": st.integers(0, 59)}
            ),
            "price": st.fixed_dictionaries(
                {"value": st.binary(min_size=1, max_size=4), "scale": st.just(2)}
            ),
            "lines": st.lists(_lines, max_size=3),
            "stock": st.dictionaries(_texts, _int32, max_size=3),
            "alias": st.fixed_dictionaries({"value": _texts}),
            "raw": st.binary(max_size=5),
            "weight": st.floats(allow_nan=False),
            "ratio": st.floats(width=32, allow_nan=False),
            "paid": st.booleans(),
            "marks": st.lists(_int32, max_size=3),
            "small": st.integers(-40_000, 40_000),
            "nothing": st.just({}),
        },
    ),
    st.one_of(
        st.just({}),
        st.fixed_dictionaries({"name": _texts}),
        st.fixed_dictionaries({"number": _int32}),
        st.fixed_dictionaries({"person": st.just({"mail": "m"})}),
    ),
)
_olds = st.fixed_dictionaries(
    {"a": _int32},
    optional={
        "b": st.sampled_from([0, 7, 8]),
        "c": _texts,
        "d": st.integers(0, 1),
        "e": st.sampled_from(["", "x", "y"]),
        "f": st.integers(0, 1),
    },
)
_others = _lines.map(lambda values: classes(ORDER)["Line"](**values))


@pytest.fixture(scope="module")
def impatient(registry: Stub) -> Iterator[RegistryConverter]:
    yield from unknown_is_bad(converter(registry), registry)


POOL: list[SeededRows] = [SeededRows(seed, plain=True) for seed in range(8)]  # each is compiled
columnar: Counter[bool] = Counter()


def named_parts(message: bytes) -> tuple[bytes, bytes]:
    """Its id with the index of its type, and its body."""
    return message[:6], message[6:]


@both_forms(ProtobufConverter)
@given(
    PLANS,
    st.lists(_orders, min_size=1, max_size=3),
    st.none() | st.sampled_from(POOL),
    st.integers(0, 2**32),
    st.binary(max_size=12),
    _others,
)
def test_protobuf_columns_equal_rows_on_damaged_messages_too(
    impatient: RegistryConverter,
    plan: Plan,
    orders: list[Any],
    rows: SeededRows | None,
    seed: int,
    noise: bytes,
    other: Any,
) -> None:
    good = [framed(1, each) for each in orders]
    if rows is not None:
        rows.reseed(seed)
        written = [impatient.from_connect("t", rows.schema, rows.value()) for _ in orders]
        good = [message for message in written if message is not None]
    columnar[
        agree(impatient, poll_of(plan, good, [framed(1, other, b"\x02\x02"), noise], named_parts))
    ] += 1


@pytest.fixture(scope="module", params=["true", "false"])
def of_proto2(registry: Stub, request: pytest.FixtureRequest) -> Iterator[ProtobufConverter]:
    made = converter(registry, **{"optional.for.proto2": request.param})
    yield made
    made.close()


@given(st.lists(_olds, min_size=1, max_size=4))
def test_proto2_columns_equal_rows_when_fields_with_default_are_absent(
    of_proto2: ProtobufConverter, olds: list[dict[str, Any]]
) -> None:
    assert agree(of_proto2, [(framed(2, classes(OLD)["Old"](**values)), ()) for values in olds])


def test_most_polls_of_protobuf_were_columns() -> None:
    assert columnar[True] >= columnar.total() / 4


def test_messages_of_one_type_are_one_run_of_columns(registry: Stub) -> None:
    made = converter(registry)
    (run,) = made.to_batch("t", [framed(1, order(id=n)) for n in range(50)] + [None])
    assert (run.start, run.stop, not run.failures) == (0, 51, True)
    assert run.column.data.field("id").to_pylist()[:50] == list(range(50))
    made.close()


def test_structs_of_two_equal_messages_are_equal(registry: Stub) -> None:
    first, second = (read(registry, framed(1, order(id=1))).value for _ in range(2))
    assert isinstance(first, Struct)
    assert first == second
