"""The hardware proof of work: a seeded chain of matrix products that is dear to compute and cheap to check. No torch.

Entries are residues modulo the prime P = 127, taken as -63..63. X[0] and A[1..rounds] follow from the seed, and
X[i] = A[i] X[i-1] mod P. A float32 product of such matrices is exact (size * 63**2 < 2**24), so every honest device
gives the same bytes; the reduction between products makes the chain sequential. The answer holds every X[i], and each
product is checked by Freivalds: A (X V) against X' V for random V, where a wrong X' survives with probability at
most P**-COLUMNS, about 2**-112.
"""

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

PRIME = 127
COLUMNS = 16
MAX_SIZE = 4096
MAX_ANSWER_BYTES = 1 << 30

Residues = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Challenge:
    """One challenge.

    Attributes:
        seed: 32 bytes, from the market.
        size: rows and columns of each matrix, 1..4096.
        rounds: products in the chain, at least 1; an answer has at most 2**30 bytes.
    """

    seed: bytes
    size: int
    rounds: int

    def __post_init__(self) -> None:
        if len(self.seed) != 32 or not 1 <= self.size <= MAX_SIZE or self.rounds < 1:
            raise ValueError(f"a challenge has a 32-byte seed, size 1..{MAX_SIZE} and at least one round")
        if self.answer_size > MAX_ANSWER_BYTES:
            raise ValueError(f"the answer would have {self.answer_size} bytes, beyond {MAX_ANSWER_BYTES}")

    @property
    def flops(self) -> int:
        """Floating-point operations of an honest answer."""
        return 2 * self.size**3 * self.rounds

    @property
    def answer_size(self) -> int:
        """Bytes of an answer: one per entry."""
        return self.size**2 * self.rounds


def solve(challenge: Challenge) -> bytes:
    """The answer: X[1], ..., X[rounds], row by row, each entry as one byte ``residue + 63``."""
    product = _matrix(challenge, 0)
    answer = []
    for index in range(1, challenge.rounds + 1):
        product = _reduce(_matrix(challenge, index) @ product)
        answer.append((product + PRIME // 2).astype(np.uint8).tobytes())
    return b"".join(answer)


def verify(challenge: Challenge, answer: bytes, private_seed: bytes) -> bool:
    """Whether ``answer`` is the chain, in O(size**2) per product.

    Args:
        challenge: what was asked.
        answer: bytes from a stranger.
        private_seed: at least 16 random bytes that the answerer could not know.
    """
    entries = np.frombuffer(answer, np.uint8)
    if len(answer) != challenge.answer_size or entries.max() >= PRIME:
        return False
    products = entries.reshape(challenge.rounds, challenge.size, challenge.size)
    before = _matrix(challenge, 0)
    for index in range(1, challenge.rounds + 1):
        after = products[index - 1].astype(np.float32) - PRIME // 2
        probe = _residues(b"zoo-freivalds-1" + private_seed, index, (challenge.size, COLUMNS))
        claimed = _reduce(after @ probe)
        if not np.array_equal(claimed, _reduce(_matrix(challenge, index) @ _reduce(before @ probe))):
            return False
        before = after
    return True


def _matrix(challenge: Challenge, index: int) -> Residues:
    return _residues(b"zoo-benchmark-1" + challenge.seed, index, (challenge.size, challenge.size))


def _residues(seed: bytes, index: int, shape: tuple[int, int]) -> Residues:
    """Residues -63..63 from a hash stream; a byte modulo P favours two of them by 2**-8, which harms nothing here."""
    stream = hashlib.shake_256(seed + index.to_bytes(8, "big")).digest(shape[0] * shape[1])
    return _reduce(np.frombuffer(stream, np.uint8).astype(np.float32)).reshape(shape)


def _reduce(values: Residues) -> Residues:
    """The residue of each whole number, as -63..63."""
    half = PRIME // 2
    return np.mod(values + half, np.float32(PRIME)) - half
