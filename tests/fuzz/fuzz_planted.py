"""Targets with a known fault, to see that the watching process finds it."""

from __future__ import annotations

import ctypes
import time
from random import Random
from typing import Final

from fuzz_target import Case, FuzzTarget

from connect_py.api.converter import Converter
from connect_py.converters.json.json_converter import JsonConverter

FAULTY_CASE: Final = 2


class _Planted(FuzzTarget):
    def case(self, random: Random, number: int) -> Case:
        if number == FAULTY_CASE:
            self.fail()
        return Case({"schemas.enable": "false"}, [[(b'{"a":1}', ())] * 10])

    def fail(self) -> None:
        raise NotImplementedError

    def converter(self, case: Case) -> Converter:
        made = JsonConverter()
        made.configure(case.configs)
        return made


class Crashes(_Planted):
    """Reads memory that is not there."""

    name = "planted_crash"

    def fail(self) -> None:
        ctypes.string_at(0)


class Hangs(_Planted):
    """Never ends."""

    name = "planted_hang"

    def fail(self) -> None:
        while True:
            time.sleep(60)


class TakesMemory(_Planted):
    """Takes more memory than there should be."""

    name = "planted_memory"

    def fail(self) -> None:
        bytes(1 << 40)


PLANTED: Final[tuple[type[FuzzTarget], ...]] = (Crashes, Hangs, TakesMemory)
