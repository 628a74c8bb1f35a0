"""The compiled library: found beside this module, loaded once."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any, Final

from connect_py.api.compiled import compiled_library

VERSION: Final = 1  # of what crosses to the library: plans, numbers, buffers; `VERSION` in lib.rs is the same
BUFFERS: Final = 4  # per column: validity, absence, values or ends, data
BUFFER_NUMBERS: Final = 4  # address, size in bytes, capacity, bytes per item
COLUMN_NUMBERS: Final = 4 + BUFFERS * BUFFER_NUMBERS  # rows, nulls, absent rows, kinds of numbers, and the buffers


@cache
def library() -> Any:
    """The functions of the library, with their types; None: there is none."""
    functions = compiled_library(__file__, "decoder", VERSION, "JSON and Avro are read by Python")
    if functions is None:
        return None
    number, address = ctypes.c_uint64, ctypes.c_void_p
    functions.decoder_plan.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    functions.decoder_plan.restype = address
    functions.decoder_plan_free.argtypes = [address]
    functions.decoder_plan_free.restype = None
    functions.decoder_read.argtypes = [
        address, ctypes.c_uint8, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t,
        address, ctypes.c_size_t, address, address,
    ]  # fmt: skip
    functions.decoder_read.restype = ctypes.c_int64
    functions.decoder_buffer_free.argtypes = [number, number, number]
    functions.decoder_buffer_free.restype = None
    return functions


class Memory:
    """A buffer that the library made, freed with the last Arrow array that uses it."""

    __slots__ = ("_capacity", "_free", "_item", "address")

    def __init__(self, address: int, capacity: int, item: int) -> None:
        self.address = address
        self._capacity = capacity
        self._item = item
        self._free = library().decoder_buffer_free

    def __del__(self) -> None:
        self._free(self.address, self._capacity, self._item)
