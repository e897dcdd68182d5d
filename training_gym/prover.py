"""Answers hardware challenges (:mod:`training_gym.hardware_proof`) on this node's devices."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch

from training_gym.hardware_proof import (
    HALF,
    POWERS,
    PRIME,
    WALK_COLUMNS,
    Challenge,
    Work,
    commitment,
    draws,
    entries,
    state_digest,
)

_KEPT_EVERY = 16
"""All lanes' states of every 16th step are kept for openings, or a chain of the main network would fill 137 GB of RAM;
those between are computed again."""

States = list[torch.Tensor]


@dataclass(slots=True)
class _Course:
    """The states of the chain, or of the walk, by step and lane: the digests of all, the bytes of every 16th step."""

    columns: int
    advance: Callable[[States, Sequence[bytes]], States]
    digests: list[list[bytes]] = field(default_factory=list)
    kept: list[list[bytes]] = field(default_factory=list)


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
        self._chain = _Course(work.size, self._next_round)
        self._walk = _Course(WALK_COLUMNS, self._next_step)
        self._challenge = challenge

    @_tf32()
    def work(self, nonce: bytes) -> bytes:
        """Do all the work; returns the commitment."""
        self._challenge = challenge = Challenge(self._work, self._seed, nonce)
        lanes = range(self._work.lanes)
        self._follow(self._chain, [challenge.start(lane) for lane in lanes], self._work.rounds)
        ends = self._chain.digests[-1]
        self._follow(self._walk, [challenge.walk_start(ends, lane) for lane in lanes], self._work.steps)
        return commitment(self._digests())

    @_tf32()
    def open(self, secret: bytes) -> bytes:
        """The answer, once it is known what is opened."""
        parts = self._digests()
        for round_, step, lane in draws(self._work, secret):
            before, after = self._around(self._chain, round_)
            parts += [before[(lane + 1) % self._work.lanes], after[lane]]
            before, after = self._around(self._walk, step)
            parts += [before[lane], after[lane]]
        return b"".join(parts)

    def _digests(self) -> list[bytes]:
        return [digest for course in (self._chain, self._walk) for step in course.digests for digest in step]

    def _follow(self, course: _Course, start: list[bytes], count: int) -> None:
        """Go all steps of a course, noting its states."""
        course.digests.append([state_digest(state, self._threads.map) for state in start])
        course.kept.append(start)
        states = self._put(course, start)
        for step in range(1, count + 1):
            states = course.advance(states, course.digests[-1])
            found = [_to_bytes(state) for state in states]
            course.digests.append([state_digest(state, self._threads.map) for state in found])
            if step % _KEPT_EVERY == 0:
                course.kept.append(found)

    def _around(self, course: _Course, step: int) -> tuple[list[bytes], list[bytes]]:
        """All lanes' states before and after a step."""
        first = (step - 1) // _KEPT_EVERY
        before = self._put(course, course.kept[first])
        for number in range(first * _KEPT_EVERY, step - 1):
            before = course.advance(before, course.digests[number])
        after = course.advance(before, course.digests[step - 1])
        return [_to_bytes(state) for state in before], [_to_bytes(state) for state in after]

    def _next_round(self, states: States, digests: Sequence[bytes]) -> States:
        """f(B[j] X^T + B[k]) for each lane, X being the state of the lane beside it."""
        found = []
        for lane, device in enumerate(self._lanes):
            factor, addend = self._challenge.indices(digests, lane)
            beside = states[(lane + 1) % len(states)].to(device)
            found.append(self._step(self._pool[factor], beside.T, self._pool[addend]))
        return found

    def _next_step(self, states: States, digests: Sequence[bytes]) -> States:
        """f(B[j] v + B'[k]) for each lane."""
        found = []
        for lane, state in enumerate(states):
            factor, addend = self._challenge.indices(digests, lane)
            found.append(self._step(self._pool[factor], state, self._pool[addend][:WALK_COLUMNS].T))
        return found

    def _step(self, factor: torch.Tensor, state: torch.Tensor, addend: torch.Tensor) -> torch.Tensor:
        product = torch.remainder(factor.to(torch.float32) @ state, PRIME)  # exact before anything is added
        found = torch.remainder(product + addend + HALF, PRIME)
        return self._powers[state.device][found.to(torch.int32)]

    def _put(self, course: _Course, states: list[bytes]) -> States:
        found = [torch.from_numpy(entries(state, course.columns)) for state in states]
        return [state.to(device) for state, device in zip(found, self._lanes, strict=True)]


def _to_bytes(state: torch.Tensor) -> bytes:
    return (state + HALF).to(torch.uint8).cpu().numpy().tobytes()
