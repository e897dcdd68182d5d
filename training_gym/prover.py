"""Answers hardware challenges (:mod:`training_gym.hardware_proof`) on this node's devices."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import torch

from training_gym.hardware_proof import (
    HALF,
    POWERS,
    PRIME,
    Challenge,
    Residues,
    Work,
    commitment,
    draws,
    state_digest,
)


@contextmanager
def _tf32() -> Iterator[None]:
    """Multiply in TF32, in which the products are exact: entries have five bits, sums 24.

    The process trains with the same switch, so it is put back: a unit in TF32 has other bits than its replay.
    """
    switch = torch.backends.cuda.matmul
    before, switch.allow_tf32 = switch.allow_tf32, True
    try:
        yield
    finally:
        switch.allow_tf32 = before


class Prover:
    """One challenge, worked on once: the pools are made here, before the clock runs.

    Args:
        work: what is asked for.
        seed: of the pools, 32 bytes.
        devices: one for each lane, used in turn if there are fewer.
        threads: that hash side by side.
    """

    def __init__(self, work: Work, seed: bytes, devices: list[torch.device], threads: int = 1) -> None:
        self._work = work
        self._seed = seed
        self._threads = ThreadPoolExecutor(threads)
        self._lanes = [devices[lane % len(devices)] for lane in range(work.lanes)]
        challenge = Challenge(work, seed, bytes(32))
        self._pool: list[torch.Tensor] = []  # all lanes' matrices, each on the device of its lane
        for index, matrix in enumerate(self._threads.map(challenge.matrix, range(work.lanes * work.pool))):
            self._pool.append(torch.from_numpy(matrix.astype(np.int8)).to(self._lanes[index // work.pool]))
        self._powers = {device: torch.from_numpy(POWERS).to(device) for device in self._lanes}
        self._chain: list[list[bytes]] = []
        self._walk: list[list[bytes]] = []
        self._digests: list[bytes] = []

    @_tf32()
    def work(self, nonce: bytes) -> bytes:
        """Do all the work; returns the commitment."""
        challenge = Challenge(self._work, self._seed, nonce)
        lanes = range(self._work.lanes)
        states = [self._put(challenge.start(lane), lane) for lane in lanes]
        digests = self._note(states, self._chain)
        for _ in range(self._work.rounds):
            inputs = [states[(lane + 1) % len(lanes)].to(self._lanes[lane]).T for lane in lanes]
            states = [self._step(challenge.indices(digests, lane), inputs[lane], lane) for lane in lanes]
            digests = self._note(states, self._chain)
        states = [self._put(challenge.walk_start(digests, lane), lane) for lane in lanes]
        digests = self._note(states, self._walk)
        for _ in range(self._work.steps):
            states = [self._step(challenge.indices(digests, lane), states[lane], lane) for lane in lanes]
            digests = self._note(states, self._walk)
        return commitment(self._digests)

    def open(self, secret: bytes) -> bytes:
        """The answer, once it is known what is opened."""
        parts = [b"".join(self._digests)]
        for round_, step, lane in draws(self._work, secret):
            source = (lane + 1) % self._work.lanes
            parts += [self._chain[round_ - 1][source], self._chain[round_][lane]]
            parts += [self._walk[step - 1][lane], self._walk[step][lane]]
        return b"".join(parts)

    def _step(self, indices: tuple[int, int], state: torch.Tensor, lane: int) -> torch.Tensor:
        """f(B[j] state + B[k]) on the lane's device."""
        device = self._lanes[lane]
        factor, addend = (self._pool[index] for index in indices)
        product = torch.remainder(factor.to(torch.float32) @ state, PRIME)  # exact before anything is added
        found = torch.remainder(product + addend[:, : state.shape[1]] + HALF, PRIME)
        return self._powers[device][found.to(torch.int32)]

    def _put(self, state: Residues, lane: int) -> torch.Tensor:
        return torch.from_numpy(state).to(self._lanes[lane])

    def _note(self, states: list[torch.Tensor], kept: list[list[bytes]]) -> list[bytes]:
        """Keep the states for openings; returns their digests."""
        found = [(state + HALF).to(torch.uint8).cpu().numpy().tobytes() for state in states]
        kept.append(found)
        digests = [state_digest(state, self._threads.map) for state in found]
        self._digests += digests
        return digests
