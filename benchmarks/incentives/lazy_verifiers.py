"""Detection time and gain of a verifier that does not replay.

One verifier of ``VERIFIERS`` of its class is lazy at a share of its replays; the others, and all providers, are honest.
Units have ``SEGMENTS``. The market's own rules sample segments, schedule canaries, choose verifiers, reach verdicts and
set penalties. Instead of a replay the lazy verifier answers:

- ``told``: the provider's claim, obtained elsewhere, and any digest if a state's is requested. Only a canary detects
  that, or at a first segment a duplicate replay.
- ``told, first segments only``: the same, but it replays all others.
- ``echoes``: the leaf that the segment starts from.
- ``guesses``: a random leaf.

Exactly: a share c of the sampled segments is checked again, and s of all are first segments. A sampled segment then has
1 + (1 - s) 2c + s c replays: two more for a canary, one more for a duplicate. Both replays of either detect a copy. A
replay is one of them with probability q = 2c / (1 + (2 - s) c), and one at a first segment with s q. The share
found after n replays is 1 - (1 - f q)^n for ``told`` and 1 - (1 - f)^n for the last two. For ``told, first segments
only`` it is 1 - (1 - f s q)^n.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum

from benchmarks.detection import bounds
from benchmarks.detection.bounds import Comparison
from benchmarks.incentives.profits import best_row, outcome_row
from benchmarks.incentives.strategies import HIGHEST_PRICES, SEGMENTS, USUAL, Outcome, Prices, overruling_wei
from benchmarks.report import Row, progress, row
from market.domain.network import BPS
from market.domain.verification.canaries import agreed_digest, answer, is_claim_confirmed, is_due
from market.domain.verification.sampling import VerifierSanction, outvoted, sanction_for
from market.settings import Settings
from zoo_protocol.verification.rules import Verdict, verdict
from zoo_protocol.verification.sampling import draw

VERIFIERS = 5
SHARES = (0.1, 0.25, 0.5, 1.0)
CHECKED = (1, 10, 25, 50)
"""Replays after which found verifiers are counted."""
REPLAYS = max(CHECKED)
"""Maximum replays of a life, which also ends when its verifier is slashed."""
_CANARY_BPS: int = Settings.model_fields["canary_bps"].default
_LAZY = 0  # index of the lazy verifier
_START, _TRUE, _ALTERED = "start leaf", "true leaf", "true leaf of the altered state"
_INNER = "digest of the true state"
_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


class Laziness(Enum):
    """Answer of a verifier that does not replay."""

    CLAIM_KNOWN = "told"
    FIRST_CLAIM_KNOWN = "told, first segments only"
    ECHOES = "echoes"
    GUESSES = "guesses"


@dataclass
class Life:
    """Life of a lazy verifier.

    Attributes:
        replays: replays requested from it.
        lazy: replays that it did not compute.
        lazy_when_found: replays that it did not compute before its first detection.
        found_after: replays until then; None if it was never found.
        follows: sanctions, one per overruled result.
    """

    replays: int = 0
    lazy: int = 0
    lazy_when_found: int = 0
    found_after: int | None = None
    follows: tuple[VerifierSanction, ...] = ()

    def profit_wei(self, prices: Prices, *, careful: bool) -> int:
        """Return the gain over replaying all. A ``careful`` verifier replays after its suspension."""
        lazy, follows = (self.lazy_when_found, self.follows[:1]) if careful else (self.lazy, self.follows)
        saved = lazy * (prices.cost_wei // SEGMENTS)
        return saved - len(follows) * prices.replay_wei - sum(overruling_wei(one, prices) for one in follows)


def replays_of_a_segment(segments: int) -> float:
    """Return the mean replays of a sampled segment: its own, and a canary's or duplicate's."""
    return 1 + (2 - 1 / segments) * _CANARY_BPS / BPS


def chance(laziness: Laziness, share: float, replays: int) -> float:
    """Return the exact probability of detection within this many replays."""
    canary_share, first = _CANARY_BPS / BPS, 1 / SEGMENTS
    compared = 2 * canary_share / replays_of_a_segment(SEGMENTS)
    each = {
        Laziness.CLAIM_KNOWN: compared,
        Laziness.FIRST_CLAIM_KNOWN: first * compared,
        Laziness.ECHOES: 1.0,
        Laziness.GUESSES: 1.0,
    }
    return 1 - (1 - share * each[laziness]) ** replays


def live(laziness: Laziness, share: float, dice: random.Random) -> Life:
    """Return one life, of at most ``REPLAYS``."""
    life, warned_at, now = Life(), None, _BEGIN
    while life.replays < REPLAYS and VerifierSanction.SLASHED not in life.follows:
        now += timedelta(minutes=1)
        for copied in _drawn_segment(laziness, share, life, dice):
            follows = sanction_for(now, warned_at, now + timedelta(seconds=1), copied=copied)
            warned_at = now if follows is VerifierSanction.SUSPENDED else warned_at
            if life.found_after is None:
                life.found_after, life.lazy_when_found = life.replays, life.lazy
            life.follows += (follows,)
    return life


def _candidates(asked: list[int], elsewhere: list[int]) -> list[int]:
    """Return the verifiers to draw from: those not asked ``elsewhere`` come first."""
    free = [verifier for verifier in range(VERIFIERS) if verifier not in asked]
    return [verifier for verifier in free if verifier not in elsewhere] or free


def _lazy_result(laziness: Laziness, segment: int, inner: dict[int, str], dice: random.Random) -> str:
    """Return the result of a verifier that does not replay; it invents inner states."""
    if segment == 0:
        inner[_LAZY] = dice.randbytes(8).hex()
    return {Laziness.ECHOES: _START, Laziness.GUESSES: dice.randbytes(8).hex()}.get(laziness, _TRUE)


def _drawn_segment(laziness: Laziness, share: float, life: Life, dice: random.Random) -> Iterable[bool]:
    """Replay a sample and its canary; yield, per overruled lazy result, if it was copied."""
    segment, seed, root = dice.randrange(SEGMENTS), dice.randbytes(32), dice.randbytes(32)
    has_canary = is_due(dice.randrange(BPS), _CANARY_BPS)
    asked: list[int] = []
    elsewhere: list[int] = []
    inner: dict[int, str] = {}

    def ask(true: str) -> str:
        candidates = _candidates(asked, elsewhere)
        attempt = len(asked) + len(elsewhere)
        subject = root + segment.to_bytes(8, "big") + attempt.to_bytes(8, "big")
        # stakes are equal and all verifiers live, so each is equally likely
        asked.append(candidates[draw(seed, "verifier", subject) % len(candidates)])
        if asked[-1] != _LAZY:
            return true
        life.replays += 1
        may_be_lazy = laziness is not Laziness.FIRST_CLAIM_KNOWN or segment == 0
        if not (may_be_lazy and dice.random() < share):
            return true
        life.lazy += 1
        return _lazy_result(laziness, segment, inner, dice)

    def digests() -> list[str]:
        came = zip(asked, results, strict=True)
        return [inner.get(verifier, _INNER) for verifier, result in came if result == _TRUE]

    def is_open() -> bool:
        second = segment == 0 and has_canary
        return verdict(_TRUE, results) is Verdict.OPEN or not is_claim_confirmed(digests(), needs_duplicate=second)

    results = [ask(_TRUE)]
    while is_open():
        results.append(ask(_TRUE))
    if _LAZY in asked and results[asked.index(_LAZY)] in outvoted(results):
        yield False
    elif _LAZY in inner and inner[_LAZY] != agreed_digest(digests()):
        yield True
    if has_canary and segment > 0:
        asked, elsewhere = [], asked
        results = [ask(_ALTERED)]
        while (right := answer(results, _TRUE)) is None:
            results.append(ask(_ALTERED))
        if _LAZY in asked and (lazy_answer := results[asked.index(_LAZY)]) != right:
            yield lazy_answer == _TRUE


def rows(lives: int) -> list[Row]:
    """Return the rows of detection and profit over ``lives`` lazy verifiers each."""
    lived = {}
    for laziness in Laziness:
        for share in SHARES:
            progress(f"{lives} verifiers, lazy at {share:.0%} of their replays: {laziness.value}")
            dice = random.Random(f"{laziness.value} {share}")
            lived[laziness, share] = [live(laziness, share, dice) for _ in range(lives)]
    return [*_found(lived, lives), *_profits(lived)]


def _found(lived: dict[tuple[Laziness, float], list[Life]], lives: int) -> list[Row]:
    compared = []
    detected: dict[Laziness, list[str]] = {Laziness.CLAIM_KNOWN: [], Laziness.FIRST_CLAIM_KNOWN: []}
    for (laziness, share), of_share in lived.items():
        for replays in CHECKED:
            found = sum(life.found_after is not None and life.found_after <= replays for life in of_share)
            expected = chance(laziness, share, replays)
            compared.append(Comparison(expected, found))
            if laziness in detected and replays == REPLAYS:
                detected[laziness].append(f"{found / lives:.1%} of those at {share:.0%} ({expected:.1%})")
    what = (
        "lazy verifiers each: told the claim, told it and lazy at first segments only, echoing, guessing; lazy at "
        f"{', '.join(f'{share:.0%}' for share in SHARES)} of their replays; found after {', '.join(map(str, CHECKED))}"
    )
    return [
        *bounds.rows("lazy", "shares", compared, lives, what),
        row(
            "lazy_told_found",
            "%",
            [100 * sum(life.found_after is not None for life in lived[Laziness.CLAIM_KNOWN, 1.0]) / lives],
            f"found by canaries and duplicate replays within {REPLAYS} replays, by the formula in brackets: "
            f"{', '.join(detected[Laziness.CLAIM_KNOWN])}",
        ),
        row(
            "lazy_first_segments_found",
            "%",
            [100 * sum(life.found_after is not None for life in lived[Laziness.FIRST_CLAIM_KNOWN, 1.0]) / lives],
            f"told all claims and lazy at first segments only, found by duplicate replays within {REPLAYS} replays: "
            f"{', '.join(detected[Laziness.FIRST_CLAIM_KNOWN])}",
        ),
    ]


def _profits(lived: dict[tuple[Laziness, float], list[Life]]) -> list[Row]:
    outcomes = [
        Outcome.of(
            f"{laziness.value}, at {share:.0%}{', honest once suspended' if careful else ''}, {prices.name}",
            [life.profit_wei(prices, careful=careful) for life in of_share],
        )
        for (laziness, share), of_share in lived.items()
        for prices in (USUAL, *HIGHEST_PRICES)
        for careful in (False, True)
    ]
    of_first = [outcome for outcome in outcomes if outcome.name.startswith(Laziness.FIRST_CLAIM_KNOWN.value)]
    first = max(of_first, key=lambda outcome: outcome.mean)
    return [
        best_row("lazy_profit_max", outcomes, f"in {REPLAYS} replays, against replaying all"),
        outcome_row(
            "lazy_first_segments_profit", first, f"the most that lazy at first segments only brings; {first.name}"
        ),
    ]
