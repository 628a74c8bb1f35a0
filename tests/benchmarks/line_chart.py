"""A picture for the documentation: panels of lines over a common axis of minutes, as SVG that any
browser shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 860, 190, 64, 170, 28, 24  # of a panel; pixels
_COLOURS = ("#2563eb", "#dc2626", "#059669", "#9333ea", "#ca8a04", "#475569")
_STEPS = (1, 2, 2.5, 5, 10)


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel: its title, and lines by name, each as long as the axis has samples."""

    title: str
    lines: Mapping[str, Sequence[float]]


def draw(title: str, seconds: Sequence[float], panels: Sequence[Panel]) -> str:
    """Return the SVG of the picture. `seconds`: times of the samples, starting at 0."""
    height = _TOP + len(panels) * (_HEIGHT + _TOP + _BOTTOM)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'font-family="sans-serif"'
        ' font-size="12">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{_LEFT}" y="20" font-size="15">{escape(title)}</text>',
    ]
    for number, panel in enumerate(panels):
        parts += _panel(panel, seconds, _TOP + number * (_HEIGHT + _TOP + _BOTTOM))
    return "\n".join([*parts, "</svg>\n"])


def _panel(panel: Panel, seconds: Sequence[float], top: float) -> list[str]:
    low, right, end = top + _TOP + _HEIGHT, _WIDTH - _RIGHT, max(seconds)
    step = _step(max((max(line) for line in panel.lines.values()), default=1.0) or 1.0)
    highest = step * 4
    parts = [f'<text x="{_LEFT}" y="{top + _TOP - 8:g}">{escape(panel.title)}</text>']
    for mark in range(5):
        y = low - mark / 4 * _HEIGHT
        parts.append(f'<line x1="{_LEFT}" y1="{y:g}" x2="{right}" y2="{y:g}" stroke="#e2e8f0"/>')
        parts.append(
            f'<text x="{_LEFT - 6}" y="{y + 4:g}" text-anchor="end">{mark * step:,g}</text>'
        )
    for minute in range(int(end // 60) + 1):
        x = _LEFT + minute * 60 / end * (right - _LEFT)
        parts.append(f'<text x="{x:.1f}" y="{low + 16:g}" text-anchor="middle">{minute} min</text>')
    for number, (name, line) in enumerate(panel.lines.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        points = " ".join(
            f"{_LEFT + at / end * (right - _LEFT):.1f},{low - value / highest * _HEIGHT:.1f}"
            for at, value in zip(seconds, line, strict=True)
        )
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.3"/>'
        )
        y = top + _TOP + 12 + 18 * number
        parts.append(f'<text x="{right + 12}" y="{y:g}" fill="{colour}">{escape(name)}</text>')
    return parts


def _step(highest: float) -> float:
    """A quarter of an axis that ends at or above the highest value, of a round length."""
    power = 1e-6
    while True:
        for step in _STEPS:
            if step * power * 4 >= highest:
                return step * power
        power *= 10
