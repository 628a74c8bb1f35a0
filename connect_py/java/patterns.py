"""What `java.util.regex` does with patterns and replacements."""

from __future__ import annotations

import re

from connect_py.java.errors import IllegalArgumentError, IndexOutOfBoundsError
from connect_py.java.regex import compile_java_regex


class JavaPattern:
    """A compiled pattern; matches whole texts, as `Matcher.matches` does."""

    def __init__(self, pattern: str) -> None:
        """JavaRegexError: it cannot be compiled."""
        self._compiled = compile_java_regex(pattern)

    def matches(self, text: str) -> bool:
        """Whether the whole text matches."""
        return self._compiled.fullmatch(text) is not None

    def replace_first(self, text: str, replacement: Replacement) -> str:
        """Replace the first match, which need not be the whole text even where the whole text
        matches.

        Raises: IndexOutOfBoundsError: The replacement names a group by a number that does not
            exist. IllegalArgumentError: The replacement is malformed, or names a group that does
            not exist.
        """
        found = self._compiled.search(text)
        if found is None:
            return text
        return text[: found.start()] + replacement.expand(found) + text[found.end() :]


class Replacement:
    """A replacement in Java's syntax: `$1`, `${name}`, and a backslash before what is literal."""

    def __init__(self, text: str) -> None:
        self._text = text

    def expand(self, match: re.Match[str]) -> str:
        """The text that takes the place of a match; errors as for `JavaPattern.replace_first`."""
        text, made, at = self._text, [], 0
        while at < len(text):
            char = text[at]
            at += 1
            if char == "\\":
                if at == len(text):
                    raise IllegalArgumentError("character to be escaped is missing")
                made.append(text[at])
                at += 1
            elif char == "$":
                group, at = self._group(match, at)
                made.append(match.group(group) or "")
            else:
                made.append(char)
        return "".join(made)

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
