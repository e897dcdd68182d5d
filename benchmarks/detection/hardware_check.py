"""Cost of checking a hardware benchmark relative to making it, in seconds of one core.

A process with one thread computes some products and checks an answer of one lane at a tier's size. The chain repeats
that product many times. Only the chain's products count as work; pools and walks, which also take a prover time, are
excluded. ``benchmarks.verification`` runs it as ``python -m benchmarks.detection.hardware_check SIZE OPENED``.
"""

import json
import os
import subprocess
import sys
import time
from functools import cache, partial

import torch

from benchmarks.report import Row, progress, row, timed
from market.domain.network import MAINNET
from market.providers.benchmarks.service import work_of
from training_gym.hardware.challenge import Challenge, ProofParameters, state_digest, verify
from training_gym.hardware.prover import Prover

_SEED, _NONCE, _SECRET = (bytes([value]) * 32 for value in (1, 2, 3))
_PRODUCTS = 3
_CHECKS = 3
_timed = partial(timed, clock=time.process_time)


def rows(size: int | None) -> list[Row]:
    """Return each tier's chain cost as a multiple of its check; ``size``: the matrices'."""
    found = []
    for tier in MAINNET.tiers:
        asked = work_of(tier.benchmark)
        product, checks, start = _in_a_process(size or asked.size, asked.opened)
        products = asked.lanes * asked.rounds
        whole = [check + (asked.lanes - 1) * start for check in checks]
        note = (
            f"{products:,} products of {product:.2f} s to a check of {min(whole):.2f} to {max(whole):.2f} s, of one "
            "core; pools and walks are work too, and are not counted; aim 1,000"
        )
        found.append(row(f"hardware_check_{tier.name}", "times", [products * product / check for check in whole], note))
    return found


@cache
def _in_a_process(size: int, opened: int) -> tuple[float, list[float], float]:
    progress(f"checking a proof of hardware with {size} rows")
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.detection.hardware_check", str(size), str(opened)],
        env=os.environ | one_thread,
        stdout=subprocess.PIPE,
        check=True,
    )
    product, checks, start = json.loads(done.stdout)
    return product, checks, start


def _measure(size: int, opened: int) -> tuple[float, list[float], float]:
    """Return the seconds of a product, of a lane's checks, and of the start of another lane."""

    def made(rounds: int) -> tuple[float, bytes, Prover]:
        work = ProofParameters(size, pool=2, lanes=1, rounds=rounds, steps=1, opened=opened)
        prover = Prover(work, _SEED, [torch.device("cpu")])
        committed, seconds = _timed(lambda: prover.work(_NONCE))
        return seconds, committed, prover

    once, committed, prover = made(1)
    more, _, _ = made(1 + _PRODUCTS)
    answer = prover.open(_SECRET)
    challenge = Challenge(ProofParameters(size, 2, 1, 1, 1, opened), _SEED, _NONCE)
    checks = []
    for _ in range(_CHECKS):
        right, seconds = _timed(lambda: verify(challenge, committed, _SECRET, answer))
        if not right:
            raise RuntimeError("an honest answer was refused")
        checks.append(seconds)
    _, start = _timed(lambda: state_digest(challenge.start(0)))
    return (more - once) / _PRODUCTS, checks, start


if __name__ == "__main__":
    print(json.dumps(_measure(*map(int, sys.argv[1:]))))
