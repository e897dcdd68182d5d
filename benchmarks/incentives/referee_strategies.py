"""Profits of honest and dishonest referees by the market's terms and penalties.

A life is ``DISPUTES`` disputes, with committees drawn from ``VERIFIERS`` referees of equal stake. The profit of a
dishonest referee is relative to replaying the same seats honestly: fees from lies, less penalties, less the earnings of
honest replays. A slashed referee is jailed, which ends its life.

Assumptions:

- An honest referee signs in time in ``PRESENCE_RATE`` of its seats; otherwise no member is provably alone against all.
- The market sends every signature, and a referee has the least slashable stake of a verifier.
- Bribes are not counted: ``escaped_share`` gives the value of bought lies, ``inconclusive_share`` of bought silence.
"""

import math
import random
from bisect import bisect_left
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import partial

from benchmarks.incentives.strategies import SEGMENTS, VERIFIERS, Outcome, Prices
from market.domain.network import BPS, MAINNET
from market.domain.verification.committees import MAX_INCONCLUSIVE_PROBABILITY, PRESENCE_RATE, inconclusive_probability
from market.verification.disputes.referee_evidence import MIN_MEMBERS

DISPUTES = 50
LONGEST_LIST = 60
_TERMS = MAINNET.disputes
_PENALTY = dict(MAINNET.penalty_bps)
_STAKE = MAINNET.verifier_minimum_stake_wei


class Vote(Enum):
    """Behaviour of a referee that does not replay."""

    FALSE = auto()  # signs the opposite of the truth
    FALSE_WITH_QUORUM = auto()  # the same if its accomplices form a quorum, else nothing
    RANDOM = auto()  # signs for a random side
    OBJECTION = auto()
    EQUIVOCATION = auto()  # signs both outcomes, one of them for the market to prove
    NOTHING = auto()


@dataclass(frozen=True, slots=True)
class Cartel:
    """The first ``count`` of ``VERIFIERS`` referees, which collude."""

    name: str
    vote: Vote
    count: int = 1


CARTELS = (
    Cartel("a lying referee", Vote.FALSE),
    Cartel(f"2 of {VERIFIERS} referees that lie alike", Vote.FALSE, 2),
    Cartel(f"5 of {VERIFIERS} referees that lie alike", Vote.FALSE, 5),
    Cartel(f"5 of {VERIFIERS} referees that lie where they are a quorum", Vote.FALSE_WITH_QUORUM, 5),
    Cartel("a guessing referee", Vote.RANDOM),
    Cartel("a referee that objects to everything", Vote.OBJECTION),
    Cartel("a referee that signs both ways", Vote.EQUIVOCATION),
    Cartel("a referee that signs nothing", Vote.NOTHING),
)


def seat_profit_wei(prices: Prices) -> int:
    """Return an honest referee's profit from a decided seat: the fee, less a segment's replay."""
    return _TERMS.referee_fee_wei - prices.cost_wei // SEGMENTS


def cartel_outcomes(lives: int, seed: int, prices: Prices) -> Iterator[Outcome]:
    """Yield the profit of every cartel per life, all its members together."""
    dice = random.Random(seed)
    for cartel in CARTELS:
        yield Outcome.of(f"{cartel.name}, {prices.name}", [cartel_life(cartel, prices, dice) for _ in range(lives)])


def honest_outcomes(lives: int, seed: int, prices: Prices) -> Iterator[Outcome]:
    """Yield one honest referee's earnings per life, less its replays, next to several that lie."""
    dice = random.Random(seed)
    for dishonest in (0, 1, 5):
        name = f"an honest referee beside {dishonest} of {VERIFIERS} that lie, {prices.name}"
        yield Outcome.of(name, [honest_life(dishonest, prices, dice) for _ in range(lives)])


