"""Detection of false work, safety of honest work, and the cost of both.

``python -m benchmarks.verification --json``.

- Draws, verdicts, penalties, sampling rates and prices are the market's own rules.
- Units are trained and replayed in processes of up to eight environment classes (``replays.py``), six without AVX-512.
- Disputes run against the contracts on anvil.
- A hardware benchmark is made and checked on one core (``hardware_check.py``).
- Strategies are simulated under the assumptions of ``strategies.py``.
"""

import math
import multiprocessing
import random
import tempfile
from collections import defaultdict
from itertools import product
from pathlib import Path
from statistics import fmean

from benchmarks import gas
from benchmarks.detection import bounds, consistency, hardware_check, replays
from benchmarks.detection.bounds import Comparison
from benchmarks.incentives import lazy_verifiers, profits
from benchmarks.report import Row, progress, row, run, wilson
from market.domain.verification.sampling import can_verify
from market.domain.verification.tolerance import CAP, tolerance
from training_gym.runtime.profile import CPU
from zoo_compute.devnet.engines import find_anvil
from zoo_protocol.verification.rules import Verdict, verdict
from zoo_protocol.verification.sampling import detection_probability, draw_segments

RATES = range(1, 26)  # percent
DISHONEST_PROVIDERS = 22_500
"""With this many the joint bounds are no wider than Wilson's 99 % bounds of each comparison with 10,000."""
SEGMENTS = 100  # a rate of r percent samples r segments
FALSIFIED = (1, 5, 20)
LENGTHS = (1, 2, 4, 16, 64)  # segments of a unit in dispute


def measure(quick: bool) -> list[Row]:
    """Return all rows. Timed parts run alone, simulations in parallel to the replays."""
    with tempfile.TemporaryDirectory(prefix="zoo-verification-") as directory:
        alone = [
            *_disputes(LENGTHS[:3] if quick else LENGTHS),  # first, to fail early if the chain does not start
            *_cost(Path(directory), quick),
            *hardware_check.rows(1_024 if quick else None),
        ]
        with multiprocessing.get_context("spawn").Pool(1) as pool:  # ends with this process
            simulated = [
                pool.apply_async(_detection, [200 if quick else DISHONEST_PROVIDERS]),
                pool.apply_async(profits.rows, [40 if quick else 1_000]),
                pool.apply_async(lazy_verifiers.rows, [100 if quick else DISHONEST_PROVIDERS]),
            ]
            replayed = [
                *_honest(Path(directory), quick),
                *_classes(Path(directory), quick),
                *_consistency(quick),
                *_attacks(Path(directory), quick),
            ]
            return [*alone, *replayed, *(found for rows in simulated for found in rows.get())]


def _detection(providers: int) -> list[Row]:
    progress(f"drawing the segments of {providers} dishonest providers at each of {len(RATES)} rates")
    compared = [
        Comparison(detection_probability(SEGMENTS, falsified, rate), found)
        for (rate, falsified), found in _found(providers).items()
    ]
    what = f"dishonest providers each, with {', '.join(map(str, FALSIFIED))} of {SEGMENTS} segments false"
    return bounds.rows("detection", "rates", compared, providers, what)


def _found(providers: int) -> dict[tuple[int, int], int]:
    dice = random.Random(0)
    found = dict.fromkeys(product(RATES, FALSIFIED), 0)
    for rate in RATES:
        for _ in range(providers):
            drawn = set(draw_segments(dice.randbytes(32), dice.randbytes(32), SEGMENTS, rate * 100))
            false = dice.sample(range(SEGMENTS), max(FALSIFIED))
            for falsified in FALSIFIED:
                found[rate, falsified] += not drawn.isdisjoint(false[:falsified])
    return found


