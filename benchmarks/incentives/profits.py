"""Profits of dishonest and honest participants in the simulated strategies.

Prices are the reserve and the highest that orders of each tier may have (``strategies.HIGHEST_PRICES``).
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from benchmarks.incentives import referee_strategies, strategies, timeouts
from benchmarks.incentives.strategies import Outcome, Prices
from benchmarks.report import Row, progress, row
from market.domain.network import ZEN

_EACH = (strategies.USUAL, *strategies.HIGHEST_PRICES)


def rows(lives: int) -> list[Row]:
    """Return all rows, over ``lives`` lives of every strategy."""
    progress(f"living {lives} lives of every strategy")
    usual = [*strategies.provider_outcomes(lives, 0, strategies.USUAL), *strategies.challenger_outcomes(lives, 2)]
    able, mute, undecided = referee_strategies.worst_mix()
    mixed = _at(_EACH, lives, 10, partial(strategies.provider_outcomes, undecided=undecided))
    highest = _at(strategies.HIGHEST_PRICES, lives, 1, strategies.provider_outcomes)
    verifiers = list(strategies.verifier_outcomes(lives, 3, strategies.USUAL))
    verifiers_highest = _at(strategies.HIGHEST_PRICES, lives, 6, strategies.verifier_outcomes)
    referees = _at(_EACH, lives, 8, referee_strategies.cartel_outcomes)
    honest_referees = _at(_EACH, lives, 9, referee_strategies.honest_outcomes)
    worst = min(honest_referees, key=lambda outcome: outcome.low)
    replaying = [strategies.honest_verifier_wei(prices) / ZEN for prices in strategies.HIGHEST_PRICES]
    escaped = 100 * referee_strategies.escaped_share(5)
    silenced = {bought: 100 * referee_strategies.inconclusive_share(bought) for bought in (5, 10)}
    before = {bought: 100 * referee_strategies.inconclusive_share(bought, struck=False) for bought in (5, 10)}
    honest = strategies.honest_outcome(max(lives // 10, 4), 4)
    wrongly = 100 * strategies.wrongly_refuted_share(5, 10 * lives, 5)
    slashed = [strategies.wrongly_slashed(dishonest, max(lives // 5, 20), 7) for dishonest in (1, 2, 5)]
    late = _at(_EACH, lives, 10, timeouts.late_outcomes)
    refusing = _at(_EACH, max(lives // 10, 20), 11, timeouts.refusing_outcomes)
    burst = _at(_EACH, lives, 12, strategies.burst_outcomes)
    bounds = ", ".join(f"{prices.gross_wei / ZEN:.1f} ({prices.tier.name})" for prices in strategies.HIGHEST_PRICES)
    stakes = ", ".join(f"{prices.verifier_stake_wei / ZEN:.0f}" for prices in strategies.HIGHEST_PRICES)
    return [
        best_row("cheat_profit_max", usual, "providers and challengers at the reserve price"),
        best_row(
            "cheat_profit_max_dearest", highest, f"at the highest unit prices that an order may have, {bounds} ZEN"
        ),
        best_row(
            "burst_profit_max", burst, f"1 to {strategies.IN_FLIGHT[-1]} units in flight, reserve and highest prices"
        ),
        best_row(
            "late_profit_max", late, f"{strategies.UNITS} days of honest work, at the reserve and the highest prices"
        ),
        best_row(
            "cheat_profit_max_mixed",
            mixed,
            f"where {able} of {able + mute} referees are of the unit's class and {100 * undecided:.2g} % of disputes "
            "are inconclusive, the most that go to a committee",
        ),
        best_row("verifier_cheat_profit_max", verifiers, "at the reserve price"),
        best_row("verifier_cheat_profit_max_dearest", verifiers_highest, f"of such units, {stakes} ZEN at stake"),
        best_row(
            "verifier_refusal_profit_max", refusing, "against replaying all, at the reserve and the highest prices"
        ),
        outcome_row(
            "honest_profit_min",
            honest,
            f"of {strategies.UNITS} units, costs deducted, which are assumed to be 80 % of the pay",
        ),
        row(
            "honest_replay_profit",
            "ZEN",
            [strategies.honest_verifier_wei(strategies.USUAL) / ZEN],
            strategies.USUAL.name,
        ),
        row(
            "honest_replay_profit_dearest",
            "ZEN",
            [min(replaying)],
            "the least over the highest unit prices of the tiers",
        ),
        best_row(
            "referee_cheat_profit_max", referees, f"in {referee_strategies.DISPUTES} disputes, against honest verdicts"
        ),
        outcome_row(
            "honest_referee_profit_min",
            worst,
            f"{worst.name}, in {referee_strategies.DISPUTES} disputes, replays deducted",
        ),
        row(
            "convictions_escaped", "%", [escaped], "by a provider that has bought 5 of 20 referees; the bound allows 34"
        ),
        row(
            "convictions_silenced",
            "%",
            [silenced[5]],
            f"inconclusive if 5 of 20 referees sign nothing and others miss a tenth of their seats; {silenced[10]:.2g} "
            f"for 10 of 20. Without exclusion of silent members: {before[5]:.2g} and {before[10]:.2g}",
        ),
        row("wrongly_convicted", "%", [wrongly], "of sampled honest segments, if 5 of 20 verifiers lie alike"),
        row(
            "honest_verifiers_slashed",
            "verifiers",
            [slashed[2]],
            f"in 50 honest segments, if 5 of 20 verifiers lie alike; {slashed[1]:g} by 2, {slashed[0]:g} by 1",
        ),
    ]


def _at(
    prices: Iterable[Prices], lives: int, seed: int, outcomes: Callable[[int, int, Prices], Iterator[Outcome]]
) -> list[Outcome]:
    return [outcome for each in prices for outcome in outcomes(lives, seed, each)]


def best_row(name: str, outcomes: list[Outcome], note: str) -> Row:
    """Return the most profitable of several outcomes, and the number that certainly lose."""
    best = max(outcomes, key=lambda outcome: outcome.mean)
    losing = sum(outcome.high < 0 for outcome in outcomes)
    return outcome_row(name, best, f"{note}; {best.name}; {losing} of {len(outcomes)} lose with 99 % confidence")


def outcome_row(name: str, outcome: Outcome, note: str) -> Row:
    """Return a row with the bounds of the outcome's mean."""
    return Row(name, outcome.mean, "ZEN", outcome.low, outcome.high, f"{note}; min and max are the 99 % bounds")
