"""The dispute parameters of market and nodes equal the contract's."""

import re
from pathlib import Path

from market.domain.lifecycle import DISPUTE_STATUSES
from training_gym.spec.config import MAX_SEGMENTS

SOURCES = Path(__file__).resolve().parents[3] / "contracts" / "src"


def _found(file: str, pattern: str) -> str:
    found = re.search(pattern, (SOURCES / file).read_text(encoding="utf-8"))
    assert found
    return found[1]


def test_outcome_numbers_match_contract() -> None:
    listed = _found("interfaces/IDisputes.sol", r"enum Status \{([^}]*)\}").split(",")
    names = [re.sub(r"(?<!^)(?=[A-Z])", "_", name.strip()).upper() for name in listed]
    assert [status.name for status in DISPUTE_STATUSES] == names


def test_trace_of_every_job_can_be_disputed() -> None:
    assert int(_found("base/Challenges.sol", r"MAX_SEGMENTS = (\d+);")) >= MAX_SEGMENTS
