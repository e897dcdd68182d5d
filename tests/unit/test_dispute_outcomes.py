"""The market reads how a dispute ended from an event of the contract, where it is a number."""

import re
from pathlib import Path

from market.settlement.disputes import Outcome

INTERFACE = Path(__file__).resolve().parents[2] / "contracts" / "src" / "interfaces" / "IDisputes.sol"


def test_outcomes_have_the_numbers_that_the_contract_gives_them() -> None:
    found = re.search(r"enum Status \{([^}]*)\}", INTERFACE.read_text(encoding="utf-8"))
    assert found
    names = [re.sub(r"(?<!^)(?=[A-Z])", "_", name.strip()).upper() for name in found[1].split(",")]
    assert {outcome.name: int(outcome) for outcome in Outcome}.items() <= {n: i for i, n in enumerate(names)}.items()
