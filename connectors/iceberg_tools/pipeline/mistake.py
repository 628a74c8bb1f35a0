"""`Mistake`: what is wrong with a pipeline file, and where."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

_ALIKE: Final = 0.6  # how like a known word a misspelt one is


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A place in a file; both numbers begin with 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True, order=True)
class Mistake:
    """One mistake, and what to do about it."""

    place: Place
    where: str  # path of the field: `targets.orders.topics`
    problem: str
    hint: str = ""

    def text(self, file: str) -> str:
        """The mistake as compilers show one: `file:line:column: path: problem; hint`."""
        begin = f"{file}:{self.place.line}:{self.place.column}: "
        path = f"{self.where}: " if self.where else ""
        return begin + path + self.problem + (f"; {self.hint}" if self.hint else "")

    def to_json(self) -> dict[str, object]:
        """The mistake for machines."""
        return {
            "line": self.place.line,
            "column": self.place.column,
            "field": self.where or None,
            "problem": self.problem,
            "hint": self.hint or None,
        }


@dataclass(slots=True)
class Mistakes:
    """All mistakes of a file, each once, in the order of the file."""

    _found: set[Mistake] = field(default_factory=set)

    def add(self, place: Place, where: str, problem: str, hint: str = "") -> None:
        self._found.add(Mistake(place, where, problem, hint))

    def __bool__(self) -> bool:
        return bool(self._found)

    def below(self, *paths: str) -> bool:
        """Whether there is one at or below one of these fields."""
        return any(
            f"{each.where}.".startswith(f"{path}.") for each in self._found for path in paths
        )

    def sorted(self) -> list[Mistake]:
        return sorted(self._found)


class PipelineFileError(Exception):
    """A pipeline file has mistakes. Its text has a line for each."""

    def __init__(self, file: str, mistakes: list[Mistake]) -> None:
        super().__init__("\n".join(each.text(file) for each in mistakes))
        self.file = file
        self.mistakes = mistakes


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint: the known word that is most like this one; empty: there is none."""
    nearest = difflib.get_close_matches(word, list(known), 1, _ALIKE)
    return f"did you mean {nearest[0]}?" if nearest else ""
