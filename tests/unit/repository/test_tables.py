"""Foreign keys cross features, so each process must have loaded the tables of all of them."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["market.app", "worker.context"])
def test_each_process_knows_every_table_that_its_tables_refer_to(module: str) -> None:
    script = f"import {module}; from market.platform.db.base import Base; print(len(Base.metadata.sorted_tables))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr  # sorting fails on a reference to an unknown table
