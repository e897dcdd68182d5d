"""Profit of dishonest strategies in simulated lives of providers, verifiers and challengers.

The rules come from ``market.domain`` and ``zoo_protocol``. They cover sampling rates and their decay, draws of segments
and verifiers, verdicts and sanctions, penalties, stakes, price bounds and replay pay. Nothing is trained here;
``benchmarks.detection.replays`` shows that false segments fail their replays.

A provider's life is a run of units, ended by its slash. Its **profit** is the saved compute, less the penalty and the
forfeited pay, relative to doing the same units honestly. Honest earnings do not dilute it, and work that a jailed
provider loses later does not count. Colluding verifiers share its purse: pay for results that they did not compute is
gain, their lost stake is loss.

Assumptions, all of which favour the dishonest or are neutral:

- Computing costs 80 % of a unit's net pay.
- A provider has only its tier's least stake to lose, a verifier the least stake that covers its segments.
- A unit is decided before the next is delivered, except in bursts: many false units delivered before the first of them
  is refuted. There nothing is computed, so the whole pay is profit. An unsampled unit is verified at once, leaves room
  for the next one, and its pay is claimed before any verdict. Verdicts on sampled units come after the last unit that
  the market offers.
- Verifiers hold equal stakes. A suspended one can be drawn again at once, a slashed one never. A wrong result does not
  make a verifier's later draws rarer.
"""

import math
import random
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from benchmarks.report import Z99
from market.domain.money import max_deterred_unit_price, max_disputable_unit_price, may_start_unit
from market.domain.network import BPS, MAINNET, ZEN, Tier
from market.domain.verification.late_states import REFUSED_DATA, WITHHELD_DATA
from market.domain.verification.sampling import STAKE_COVER, VerifierSanction, outvoted, sanction_for
from zoo_protocol.verification.rules import Verdict, sampling_rate_bps, verdict
from zoo_protocol.verification.sampling import draw, draw_segments

SEGMENTS = 4
UNITS = 100
"""Maximum units of a life."""
COST_BPS = 8_000
VERIFIERS = 20
ESTABLISHED = 64
"""Verified units after which the sampling rate is minimal."""
IN_FLIGHT = (1, 4, 20, 100, 400)
"""Units of a burst."""
_BRONZE = MAINNET.tier("bronze")
_PENALTY = dict(MAINNET.penalty_bps)
_TRUE, _FALSE = "true leaf", "false leaf"


@dataclass(frozen=True, slots=True)
class Prices:
    """Pay of a unit of a tier; ``gross_wei`` is the payer's price of one unit."""

    name: str
    gross_wei: int
    tier: Tier = _BRONZE

    @property
    def net_wei(self) -> int:
        """The provider's pay for a verified unit."""
        return self.gross_wei * (BPS - MAINNET.fee_bps) // BPS

    @property
    def cost_wei(self) -> int:
        """Cost of computing a whole unit."""
        return self.net_wei * COST_BPS // BPS

    @property
    def segment_wei(self) -> int:
        """The payer's price of one segment."""
        return self.gross_wei // SEGMENTS

    @property
    def replay_wei(self) -> int:
        """A verifier's pay for one segment."""
        return self.segment_wei * MAINNET.replay_pay_bps // BPS

    @property
    def verifier_stake_wei(self) -> int:
        """The least stake that covers a segment."""
        return max(MAINNET.verifier_minimum_stake_wei, STAKE_COVER * self.segment_wei)


def _highest_prices(tier: Tier) -> Prices:
    deterred = max_deterred_unit_price(tier.min_fraud_penalty_wei, SEGMENTS, MAINNET.sampling_floor_bps)
    judged = max_disputable_unit_price(MAINNET.disputes.referee_fee_wei, SEGMENTS)
    return Prices(f"the dearest unit of {tier.name}", min(deterred, judged), tier)


def overruling_wei(follows: VerifierSanction, prices: Prices) -> int:
    """Return an overruled verifier's loss: the missed reward on stake, or the penalty."""
    match follows:
        case VerifierSanction.SUSPENDED:
            yearly = prices.verifier_stake_wei * MAINNET.base_apy_bps // BPS
            return yearly * MAINNET.suspension_seconds // (365 * 86_400)
        case VerifierSanction.SLASHED:
            return prices.verifier_stake_wei * _PENALTY["wrong_replay"] // BPS
    return 0


