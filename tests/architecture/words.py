"""Words that our texts do not use, because they hide who acts or have a plainer form. Run by `make
lint`.

Code is left out of a page: it quotes names and log lines, whose words are those of the program. Of
a program every line counts, with its names taken apart: comments, docstrings, texts and identifiers
have the same rule in all languages. The names of files count, too.
"""

from __future__ import annotations

import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs/**/*.md")
PROGRAMS = (
    *(f"{package}/**/*.py" for package in ("connect_py", "connectors", "transforms", "rest")),
    "connectors/**/*.java",
    "native/*/*.toml",
    "native/*/src/**/*.rs",
    "docs/*.py",
    "Makefile",
    "*.py",
    "*.toml",
    "*.yml",
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
# What a page does not use beside the words of all texts.
FORBIDDEN_IN_PAGES = {
    r"(?<!410 )gone": "removed, ended, lost, expired",
    r"(?<!dead )(?<!dead-)letters": "dead letters, characters",
    r"what is left": "the noun: the remaining rows, files, commits",
    r"in vain": "what did not happen",
    r"for good": "permanently; until a user acts",
    r"for ever": "without a limit",
}
# Programs in which such a name is the right one, and why.
NAME_EXCEPTIONS = {"connect_py/java/date_format.py": "Java's patterns consist of letters"}
# Generated from descriptions in the code, which are changed there.
GENERATED = "<!-- Made by `make docs`"
# Lines that may have a word after all: a part of the line, and why.
EXCEPTIONS: dict[str, str] = {'_UNPRIVILEGED = ("postgres", ': "the name of a user of Unix"}

Words = dict[re.Pattern[str], str]


def _compiled(words: dict[str, str]) -> Words:
    return {
        re.compile(rf"\b{word}(?:'s)?\b", re.IGNORECASE): instead for word, instead in words.items()
    }


_WORDS = _compiled(FORBIDDEN)
_PAGE_WORDS = _compiled(FORBIDDEN | FORBIDDEN_IN_PAGES)
_NAME_WORDS = _compiled(FORBIDDEN_NAMES)
_FILE_WORDS = _compiled(FORBIDDEN | FORBIDDEN_NAMES)
_CODE = re.compile(r"^```.*?^```$|^    .*?$|`[^`\n]+`", re.DOTALL | re.MULTILINE)
_ADDRESS = re.compile(r"\]\([^)\s]+\)")
# comments and texts of Java and Rust
_NO_NAMES = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', re.DOTALL)
_NAME = re.compile(r"[A-Za-z_]\w*")
_JOINT = re.compile(r"_|(?<=[a-z0-9])(?=[A-Z])")  # between the words of an identifier


def findings() -> Iterator[str]:
    """Each forbidden word with its place and what to write instead."""
    for path in _files(PAGES):
        yield from _found_in_file_name(path)
        text = path.read_text()
        if GENERATED not in text:
            yield from _found(path, text, _ADDRESS.sub("]", _CODE.sub(_blank, text)), _PAGE_WORDS)
    for path in _files(PROGRAMS):
        yield from _found_in_file_name(path)
        text = path.read_text()
        yield from _found(path, text, _JOINT.sub(" ", text), _WORDS)
        if str(path.relative_to(ROOT)) not in NAME_EXCEPTIONS:
            yield from _found_names(path, text)


def _found_names(path: Path, text: str) -> Iterator[str]:
    for line, name in _names(path, text):
        for _, instead in _matches(_JOINT.sub(" ", name), _NAME_WORDS):
            yield f"{path.relative_to(ROOT)}:{line}: name '{name}': write {instead}"


def _names(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """The identifiers of a program with their lines."""
    if path.suffix == ".py":
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.NAME:
                yield token.start[0], token.string
    elif path.suffix in (".java", ".rs"):
        for number, line in enumerate(_NO_NAMES.sub(_blank, text).split("\n"), 1):
            yield from ((number, name) for name in _NAME.findall(line))


def _found_in_file_name(path: Path) -> Iterator[str]:
    name = str(path.relative_to(ROOT))
    for found, instead in _matches(re.sub(r"[\W_]", " ", _JOINT.sub(" ", name)), _FILE_WORDS):
        yield f"{name}: '{found}' in the file's name: write {instead}"


def _files(patterns: Iterable[str]) -> list[Path]:
    return sorted(path for pattern in patterns for path in ROOT.glob(pattern))


def _found(path: Path, text: str, prose: str, words: Words) -> Iterator[str]:
    for number, (line, original) in enumerate(
        zip(prose.splitlines(), text.splitlines(), strict=True), 1
    ):
        if any(part in original for part in EXCEPTIONS):
            continue
        for found, instead in _matches(line, words):
            yield f"{path.relative_to(ROOT)}:{number}: '{found}': write {instead}"


def _matches(text: str, words: Words) -> Iterator[tuple[str, str]]:
    """Each word found in a text, and what to write instead."""
    for word, instead in words.items():
        for found in word.finditer(text):
            yield found[0], instead


def _blank(code: re.Match[str]) -> str:
    """Code without its text, with its lines."""
    return "\n" * code[0].count("\n")


def main() -> int:
    """Print what was found; returns 1 if anything was."""
    found = list(findings())
    for line in found:
        print(line)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
