"""Translates Java regular expressions to the syntax of Python's standard `re` module.

Supported features are named groups, quoting, POSIX classes and a few Unicode classes, unions and
intersections of classes, possessive quantifiers, and flags at the start. Patterns with other
features are rejected when they are compiled.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_PROPERTIES: Mapping[str, str] = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "ASCII": r"\x00-\x7f",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "Punct": r"!-/:-@\[-`{-~",
    "Graph": "!-~",
    "Print": " -~",
    "Blank": r" \t",
    "Cntrl": r"\x00-\x1f\x7f",
    "XDigit": "0-9a-fA-F",
    "Space": r" \t\n\x0b\f\r",
}
_ESCAPES: Mapping[str, str] = {
    "h": r" \t\xa0\u1680\u180e\u2000-\u200a\u202f\u205f\u3000",
    "v": r"\n\x0b\f\r\x85\u2028\u2029",
    "e": r"\x1b",
}
_SPECIAL_IN_CLASS = frozenset("[]\\^-&|~")


class JavaRegexError(ValueError):
    """The pattern is invalid, or Python has no equivalent."""


def compile_java_regex(pattern: str) -> re.Pattern[str]:
    r"""Compile a Java regular expression. `\d`, `\w`, and `\s` are limited to ASCII, as in Java.

    Raises:
        JavaRegexError: The pattern is invalid, or Python has no equivalent.
    """
    try:
        return re.compile(_Translator(pattern).translate(), re.ASCII)
    except (re.error, OverflowError) as error:
        raise JavaRegexError(str(error)) from error


class _Translator:
    """Translates one pattern."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0

    def translate(self) -> str:
        items: list[str] = []
        while self._at < len(self._pattern):
            items.append(self._item(first=not items))
        return "".join(items)

    def _next(self) -> str:
        if self._at == len(self._pattern):
            raise JavaRegexError("unexpected end of the pattern")
        char = self._pattern[self._at]
        self._at += 1
        return char

    def _skip(self, text: str) -> bool:
        if self._pattern.startswith(text, self._at):
            self._at += len(text)
            return True
        return False

    def _item(self, *, first: bool) -> str:
        if self._skip(r"\Q"):
            return re.escape(self._quoted())
        char = self._next()
        if char == "\\":
            return self._escape()
        if char == "[":
            return self._class()
        if char == "(" and self._skip("?"):
            return self._group(first=first)
        return char

    def _quoted(self) -> str:
        end = self._pattern.find(r"\E", self._at)
        text = self._pattern[self._at : end if end >= 0 else len(self._pattern)]
        self._at += len(text) + (2 if end >= 0 else 0)
        return text

    def _group(self, *, first: bool) -> str:
        rest = self._pattern[self._at :]
        if rest.startswith(("<=", "<!", "=", "!", ":", ">")):
            return "(?"
        if rest.startswith("<"):
            return "(?P"
        flags = re.match(r"([imsxud]*)(-[imsxud]+)?([:)])", rest)
        # the flags apply to the rest of the pattern instead of to a group
        whole = flags is not None and flags[3] == ")"
        if flags is None or set(flags[0]) & set("ud") or (whole and (flags[2] or not first)):
            raise JavaRegexError(f"(?{rest[:5]} has no equivalent in Python")
        self._at += flags.end()
        return f"(?{flags[0]}"

    def _escape(self) -> str:
        char = self._next()
        if char in _ESCAPES:
            return f"[{_ESCAPES[char]}]"
        if char in "pP":
            members = self._property()
            return f"[{'^' if char == 'P' else ''}{members}]"
        if char == "k":
            if not self._skip("<"):
                raise JavaRegexError(r"\k without a name")
            end = (
                self._pattern.index(">", self._at) if ">" in self._pattern[self._at :] else self._at
            )
            name = self._pattern[self._at : end]
            self._at = end + 1
            return f"(?P={name})"
        if char == "z":
            return r"\Z"
        if char == "Z":
            return r"(?=\n?\Z)"
        if char == "R":
            return r"(?:\r\n|[\n\x0b\f\r\x85\u2028\u2029])"
        if char in "GXN":
            raise JavaRegexError(f"\\{char} has no equivalent in Python")
        return self._character(char)

    def _character(self, char: str) -> str:
        """Translate an escape for one character, or for a class that Python also supports."""
        if char == "x" and self._skip("{"):
            digits = self._pattern[self._at :].partition("}")[0]
            self._at += len(digits) + 1
            try:
                return re.escape(chr(int(digits, 16)))
            except ValueError as error:
                raise JavaRegexError(f"\\x{{{digits}}} is not a character") from error
        if char == "0":
            octal = re.match("[0-3]?[0-7]{1,2}", self._pattern[self._at :])
            if octal is None:
                raise JavaRegexError("illegal octal escape sequence")
            self._at += octal.end()
            return re.escape(chr(int(octal[0], 8)))
        if char == "c":
            return re.escape(chr(ord(self._next()) ^ 64))
        if not char.isascii() or not char.isalnum():
            return re.escape(char)
        return "\\" + char

    def _property(self) -> str:
        if self._skip("{"):
            name = self._pattern[self._at :].partition("}")[0]
            self._at += len(name) + 1
        else:
            name = self._next()
        if name not in _PROPERTIES:
            raise JavaRegexError(f"\\p{{{name}}} has no equivalent in Python")
        return _PROPERTIES[name]

    def _class(self) -> str:
        """Translate the rest of a character class to an expression that matches one character."""
        negated = self._skip("^")
        operands: list[str] = []
        members: list[str] = []
        nested: list[str] = []
        while True:
            if self._skip("&&"):
                operands.append(_union(members, nested))
                members, nested = [], []
                continue
            char = self._next()
            if char == "]" and (members or nested or operands):
                break
            if char == "[":
                nested.append(self._class())
            elif char == "\\":
                self._class_escape(members, nested)
            elif (
                char == "-" and members and self._pattern[self._at : self._at + 1] not in ("]", "[")
            ):
                members.append("-")
            else:
                members.append("\\" + char if char in _SPECIAL_IN_CLASS else char)
        operands.append(_union(members, nested))
        if len(operands) == 1 and not nested:
            return f"[{'^' if negated else ''}{''.join(members)}]"
        both = "".join(f"(?={operand})" for operand in operands)
        return rf"(?:(?!{both})[\s\S])" if negated else rf"(?:{both}[\s\S])"

    def _class_escape(self, members: list[str], nested: list[str]) -> None:
        if self._skip("Q"):
            members.extend("\\" + c if c in _SPECIAL_IN_CLASS else c for c in self._quoted())
            return
        char = self._next()
        if char in _ESCAPES:
            members.append(_ESCAPES[char])
        elif char == "p":
            members.append(self._property())
        elif char == "P":
            nested.append(f"[^{self._property()}]")
        else:
            members.append(self._character(char))


def _union(members: Sequence[str], nested: Sequence[str]) -> str:
    parts = [f"[{''.join(members)}]"] if members else []
    return "(?:" + "|".join([*parts, *nested]) + ")"
