"""Interface to the native decoder: decoding plans and decoded columns.

The library is optional. Without it, converters decode row by row.
"""

from __future__ import annotations

import ctypes
import struct
import weakref
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from connect_py.api.errors import NotColumnar
from connect_py.columns.joined_bytes import JoinedBytes
from connect_py.columns.native_library import load_library

if TYPE_CHECKING:
    import pyarrow as pa

# format version of plans, counts, and arrays; must equal `VERSION` in native/decoder/src/lib.rs
VERSION: Final = 3
MAX_DEPTH: Final = 100  # maximum nesting depth of a plan

_FOLDER: Final = Path(__file__).parent
_ARRAYS: Final = 3  # per node, in Arrow's C data interface: values, validity, absent rows
_ARRAY_NUMBERS: Final = 10
_COUNTS: Final = 4  # per node: rows, nulls, absent rows, kinds of numbers
_NODE_NUMBERS: Final = _COUNTS + _ARRAYS * _ARRAY_NUMBERS
_NUMBER_BYTES: Final = 8
_HEAD: Final = struct.Struct("<BBqqI")
_COUNT: Final = struct.Struct("<I")
_MIXED_NUMBERS: Final = 3  # integers (1) and other numbers (2)
_INTEGERS: Final = 1

IGNORES_UNKNOWN: Final = 1  # `low` of a JSON object that may have members outside the plan
PAIRS: Final = 1  # `low` of a map that is a list of [key, value] pairs in JSON


@cache
def library() -> Any:
    """Load the library and declare its functions. Return None if the library is missing."""
    functions = load_library(
        _FOLDER, "decoder", VERSION, "JSON and Avro messages are decoded row by row, which is slow"
    )
    if functions is None:
        return None
    address = ctypes.c_void_p
    functions.decoder_plan.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    functions.decoder_plan.restype = address
    functions.decoder_plan_free.argtypes = [address]
    functions.decoder_plan_free.restype = None
    functions.decoder_read.argtypes = [
        address,
        ctypes.c_uint8,
        ctypes.c_char_p,
        ctypes.c_size_t,
        ctypes.c_char_p,
        ctypes.c_size_t,
        address,
        ctypes.c_size_t,
        address,
        address,
    ]
    functions.decoder_read.restype = ctypes.c_int64
    functions.decoder_release.argtypes = [address, ctypes.c_size_t]
    functions.decoder_release.restype = None
    return functions


class Kind(IntEnum):
    """Kind of a plan node. The library uses the same numbers."""

    NULL = 0
    BOOLEAN = 1
    INT32 = 2
    INT64 = 3
    FLOAT32 = 4
    FLOAT64 = 5
    NUMBER = 6  # JSON: integers or other numbers
    TEXT = 7
    BYTES = 8  # base64 in JSON
    FIXED = 9
    LIST = 10
    OBJECT = 11
    MAP = 12  # JSON only


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a decoding plan, which represents one value.

    The children are the members of an object, the items of a list, or the keys and values of a map.
    """

    kind: Kind
    name: str = ""
    nullable: bool = True
    low: int = 0  # JSON: smallest accepted integer; Avro: index of null in its union
    high: int = 0  # JSON: largest accepted integer; Avro: size of a FIXED in bytes
    children: Sequence[Node] = ()

    def walk(self) -> Iterator[Node]:
        """Yield this node and its descendants in preorder."""
        yield self
        for child in self.children:
            yield from child.walk()

    def depth(self) -> int:
        """Return the number of levels, including the level of this node."""
        return 1 + max((child.depth() for child in self.children), default=0)

    def description(self) -> bytes:
        """Encode the node in the library's format."""
        name = self.name.encode()
        head = _HEAD.pack(self.kind, self.nullable, self.low, self.high, len(name))
        return b"".join(
            (head, name, _COUNT.pack(len(self.children)), *(c.description() for c in self.children))
        )


