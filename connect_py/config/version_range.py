"""Plugin version ranges in Maven notation."""

from __future__ import annotations

import re
from dataclasses import dataclass

from connect_py.api.errors import ConfigError

_RANGE = re.compile(
    r"(?P<open>[\[(])(?P<low>[^,\[\]()]*)(?P<comma>,?)(?P<high>[^,\[\]()]*)(?P<close>[\])])"
)
_PIECES = re.compile(r"\d+|[A-Za-z]+")


def version_order(version: str) -> tuple[tuple[int, int, str], ...]:
    """Return a sort key that orders numbers by value, and words before numbers.

    For example, 1.0-beta < 1.0 < 1.0.1.
    """
    pieces = [
        (1, int(piece), "") if piece.isdigit() else (-1, 0, piece.lower())
        for piece in _PIECES.findall(version)
    ]
    while pieces and pieces[-1] == (1, 0, ""):
        pieces.pop()
    return (*pieces, (0, 0, ""))


@dataclass(frozen=True, slots=True)
class VersionRange:
    """Versions from `low` to `high`. None means no bound. `any` is True for the range `latest`."""

    low: str | None
    high: str | None
    low_inclusive: bool
    high_inclusive: bool
    any: bool = False

    @staticmethod
    def parse(text: str) -> VersionRange:
        """Parse `1.2` (exactly that version), `[1.0,2.0)`, or `latest`.

        Raises:
            ConfigError: A bracket is missing, or the bounds are in the wrong order.
        """
        spec = text.strip()
        if spec == "latest":
            return VersionRange(None, None, False, False, any=True)
        if not spec.startswith(("[", "(")):
            return VersionRange(spec, spec, True, True)
        match = _RANGE.fullmatch(spec)
        if match is None:
            raise ConfigError("", f"Unbounded range: {spec}")
        low, high = match["low"].strip() or None, match["high"].strip() or None
        if not match["comma"]:
            low = high = (match["low"] + match["high"]).strip() or None
        if low and high and version_order(low) > version_order(high):
            raise ConfigError("", f"Range defies version ordering: {spec}")
        return VersionRange(low, high, match["open"] == "[", match["close"] == "]")

    def __contains__(self, version: str | None) -> bool:
        if self.any:
            return True
        if version is None or self.low == "":
            return False
        order = version_order(version)
        if self.low is not None and not (
            version_order(self.low) < order
            or (self.low_inclusive and version_order(self.low) == order)
        ):
            return False
        if self.high is None:
            return True
        return order < version_order(self.high) or (
            self.high_inclusive and order == version_order(self.high)
        )

    def __str__(self) -> str:
        if self.any:
            return "latest"
        opening, closing = "[" if self.low_inclusive else "(", "]" if self.high_inclusive else ")"
        return f"{opening}{self.low or ''},{self.high or ''}{closing}"
