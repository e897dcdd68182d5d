"""The guardian's comparison of the chain with the market's record."""

from typing import Any

import pytest

from zoo_compute.chain.governance import ChallengedPayout, PayoutLine
from zoo_compute.cli.governance.guardian import _compared

ROOT, JOB = "0x" + "0a" * 32, "0x" + "0b" * 32
BATCH = ChallengedPayout("batch", 3, ROOT, 4_000_000_000, 7, (PayoutLine(JOB, 2, 7),))
EPOCH = ChallengedPayout("epoch", 3, ROOT, 4_000_000_000, None)
RECORD = {"root": ROOT, "net_wei": "7", "differences": [], "payees": [{"account": "0xA"}], "payee_count": 1}


@pytest.mark.parametrize(
    ("payout", "record", "difference"),
    [
        (BATCH, RECORD, None),
        (EPOCH, RECORD, None),
        (BATCH, None, "does not list it"),
        (BATCH, RECORD | {"root": JOB}, "other contents"),
        (BATCH, RECORD | {"net_wei": "8"}, "has 8 wei, the chain 7 wei"),
        (BATCH, RECORD | {"differences": ["The lines differ."]}, "The lines differ."),
    ],
    ids=["same", "epoch", "missing", "root", "amount", "market"],
)
def test_payout_agrees_only_with_same_record(
    payout: ChallengedPayout, record: dict[str, Any] | None, difference: str | None
) -> None:
    found = _compared(payout, record)
    assert found["agrees"] is (difference is None)
    assert (difference or "") in " ".join(found["differences"])
    assert found["net_wei"] == "7"
    assert found["seconds_left"] > 0
