"""Regular expressions that users wrote for Java, as Python patterns. Standard library only."""

from __future__ import annotations

import re

_CLASSES = {
    "Alpha": "a-zA-Z", "Digit": "0-9", "Alnum": "a-zA-Z0-9", "Lower": "a-z", "Upper": "A-Z", "Space": r"\s",
    "Punct": r"!-/:-@\[-`{-~", "XDigit": "0-9a-fA-F", "Blank": r" \t", "ASCII": r"\x00-\x7f",
}  # fmt: skip


def compile_java_pattern(text: str) -> re.Pattern[str]:
    r"""Compile a Java regular expression: named groups, \Q...\E and POSIX classes are translated.

    `\d`, `\w` and `\s` mean ASCII, as in Java.

    Raises:
        ValueError: It does not compile, or uses what Python has no word for.
    """
    out: list[str] = []
    at = 0
    inside_class = False
    while at < len(text):
        rest = text[at:]
        if rest.startswith(r"\Q"):
            end = text.find(r"\E", at)
            literal = text[at + 2 : end if end >= 0 else len(text)]
            out.append(re.escape(literal))
            at = end + 2 if end >= 0 else len(text)
        elif posix := re.match(r"\\([pP])\{(\w+)\}", rest):
            at += posix.end()
            out.append(_posix(posix.group(2), negated=posix.group(1) == "P", inside_class=inside_class))
        elif text[at] == "\\":
            out.append(r"\Z" if rest.startswith(r"\z") else rest[:2])
            at += 2
        elif inside_class and rest.startswith("&&"):
            raise ValueError("Invalid regex: intersections of character classes are not supported")
        elif inside_class and text[at] == "[":
            raise ValueError("Invalid regex: nested character classes are not supported")
        elif not inside_class and re.match(r"\(\?<[a-zA-Z]", rest):
            out.append("(?P<")
            at += 3
        else:
            inside_class = text[at] == "[" or (inside_class and text[at] != "]")
            out.append(text[at])
            at += 1
    try:
        return re.compile("".join(out), re.ASCII)
    except re.error as error:
        raise ValueError(f"Invalid regex: {error}") from error


def _posix(name: str, *, negated: bool, inside_class: bool) -> str:
    members = _CLASSES.get(name)
    if members is None or (negated and inside_class):
        raise ValueError(f"Invalid regex: character class {name} is not supported here")
    if inside_class:
        return members
    return f"[{'^' if negated else ''}{members}]"
