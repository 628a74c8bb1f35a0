"""Bytes that nobody should trust: good messages, damaged in ways that readers were seen to stumble
over."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

LONGS: Final = [
    0,
    1,
    2,
    63,
    64,
    127,
    128,
    255,
    2**15,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**53,
    2**63 - 1,
    2**63,
    2**64 - 1,
]
TOKENS: Final = [
    b"\0",
    b"\x01",
    b"\xff",
    b"\x80" * 9 + b"\x01",
    b"\xff" * 10,
    b"\xff" * 9 + b"\x01",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"\xef\xbb\xbf",
    b"null",
    b"NaN",
    b"-Infinity",
    b"1e400",
    b"-0",
    b"-0.0",
    b"1e-999999999",
    b"9" * 400,
    b"0" * 30 + b"1",
    b'"',
    b"\\",
    b"\\ud800",
    b"\\u0000",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b'{"a":',
    b"[[[[",
    b"}}}}",
    b"true",
    b"5e-324",
    b"9223372036854775808",
    b"-9223372036854775809",
    b"//",
    b" ",
    b"\r\n",
    b"'",
]


def varint(number: int) -> bytes:
    """The variable-length form of a number that is not negative, as Avro and Protobuf have it."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


def zigzag(number: int) -> bytes:
    """Avro's form of a number of 64 bits."""
    return varint((number << 1 ^ number >> 63) & (1 << 64) - 1)


def damaged(random: Random, message: bytes, others: Sequence[bytes]) -> bytes:
    """Return the message after one to three kinds of damage; it is spliced with `others`."""
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        message = random.choice(_DAMAGES)(random, message, others)
    return message


def _cut(random: Random, message: bytes, others: Sequence[bytes]) -> bytes:
    return message[: random.randint(0, len(message))]


def _cut_before(random: Random, message: bytes, others: Sequence[bytes]) -> bytes:
    return message[random.randint(0, len(message)) :]


def _flip(random: Random, message: bytes, others: Sequence[bytes]) -> bytes:
    made = bytearray(message)
    for _ in range(random.choice([1, 1, 2, 8])):
        if made:
            made[random.randrange(len(made))] ^= 1 << random.randrange(8)
    return bytes(made)


def _set(random: Random, message: bytes, others: Sequence[bytes]) -> bytes:
    made = bytearray(message)
    if made:
        made[random.randrange(len(made))] = random.choice(
            [0, 1, 2, 0x7F, 0x80, 0xFF, random.randrange(256)]
        )
    return bytes(made)


def _insert(random: Random, message: bytes, others: Sequence[bytes]) -> bytes:
    at = random.randint(0, len(message))
    return message[:at] + random.choice(TOKENS) + message[at:]


def _replace(random: Random, message: bytes, others: Sequence[bytes]) -> bytes:
    at = random.randint(0, len(message))
    return message[:at] + random.choice(TOKENS) + message[at + random.randint(0, 8) :]


def _length_bomb(random: Random, message: bytes, others: Sequence[bytes]) -> bytes:
    at = random.randint(0, len(message))
    number = random.choice(LONGS)
    bomb = random.choice(
        [varint(number), zigzag(number - 2**63), struct.pack(">I", number & 0xFFFFFFFF)]
    )
    return message[:at] + bomb + message[at + random.randint(0, len(bomb)) :]


def _splice(random: Random, message: bytes, others: Sequence[bytes]) -> bytes:
    other = random.choice(others) if others else message
    return message[: random.randint(0, len(message))] + other[random.randint(0, len(other)) :]


def _repeat(random: Random, message: bytes, others: Sequence[bytes]) -> bytes:
    start = random.randint(0, len(message))
    part = message[start : start + random.choice([1, 2, 4, 16, 64])]
    return message[:start] + part * random.choice([2, 3, 17, 100]) + message[start:]


def _drop(random: Random, message: bytes, others: Sequence[bytes]) -> bytes:
    start = random.randint(0, len(message))
    return message[:start] + message[start + random.choice([1, 1, 2, 5, 20]) :]


def _noise(random: Random, message: bytes, others: Sequence[bytes]) -> bytes:
    return message[: random.choice([0, 1, 5, 6])] + random.randbytes(
        random.choice([0, 1, 3, 9, 40])
    )


def _append(random: Random, message: bytes, others: Sequence[bytes]) -> bytes:
    return message + random.choice([*TOKENS, message])


_DAMAGES: Final[list[Callable[[Random, bytes, Sequence[bytes]], bytes]]] = [
    _cut,
    _cut_before,
    _flip,
    _flip,
    _set,
    _set,
    _insert,
    _replace,
    _length_bomb,
    _splice,
    _repeat,
    _drop,
    _noise,
    _append,
]
