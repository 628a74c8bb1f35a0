"""Plans of what messages hold, and the columns that are made by them."""

from __future__ import annotations

import ctypes
import struct
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, Final

from connect_py.api.errors import DataError, NotColumnar
from connect_py.columns.joined_bytes import JoinedBytes
from connect_py.converters.native.library import Exported, library

if TYPE_CHECKING:
    import pyarrow as pa

MAX_DEPTH: Final = 100
_HEAD: Final = struct.Struct("<BBqqI")
_COUNT: Final = struct.Struct("<I")
# `low` of a JSON object that may have members which the plan does not know
IGNORES_OTHERS: Final = 1


class Kind(IntEnum):
    """What a node of a plan reads. The numbers are the library's."""

    NULL = 0
    BOOLEAN = 1
    INT32 = 2
    INT64 = 3
    FLOAT32 = 4
    FLOAT64 = 5
    NUMBER = 6  # JSON: integers or other numbers
    TEXT = 7
    BYTES = 8  # in JSON a text in base64
    FIXED = 9
    LIST = 10
    OBJECT = 11


@dataclass(frozen=True, slots=True)
class Node:
    """One value of a plan; `children` are an object's members, or a list's items."""

    kind: Kind
    name: str = ""
    nullable: bool = True
    low: int = 0  # JSON: the smallest integer taken; Avro: the index of null in its union
    high: int = 0  # JSON: the largest integer taken; Avro: the size of a FIXED
    children: Sequence[Node] = ()

    def walk(self) -> Iterator[Node]:
        """Yield this node and its descendants in preorder."""
        yield self
        for child in self.children:
            yield from child.walk()

    def depth(self) -> int:
        """How many nodes stand one in another."""
        return 1 + max((child.depth() for child in self.children), default=0)

    def description(self) -> bytes:
        """The form that the library reads."""
        name = self.name.encode()
        head = _HEAD.pack(self.kind, self.nullable, self.low, self.high, len(name))
        return b"".join(
            (head, name, _COUNT.pack(len(self.children)), *(c.description() for c in self.children))
        )


_VALUES, _VALID, _ABSENT = range(3)  # a node's arrays


