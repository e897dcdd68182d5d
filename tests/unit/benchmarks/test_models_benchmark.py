"""The quick run of the benchmark of models."""

import pytest

from benchmarks import models

ROWS = [
    "unit_ratio",
    "lora_ratio",
    "peak_memory_ratio",
    "unit_copies",
    "aggregation_copies",
    "hash_share",
    "replay_mismatches",
    "segments_replayed",
    "lora_payload_share",
    "logits_max_difference",
    "data_tokens_ratio",
    "process_mismatches",
    "scaling_2",
    "hash_gbps_per_core",
]
WITH_TRL = ["sft_ratio", "sft_loss_difference", "dpo_loss_difference"]


@pytest.mark.long
@pytest.mark.timeout(900)
def test_quick_run_has_all_rows_with_possible_values() -> None:
    rows = {row.name: row for row in models.measure(quick=True)}
    speeds = {name for name in rows if name.startswith("peak_share_cpu-fp32_")}
    assert speeds
    assert set(rows) - speeds == {*ROWS, *([] if models.lacks() else WITH_TRL)}
    assert rows["replay_mismatches"].value == 0
    assert rows["segments_replayed"].value == 6
    assert rows["process_mismatches"].value == 0
    assert rows["scaling_2"].value > 0
    assert rows["logits_max_difference"].max == 0
    assert all(rows[name].value > 0 for name in rows if name.endswith(("_ratio", "_share")))
    assert all(rows[name].max < 1e-4 for name in rows if name.endswith("_loss_difference"))