def _honest(directory: Path, quick: bool) -> list[Row]:
    """Replay honest units of every class by new processes of the same class and of others."""
    names = _class_names(quick)
    trained = {}
    for name in names:
        progress(f"training honest units as {name}")
        trained[name] = replays.call("train", replays.CLASSES[name], directory, "quick" if quick else "full")
    results: dict[tuple[str, str, int], list[tuple[str, str]]] = defaultdict(list)
    for index, name in enumerate(names):
        progress(f"replaying as {name}")
        others = [name, names[(index + 1) % len(names)]]
        for other, units in replays.call("replay", replays.CLASSES[name], directory, *others).items():
            for unit, leaves in units.items():
                for segment, leaf in enumerate(leaves):
                    results[other, unit, segment].append((name, leaf))
    within = across = differing_within = differing_across = slashes = slashes_without_classes = 0
    for (provider, unit, segment), found in results.items():
        claim = trained[provider]["leaves"][unit][segment + 1]
        for verifier, leaf in found:
            same = verifier == provider
            within, across = within + same, across + (not same)
            differing_within += same and leaf != claim
            differing_across += not same and leaf != claim
        # Every process stands for as many verifiers as the rule requires: all of a class compute the same bits.
        judges = [
            leaf
            for verifier, leaf in found
            if can_verify(
                f"verifier {verifier}", trained[verifier]["environment"], (), trained[provider]["environment"]
            )
        ]
        slashes += verdict(claim, judges * 2) is Verdict.FAILED
        alien = [leaf for verifier, leaf in found if verifier != provider]
        slashes_without_classes += verdict(claim, alien * 2) is Verdict.FAILED
    return [
        row(
            "false_slashes",
            "segments",
            [slashes],
            "by the market's rule, if another verifier repeated every disagreement",
        ),
        row("honest_replays", "replays", [within + across], f"{within} within {len(names)} classes, {across} across"),
        row("differing_within_class", "replays", [differing_within]),
        row(
            "differing_across_classes",
            "replays",
            [differing_across],
            f"of {across}; none is a slash, because only verifiers of the unit's own class are drawn. Were they "
            f"drawn from the other class alone, {slashes_without_classes} segments would be slashed",
        ),
    ]


def _class_names(quick: bool) -> list[str]:
    return list(replays.CLASSES)[:3:2] if quick else list(replays.CLASSES)


def _classes(directory: Path, quick: bool) -> list[Row]:
    """Compare honest end states' distances across classes with those of the smallest attacks."""
    names = _class_names(quick)
    limit = tolerance(replays.SPECS["small"].training.segment_steps, [])
    honest: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for name in names:
        progress(f"comparing ends as {name}")
        others = [other for other in names if other != name]
        for spec, found in replays.call("drift", replays.CLASSES[name], directory, *others).items():
            honest[spec] += [(whole, widest) for whole, widest in found]
    progress("comparing the ends of false segments")
    specs = ["small"] if quick else list(replays.SPECS)
    distances = replays.call("attack-distances", CPU, directory, *specs)
    refused = replays.call("payloads", CPU, directory, *specs)
    ends = [end for of_spec in honest.values() for end in of_spec]
    beyond = sum(not limit.passes(*end) for end in ends)
    drifts = [whole for whole, _ in ends]
    tried = [end for of_spec in distances.values() for found in of_spec.values() for end in found]
    least = min(whole for whole, _ in tried)
    by_spec = ", ".join(f"{spec} {max(whole for whole, _ in found):.1e}" for spec, found in honest.items())
    by_attack = ", ".join(
        f"{attack} {min(whole for of_spec in distances.values() for whole, _ in of_spec[attack]):.1e}"
        for attack in distances[specs[0]]
    )
    return [
        row(
            "honest_beyond_tolerance",
            "segments",
            [beyond],
            f"of {len(ends)} honest ends between {len(names)} classes; tolerance of two steps {limit.whole:.1e}; aim 0",
        ),
        Row(
            "drift_across_classes",
            max(drifts),
            "relative L2",
            min(drifts),
            max(drifts),
            f"largest by specification: {by_spec}; widest tensor {max(widest for _, widest in ends):.1e}, of which "
            f"{limit.widest:.1e} passes",
        ),
        Row(
            "smallest_cheat_apart",
            least,
            "relative L2",
            least,
            max(whole for whole, _ in tried),
            f"of {len(tried)} false segments; smallest by attack: {by_attack}; widest tensor at least "
            f"{min(widest for _, widest in tried):.1e}",
        ),
        row(
            "smallest_cheat_over_cap",
            "times",
            [least / CAP],
            f"the cap of every tolerance is {CAP:.0e}; aim above 1; {least / limit.whole:,.0f} times the usual one",
        ),
        _caught("false_payloads_refused", refused, "payloads with consistent error feedback, across classes"),
    ]


