"""Patterns and replacements with the semantics of `java.util.regex`."""

from __future__ import annotations

import re

from connect_py.java.errors import IllegalArgumentError, IndexOutOfBoundsError
from connect_py.java.regex import compile_java_regex


class JavaPattern:
    """A compiled pattern that matches entire strings, like `Matcher.matches`."""

    def __init__(self, pattern: str) -> None:
        """Compile a pattern.

        Raises:
            JavaRegexError: The pattern cannot be compiled.
        """
        self._compiled = compile_java_regex(pattern)

    def matches(self, text: str) -> bool:
        """Return True if the entire string matches."""
        return self._compiled.fullmatch(text) is not None

    def replace_first(self, text: str, replacement: Replacement) -> str:
        """Replace the first match.

        The first match can be shorter than the string, even if the entire string matches.

        Raises:
            IndexOutOfBoundsError: The replacement refers to a group number that does not exist.
            IllegalArgumentError: The replacement is malformed, or refers to a group name that does
                not exist.
        """
        match = self._compiled.search(text)
        if match is None:
            return text
        return text[: match.start()] + replacement.expand(match) + text[match.end() :]


class Replacement:
    """A replacement string in Java's syntax: `$1`, `${name}`, and backslash escapes."""

    def __init__(self, text: str) -> None:
        self._text = text

    def expand(self, match: re.Match[str]) -> str:
        """Return the replacement for a match. See `JavaPattern.replace_first` for errors."""
        text, result, at = self._text, [], 0
        while at < len(text):
            char = text[at]
            at += 1
            if char == "\\":
                if at == len(text):
                    raise IllegalArgumentError("character to be escaped is missing")
                result.append(text[at])
                at += 1
            elif char == "$":
                group, at = self._group(match, at)
                result.append(match.group(group) or "")
            else:
                result.append(char)
        return "".join(result)

    def _group(self, match: re.Match[str], at: int) -> tuple[int | str, int]:
        text = self._text
        if at == len(text):
            raise IllegalArgumentError("Illegal group reference: group index is missing")
        if text[at] == "{":
            end = text.find("}", at)
            name = text[at + 1 : end] if end > 0 else ""
            if not name.isalnum():
                raise IllegalArgumentError("named capturing group is missing trailing '}'")
            if name not in match.re.groupindex:
                raise IllegalArgumentError(f"No group with name {{{name}}}")
            return name, end + 1
        if text[at] not in "0123456789":
            raise IllegalArgumentError("Illegal group reference")
        group = int(text[at])
        at += 1
        if group > match.re.groups:
            raise IndexOutOfBoundsError(f"No group {group}")
        while (
            at < len(text)
            and text[at] in "0123456789"
            and group * 10 + int(text[at]) <= match.re.groups
        ):
            group = group * 10 + int(text[at])
            at += 1
        return group, at
