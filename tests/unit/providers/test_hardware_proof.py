"""The hardware proof: honest answers pass, false steps fail, each tier has its size."""

import hashlib
import math
import sys
import threading
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch

from market.domain.network import DEVNET, MAINNET, Tier
from market.providers.benchmarks.service import seconds_of, work_of
from training_gym.hardware import challenge as hardware_challenge
from training_gym.hardware.challenge import HALF, POWERS, PRIME, Challenge, ProofParameters, draws, state_digest, verify
from training_gym.hardware.prover import Prover

WORK = ProofParameters(size=48, pool=5, lanes=2, rounds=6, steps=7, opened=4)
SEED, NONCE, SECRET = (bytes([value]) * 32 for value in (7, 8, 9))
CPU = [torch.device("cpu")]


def prove(work: ProofParameters = WORK, nonce: bytes = NONCE, secret: bytes = SECRET) -> tuple[bytes, bytes]:
    prover = Prover(work, SEED, CPU)
    committed = prover.work(nonce)
    return committed, prover.open(secret)


def accepts(committed: bytes, answer: bytes, *, nonce: bytes = NONCE, secret: bytes = SECRET) -> bool:
    return verify(Challenge(WORK, SEED, nonce), committed, secret, answer)


@pytest.mark.parametrize("lanes", [1, 2, 3])
def test_honest_answer_passes_for_any_sample(lanes: int) -> None:
    work = ProofParameters(48, 5, lanes, 6, 7, 4)
    prover = Prover(work, SEED, CPU, threads=2)
    committed = prover.work(NONCE)
    for secret in (bytes([number]) * 32 for number in range(10)):
        answer = prover.open(secret)
        assert len(answer) == work.answer_bytes
        assert verify(Challenge(work, SEED, NONCE), committed, secret, answer)


def test_powers_form_permutation() -> None:
    entries = np.arange(PRIME) - HALF
    assert sorted(POWERS) == list(entries)
    assert np.array_equal(hardware_challenge.ROOTS[(POWERS + HALF).astype(int)], entries)
    assert [int(POWERS[x + HALF]) % PRIME for x in entries] == [x**7 % PRIME for x in entries.tolist()]


def test_answer_to_another_challenge_is_refused() -> None:
    committed, answer = prove()
    assert accepts(committed, answer)
    assert not accepts(committed, answer, nonce=b"x" * 32)  # an old answer; work done beforehand
    assert not accepts(committed, answer, secret=b"x" * 32)  # other steps were sampled
    assert not accepts(b"x" * 32, answer)
    for wrong in (b"", answer[:-1], answer + b"\0", bytes(len(answer))):
        assert not accepts(committed, wrong)


def test_every_changed_byte_is_found() -> None:
    committed, answer = prove()
    for place in [0, len(answer) - 1, *np.random.default_rng(0).integers(0, len(answer), 40)]:
        changed = bytearray(answer)
        changed[place] ^= 1
        assert not accepts(committed, bytes(changed))


