"""What referees earn that judge, lie, guess, object, say nothing or contradict themselves, by the real terms and table.

A life is ``DISPUTES`` disputes, whose committees are drawn from ``VERIFIERS`` referees with equal stakes. The profit of
those that do not judge is against doing the same seats honestly: fees that lies brought, less penalties, less what
honest replays would have earned there. Who was punished is jailed, and its life as a referee is over.

Assumed: an honest referee signs in time in ``PRESENT`` of its seats (else nobody can be shown to be alone against all),
the market sends every signature that it has, and a referee has the least stake of a verifier at risk. What a briber
pays is not counted: ``escaped_share`` says what a cheat would buy by lies, ``undecided_share`` by silence.
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
from market.domain.verification.committees import MAX_INCONCLUSIVE_PROBABILITY, PRESENT, inconclusive_probability
from market.verification.disputes.referee_evidence import MIN_MEMBERS

DISPUTES = 50


LONGEST_LIST = 60


_TERMS = MAINNET.disputes


_PENALTY = dict(MAINNET.penalty_bps)


_STAKE = MAINNET.verifier_minimum_stake_wei


class Says(Enum):
    """What a referee does instead of replaying."""

    LIES = auto()  # signs the opposite of the truth
    LIES_WITH_A_QUORUM = auto()  # the same where its accomplices are enough to decide, else nothing
    GUESSES = auto()  # signs for either side by a coin
    OBJECTS = auto()
    CONTRADICTS = auto()  # signs both, one of them for the market to show
    NOTHING = auto()


@dataclass(frozen=True, slots=True)
class Cartel:
    """The first ``count`` of ``VERIFIERS`` referees, who know of each other."""

    name: str
    says: Says
    count: int = 1


CARTELS = (
    Cartel("a lying referee", Says.LIES),
    Cartel(f"2 of {VERIFIERS} referees that lie alike", Says.LIES, 2),
    Cartel(f"5 of {VERIFIERS} referees that lie alike", Says.LIES, 5),
    Cartel(f"5 of {VERIFIERS} referees that lie where they are a quorum", Says.LIES_WITH_A_QUORUM, 5),
    Cartel("a guessing referee", Says.GUESSES),
    Cartel("a referee that objects to everything", Says.OBJECTS),
    Cartel("a referee that signs both ways", Says.CONTRADICTS),
    Cartel("a referee that signs nothing", Says.NOTHING),
)


def seat_profit_wei(prices: Prices) -> int:
    """What a seat in a decided dispute brings the honest: the fee, less the replay of one segment."""
    return _TERMS.referee_fee_wei - prices.cost_wei // SEGMENTS


def cartel_outcomes(lives: int, seed: int, prices: Prices) -> Iterator[Outcome]:
    """Profit of every cartel by a life, all its members together."""
    dice = random.Random(seed)
    for cartel in CARTELS:
        yield Outcome.of(f"{cartel.name}, {prices.name}", [cartel_life(cartel, prices, dice) for _ in range(lives)])


def honest_outcomes(lives: int, seed: int, prices: Prices) -> Iterator[Outcome]:
    """What one honest referee earns by a life, its replays deducted, beside so many that lie alike."""
    dice = random.Random(seed)
    for liars in (0, 1, 5):
        name = f"an honest referee beside {liars} of {VERIFIERS} that lie, {prices.name}"
        yield Outcome.of(name, [honest_life(liars, prices, dice) for _ in range(lives)])


def cartel_life(cartel: Cartel, prices: Prices, dice: random.Random) -> int:
    """Profit of a cartel's members together in one life, wei."""
    standing, profit = set(range(VERIFIERS)), 0
    for _ in range(DISPUTES):
        committee = dice.sample(sorted(standing), _TERMS.seats)
        seats = [referee for referee in committee if referee < cartel.count]
        signing = sum(dice.random() < PRESENT for _ in range(len(committee) - len(seats)))
        profit -= len(seats) * seat_profit_wei(prices)
        if cartel.says is Says.CONTRADICTS:
            profit -= len(seats) * _STAKE * _PENALTY["contradicting_verdicts"] // BPS
            standing -= set(seats)
            continue
        lying = _lying(cartel, len(seats), dice)
        if cartel.says is Says.GUESSES and not lying:
            profit += len(seats) * _TERMS.referee_fee_wei
        elif lying >= _TERMS.quorum:
            profit += lying * _TERMS.referee_fee_wei
        elif _is_shown(lying, signing):
            profit -= _STAKE * _PENALTY["wrong_replay"] // BPS
            standing -= set(seats)
    return profit


