"""Avro message bodies to Arrow columns.

The bodies are joined into one container file in memory, which polars reads. polars takes the bodies as one stream of
bytes, so a body that is too long or too short would shift all rows after it: a random guard of 16 bytes follows each
body as a last field, and must come out again in every row.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from connect_py.api.errors import NotColumnar
from connect_py.converters.avro_schema import AvroType

if TYPE_CHECKING:
    import pyarrow as pa

_MAGIC: Final = b"Obj\x01"
_MARK_SIZE: Final = 16  # bytes, of the guard and of the container's own sync marker


def _long(number: int) -> bytes:
    """Avro's zig-zag variable-length form of a number that is not negative."""
    number <<= 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _with_longs(plain: Any) -> Any:
    """The same schema with longs for ints: polars would drop the high bits of numbers that are no ints."""
    if isinstance(plain, str):
        return "long" if plain == "int" else plain
    if isinstance(plain, list):
        return [_with_longs(branch) for branch in plain]
    members = {k: _with_longs(plain[k]) for k in ("type", "items") if k in plain}
    if "fields" in plain:
        members["fields"] = [{**f, "type": _with_longs(f["type"])} for f in plain["fields"]]
    return {**plain, **members}


class AvroColumns:
    """Decodes bodies of one schema."""

    def __init__(self, avro: AvroType) -> None:
        guard = {"type": "fixed", "name": "Guard", "size": _MARK_SIZE}
        top = {
            "type": "record", "name": "Top",
            "fields": [{"name": "body", "type": _with_longs(avro.plain)}, {"name": "guard", "type": guard}],
        }  # fmt: skip
        text = json.dumps(top).encode()
        meta = [(b"avro.schema", text), (b"avro.codec", b"null")]
        entries = b"".join(_long(len(k)) + k + _long(len(v)) + v for k, v in meta)
        self._head = _MAGIC + _long(len(meta)) + entries + b"\0"
        self._avro = avro

    def read(self, bodies: Sequence[bytes]) -> pa.Array:
        """Make the column of bodies, at least one.

        Raises:
            NotColumnar: A body is not of this schema; the reference form will say which one.
        """
        if not self._avro.columnar:
            raise NotColumnar("unions of several types")
        import pyarrow as pa

        guard, sync = os.urandom(_MARK_SIZE), os.urandom(_MARK_SIZE)
        block = guard.join(bodies) + guard
        container = b"".join((self._head, sync, _long(len(bodies)), _long(len(block)), block, sync))
        try:
            table = self._frame(io.BytesIO(container)).to_arrow()
            body, guards = (table.column(name).combine_chunks() for name in ("body", "guard"))
            if len(guards) != len(bodies) or guards.null_count or guards.unique().to_pylist() != [guard]:
                raise NotColumnar("bodies are not as long as their schema says")
            column = self._avro.column(self._avro.schema, body)
            column.validate(full=True)
            return column
        except (pa.ArrowException, OverflowError, UnicodeError) as error:
            raise NotColumnar(str(error)) from error

    def _frame(self, container: io.BytesIO) -> Any:
        try:
            import polars
        except ImportError as error:
            raise NotColumnar("polars is not installed") from error
        try:
            return polars.read_avro(container)
        except (polars.exceptions.PolarsError, polars.exceptions.PanicException, OSError) as error:
            raise NotColumnar(f"polars: {error}") from error
