"""The figures of docs/planning.md against the script that prints them."""

import subprocess
import sys
from pathlib import Path

import pytest

from market.domain.network import MAINNET, ZEN
from market.orders.errors import InvalidOrder
from market.orders.terms import _require_memory
from training_gym.spec.costs import unit_memory_bytes

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "docs" / "examples" / "seven_billion.py"
_RUN = "import runpy, sys; sys.path.insert(0, sys.argv[2]); found = runpy.run_path(sys.argv[1], run_name='__main__')"
_NO_TORCH = "; assert 'torch' not in sys.modules, 'the script imports torch'"


def test_planning_page_quotes_printed_figures() -> None:
    command = [sys.executable, "-c", _RUN + _NO_TORCH, str(SCRIPT), str(ROOT)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed.count("\n") == 12
    page = (ROOT / "docs" / "planning.md").read_text()
    assert printed in page, f"docs/planning.md has other figures; {SCRIPT.name} prints:\n{printed}"


def test_planning_page_states_what_market_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    import seven_billion

    whole, adapter, iron = seven_billion.whole_model(), seven_billion.adapter(), MAINNET.tier("iron")
    _require_memory(adapter.spec, iron, 18)
    monkeypatch.setitem(seven_billion.MODEL, "sequence_length", 256)
    short = seven_billion.adapter()
    assert round(unit_memory_bytes(short.spec) / 10**9, 1) == 15.3
    for plan, gigabytes in ((whole, 18), (whole, 80), (adapter, 0), (short, 0)):
        with pytest.raises(InvalidOrder, match="One unit needs"):
            _require_memory(plan.spec, iron, gigabytes)
    assert whole.cost_wei == pytest.approx(21_000 * ZEN, rel=0.01)  # as announced: prices are per operation
