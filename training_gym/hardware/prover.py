"""Prover of hardware challenges on this node's devices."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from training_gym.hardware.challenge import (
    HALF,
    POWERS,
    PRIME,
    WALK_COLUMNS,
    WALK_PRODUCTS,
    Challenge,
    ProofParameters,
    commitment,
    draws,
    entries,
    state_digest,
)
from training_gym.runtime.determinism import tf32

_KEPT_EVERY = 16
"""All lanes' states of every 16th step are kept for openings; those between are recomputed.

Keeping all states of a chain on mainnet would fill 137 GB of RAM.
"""


@dataclass(slots=True)
class _ProofRun:
    """States of chain or walk by step and lane: all digests, every 16th step's bytes."""

    columns: int
    advance: Callable[[list[torch.Tensor], Sequence[bytes], int], torch.Tensor]
    digests: list[list[bytes]] = field(default_factory=list)
    kept: list[list[bytes]] = field(default_factory=list)


class Prover:
    """Prover of one challenge, used once; made, with its pools, before the clock runs.

    Args:
        work: parameters of the challenge.
        seed: seed of the pools, 32 bytes.
        devices: one for each lane, assigned cyclically if fewer.
        threads: threads that hash in parallel.
    """

    def __init__(self, work: ProofParameters, seed: bytes, devices: list[torch.device], threads: int = 1) -> None:
        self._work = work
        self._seed = seed
        self._threads = ThreadPoolExecutor(threads)
        self._lane_threads = ThreadPoolExecutor(work.lanes)  # one per lane: no lane waits for another's copy or hash
        self._lanes = [devices[lane % len(devices)] for lane in range(work.lanes)]
        challenge = Challenge(work, seed, bytes(32))
        self._pool: list[torch.Tensor] = []  # all lanes' matrices, each on the device of its lane
        for index, matrix in enumerate(self._threads.map(challenge.matrix, range(work.lanes * work.pool))):
            self._pool.append(torch.from_numpy(matrix.astype(np.int8)).to(self._lanes[index // work.pool]))
        self._powers = {device: torch.from_numpy(POWERS).to(device) for device in self._lanes}
        self._chain = _ProofRun(work.size, self._next_of_chain)
        self._walk = _ProofRun(WALK_COLUMNS, self._next_of_walk)
        self._challenge = challenge

    @tf32()  # exact: entries have five bits, sums 24
    def work(self, nonce: bytes) -> bytes:
        """Compute the chain and the walk; return the commitment."""
        self._challenge = challenge = Challenge(self._work, self._seed, nonce)
        lanes = range(self._work.lanes)
        self._run(self._chain, [challenge.start(lane) for lane in lanes], self._work.rounds)
        ends = self._chain.digests[-1]
        self._run(self._walk, [challenge.walk_start(ends, lane) for lane in lanes], self._work.steps)
        return commitment(self._digests())

    @tf32()  # exact: entries have five bits, sums 24
    def open(self, secret: bytes) -> bytes:
        """Return the answer for the openings that ``secret`` selects."""
        parts = self._digests()
        for round_, step, lane in draws(self._work, secret):
            before, after = self._around(self._chain, round_)
            parts += [before[(lane + 1) % self._work.lanes], after[lane]]
            before, after = self._around(self._walk, step)
            parts += [before[lane], after[lane]]
        return b"".join(parts)

    def _digests(self) -> list[bytes]:
        return [digest for run in (self._chain, self._walk) for step in run.digests for digest in step]

    def _run(self, run: _ProofRun, start: list[bytes], count: int) -> None:
        run.digests.append([self._digest(state) for state in start])
        run.kept.append(start)
        states = self._put(run, start)
        for step in range(1, count + 1):
            states = self._advanced(run, states, run.digests[-1])
            found = list(self._lane_threads.map(_entries_of, states))
            run.digests.append(list(self._lane_threads.map(self._digest, [state.data for state in found])))
            if step % _KEPT_EVERY == 0:
                run.kept.append([state.tobytes() for state in found])

    def _around(self, run: _ProofRun, step: int) -> tuple[list[bytes], list[bytes]]:
        first = (step - 1) // _KEPT_EVERY
        before = self._put(run, run.kept[first])
        for number in range(first * _KEPT_EVERY, step - 1):
            before = self._advanced(run, before, run.digests[number])
        after = self._advanced(run, before, run.digests[step - 1])
        return [_entries_of(state).tobytes() for state in before], [_entries_of(state).tobytes() for state in after]

    def _advanced(self, run: _ProofRun, states: list[torch.Tensor], digests: Sequence[bytes]) -> list[torch.Tensor]:
        return [run.advance(states, digests, lane) for lane in range(len(states))]

    def _next_of_chain(self, states: list[torch.Tensor], digests: Sequence[bytes], lane: int) -> torch.Tensor:
        """Return f(B[j] X^T + B[k]), where X is the state of the next lane."""
        ((factor, addend),) = self._challenge.indices(digests, lane, 1)
        source = states[(lane + 1) % len(states)].to(self._lanes[lane])
        return self._step(self._pool[factor], source.T, self._pool[addend])

    def _next_of_walk(self, states: list[torch.Tensor], digests: Sequence[bytes], lane: int) -> torch.Tensor:
        """Return the walk's next state: f(B[j] v + B'[k]), four times."""
        state = states[lane]
        for factor, addend in self._challenge.indices(digests, lane, WALK_PRODUCTS):
            state = self._step(self._pool[factor], state, self._pool[addend][:WALK_COLUMNS].T)
        return state

    def _step(self, factor: torch.Tensor, state: torch.Tensor, addend: torch.Tensor) -> torch.Tensor:
        product = torch.remainder(factor.to(torch.float32) @ state, PRIME)  # keeps the next sum exact
        found = torch.remainder(product + addend + HALF, PRIME)
        return self._powers[state.device][found.to(torch.int32)]

    def _put(self, run: _ProofRun, states: list[bytes]) -> list[torch.Tensor]:
        found = [torch.from_numpy(entries(state, run.columns)) for state in states]
        return [state.to(device) for state, device in zip(found, self._lanes, strict=True)]

    def _digest(self, state: bytes | memoryview) -> bytes:
        return state_digest(state, self._threads.map)


def _entries_of(state: torch.Tensor) -> NDArray[np.uint8]:
    # Locked memory comes from torch's pool. A copy to new pages took an H200 39 ms instead of 1.2 ms for a state.
    found = torch.empty(state.shape, dtype=torch.uint8, pin_memory=state.is_cuda)
    copied: NDArray[np.uint8] = found.copy_((state + HALF).to(torch.uint8)).numpy()
    return copied
