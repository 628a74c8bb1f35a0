"""Regular expressions of the sink's options, which users wrote for Java. Standard library only."""

from __future__ import annotations

import re

from connect_py.java.regex import JavaRegexError, compile_java_regex


def compile_java_pattern(text: str) -> re.Pattern[str]:
    """Compile one. ValueError: it does not compile, or has no form in Python."""
    try:
        return compile_java_regex(text)
    except JavaRegexError as error:
        raise ValueError(f"Invalid regex: {error}") from error