def _lying(cartel: Cartel, seats: int, dice: random.Random) -> int:
    """How many of the cartel sign the opposite of the truth."""
    match cartel.says:
        case Says.LIES:
            return seats
        case Says.LIES_WITH_A_QUORUM:
            return seats if seats >= _TERMS.quorum else 0
        case Says.GUESSES:
            return sum(dice.random() < 0.5 for _ in range(seats))
    return 0


def _is_shown(alone: int, others: int) -> bool:
    """Whether one stands against all others of a committee, who have all signed (``Verdicts.proveWrongVerdict``)."""
    return alone == 1 and others == _TERMS.seats - 1 and _TERMS.seats >= MIN_MEMBERS


def honest_life(liars: int, prices: Prices, dice: random.Random) -> int:
    """What the last of the referees earns by a life in which the first ones lie alike in every dispute; wei."""
    me, standing, earned = VERIFIERS - 1, set(range(VERIFIERS)), 0
    for _ in range(DISPUTES):
        committee = dice.sample(sorted(standing), _TERMS.seats)
        lying = {referee for referee in committee if referee < liars}
        signing = _present([referee for referee in committee if referee not in lying], dice)
        if me in committee:
            earned -= prices.cost_wei // SEGMENTS
        if me in signing and len(signing) >= _TERMS.quorum:
            earned += _TERMS.referee_fee_wei
        if _is_shown(len(lying), len(signing)):
            standing -= lying
        if me in signing and _is_shown(len(signing), len(lying)):
            return earned - _STAKE * _PENALTY["wrong_replay"] // BPS
    return earned


def _present(referees: Collection[int], dice: random.Random) -> set[int]:
    return {referee for referee in referees if dice.random() < PRESENT}


def escaped_share(bought: int) -> float:
    """Share of its convictions that a cheat escapes that has bought so many of ``VERIFIERS`` referees.

    Exact: the committees in which they are a quorum, of all that can be drawn.
    """
    committees = range(_TERMS.quorum, _TERMS.seats + 1)
    bad = sum(math.comb(bought, seats) * math.comb(VERIFIERS - bought, _TERMS.seats - seats) for seats in committees)
    return bad / math.comb(VERIFIERS, _TERMS.seats)


def undecided_share(silent: int, *, struck: bool = True) -> float:
    """Share of disputes that stay undecided if so many of ``VERIFIERS`` referees sign nothing, the others as assumed.

    Exact, over all that can be drawn. ``struck``: who was silent in a committee, honest or not, is in no later one of
    the dispute (decision 11); else all are in every draw, as it was before.
    """
    if struck:
        return inconclusive_probability(VERIFIERS - silent, silent, _TERMS)
    return float(inconclusive_probability(VERIFIERS - silent, silent, replace(_TERMS, draws=1)) ** _TERMS.draws)


def worst_mix() -> tuple[int, int, float]:
    """Of all lists of up to ``LONGEST_LIST`` referees over whose units a committee still decides: the able, the mute,
    and the share of disputes that stay undecided, which is the largest."""
    shares = []
    for count in range(_TERMS.seats, LONGEST_LIST + 1):
        is_routed = partial(_is_routed, count)
        able = bisect_left(range(count), True, key=is_routed)
        shares.append((inconclusive_probability(able, count - able, _TERMS), able, count - able))
    share, able, mute = max(shares)
    return able, mute, share


def _is_routed(count: int, able: int) -> bool:
    """Whether a committee decides where so many of ``count`` referees can judge; the more, the rather."""
    return inconclusive_probability(able, count - able, _TERMS) <= MAX_INCONCLUSIVE_PROBABILITY
