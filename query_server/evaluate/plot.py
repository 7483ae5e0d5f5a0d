"""A plot as a small SVG: how the share of questions with something right grows with the number of passages looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

DEPTH = 10

_WIDTH, _HEIGHT = 640, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 190, 50, 60
# Okabe and Ito's colours, which colour-blind people can tell apart; the dashes tell lines apart in black and white.
_STYLES = (("#0072B2", ""), ("#D55E00", "7 4"), ("#009E73", "2 3"), ("#CC79A7", "9 3 2 3"))


def hit_curve(ranks: Sequence[int | None]) -> list[float]:
    """The share of ranks that are at most 1, 2, … 10; empty without ranks."""
    if not ranks:
        return []
    return [sum(rank is not None and rank <= depth for rank in ranks) / len(ranks) for depth in range(1, DEPTH + 1)]


def draw(title: str, curves: Mapping[str, Sequence[float]], *, gate: float | None = None) -> str:
    """The curves as an SVG document. `gate` is the share that is asked for at five."""
    low = _floor([value for curve in curves.values() for value in curve] + ([] if gate is None else [gate]))
    size = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        _text(_LEFT, 28, title if len(title) < 70 else title[:69] + "…", size=15),
        *_axes(low),
    ]
    if gate is not None:
        x, y = _x(5), _y(gate, low)
        parts.append(f'<line x1="{x - 12}" y1="{y}" x2="{x + 12}" y2="{y}" stroke="#B00020" stroke-width="3"/>')
        parts.append(_text(x + 14, y + 16, f"gate {gate:g}", colour="#B00020"))
    for number, (name, curve) in enumerate(curves.items()):
        parts += _curve(name, curve, low, number)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _floor(values: Sequence[float]) -> float:
    """Where the axis begins: a tenth below the least, so that differences are seen."""
    return max(0, int(min(values, default=0.0) * 10 - 1e-9)) / 10


def _axes(low: float) -> list[str]:
    parts = []
    steps = round((1 - low) * 10)
    for step in range(steps + 1):
        value = low + step / 10
        y = _y(value, low)
        parts.append(f'<line x1="{_LEFT}" y1="{y}" x2="{_WIDTH - _RIGHT}" y2="{y}" stroke="#ddd"/>')
        parts.append(_text(_LEFT - 8, y + 4, f"{value:.1f}", anchor="end"))
    parts += [_text(_x(depth), _HEIGHT - _BOTTOM + 20, str(depth), anchor="middle") for depth in range(1, DEPTH + 1)]
    middle = (_LEFT + _WIDTH - _RIGHT) // 2
    parts.append(_text(middle, _HEIGHT - 16, "k: the first k are looked at", anchor="middle"))
    parts.append(_text(_LEFT - 44, _TOP - 6, "hit@k"))
    return parts


def _curve(name: str, curve: Sequence[float], low: float, number: int) -> list[str]:
    colour, dashes = _STYLES[number % len(_STYLES)]
    points = " ".join(f"{_x(depth)},{_y(value, low)}" for depth, value in enumerate(curve, start=1))
    dash = f' stroke-dasharray="{dashes}"' if dashes else ""
    left, y = _WIDTH - _RIGHT + 16, _TOP + 20 + number * 38
    parts = [
        f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2.5"{dash}/>',
        f'<line x1="{left}" y1="{y}" x2="{left + 26}" y2="{y}" stroke="{colour}" stroke-width="2.5"{dash}/>',
        _text(left + 32, y + 4, name, colour=colour),
    ]
    if len(curve) >= DEPTH:
        parts.append(_text(left, y + 19, f"@1 {curve[0]:.2f}  @5 {curve[4]:.2f}  @10 {curve[9]:.2f}", size=10))
    return parts


def _x(depth: int) -> float:
    return round(_LEFT + (depth - 1) * (_WIDTH - _LEFT - _RIGHT) / (DEPTH - 1), 1)


def _y(value: float, low: float) -> float:
    return round(_TOP + (1 - value) / (1 - low) * (_HEIGHT - _TOP - _BOTTOM), 1)


def _text(x: float, y: float, text: str, *, size: int = 12, anchor: str = "start", colour: str = "#222") -> str:
    return f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}" fill="{colour}">{escape(text)}</text>'