class _Exported:
    """Memory that contains the decoded columns of a plan.

    Columns that were never imported are freed together with this object.
    """

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self._numbers = (ctypes.c_uint64 * (nodes * _NODE_NUMBERS))()
        self.address = ctypes.addressof(self._numbers)
        self._release = library().decoder_release

    def counts(self, node: int) -> list[int]:
        """Return the counts for a node: rows, nulls, absent rows, and kinds of numbers."""
        start = node * _NODE_NUMBERS
        return self._numbers[start : start + _COUNTS]

    def array(self, node: int, which: int) -> int:
        """Return the address of one of a node's arrays. An array can be imported only once."""
        offset = node * _NODE_NUMBERS + _COUNTS + which * _ARRAY_NUMBERS
        return self.address + _NUMBER_BYTES * offset

    def __del__(self) -> None:
        self._release(self.address, self._nodes)


_VALUES, _VALID, _ABSENT = range(_ARRAYS)


class Decoded:
    """The decoded column for one node. Arrow arrays are created on access."""

    def __init__(self, node: Node, exported: _Exported, indexes: Iterator[int]) -> None:
        """Create the column for a node.

        Args:
            node: The node.
            exported: Memory that contains all columns of the plan.
            indexes: Indexes of this node and of all following nodes in preorder.
        """
        self.node = node
        self._exported = exported
        self._index = next(indexes)
        self.rows, self.null_count, self.absent_count, self._number_kinds = exported.counts(
            self._index
        )
        self.children = [Decoded(child, exported, indexes) for child in node.children]

    def _imported(self, which: int, type_: pa.DataType) -> pa.Array:
        import pyarrow as pa

        return pa.Array._import_from_c(self._exported.array(self._index, which), type_)

    @property
    def mixes_numbers(self) -> bool:
        """Return True if a NUMBER column contains both integers and other numbers."""
        return self._number_kinds == _MIXED_NUMBERS

    @property
    def is_object(self) -> bool:
        """Return True if the column contains objects."""
        return self.node.kind is Kind.OBJECT

    def is_null(self) -> pa.BooleanArray | None:
        """Return a mask of the null rows, or None if no row is null."""
        import pyarrow.compute as pc

        if not self.null_count:
            return None
        return self._leaf.is_null() if self._valid is None else pc.invert(self._valid)

    def nulls_except(self, excluded: Collection[int]) -> pa.BooleanArray | None:
        """Return a mask of the null rows that are not excluded, or None if there are none."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.null_count == len(excluded):
            return None
        null = self.is_null()
        if not excluded:
            return null
        return pc.and_not(null, pa.array([row in excluded for row in range(self.rows)]))

    @cached_property
    def absent(self) -> pa.BooleanArray | None:
        """Mask of the rows without this member, or None if there are none.

        These rows are also null.
        """
        import pyarrow as pa

        return self._imported(_ABSENT, pa.bool_()) if self.absent_count else None

    @cached_property
    def _valid(self) -> pa.BooleanArray | None:
        """Mask of the rows that are not null. None for leaves and for columns without nulls."""
        import pyarrow as pa

        nested = (Kind.OBJECT, Kind.LIST, Kind.MAP, Kind.NULL)
        if not self.null_count or self.node.kind not in nested:
            return None
        return self._imported(_VALID, pa.bool_())

    @property
    def _validity(self) -> pa.Buffer | None:
        return None if self._valid is None else self._valid.buffers()[1]

    @cached_property
    def _leaf(self) -> pa.Array:
        return self._imported(_VALUES, self._leaf_type())

    def array(self) -> pa.Array:
        """Return the Arrow array. Missing members of objects are null."""
        import pyarrow as pa

        kind = self.node.kind
        if kind is Kind.NULL:
            return pa.nulls(self.rows)
        if kind is Kind.OBJECT:
            return self.structs(
                [c.node.name for c in self.children], [c.array() for c in self.children]
            )
        if kind is Kind.LIST:
            return self.list_of(self.children[0].array())
        if kind is Kind.MAP:
            return self.map_of(self.children[0].array(), self.children[1].array())
        return self._leaf

    def _leaf_type(self) -> pa.DataType:
        import pyarrow as pa

        if self.node.kind is Kind.NUMBER:
            return pa.int64() if self._number_kinds == _INTEGERS else pa.float64()
        return {
            Kind.BOOLEAN: pa.bool_(),
            Kind.INT32: pa.int32(),
            Kind.INT64: pa.int64(),
            Kind.FLOAT32: pa.float32(),
            Kind.FLOAT64: pa.float64(),
            Kind.TEXT: pa.string(),
            Kind.BYTES: pa.binary(),
            Kind.FIXED: pa.binary(),
        }[self.node.kind]

    def structs(self, names: Sequence[str], members: Sequence[pa.Array]) -> pa.StructArray:
        """Return a struct column with these members that is null where this column is null."""
        import pyarrow as pa

        type_ = pa.struct(
            [pa.field(name, member.type) for name, member in zip(names, members, strict=True)]
        )
        return pa.Array.from_buffers(
            type_, self.rows, [self._validity], self.null_count, children=list(members)
        )

    def list_of(self, items: pa.Array) -> pa.ListArray:
        """Return a list column with these items."""
        import pyarrow as pa

        from connect_py.columns import arrow

        type_ = pa.list_(pa.field(arrow.ELEMENT, items.type))
        buffers = [self._validity, self._ends.buffers()[1]]
        return pa.Array.from_buffers(type_, self.rows, buffers, self.null_count, children=[items])

    def map_of(self, keys: pa.Array, items: pa.Array) -> pa.MapArray:
        """Return a map column with these entries.

        Raises:
            NotColumnar: A map contains a duplicate key.
        """
        import pyarrow as pa

        if self.node.low == PAIRS:  # the library detects only duplicate names in objects
            parents = self._entries(keys).value_parent_indices().to_pylist()
            if len(set(zip(parents, keys.to_pylist(), strict=True))) < len(keys):
                raise NotColumnar("a map contains a duplicate key")
        type_ = pa.map_(keys.type, items.type)
        return pa.MapArray.from_arrays(self._ends, keys, items, type=type_, mask=self.is_null())

    def _entries(self, keys: pa.Array) -> pa.ListArray:
        import pyarrow as pa

        return pa.ListArray.from_arrays(self._ends, keys)

    @cached_property
    def _ends(self) -> pa.Int32Array:
        """Offsets of the items or entries of each row, and the end of the last row."""
        import pyarrow as pa

        return self._imported(_VALUES, pa.int32())


class NativeDecoder:
    """Decodes messages that match one plan. Not thread-safe.

    A message that does not match the plan is *odd*. It is null in the column and must be converted
    by the row form of the converter, which converts one message at a time.
    """

    def __init__(self, node: Node) -> None:
        """Compile a plan.

        Raises:
            NotColumnar: The library is missing or does not support the plan.
        """
        functions = library()
        if functions is None:
            raise NotColumnar("the native decoder is not available")
        if node.depth() > MAX_DEPTH:
            raise NotColumnar("values are nested too deeply")
        self._node = node
        self._nodes = sum(1 for _ in node.walk())
        self._functions = functions
        description = node.description()
        self._plan = functions.decoder_plan(description, len(description))
        if not self._plan:
            raise NotColumnar("the native decoder does not support the plan")
        weakref.finalize(self, functions.decoder_plan_free, self._plan).atexit = False

    def read_json(self, messages: Sequence[bytes | None]) -> tuple[Decoded, list[int]]:
        """Decode JSON. Return the decoded column and the indexes of odd messages.

        Raises:
            NotColumnar: The library failed.
        """
        return self._read(messages, None)

    def read_avro(
        self, messages: Sequence[bytes | None], prefix: bytes
    ) -> tuple[Decoded, list[int]]:
        """Decode Avro bodies that follow a prefix. See `read_json`.

        Bytes after a body are ignored.
        """
        return self._read(messages, prefix)

    def _read(
        self, messages: Sequence[bytes | None], prefix: bytes | None
    ) -> tuple[Decoded, list[int]]:
        rows = len(messages)
        if not rows:
            raise NotColumnar("no messages")
        joined = JoinedBytes.of(messages)
        odd = ctypes.create_string_buffer(rows)
        exported = _Exported(self._nodes)
        count = self._functions.decoder_read(
            self._plan,
            prefix is not None,
            prefix or b"",
            len(prefix or b""),
            joined.data,
            len(joined.data),
            joined.lengths.buffer_info()[0],
            rows,
            odd,
            exported.address,
        )
        if count < 0:
            raise NotColumnar("the native decoder failed")
        decoded = Decoded(self._node, exported, iter(range(self._nodes)))
        return decoded, [row for row, mark in enumerate(odd.raw) if mark] if count else []
