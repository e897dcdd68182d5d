"""What cheating brings under the real rules: lives of providers, verifiers and accusers, many times over.

The rules are those that the market runs on: sampling rates and their decay, the draw of segments and of verifiers, the
verdict, the penalty table, the stakes, the price bound of an order, all from ``market.domain`` and ``zoo_protocol``.
Nothing is trained here: that a false segment fails its replay is what ``benchmarks.replays`` shows.

A provider's life is a run of units, ended by its conviction. Its **profit from cheating** is what it saves on
computing, less the penalty and the pay that it forfeits, against doing the same units honestly. So it is neither
diluted by what honest work earns nor helped by the work that a jailed provider loses later.

Assumed, and stated with the figures: computing costs 80 % of a unit's net pay; a provider has only the least stake of
its tier at risk; a unit is decided before the next is delivered, so nothing else is forfeited with it; verifiers hold
equal stakes. All four make cheating look better than it is, or are neutral.
"""

import math
import random
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from market.domain.money import deterred_unit_price
from market.domain.network import BPS, MAINNET, ZEN
from market.domain.verification import Verdict, sampling_rate_bps, verdict
from zoo_protocol.sampling import draw_segments, draw_weighted

SEGMENTS = 4
UNITS = 100
"""Units of a life at most."""

COST_BPS = 8_000
VERIFIERS = 20
ESTABLISHED = 64
"""Verified units after which the sampling rate is at its floor."""

_TIER = MAINNET.tier("bronze")
_PENALTY = dict(MAINNET.penalty_bps)
_TRUE, _FALSE = "true leaf", "false leaf"
_Z99 = statistics.NormalDist().inv_cdf(0.995)


@dataclass(frozen=True, slots=True)
class Prices:
    """What a unit pays. ``name`` says which price it is; ``gross_wei`` is the payer's price of one unit."""

    name: str
    gross_wei: int

    @property
    def net_wei(self) -> int:
        """The provider's pay for a verified unit."""
        return self.gross_wei * (BPS - MAINNET.fee_bps) // BPS

    @property
    def cost_wei(self) -> int:
        """What computing a whole unit costs."""
        return self.net_wei * COST_BPS // BPS


USUAL = Prices("a GPU-hour at the reserve", _TIER.reserve_price_wei)
DEAREST = Prices(
    "the dearest unit that an order may have",
    deterred_unit_price(_TIER.minimum_stake_wei, SEGMENTS, MAINNET.sampling_floor_bps),
)


@dataclass(frozen=True, slots=True)
class Strategy:
    """How a provider treats its units.

    Attributes:
        name: what a row calls it.
        falsified: which of a unit's segments are false.
        saved: share of a unit's cost that it saves.
        withholds: it shows no state once challenged, and so is fined for that and not for a false step.
        accomplices: verifiers of ``VERIFIERS`` that confirm whatever it claims.
    """

    name: str
    falsified: frozenset[int] = frozenset()
    saved: float = 0.0
    withholds: bool = False
    accomplices: int = 0