USUAL = Prices("a GPU-hour at the reserve", _BRONZE.reserve_price_wei)
HIGHEST_PRICES = tuple(_highest_prices(tier) for tier in MAINNET.tiers)


@dataclass(frozen=True, slots=True)
class Strategy:
    """Behaviour of a provider.

    Attributes:
        name: name in a row.
        falsified: indices of a unit's false segments.
        saved: saved share of a unit's cost.
        withholds: offence instead of a false segment, since it reveals no state once challenged.
        accomplices: verifiers of ``VERIFIERS`` that confirm every claim.
    """

    name: str
    falsified: frozenset[int] = frozenset()
    saved: float = 0.0
    withholds: str | None = None
    accomplices: int = 0


_ALL = frozenset(range(SEGMENTS))
HONEST = Strategy("honest")
DISHONEST_STRATEGIES = (
    Strategy("lazy in 1 of 4 segments", frozenset({2}), 0.25),
    Strategy("lazy in 2 of 4 segments", frozenset({1, 3}), 0.5),
    Strategy("lazy in all segments", _ALL, 1.0),
    Strategy("half the precision", _ALL, 0.5),
    Strategy("copier of an earlier payload", _ALL, 1.0),
    Strategy("withholder", _ALL - {0}, 0.75, withholds=WITHHELD_DATA),
    Strategy("refuser", _ALL - {0}, 0.75, withholds=REFUSED_DATA),
    Strategy("with 2 of 20 verifiers", _ALL, 1.0, accomplices=2),
    Strategy("with 5 of 20 verifiers", _ALL, 1.0, accomplices=5),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Mean of several lives in ZEN, and the bounds of its 99 % confidence interval."""

    name: str
    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, name: str, wei: Sequence[int]) -> "Outcome":
        amounts = [value / ZEN for value in wei]
        mean = statistics.fmean(amounts)
        spread = Z99 * statistics.stdev(amounts) / math.sqrt(len(amounts))
        return cls(name, mean, mean - spread, mean + spread)


@dataclass
class Bench:
    """The verifiers; the first ``dishonest`` give an agreed answer and compute nothing.

    Attributes:
        prices: pay of a replay and the stake that covers it.
        dishonest: number of dishonest verifiers among ``VERIFIERS``.
        careful: each is honest after its suspension.
        earned: gain of the dishonest ones, less their losses, wei.
    """

    prices: Prices
    dishonest: int = 0
    careful: bool = False
    earned: int = 0
    _warned: dict[int, datetime] = field(default_factory=dict)
    _jailed: set[int] = field(default_factory=set)
    _now: datetime = datetime(2026, 1, 1, tzinfo=UTC)

    def refutes(self, claim: str, lie: str, seed: bytes, root: bytes, segment: int) -> bool:
        """Return True if the claim is refuted; draw verifiers until a verdict or none is left.

        Args:
            claim: the leaf that the provider committed to.
            lie: answer of a dishonest verifier; the others answer ``_TRUE``.
            seed, root, segment: input of the draw.
        """
        self._now += timedelta(minutes=1)
        results: dict[int, str] = {}
        standing = [verifier for verifier in range(VERIFIERS) if verifier not in self._jailed]
        found = Verdict.OPEN
        while found is Verdict.OPEN and len(results) < len(standing):
            left = [verifier for verifier in standing if verifier not in results]
            subject = root + segment.to_bytes(8, "big") + len(results).to_bytes(8, "big")
            drawn = left[draw(seed, "verifier", subject) % len(left)]  # stakes are equal
            results[drawn] = lie if self._is_dishonest(drawn) else _TRUE
            found = verdict(claim, list(results.values()), no_verifier_left=len(left) == 1)
        self._conclude(results, claim, found)
        return found is Verdict.FAILED

    def wrongly_slashed(self) -> int:
        """Return the number of slashed verifiers that never lied."""
        return sum(verifier >= self.dishonest for verifier in self._jailed)

    def _is_dishonest(self, verifier: int) -> bool:
        return verifier < self.dishonest and not (self.careful and verifier in self._warned)

    def _conclude(self, results: dict[int, str], claim: str, found: Verdict) -> None:
        assigned_at = self._now
        self._now += timedelta(minutes=1)
        lied = {verifier for verifier in results if self._is_dishonest(verifier)}
        wrong = outvoted(list(results.values()))
        for verifier, result in results.items():
            cost = self._overrule(verifier, assigned_at) if result in wrong else 0
            is_paid = result not in wrong and (result == claim) is (found is Verdict.PASSED)
            if verifier in lied:
                self.earned += self.prices.replay_wei * is_paid - cost

    def _overrule(self, verifier: int, assigned_at: datetime) -> int:
        follows = sanction_for(assigned_at, self._warned.get(verifier), self._now)
        if follows is VerifierSanction.SUSPENDED:
            self._warned[verifier] = self._now
        elif follows is VerifierSanction.SLASHED:
            self._jailed.add(verifier)
        return overruling_wei(follows, self.prices)


def provider_outcomes(lives: int, seed: int, prices: Prices, undecided: float = 0.0) -> Iterator[Outcome]:
    """Yield the profit of every strategy, as a newcomer and with a clean history."""
    dice = random.Random(seed)
    for clean, history in ((0, "newcomer"), (ESTABLISHED, "clean history")):
        for attack in DISHONEST_STRATEGIES:
            profits = [life(attack, prices, clean, dice, undecided) for _ in range(lives)]
            yield Outcome.of(f"{attack.name}, {history}, {prices.name}", profits)


def honest_outcome(lives: int, seed: int, prices: Prices = USUAL) -> Outcome:
    """Return the earnings of honest providers per life, their costs deducted."""
    dice = random.Random(seed)
    earned = [
        UNITS * (prices.net_wei - prices.cost_wei) + life(HONEST, prices, clean, dice)
        for clean in (0, ESTABLISHED)
        for _ in range(lives)
    ]
    return Outcome.of(f"honest provider, {prices.name}", earned)


def life(strategy: Strategy, prices: Prices, clean: int, dice: random.Random, undecided: float = 0.0) -> int:
    """Return the profit of one life, wei; zero for the honest.

    Args:
        prices: pay and cost of a unit.
        clean: verified units at the start.
        dice: source of the windows' seeds and the trace roots.
        undecided: share of disputes of false segments that are inconclusive: the unit is unpaid, without a penalty.
    """
    saved = int(prices.cost_wei * strategy.saved)
    bench = Bench(prices, strategy.accomplices)
    profit = 0
    for unit in range(UNITS):
        offence = _offence(strategy, clean + unit, bench, dice)
        profit += saved
        if offence == "incorrect_computation" and undecided and dice.random() < undecided:
            profit -= prices.net_wei
        elif offence is not None:
            lost = prices.net_wei + prices.tier.minimum_stake_wei * _PENALTY[offence] // BPS
            return profit + bench.earned - lost
    return profit + bench.earned


def _offence(strategy: Strategy, clean: int, bench: Bench, dice: random.Random) -> str | None:
    seed, root = dice.randbytes(32), dice.randbytes(32)
    for segment in drawn_segments(clean, seed, root):
        if segment not in strategy.falsified:
            continue
        if strategy.withholds is not None:
            return strategy.withholds
        if _is_refuted(bench, seed, root, segment):
            return "incorrect_computation"
    return None


def _is_refuted(bench: Bench, seed: bytes, root: bytes, segment: int) -> bool:
    """Return True if a false segment is refuted; accomplices confirm it."""
    return bench.refutes(_FALSE, _FALSE, seed, root, segment)


def drawn_segments(clean: int, seed: bytes, root: bytes) -> list[int]:
    """Return the sampled segments of a unit of a provider with ``clean`` verified ones."""
    rate = sampling_rate_bps(clean, MAINNET.newcomer_sampling_bps, MAINNET.sampling_floor_bps)
    return draw_segments(seed, root, SEGMENTS, rate)


def burst_outcomes(lives: int, seed: int, prices: Prices) -> Iterator[Outcome]:
    """Yield the profit of bursts of each size, by history and number of accomplices.

    Small bursts have more lives, as many units as the largest. Each unit of a newcomer is sampled.
    """
    dice = random.Random(seed)
    for clean in (ESTABLISHED // 2, ESTABLISHED):
        for accomplices in (0, VERIFIERS // 4):
            for units in IN_FLIGHT:
                who = f"{units} units after {clean} clean ones, {accomplices} of {VERIFIERS} verifiers bought"
                times = lives * IN_FLIGHT[-1] // units
                profits = [burst(prices, units, clean, accomplices, dice) for _ in range(times)]
                yield Outcome.of(f"{who}, {prices.name}", profits)


def burst(prices: Prices, units: int, clean: int, accomplices: int, dice: random.Random) -> int:
    """Return the profit of one burst of at most ``units`` false units, wei."""
    penalty, floor = prices.tier.min_fraud_penalty_wei, MAINNET.sampling_floor_bps
    bench, profit = Bench(prices, accomplices), 0
    undecided: list[tuple[bytes, bytes, list[int]]] = []
    for _ in range(units):
        if not may_start_unit(len(undecided) * prices.gross_wei, prices.gross_wei, penalty, SEGMENTS, floor):
            break
        seed, root = dice.randbytes(32), dice.randbytes(32)
        drawn = drawn_segments(clean, seed, root)
        if drawn:
            undecided.append((seed, root, drawn))
        else:
            profit += prices.net_wei
    for seed, root, drawn in undecided:
        if any(_is_refuted(bench, seed, root, segment) for segment in drawn):
            return profit + bench.earned - penalty
        profit += prices.net_wei
    return profit + bench.earned


def challenger_outcomes(lives: int, seed: int) -> Iterator[Outcome]:
    """Yield a false challenge's profit for the challenger and accomplices among the referees."""
    dice = random.Random(seed)
    for accomplices in (0, 2, 5):
        name = f"false challenger on chain with {accomplices} of {VERIFIERS} referees"
        yield Outcome.of(name, [_dispute(accomplices, dice) for _ in range(lives)])


def _dispute(accomplices: int, dice: random.Random) -> int:
    terms = MAINNET.disputes
    committee = dice.sample(range(VERIFIERS), terms.seats)
    bribed = sum(referee < accomplices for referee in committee)
    if bribed >= terms.quorum:
        return terms.cost_wei + bribed * terms.referee_fee_wei
    return -terms.bond_wei


def verifier_outcomes(lives: int, seed: int, prices: Prices, samples: int = 50) -> Iterator[Outcome]:
    """Yield the earnings of wrong verifiers that do not compute ``samples`` honest segments."""
    dice = random.Random(seed)
    for dishonest, careful in ((1, False), (2, False), (5, False), (1, True), (2, True), (5, True)):
        name = "a guessing verifier" if dishonest == 1 else f"{dishonest} of {VERIFIERS} verifiers that refute all"
        name += ", each until it is suspended" if careful else ""
        benches = [_refute_honest_segments(Bench(prices, dishonest, careful), samples, dice)[0] for _ in range(lives)]
        yield Outcome.of(f"{name}, {samples} samples, {prices.name}", [bench.earned for bench in benches])


def _refute_honest_segments(bench: Bench, samples: int, dice: random.Random) -> tuple[Bench, int]:
    """Return the bench after ``samples`` honest segments, and the number wrongly refuted."""
    refuted = sum(bench.refutes(_TRUE, _FALSE, dice.randbytes(32), dice.randbytes(32), 0) for _ in range(samples))
    return bench, refuted


def wrongly_refuted_share(dishonest: int, samples: int, seed: int) -> float:
    """Return the share of honest samples that ``dishonest`` of ``VERIFIERS`` refute at first."""
    dice = random.Random(seed)
    return sum(_refute_honest_segments(Bench(USUAL, dishonest), 1, dice)[1] for _ in range(samples)) / samples


def wrongly_slashed(dishonest: int, lives: int, seed: int, samples: int = 50) -> float:
    """Return the mean number of honest verifiers slashed if ``dishonest`` lie alike."""
    dice = random.Random(seed)
    return statistics.fmean(
        _refute_honest_segments(Bench(USUAL, dishonest), samples, dice)[0].wrongly_slashed() for _ in range(lives)
    )


def honest_verifier_wei(prices: Prices) -> int:
    """Return the earnings of an honest replay of a segment, less its cost, without rewards."""
    return prices.replay_wei - prices.cost_wei // SEGMENTS
