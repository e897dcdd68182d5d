"""Hardware benchmark: parameters, challenge and check. No torch.

All entries are residues modulo the prime P = 61, taken as -30..30. A float32 (or TF32) product of them is exact, since
size * 30**2 < 2**24, so every honest device computes the same bytes.

The challenge's seed determines a *pool* of matrices B for each of ``lanes`` devices. Lanes share no matrix, since
otherwise one device with one pool could serve them all. The prover receives the nonce only when the pools are ready:

- The **chain** proves arithmetic: X[i][l] = f(B[j] X[i-1][l+1]^T + B[k]), for all lanes l in parallel. Through the
  transpose every entry depends on all entries before it, and the next lane on this one. Machines that split the work
  would have to exchange whole matrices in every round.
- The **walk** proves memory: v becomes f(B[j] v + B'[k]), four times per step. With only 16 columns, reading B takes
  all the time. B' are B's first 16 rows, transposed. A B that is not resident comes over a much slower bus, or
  from the hash, which is slower still. Four products per step reduce the effect of the host's work between steps.

The digests of the previous state select j and k, so nothing can be prepared. f(x) = x**7 is a permutation modulo P, so
products cannot be merged. Without B[k], one fabricated state of zeros would make all later steps free.

The prover commits to the digests of all states. Only then does the market draw the steps to open. A chain step is
checked by Freivalds (1977) in O(size**2); a false step survives with probability P**-COLUMNS, about 2**-47. A prover
that fabricates a share s of the steps is found with probability 1 - (1-s)**opened.
"""

import hashlib
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.hashes import SHAKE256, XOFHash
from numpy.typing import NDArray

PRIME = 61
POWER = 7
HALF = PRIME // 2
COLUMNS = 8
WALK_COLUMNS = 16
WALK_PRODUCTS = 4
MAX_SIZE = 1 << 14
MAX_ANSWER_BYTES = 1 << 30
_BLOCK_BYTES = 1 << 22
_BLOCK_ROWS = 256
"""Rows of a matrix in memory at a time as float32 in a check: at most 16 MiB of a gigabyte."""
_STREAM_BYTES = 1 << 16
Residues = NDArray[np.float32]
_AS_RESIDUES = bytes(value % PRIME for value in range(256))
POWERS = np.array([(pow(x - HALF, POWER, PRIME) + HALF) % PRIME - HALF for x in range(PRIME)], np.float32)
"""f(x) by x + 30."""
ROOTS = np.empty(PRIME, np.float32)
ROOTS[(POWERS + HALF).astype(np.intp)] = np.arange(PRIME, dtype=np.float32) - HALF
"""The inverse of f by x + 30."""
_AS_ROOTS = bytes((ROOTS + HALF).astype(np.uint8)) + bytes(256 - PRIME)
_IDENTITY = bytes(range(256))


@dataclass(frozen=True, slots=True)
class ProofParameters:
    """Parameters of a challenge.

    Attributes:
        size: rows and columns of each matrix, 16..16,384.
        pool: matrices that must be resident for each lane; ``size**2`` bytes each, one per entry.
        lanes: devices that work in parallel.
        rounds: products in the chain of each lane.
        steps: steps of each lane's walk, of four products each.
        opened: checked steps of the chain, and as many of the walk.
    """

    size: int
    pool: int
    lanes: int
    rounds: int
    steps: int
    opened: int

    def __post_init__(self) -> None:
        if not WALK_COLUMNS <= self.size <= MAX_SIZE or self.size * HALF**2 >= 1 << 24:
            raise ValueError(f"size is {self.size}; expected {WALK_COLUMNS} to {MAX_SIZE}")
        if min(self.pool, self.lanes, self.rounds, self.steps, self.opened) < 1:
            raise ValueError("pool, lanes, rounds, steps and opened must be at least 1")
        if self.answer_bytes > MAX_ANSWER_BYTES:
            raise ValueError(f"the answer has {self.answer_bytes} bytes; expected at most {MAX_ANSWER_BYTES}")

    @property
    def flops(self) -> int:
        """Floating-point operations of the chain."""
        return 2 * self.size**3 * self.lanes * self.rounds

    @property
    def walk_bytes(self) -> int:
        """Bytes that one lane's walk reads, one per entry."""
        return self.size**2 * self.steps * WALK_PRODUCTS

    @property
    def digests(self) -> int:
        """Number of committed states: the chain's, then the walk's, by step and lane."""
        return (self.rounds + 1 + self.steps + 1) * self.lanes

    @property
    def answer_bytes(self) -> int:
        """Bytes of an answer: all digests, and the states around each opened step."""
        return 32 * self.digests + self.opened * 2 * (self.size**2 + self.size * WALK_COLUMNS)