def _consistency(quick: bool) -> list[Row]:
    """Return the rates of flags and exclusions of honest nodes, and of noticed attacks."""
    progress("judging payloads of honest nodes that differ")
    found = consistency.simulate(6 if quick else 16, 1 if quick else 4)
    of, flagged, excluded = (sum(counts.values()) for counts in (found.nodes, found.flagged, found.excluded))
    by_kind = ", ".join(f"{kind} {found.flagged[kind]}/{of_kind}" for kind, of_kind in found.nodes.items())
    spread = ", ".join(f"{name} {low:.2g} to {high:.2g}" for name, (low, high) in consistency.spread(found).items())
    noticed = ", ".join(f"{name} {100 * found.noticed[name] / tried:.0f} %" for name, tried in found.attacks.items())
    return [
        _share("honest_doubted", flagged, of, f"{by_kind}; honest statistics: {spread}"),
        _share("honest_excluded", excluded, of, "of the same payloads excluded from the aggregate by statistics"),
        _share(
            "attacks_noticed",
            sum(found.noticed.values()),
            sum(found.attacks.values()),
            f"by one of eight, flagged or excluded: {noticed}; none of it slashes, replay finds each",
        ),
    ]


def _share(name: str, found: int, of: int, note: str) -> Row:
    low, high = wilson(found, of)
    return Row(name, 100 * found / of, "%", 100 * low, 100 * high, f"{found} of {of}, 99 % bounds; {note}")


def _attacks(directory: Path, quick: bool) -> list[Row]:
    progress("running the minimal attacks")
    specs = ["small"] if quick else list(replays.SPECS)
    found = replays.call("attack", CPU, directory, *specs)
    return [_caught("smallest_cheats_found", found, "segments, each replayed")]


def _caught(name: str, found: dict[str, list[bool]], what: str) -> Row:
    shares = {attack: 100 * fmean(caught) for attack, caught in found.items()}
    tried = sum(len(caught) for caught in found.values())
    note = f"of {tried} false {what}: " + ", ".join(f"{attack} {share:.0f} %" for attack, share in shares.items())
    caught = sum(sum(hits) for hits in found.values())
    return Row(name, 100 * caught / tried, "%", min(shares.values()), max(shares.values()), note)


def _cost(directory: Path, quick: bool) -> list[Row]:
    """Return the extra processor time of replaying and hashing relative to training."""
    extra, shares = [], {}
    for spec in ("demo",) if quick else ("demo", "wide"):
        progress(f"timing a unit of the {spec} model")
        timed = replays.call("time", CPU, directory, spec, "2" if quick else "15")
        shares[f"{spec}, {timed['parameters']:,} parameters"] = [
            100 * seconds["hash"] / seconds["train"] for seconds in timed["seconds"]
        ]
        often = lazy_verifiers.replays_of_a_segment(timed["segments"])
        extra += [25 * (often * seconds["replay"] / seconds["train"] - 1) for seconds in timed["seconds"]]
    first, *larger = shares.items()
    return [
        row(
            "extra_compute_points",
            "points",
            extra,
            "sampled segments above their share, canaries and duplicate replays included, at a newcomer's 25 %; "
            "inner digests of first segments are not in it; each segment is replayed right before it is trained; aim 2",
        ),
        row(
            "hashing_share",
            "%",
            first[1],
            f"{first[0]}, boundaries of 12 steps (at every step it would be 12 times that); aim 2",
        ),
        *(row("hashing_share_larger", "%", values, name) for name, values in larger),
    ]


def _disputes(lengths: tuple[int, ...]) -> list[Row]:
    rows = []
    with gas.deployed() as bench:
        for length in lengths:
            progress(f"disputing a unit of {length} segments")
            spent = bench.transactions_of_a_dispute(length)
            note = f"to the verdict; aim {math.ceil(math.log2(length)) + 3}"
            note += "; gas: " + ", ".join(f"{step} {paid:,}" for step, paid in spent.items())
            rows.append(row(f"dispute_transactions_{length}", "transactions", [len(spent)], note))
    return [row("dispute_transactions", "transactions", [rows[-1].value], rows[-1].note), *rows]


if __name__ == "__main__":
    run("verification", measure, needs=find_anvil)
