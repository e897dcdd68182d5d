"""Foreign keys cross features, so each process must have loaded the tables of all of them."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["market.app", pytest.param("worker.context", marks=pytest.mark.long)])
def test_processes_know_all_referenced_tables(module: str) -> None:
    script = f"import {module}; from market.platform.db.base import Base; print(len(Base.metadata.sorted_tables))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr  # sorting fails on a reference to an unknown table
