"""Templates of the console and their filters."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup, escape

from market.domain.money import format_zen
from market.platform.db.base import utc_now
from zoo_protocol import amounts
from zoo_protocol.hashing import sha256

HERE = Path(__file__).parent
STATIC = HERE / "static"


def zen(wei: int | None) -> str:
    """Return an exact amount in ZEN without trailing zeros; a dash for None."""
    if wei is None:
        return "–"
    return f"−{format_zen(-wei)}" if wei < 0 else format_zen(wei)


def short_zen(wei: int | None, is_limit: bool = False) -> str:
    """Return an amount in ZEN for people, as the commands show it; a dash for None."""
    return "–" if wei is None else amounts.short_zen(wei, is_limit=is_limit)


def plain_zen(wei: int) -> str:
    """Return an exact amount in ZEN without separators, for charts, files and fields."""
    return f"{'-' if wei < 0 else ''}{format_zen(abs(wei))}".replace(",", "")


def duration(seconds: float | None) -> str:
    """Return a duration for people, with its two largest units."""
    if seconds is None:
        return "–"
    rest = round(abs(seconds))
    parts = []
    for name, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count} {name}")
    return " ".join(parts[:2]) or "0 s"


def size(count: int | None) -> str:
    """Return a number of bytes with a decimal unit."""
    if count is None:
        return "–"
    number = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


def instant(moment: datetime | None) -> Markup:
    """Return a ``time`` element in UTC; the browser replaces its text by the local time."""
    if moment is None:
        return Markup("–")
    utc = moment.strftime("%Y-%m-%d %H:%M:%S UTC")
    return Markup(f'<time datetime="{moment.isoformat()}" title="{utc}">{utc}</time>')


def words(code: str | None) -> str:
    """Return a code as words, for example ``late_window`` as ``late window``."""
    return "–" if code is None else code.replace("_", " ").replace("-", " ")


def percent(bps: int | None) -> str:
    """Return basis points as a percentage without trailing zeros."""
    return "–" if bps is None else f"{bps / 100:.2f}".rstrip("0").rstrip(".") + " %"


_TONES = {
    "good": "active settled verified passed final done",
    "busy": "running matching verifying settling funded submitted checking leased committed uploaded open offered "
    "trace step drawing judging",
    "warn": "benchmarked registered demoted disputed expired cancelled undecided moot revealed",
    "bad": "jailed exited failed rejected lost provider_lost challenger_lost",
}
_TONE_OF = {status: tone for tone, statuses in _TONES.items() for status in statuses.split()}


def tone(status: str) -> str:
    """Return the tone of a status's badge."""
    return _TONE_OF.get(status, "neutral")


def amount(wei: int | None, unit: bool = True, is_limit: bool = False) -> Markup:
    """Return an amount: rounded for people, a limit up; exact wei in the title."""
    if wei is None:
        return Markup("–")
    rounded = f"{short_zen(wei, is_limit)}{' ZEN' if unit else ''}"
    return Markup(f'<span class="amount" title="{zen(wei)} ZEN = {wei} wei">{rounded}</span>')


def status_badge(text: str | None, tone: str = "neutral") -> Markup:
    """Return a status as a badge."""
    return Markup(f'<span class="badge {escape(tone)}">{escape(words(text))}</span>')


def asset(name: str) -> str:
    """Return the address of a static file; it changes with the content."""
    return f"/console/static/{name}?v={_VERSIONS[name]}"


def to_json(value: Any) -> str:
    """Return JSON for a ``data-`` attribute; integers beyond 53 bits must be strings."""
    return json.dumps(value, separators=(",", ":"), default=str)


_VERSIONS = {path.name: sha256(path.read_bytes()).hex()[:8] for path in STATIC.iterdir()}

templates = Environment(
    loader=FileSystemLoader(HERE / "templates"),
    autoescape=select_autoescape(),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
templates.filters.update(
    zen=zen,
    plain_zen=plain_zen,
    short_zen=short_zen,
    duration=duration,
    size=size,
    instant=instant,
    words=words,
    percent=percent,
    to_json=to_json,
    tone=tone,
)
templates.globals.update(asset=asset, now=utc_now, amount=amount, status_badge=status_badge)