@dataclass(frozen=True, slots=True)
class Challenge:
    """One challenge. ``seed``: 32 bytes, for the pool; ``nonce``: 32 bytes, for the start."""

    work: ProofParameters
    seed: bytes
    nonce: bytes

    def matrix(self, index: int) -> Residues:
        """Return B[index], shape (size, size)."""
        return np.concatenate(list(self._blocks(index, self.work.size)))

    def times(self, index: int, right: Residues) -> Residues:
        """Return B[index] @ right without the whole of B[index] in memory."""
        return reduce(np.concatenate([block @ right for block in self._blocks(index, self.work.size)]))

    def walk_addend(self, index: int) -> Residues:
        """Return B'[index], shape (size, 16)."""
        return np.concatenate(list(self._blocks(index, WALK_COLUMNS))).T

    def _blocks(self, index: int, rows: int) -> Iterator[Residues]:
        for block in _stream(b"zoo-pool-2" + self.seed, index, (rows, self.work.size)):
            yield entries(block, self.work.size)

    def start(self, lane: int) -> bytes:
        """Return the bytes of X[0][lane]."""
        return b"".join(_stream(b"zoo-chain-2" + self.nonce, lane, (self.work.size, self.work.size)))

    def walk_start(self, digests: Sequence[bytes], lane: int) -> bytes:
        """Return the bytes of v[0][lane], from the digests of the chain's last states."""
        return b"".join(_stream(b"zoo-walk-3" + b"".join(digests), lane, (self.work.size, WALK_COLUMNS)))

    def indices(self, digests: Sequence[bytes], lane: int, count: int) -> list[tuple[int, int]]:
        """Return the next products' (factor, addend) indices; lane l starts at ``l * pool``."""
        seed = b"zoo-index-4" + b"".join(digests) + lane.to_bytes(4, "big")
        words = struct.unpack(f">{2 * count}Q", hashlib.shake_256(seed).digest(16 * count))
        first, pool = lane * self.work.pool, self.work.pool
        return [(first + words[at] % pool, first + words[at + 1] % pool) for at in range(0, 2 * count, 2)]


