import numpy as np
import pytest

from training_gym.benchmark import PRIME, Challenge, solve, verify

CHALLENGE = Challenge(seed=b"\x07" * 32, size=48, rounds=5)
PRIVATE = b"sixteen bytes or more"


def test_an_honest_answer_passes_whatever_the_private_seed() -> None:
    answer = solve(CHALLENGE)
    assert len(answer) == CHALLENGE.answer_size == 48 * 48 * 5
    assert CHALLENGE.flops == 2 * 48**3 * 5
    assert all(verify(CHALLENGE, answer, PRIVATE + bytes([n])) for n in range(20))


def test_every_single_forged_entry_is_found() -> None:
    answer = np.frombuffer(solve(CHALLENGE), np.uint8)
    generator = np.random.default_rng(0)
    for place in [0, len(answer) - 1, *generator.integers(0, len(answer), 60)]:
        forged = answer.copy()
        forged[place] = (forged[place] + generator.integers(1, PRIME)) % PRIME
        assert not verify(CHALLENGE, forged.tobytes(), PRIVATE)


def test_other_answers_are_refused() -> None:
    answer = solve(CHALLENGE)
    noise = np.random.default_rng(0).integers(0, PRIME, len(answer)).astype(np.uint8).tobytes()
    other = solve(Challenge(seed=b"\x08" * 32, size=48, rounds=5))
    for wrong in (b"", answer[:-1], answer + b"\0", bytes([PRIME]) + answer[1:], noise, other, bytes(len(answer))):
        assert not verify(CHALLENGE, wrong, PRIVATE)


def test_products_are_exact_at_the_largest_size() -> None:
    largest = np.full((1, 4096), PRIME // 2, np.float32)
    assert (largest @ largest.T).item() == 4096 * 63**2 < 2**24


@pytest.mark.parametrize("wrong", [(b"short", 8, 1), (bytes(32), 0, 1), (bytes(32), 4097, 1), (bytes(32), 4096, 65)])
def test_an_unbounded_challenge_is_refused(wrong: tuple[bytes, int, int]) -> None:
    with pytest.raises(ValueError):
        Challenge(*wrong)