def cartel_life(cartel: Cartel, prices: Prices, dice: random.Random) -> int:
    """Return the profit of a cartel's members together in one life, wei."""
    standing, profit = set(range(VERIFIERS)), 0
    for _ in range(DISPUTES):
        committee = dice.sample(sorted(standing), _TERMS.seats)
        seats = [referee for referee in committee if referee < cartel.count]
        signing = sum(dice.random() < PRESENCE_RATE for _ in range(len(committee) - len(seats)))
        profit -= len(seats) * seat_profit_wei(prices)
        if cartel.vote is Vote.EQUIVOCATION:
            profit -= len(seats) * _STAKE * _PENALTY["contradicting_verdicts"] // BPS
            standing -= set(seats)
            continue
        lying = _false_votes(cartel, len(seats), dice)
        if cartel.vote is Vote.RANDOM and not lying:
            profit += len(seats) * _TERMS.referee_fee_wei
        elif lying >= _TERMS.quorum:
            profit += lying * _TERMS.referee_fee_wei
        elif _is_provably_wrong(lying, signing):
            profit -= _STAKE * _PENALTY["wrong_replay"] // BPS
            standing -= set(seats)
    return profit


def _false_votes(cartel: Cartel, seats: int, dice: random.Random) -> int:
    match cartel.vote:
        case Vote.FALSE:
            return seats
        case Vote.FALSE_WITH_QUORUM:
            return seats if seats >= _TERMS.quorum else 0
        case Vote.RANDOM:
            return sum(dice.random() < 0.5 for _ in range(seats))
    return 0


def _is_provably_wrong(alone: int, others: int) -> bool:
    return alone == 1 and others == _TERMS.seats - 1 and _TERMS.seats >= MIN_MEMBERS


def honest_life(dishonest: int, prices: Prices, dice: random.Random) -> int:
    """Return the last referee's earnings in a life in which the first ``dishonest`` lie, in wei."""
    me, standing, earned = VERIFIERS - 1, set(range(VERIFIERS)), 0
    for _ in range(DISPUTES):
        committee = dice.sample(sorted(standing), _TERMS.seats)
        lying = {referee for referee in committee if referee < dishonest}
        signing = _signing([referee for referee in committee if referee not in lying], dice)
        if me in committee:
            earned -= prices.cost_wei // SEGMENTS
        if me in signing and len(signing) >= _TERMS.quorum:
            earned += _TERMS.referee_fee_wei
        if _is_provably_wrong(len(lying), len(signing)):
            standing -= lying
        if me in signing and _is_provably_wrong(len(signing), len(lying)):
            return earned - _STAKE * _PENALTY["wrong_replay"] // BPS
    return earned


def _signing(referees: Collection[int], dice: random.Random) -> set[int]:
    return {referee for referee in referees if dice.random() < PRESENCE_RATE}


def escaped_share(bought: int) -> float:
    """Return the share of committees in which ``bought`` of ``VERIFIERS`` form a quorum."""
    committees = range(_TERMS.quorum, _TERMS.seats + 1)
    bad = sum(math.comb(bought, seats) * math.comb(VERIFIERS - bought, _TERMS.seats - seats) for seats in committees)
    return bad / math.comb(VERIFIERS, _TERMS.seats)


def inconclusive_share(silent: int, *, struck: bool = True) -> float:
    """Return the share of inconclusive disputes if ``silent`` of ``VERIFIERS`` never sign.

    Exact, over all possible draws. With ``struck`` a member that was silent, honest or not, is excluded from later
    committees of the dispute (decision 11). Otherwise every draw is over all.
    """
    if struck:
        return inconclusive_probability(VERIFIERS - silent, silent, _TERMS)
    return float(inconclusive_probability(VERIFIERS - silent, silent, replace(_TERMS, draws=1)) ** _TERMS.draws)


def worst_mix() -> tuple[int, int, float]:
    """Return (able, mute, inconclusive share) of the worst list that routes to a committee."""
    shares = []
    for count in range(_TERMS.seats, LONGEST_LIST + 1):
        is_routed = partial(_is_routed, count)
        able = bisect_left(range(count), True, key=is_routed)
        shares.append((inconclusive_probability(able, count - able, _TERMS), able, count - able))
    share, able, mute = max(shares)
    return able, mute, share


def _is_routed(count: int, able: int) -> bool:
    """Return True if a committee decides with ``able`` of ``count`` referees; monotonic."""
    return inconclusive_probability(able, count - able, _TERMS) <= MAX_INCONCLUSIVE_PROBABILITY
