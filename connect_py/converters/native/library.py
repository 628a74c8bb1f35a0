"""The compiled library: found beside this module, loaded once."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any, Final

from connect_py.columns.compiled import compiled_library

# of what crosses to the library: plans, numbers, arrays; `VERSION` in lib.rs is the same
VERSION: Final = 3
# per node, in Arrow's C data interface: values, which rows are not null, which are absent
ARRAYS: Final = 3
ARRAY_NUMBERS: Final = 10
# rows, nulls, absent rows, kinds of numbers, and the arrays
NODE_NUMBERS: Final = 4 + ARRAYS * ARRAY_NUMBERS
NUMBER_BYTES: Final = 8


@cache
def library() -> Any:
    """The functions of the library, with their types; None: there is none."""
    functions = compiled_library(__file__, "decoder", VERSION, "JSON and Avro are read by Python")
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


class Exported:
    """The columns that the library made: memory of so many nodes; columns that are not imported are
    freed with it."""

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self._numbers = (ctypes.c_uint64 * (nodes * NODE_NUMBERS))()
        self.address = ctypes.addressof(self._numbers)
        self._release = library().decoder_release

    def counts(self, node: int) -> list[int]:
        """Rows, nulls, absent rows and kinds of numbers of a node."""
        start = node * NODE_NUMBERS
        return self._numbers[start : start + 4]

    def array(self, node: int, which: int) -> int:
        """The address of one of a node's arrays, to be imported once at most."""
        return self.address + NUMBER_BYTES * (node * NODE_NUMBERS + 4 + which * ARRAY_NUMBERS)

    def __del__(self) -> None:
        self._release(self.address, self._nodes)
