"""What msgspec passes over without a look, in members that no caller asked for, and the reference
form refuses."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from connect_py.converters.json_text import MAX_NAME_LENGTH, MAX_NUMBER_LENGTH, MAX_STRING_LENGTH

REFUSED_TEXT: Final = b"\xff"  # no decoder takes it
_DIGITS = bytes.maketrans(b"123456789E+-", b"000000000e00")
_LONG_EXPONENT = b"0e" + b"0" * 10  # one of 2^31 and more has ten digits, or nine and a sign
# bytes; a number that is too long fills one of them wherever it begins
_PIECE = MAX_NUMBER_LENGTH // 2


def unsafe(texts: Sequence[bytes | None]) -> list[int]:
    """The texts that the reference form must look at, by their place; it may take them.

    They hold bytes that are no UTF-8, a number of more than 1,000 digits or with an exponent that
    no decimal has, or a name of more than 50,000 characters, or look as if they might. Of texts of
    more than 20 million characters, which rows refuse and columns do not, names are not looked for.
    """
    longest = max([len(text) for text in texts if text is not None], default=0)
    if longest < MAX_NAME_LENGTH and _is_safe(b"\n".join(filter(None, texts)), longest):
        return []
    return [place for place, text in enumerate(texts) if text and not _is_safe(text, len(text))]


def _is_safe(text: bytes, longest: int) -> bool:
    """Of one text, or several that are joined by what no text holds; `longest` is the length of the
    longest one."""
    if not text.isascii():
        try:
            text.decode()
        except UnicodeDecodeError:
            return False
    if _LONG_EXPONENT in text.translate(_DIGITS):
        return False
    if longest >= MAX_NUMBER_LENGTH:
        pieces = [
            text[start : start + _PIECE] for start in range(0, len(text) - _PIECE + 1, _PIECE)
        ]
        if any(map(bytes.isdigit, pieces)):
            return False
    if longest < MAX_NAME_LENGTH or longest > MAX_STRING_LENGTH:
        return True
    strings = text.replace(rb"\\", b"__").replace(rb"\"", b"__").split(b'"')
    return not any(
        len(name) > MAX_NAME_LENGTH and after.lstrip().startswith(b":")
        for name, after in pairwise(strings)
    )
