"""`Mistake`: a problem in a pipeline file and its position."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

_SIMILARITY: Final = 0.6  # minimum similarity of a suggestion


@dataclass(frozen=True, slots=True, order=True)
class FilePosition:
    """A position in a file. Lines and columns are numbered from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True, order=True)
class Mistake:
    """One mistake and its remedy."""

    position: FilePosition
    where: str  # path of the field, such as `targets.orders.topics`
    problem: str
    hint: str = ""

    def text(self, file: str) -> str:
        """Format the mistake like a compiler error: `file:line:column: path: problem; hint`."""
        begin = f"{file}:{self.position.line}:{self.position.column}: "
        path = f"{self.where}: " if self.where else ""
        return begin + path + self.problem + (f"; {self.hint}" if self.hint else "")

    def to_json(self) -> dict[str, object]:
        """Return the mistake in JSON form."""
        return {
            "line": self.position.line,
            "column": self.position.column,
            "field": self.where or None,
            "problem": self.problem,
            "hint": self.hint or None,
        }


@dataclass(slots=True)
class Mistakes:
    """Collects the mistakes in a file, without duplicates."""

    _mistakes: set[Mistake] = field(default_factory=set)

    def add(self, position: FilePosition, where: str, problem: str, hint: str = "") -> None:
        self._mistakes.add(Mistake(position, where, problem, hint))

    def __bool__(self) -> bool:
        return bool(self._mistakes)

    def below(self, *paths: str) -> bool:
        """Return True if there is a mistake in one of these fields or in a nested field."""
        return any(
            f"{each.where}.".startswith(f"{path}.") for each in self._mistakes for path in paths
        )

    def sorted(self) -> list[Mistake]:
        return sorted(self._mistakes)


class PipelineFileError(Exception):
    """A pipeline file is invalid. The message has one line per mistake."""

    def __init__(self, file: str, mistakes: list[Mistake]) -> None:
        super().__init__("\n".join(each.text(file) for each in mistakes))
        self.file = file
        self.mistakes = mistakes


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """Return a hint with the candidate that is most similar to a word, or an empty string."""
    nearest = difflib.get_close_matches(word, list(candidates), 1, _SIMILARITY)
    return f"did you mean {nearest[0]}?" if nearest else ""