class Decoded:
    """The column of one node, as it was decoded. `array` makes the plain Arrow form of all but
    objects in JSON.

    Only values that a caller asks for become objects of Python.
    """

    def __init__(self, node: Node, exported: Exported, places: Iterator[int]) -> None:
        """`places`: where the nodes stand from here on, in preorder."""
        self.node = node
        self._exported = exported
        self._place = next(places)
        self.rows, self.null_count, self.absent_count, self._number_kinds = exported.counts(
            self._place
        )
        self.children = [Decoded(child, exported, places) for child in node.children]

    def _imported(self, which: int, type_: pa.DataType) -> pa.Array:
        import pyarrow as pa

        return pa.Array._import_from_c(self._exported.array(self._place, which), type_)

    @property
    def mixes_numbers(self) -> bool:
        """NUMBER: some were integers and some were not."""
        return self._number_kinds == 3

    def is_null(self) -> pa.BooleanArray | None:
        """The rows that are null; None: no row is."""
        import pyarrow.compute as pc

        if not self.null_count:
            return None
        return self._leaf.is_null() if self._valid is None else pc.invert(self._valid)

    @property
    def is_object(self) -> bool:
        """Whether this is a column of objects."""
        return self.node.kind is Kind.OBJECT

    def nulls_but(self, places: Collection[int]) -> pa.BooleanArray | None:
        """The rows that are null, less some of them; None: there is none."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.null_count == len(places):
            return None
        null = self.is_null()
        return (
            pc.and_not(null, pa.array([row in places for row in range(self.rows)]))
            if places
            else null
        )

    @cached_property
    def absent(self) -> pa.BooleanArray | None:
        """The rows where the member is missing, which are null, too; None: it never is."""
        import pyarrow as pa

        return self._imported(_ABSENT, pa.bool_()) if self.absent_count else None

    @cached_property
    def _valid(self) -> pa.BooleanArray | None:
        """The rows that are not null; None: none is, or these are neither objects nor lists."""
        import pyarrow as pa

        if not self.null_count or self.node.kind not in (Kind.OBJECT, Kind.LIST, Kind.NULL):
            return None
        return self._imported(_VALID, pa.bool_())

    @property
    def _validity(self) -> pa.Buffer | None:
        """The rows that are not null, as Arrow has it."""
        return None if self._valid is None else self._valid.buffers()[1]

    @cached_property
    def _leaf(self) -> pa.Array:
        return self._imported(_VALUES, self._leaf_type())

    def array(self) -> pa.Array:
        """Make the Arrow array; of objects with all members."""
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
        return self._leaf

    def _leaf_type(self) -> pa.DataType:
        import pyarrow as pa

        if self.node.kind is Kind.NUMBER:
            return pa.int64() if self._number_kinds == 1 else pa.float64()
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
        """Make structs of columns that stand for the children, or for some of them."""
        import pyarrow as pa

        type_ = pa.struct(
            [pa.field(name, member.type) for name, member in zip(names, members, strict=True)]
        )
        return pa.Array.from_buffers(
            type_, self.rows, [self._validity], self.null_count, children=list(members)
        )

    def list_of(self, items: pa.Array) -> pa.ListArray:
        """Make lists of the column that stands for the items."""
        import pyarrow as pa

        from connect_py.columns import arrow

        type_ = pa.list_(pa.field(arrow.ELEMENT, items.type))
        buffers = [self._validity, self._ends.buffers()[1]]
        return pa.Array.from_buffers(type_, self.rows, buffers, self.null_count, children=[items])

    @cached_property
    def _ends(self) -> pa.Int32Array:
        """Of lists: where the items of each begin, and the last ones end."""
        import pyarrow as pa

        return self._imported(_VALUES, pa.int32())


def refusals(odd: Sequence[int], is_null: Callable[[int], bool]) -> dict[int, DataError]:
    """Ask the reference form about odd messages: `is_null` says whether it makes a null message of
    one, or fails.

    Raises: NotColumnar: It makes a value of one: the decoder's plan does not name all that messages
        hold.
    """
    failures: dict[int, DataError] = {}
    for place in odd:
        try:
            taken = not is_null(place)
        except DataError as error:
            failures[place] = error
            continue
        if taken:
            raise NotColumnar("a message that the reference form alone takes")
    return failures


class NativeDecoder:
    """Reads messages by one plan. Used on one thread."""

    def __init__(self, node: Node) -> None:
        """NotColumnar: the library is not there, or cannot read this."""
        functions = library()
        if functions is None:
            raise NotColumnar("the native decoder was not built")
        if node.depth() > MAX_DEPTH:
            raise NotColumnar("values nest too deep")
        self._node = node
        self._nodes = sum(1 for _ in node.walk())
        self._functions = functions
        description = node.description()
        self._plan = functions.decoder_plan(description, len(description))
        if not self._plan:
            raise NotColumnar("the native decoder does not take this plan")
        weakref.finalize(self, functions.decoder_plan_free, self._plan).atexit = False

    def read_json(self, messages: Sequence[bytes | None]) -> tuple[Decoded, list[int]]:
        """Decode messages; those whose index is in the list are not as the plan says, and null in
        the column.

        Raises:
            NotColumnar: The library failed.
        """
        return self._read(messages, None)

    def read_avro(
        self, messages: Sequence[bytes | None], prefix: bytes
    ) -> tuple[Decoded, list[int]]:
        """The same for Avro bodies behind a prefix; bytes behind a body are ignored."""
        return self._read(messages, prefix)

    def _read(
        self, messages: Sequence[bytes | None], prefix: bytes | None
    ) -> tuple[Decoded, list[int]]:
        rows = len(messages)
        if not rows:
            raise NotColumnar("no messages")
        joined = JoinedBytes.of(messages)
        odd = ctypes.create_string_buffer(rows)
        exported = Exported(self._nodes)
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
        return decoded, [place for place, mark in enumerate(odd.raw) if mark] if count else []
