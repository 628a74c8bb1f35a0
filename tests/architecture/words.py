"""Words that our texts do not use, because they hide who acts or have a plainer form. Run by `make lint`.

Code is left out of a page: it quotes names and log lines, whose words are those of the program. Of a program every line
counts, with its names taken apart: comments, docstrings, texts and identifiers have the same rule in all languages.
"""

from __future__ import annotations

import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "CHANGELOG.md", "docs/**/*.md")
PROGRAMS = (
    *(f"{package}/**/*.py" for package in ("connect_py", "connectors", "transforms", "rest")),
    "connectors/**/*.java",
    "native/*/*.toml",
    "native/*/src/**/*.rs",
)
# The word, and what to write instead.
FORBIDDEN = {
    r"troubles?": "error, failure, retry",
    r"wish(es|ed)?": "request",
    r"told": "what the actor does: logs, reports, shows",
    r"nobody": "the actor: no reader, no task, no other writer",
    r"somebody": "the actor: a user, another worker",
    r"whoever": "the actor: a caller, a worker that",
    r"be had": "be loaded, be available",
}
# What a name of ours does not use, as of variables, methods and classes, and what to write instead.
FORBIDDEN_NAMES = {
    r"held": "buffered, blocked, waiting, running, what the value is",
    r"gone": "removed, ended, lost, expired, what happened to it",
    r"(?<!dead )letters?": "dead_letter, record",
}
# Programs in which such a name is the right one, and why.
NAME_EXCEPTIONS = {"transforms/java_date_format.py": "Java's patterns consist of letters"}
# Generated from descriptions in the code, which are changed there.
GENERATED = "<!-- Made by `make docs`"
# Lines that may have a word after all: a part of the line, and why.
EXCEPTIONS: dict[str, str] = {}

_WORDS = re.compile(rf"\b({'|'.join(FORBIDDEN)})(?:'s)?\b", re.IGNORECASE)
_CODE = re.compile(r"^```.*?^```$|^    .*?$|`[^`\n]+`", re.DOTALL | re.MULTILINE)
_ADDRESS = re.compile(r"\]\([^)\s]+\)")
_NAMES = re.compile(rf"\b({'|'.join(FORBIDDEN_NAMES)})\b")
_JOINT = re.compile(r"_|(?<=[a-z0-9])(?=[A-Z])")  # between the words of an identifier


def findings() -> Iterator[str]:
    """Each forbidden word with its place and what to write instead."""
    for path in _files(PAGES):
        text = path.read_text()
        if GENERATED not in text:
            yield from _found(path, text, _ADDRESS.sub("]", _CODE.sub(_blank, text)))
    for path in _files(PROGRAMS):
        text = path.read_text()
        yield from _found(path, text, _JOINT.sub(" ", text))
        if path.suffix == ".py" and str(path.relative_to(ROOT)) not in NAME_EXCEPTIONS:
            yield from _found_names(path, text)


def _found_names(path: Path, text: str) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME:
            for found in _NAMES.finditer(_JOINT.sub(" ", token.string).lower()):
                instead = next(
                    v for pattern, v in FORBIDDEN_NAMES.items() if re.fullmatch(pattern.split(")")[-1], found[0])
                )
                yield f"{path.relative_to(ROOT)}:{token.start[0]}: name '{token.string}': write {instead}"


def _files(patterns: Iterable[str]) -> list[Path]:
    return sorted(path for pattern in patterns for path in ROOT.glob(pattern))


def _found(path: Path, text: str, prose: str) -> Iterator[str]:
    for number, (line, original) in enumerate(zip(prose.splitlines(), text.splitlines(), strict=True), 1):
        if any(part in original for part in EXCEPTIONS):
            continue
        for found in _WORDS.finditer(line):
            yield f"{path.relative_to(ROOT)}:{number}: '{found[0]}': write {_instead(found[1])}"


def _blank(code: re.Match[str]) -> str:
    """Code without its text, with its lines."""
    return "\n" * code[0].count("\n")


def _instead(word: str) -> str:
    return next(instead for pattern, instead in FORBIDDEN.items() if re.fullmatch(pattern, word, re.IGNORECASE))


def main() -> int:
    """Print what was found; returns 1 if anything was."""
    found = list(findings())
    for line in found:
        print(line)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