def draws(work: ProofParameters, secret: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield (round, walk step, lane) of each opening, from ``secret`` after the commitment."""
    for number in range(work.opened):
        drawn = hashlib.shake_256(b"zoo-open-2" + secret + number.to_bytes(4, "big")).digest(24)
        words = [int.from_bytes(drawn[at : at + 8], "big") for at in (0, 8, 16)]
        yield 1 + words[0] % work.rounds, 1 + words[1] % work.steps, words[2] % work.lanes


def commitment(digests: Sequence[bytes]) -> bytes:
    """Return the prover's commitment: one SHA-256 over all digests."""
    return hashlib.sha256(b"zoo-commit-2" + b"".join(digests)).digest()


def state_digest(state: bytes | memoryview, each: Callable[..., Iterable[bytes]] = map) -> bytes:
    """Return the digest over a state's 4 MiB blocks; ``each`` is ``map`` or parallel."""
    view = memoryview(state).cast("B")
    blocks = [view[at : at + _BLOCK_BYTES] for at in range(0, len(view), _BLOCK_BYTES)]
    return hashlib.sha256(b"".join(each(lambda block: hashlib.sha256(block).digest(), blocks))).digest()


def verify(challenge: Challenge, committed: bytes, secret: bytes, answer: bytes) -> bool:
    """Return True if an answer opens the commitment and every opened step is correct.

    Args:
        challenge: the challenge.
        committed: the prover's commitment, 32 bytes.
        secret: random bytes drawn after it, 32 bytes; also the seed of the probes, so that no prover can prepare.
        answer: untrusted bytes.
    """
    work = challenge.work
    if len(answer) != work.answer_bytes:
        return False
    view = memoryview(answer)
    digests = [bytes(view[at : at + 32]) for at in range(0, 32 * work.digests, 32)]
    if commitment(digests) != committed:
        return False
    chain, walk = _by_step(digests, work)
    for lane in range(work.lanes):
        if state_digest(challenge.start(lane)) != chain[0][lane]:
            return False
        if state_digest(challenge.walk_start(chain[-1], lane)) != walk[0][lane]:
            return False
    at = 32 * work.digests
    whole, narrow = work.size**2, work.size * WALK_COLUMNS
    for number, (round_, step, lane) in enumerate(draws(work, secret)):
        parts = []
        for length in (whole, whole, narrow, narrow):
            parts.append(view[at : at + length])
            at += length
        source = (lane + 1) % work.lanes
        expected = (chain[round_ - 1][source], chain[round_][lane], walk[step - 1][lane], walk[step][lane])
        if any(state_digest(part) != digest for part, digest in zip(parts, expected, strict=True)):
            return False
        if any(np.frombuffer(part, np.uint8).max() >= PRIME for part in parts):
            return False
        before, after, walked_from, walked_to = parts
        ((factor, addend),) = challenge.indices(chain[round_ - 1], lane, 1)
        probe = _probe(b"zoo-freivalds-2" + secret, number, work.size)
        expected_probe = challenge.times(factor, _transposed_times(before, probe)) + challenge.times(addend, probe)
        if not np.array_equal(_roots_times(after, probe), reduce(expected_probe)):
            return False
        if _walk_step(challenge, walk[step - 1], lane, walked_from) != walked_to:
            return False
    return True


def _walk_step(challenge: Challenge, digests: list[bytes], lane: int, start: memoryview) -> bytes:
    """Return the state of a lane's walk after the step that begins at ``start``."""
    walked = entries(start, WALK_COLUMNS)
    for factor, addend in challenge.indices(digests, lane, WALK_PRODUCTS):
        product = reduce(challenge.times(factor, walked) + challenge.walk_addend(addend))
        walked = POWERS[(product + HALF).astype(np.uint8)]
    return to_bytes(walked)


def _probe(seed: bytes, number: int, size: int) -> Residues:
    """Return random columns, shape (size, 8), with which Freivalds' check compares two matrices."""
    return np.concatenate([entries(block, COLUMNS) for block in _stream(seed, number, (size, COLUMNS))])


def _transposed_times(state: memoryview, right: Residues) -> Residues:
    """Return X^T @ right for a state's bytes X, shape (size, 8)."""
    total = np.zeros_like(right)
    for at, block in _rows(state, len(right), _IDENTITY):
        total += block.T @ right[at : at + len(block)]
    return reduce(total)


def _roots_times(state: memoryview, right: Residues) -> Residues:
    """Return f^-1(X) @ right for a state's bytes X, shape (size, 8)."""
    return reduce(np.concatenate([block @ right for _, block in _rows(state, len(right), _AS_ROOTS)]))


def _rows(state: memoryview, size: int, table: bytes) -> Iterator[tuple[int, Residues]]:
    """Yield up to 256 rows of a state at a time with the first one's number."""
    for at in range(0, size, _BLOCK_ROWS):
        block = bytes(state[at * size : (at + _BLOCK_ROWS) * size])
        yield at, entries(block.translate(table), size)


def _stream(seed: bytes, index: int, shape: tuple[int, int]) -> Iterator[bytes]:
    """Yield the bytes of residues from a hash stream, up to 256 rows at a time."""
    # Taking bytes modulo P favours some residues by a quarter at most, which is harmless. SHAKE256 is squeezed in
    # pieces: hashlib would stop all other threads of the market for half a second a matrix.
    rows, columns = shape
    xof = XOFHash(SHAKE256(rows * columns))
    xof.update(seed + index.to_bytes(8, "big"))
    for row in range(0, rows, _BLOCK_ROWS):
        length = min(_BLOCK_ROWS, rows - row) * columns
        pieces = [xof.squeeze(min(_STREAM_BYTES, length - at)) for at in range(0, length, _STREAM_BYTES)]
        yield b"".join(pieces).translate(_AS_RESIDUES)


def reduce(values: Residues) -> Residues:
    """Return the residue of each whole number, as -30..30."""
    return np.mod(values + HALF, np.float32(PRIME)) - HALF


def to_bytes(state: Residues) -> bytes:
    """Return a state's bytes, row by row."""
    return (state + HALF).astype(np.uint8).tobytes()


def entries(state: bytes | memoryview, columns: int) -> Residues:
    """Return the residues in a state's bytes, row by row."""
    found = np.frombuffer(state, np.uint8).astype(np.float32)
    found -= HALF
    return found.reshape(-1, columns)


def _by_step(digests: Sequence[bytes], work: ProofParameters) -> tuple[list[list[bytes]], list[list[bytes]]]:
    steps = [list(digests[at : at + work.lanes]) for at in range(0, len(digests), work.lanes)]
    return steps[: work.rounds + 1], steps[work.rounds + 1 :]