Step = Callable[[Prover, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def test_unkept_states_are_opened_too() -> None:
    """Only every 16th step's state is kept."""
    work = ProofParameters(48, 5, 2, 35, 50, 12)
    prover = Prover(work, SEED, CPU)
    committed = prover.work(NONCE)
    opened = set()
    for secret in (bytes([number]) * 32 for number in range(6)):
        opened |= {at % 16 for round_, step, _ in draws(work, secret) for at in (round_, step)}
        assert verify(Challenge(work, SEED, NONCE), committed, secret, prover.open(secret))
    assert opened == set(range(16))


@pytest.mark.parametrize("course", ["_next_of_chain", "_next_of_walk"])
def test_fabricated_steps_are_found_at_sampling_probability(monkeypatch: pytest.MonkeyPatch, course: str) -> None:
    """Each of two openings finds one with the probability of the fabricated share."""
    honest = getattr(Prover, course)
    made_up: list[bool] = []

    def advance(prover: Prover, states: list[torch.Tensor], digests: Sequence[bytes], lane: int) -> torch.Tensor:
        found: torch.Tensor = honest(prover, states, digests, lane)
        made_up.append(found.sum().item() % 2 == 0)  # of the state's own, so that it is the same when it is opened
        return found.roll(1, 0) if made_up[-1] else found

    monkeypatch.setattr(Prover, course, advance)
    work = ProofParameters(48, 5, 2, 40, 40, 2)
    prover = Prover(work, SEED, CPU)
    committed = prover.work(NONCE)
    honest_share = 1 - sum(made_up) / len(made_up)
    assert 0.3 < honest_share < 0.7
    expected = 100 * honest_share**work.opened
    challenge = Challenge(work, SEED, NONCE)
    secrets = (bytes([number]) * 32 for number in range(100))
    passed = [verify(challenge, committed, secret, prover.open(secret)) for secret in secrets]
    assert abs(sum(passed) - expected) <= 4 * math.sqrt(expected)


def test_fabricated_state_makes_no_later_step_free() -> None:
    prover = Prover(WORK, SEED, CPU)
    states = [torch.zeros(WORK.size, WORK.size)] * WORK.lanes
    for _ in range(2):
        states = [prover._next_of_chain(states, [bytes(32)] * WORK.lanes, lane) for lane in range(WORK.lanes)]
        assert [torch.linalg.matrix_rank(state) for state in states] == [WORK.size] * WORK.lanes
    walked = [torch.zeros(WORK.size, hardware_challenge.WALK_COLUMNS)] * WORK.lanes
    for _ in range(2):
        walked = [prover._next_of_walk(walked, [bytes(32)] * WORK.lanes, lane) for lane in range(WORK.lanes)]
        assert [torch.linalg.matrix_rank(state) for state in walked] == [hardware_challenge.WALK_COLUMNS] * WORK.lanes


def test_false_product_entry_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The product is committed in time, so only Freivalds' check can find it."""
    honest: Step = Prover._step

    def step(prover: Prover, factor: torch.Tensor, state: torch.Tensor, addend: torch.Tensor) -> torch.Tensor:
        found = honest(prover, factor, state, addend)
        if state.shape[1] == WORK.size:
            found[0, 0] = (found[0, 0] + HALF + 1) % PRIME - HALF
        return found

    monkeypatch.setattr(Prover, "_step", step)
    committed, answer = prove()
    assert not accepts(committed, answer)


def test_start_follows_from_challenge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Challenge, "start", lambda challenge, lane: bytes(WORK.size**2))
    committed, answer = prove()
    monkeypatch.undo()
    assert not accepts(committed, answer)


def test_each_lane_depends_on_its_whole_neighbour() -> None:
    """Lanes on two machines would have to exchange whole matrices in each round."""
    challenge = Challenge(WORK, SEED, NONCE)
    matrix = challenge.matrix(0)

    def next_of(state: hardware_challenge.Residues) -> hardware_challenge.Residues:
        return hardware_challenge.reduce(matrix @ state.T)

    state = hardware_challenge.entries(challenge.start(0), WORK.size)
    changed = state.copy()
    changed[3, 5] = (changed[3, 5] + HALF + 1) % PRIME - HALF
    once = next_of(state) != next_of(changed)
    twice = next_of(next_of(state)) != next_of(next_of(changed))
    assert np.unique(np.nonzero(once)[1]).tolist() == [3]  # a whole column
    assert twice.mean() > 0.9  # everything


def test_lanes_do_not_share_memory() -> None:
    """Otherwise one pool in memory would pass for several lanes."""
    challenge = Challenge(WORK, SEED, NONCE)
    digests = [[bytes([n]) * 32] * WORK.lanes for n in range(100)]
    drawn = [
        {index for digest in digests for pair in challenge.indices(digest, lane, 4) for index in pair}
        for lane in range(WORK.lanes)
    ]
    assert [len(own) for own in drawn] == [WORK.pool] * WORK.lanes
    assert len(set.union(*drawn)) == WORK.lanes * WORK.pool


def test_proof_leaves_training_exact() -> None:
    """The proof multiplies in TF32; training in TF32 would give other bits."""
    matmul = torch.backends.cuda.matmul
    was = matmul.allow_tf32
    during = []
    honest: Step = Prover._step

    class Watched(Prover):
        def _step(self, factor: torch.Tensor, state: torch.Tensor, addend: torch.Tensor) -> torch.Tensor:
            during.append(matmul.allow_tf32)
            return honest(self, factor, state, addend)

    try:
        matmul.allow_tf32 = False
        prover = Watched(WORK, SEED, CPU)
        assert not matmul.allow_tf32
        prover.work(NONCE)
        assert not matmul.allow_tf32
        prover.open(SECRET)
        assert set(during) == {True}
        assert not matmul.allow_tf32
    finally:
        matmul.allow_tf32 = was


def test_products_are_exact_at_largest_size() -> None:
    largest = np.full((1, hardware_challenge.MAX_SIZE), HALF, np.float32)
    assert (largest @ largest.T).item() == hardware_challenge.MAX_SIZE * HALF**2 < 2**24


def test_digests_are_independent_of_hashing_threads() -> None:
    state = np.random.default_rng(0).integers(0, PRIME, 9 << 20, np.uint8).tobytes()
    assert state_digest(state) == state_digest(state, lambda function, items: list(map(function, items)))
    assert state_digest(state) != state_digest(state[:-1])


def test_answer_check_does_not_block_market_threads() -> None:
    """A check makes two dozen matrices while other threads must run."""
    turns, before = 0, sys.getswitchinterval()
    made = threading.Thread(target=lambda: list(hardware_challenge._stream(b"seed", 0, (1 << 12, 1 << 12))))
    sys.setswitchinterval(1e-4)
    try:
        made.start()
        while made.is_alive():
            made.join(1e-4)
            turns += 1
    finally:
        sys.setswitchinterval(before)
    assert turns > 20
    for shape in ((1, 1), (300, 1 << 9), (257, 513)):
        bytes_ = hashlib.shake_256(b"seed" + (7).to_bytes(8, "big")).digest(shape[0] * shape[1])
        assert b"".join(hardware_challenge._stream(b"seed", 7, shape)) == bytes(value % PRIME for value in bytes_)


def test_draws_cover_all_steps_and_lanes() -> None:
    drawn = [one for n in range(200) for one in draws(WORK, bytes([n]) * 32)]
    assert {one[0] for one in drawn} == set(range(1, WORK.rounds + 1))
    assert {one[1] for one in drawn} == set(range(1, WORK.steps + 1))
    assert {one[2] for one in drawn} == set(range(WORK.lanes))
    assert hardware_challenge.commitment([b"a" * 32]) != hardware_challenge.commitment([b"b" * 32])
    assert len(Challenge(WORK, SEED, NONCE).start(0)) == WORK.size**2


@pytest.mark.parametrize("wrong", [(15, 1, 1, 1, 1, 1), (1 << 15, 1, 1, 1, 1, 1), (16, 0, 1, 1, 1, 1)])
def test_unbounded_challenge_is_refused(wrong: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"expected 16 to|must be at least 1"):
        ProofParameters(*wrong)
    with pytest.raises(ValueError, match="the answer has"):
        ProofParameters(1 << 14, 1, 1, 1, 1, 4)


BUS_BYTES_PER_SECOND = {"bronze": 25e9, "silver": 25e9, "gold": 63e9, "iron": 25e9}
"""What a device reads of its host's memory at best: PCIe 4.0 x16 as measured by its makers' tools, 5.0 by its rate."""
SECONDS_OF_A_MATRIX = 0.33
"""To hash one of 8,192 rows: 204 MB/s of SHAKE256 on one core of the machine that this was written on."""


@pytest.mark.parametrize("tier", MAINNET.tiers, ids=lambda tier: str(tier.name))
def test_tier_requires_memory_speed_and_cheap_check(tier: Tier) -> None:
    work, terms = work_of(tier.benchmark), tier.benchmark
    pool_bytes = work.size**2 * work.pool
    columns = 4 * hardware_challenge.COLUMNS + hardware_challenge.WALK_PRODUCTS * hardware_challenge.WALK_COLUMNS
    check_flops = work.opened * 2 * work.size**2 * columns
    assert work.lanes == tier.gpus
    assert 0.6 <= pool_bytes / (tier.gpu_memory_gb * 1e9) <= 0.75
    assert work.lanes == 1 or work.lanes * pool_bytes > 1.3 * 80e9, "one device of today would hold the pools of all"
    assert work.lanes * work.pool * SECONDS_OF_A_MATRIX * (work.size / 8_192) ** 2 < terms.ready_seconds / 2
    assert terms.ready_seconds < MAINNET.rebenchmark_within_seconds / 2
    assert work.flops / check_flops >= 10_000  # hashing takes most of a check: benchmarks.verification times it
    from_host = work.walk_bytes / BUS_BYTES_PER_SECOND[tier.name]
    assert from_host > seconds_of(terms), "a pool in the host's memory would be quick enough, were products free"
    assert terms.min_mflops * 10**6 >= tier.gpus * tier.reference_flops_per_gpu.bfloat16 // 20


def test_devnet_requires_same_proof_in_small() -> None:
    assert all(work_of(tier.benchmark).flops < 2 * 10**9 for tier in DEVNET.tiers)