_ALL = frozenset(range(SEGMENTS))
HONEST = Strategy("honest")
CHEATS = (
    Strategy("lazy in 1 of 4 segments", frozenset({2}), 0.25),
    Strategy("lazy in 2 of 4 segments", frozenset({1, 3}), 0.5),
    Strategy("lazy in all segments", _ALL, 1.0),
    Strategy("half the precision", _ALL, 0.5),
    Strategy("copier of an earlier payload", _ALL, 1.0),
    Strategy("withholder", _ALL - {0}, 0.75, withholds=True),
    Strategy("with 2 of 20 verifiers", _ALL, 1.0, accomplices=2),
    Strategy("with 5 of 20 verifiers", _ALL, 1.0, accomplices=5),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Mean of some lives in ZEN, and the bounds of its 99 % confidence interval."""

    name: str
    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, name: str, wei: Sequence[int]) -> "Outcome":
        amounts = [value / ZEN for value in wei]
        mean = statistics.fmean(amounts)
        spread = _Z99 * statistics.stdev(amounts) / math.sqrt(len(amounts))
        return cls(name, mean, mean - spread, mean + spread)


def provider_outcomes(lives: int, seed: int, prices: Prices) -> Iterator[Outcome]:
    """Profit from cheating of every strategy, as a newcomer and with a clean history."""
    dice = random.Random(seed)
    for clean, history in ((0, "newcomer"), (ESTABLISHED, "clean history")):
        for cheat in CHEATS:
            yield Outcome.of(f"{cheat.name}, {history}", [life(cheat, prices, clean, dice) for _ in range(lives)])


def honest_outcome(lives: int, seed: int, prices: Prices = USUAL) -> Outcome:
    """What honest providers earn by a life, their costs deducted."""
    dice = random.Random(seed)
    earned = [
        UNITS * (prices.net_wei - prices.cost_wei) + life(HONEST, prices, clean, dice)
        for clean in (0, ESTABLISHED)
        for _ in range(lives)
    ]
    return Outcome.of(f"honest provider, {prices.name}", earned)


def life(strategy: Strategy, prices: Prices, clean: int, dice: random.Random) -> int:
    """Profit from cheating in one life, wei; zero for the honest.

    Args:
        strategy: how the provider treats its units.
        prices: what a unit pays and costs.
        clean: verified units that it begins with.
        dice: makes the windows' seeds and the trace roots.
    """
    saved = int(prices.cost_wei * strategy.saved)
    profit = 0
    for unit in range(UNITS):
        offence = _offence(strategy, clean + unit, dice)
        profit += saved
        if offence is not None:
            return profit - prices.net_wei - _TIER.minimum_stake_wei * _PENALTY[offence] // BPS
    return profit


def _offence(strategy: Strategy, clean: int, dice: random.Random) -> str | None:
    """What the provider is convicted of for one unit, if of anything."""
    seed, root = dice.randbytes(32), dice.randbytes(32)
    rate = sampling_rate_bps(clean, MAINNET.newcomer_sampling_bps, MAINNET.sampling_floor_bps)
    for segment in draw_segments(seed, root, SEGMENTS, rate):
        if segment not in strategy.falsified:
            continue
        if strategy.withholds:
            return "withheld_data"
        if _judge(_FALSE, [_FALSE] * strategy.accomplices + [_TRUE] * VERIFIERS, seed, root, segment):
            return "incorrect_computation"
    return None


def _judge(claim: str, says: Sequence[str], seed: bytes, root: bytes, segment: int) -> dict[int, str] | None:
    """The results by verifier where they convict, None where they do not. Verifiers are drawn until there is a verdict.

    Args:
        claim: the leaf that the provider committed to.
        says: each verifier's result; the first ``VERIFIERS`` count.
        seed, root, segment: of the draw.
    """
    results: dict[int, str] = {}
    while len(results) < VERIFIERS:
        left = [verifier for verifier in range(VERIFIERS) if verifier not in results]
        subject = root + segment.to_bytes(8, "big") + len(results).to_bytes(8, "big")
        drawn = left[draw_weighted(seed, "verifier", subject, [MAINNET.verifier_minimum_stake_wei] * len(left))]
        results[drawn] = says[drawn]
        match verdict(claim, list(results.values())):
            case Verdict.PASSED:
                return None
            case Verdict.FAILED:
                return results
    return None


# --- verifiers and accusers


def accuser_outcomes(lives: int, seed: int) -> Iterator[Outcome]:
    """What a false accusation on chain brings the accuser and its accomplices among the referees."""
    dice = random.Random(seed)
    for accomplices in (0, 2, 5):
        name = f"false accuser on chain with {accomplices} of {VERIFIERS} referees"
        yield Outcome.of(name, [_dispute(accomplices, dice) for _ in range(lives)])


def _dispute(accomplices: int, dice: random.Random) -> int:
    """Profit of one false challenge in wei: the committee's majority decides (``Disputes.sol``)."""
    terms = MAINNET.disputes
    committee = dice.sample(range(VERIFIERS), terms.seats)
    bribed = sum(referee < accomplices for referee in committee)
    if bribed >= terms.quorum:
        return terms.cost_wei + bribed * terms.referee_fee_wei
    return -terms.bond_wei


def verifier_outcomes(lives: int, seed: int, replays: int = 50) -> Iterator[Outcome]:
    """What wrong verifiers earn by ``replays`` of honest segments; they compute nothing, so it costs them nothing."""
    dice = random.Random(seed)
    pay = MAINNET.verifier_wei_per_replay
    alone = [pay * sum(_guess_is_right(dice) for _ in range(replays)) for _ in range(lives)]
    yield Outcome.of(f"echoing verifier, {replays} replays", alone)
    for liars in (2, 5):
        gained = [pay * sum(_accuse(liars, dice) for _ in range(replays)) for _ in range(lives)]
        yield Outcome.of(f"{liars} of {VERIFIERS} verifiers that refute all, {replays} samples", gained)


def _guess_is_right(dice: random.Random) -> bool:
    """Whether a guessed leaf is the one of the trace, which lies hidden under its root: one in 2**256."""
    return dice.randbytes(32) == dice.randbytes(32)


def _accuse(liars: int, dice: random.Random) -> int:
    """Replays that are paid to verifiers who agreed to refute one honest segment with one and the same leaf."""
    seed, root = dice.randbytes(32), dice.randbytes(32)
    results = _judge(_TRUE, [_FALSE] * liars + [_TRUE] * VERIFIERS, seed, root, 0)
    return 0 if results is None else sum(result == _FALSE for result in results.values())


def wrongly_convicted_share(liars: int, samples: int, seed: int) -> float:
    """Share of honest segments, once drawn, that so many lying verifiers of ``VERIFIERS`` get convicted."""
    dice = random.Random(seed)
    return sum(_accuse(liars, dice) > 0 for _ in range(samples)) / samples


def honest_verifier_wei(prices: Prices) -> int:
    """What an honest replay of one segment earns, its cost deducted; the yearly reward on stake is not counted."""
    return MAINNET.verifier_wei_per_replay - prices.cost_wei // SEGMENTS
