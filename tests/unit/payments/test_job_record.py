"""The job record survives its bytes, and nothing else passes for one."""

import json
from dataclasses import replace
from typing import Any

import pytest
from kit.documents import changed

from zoo_protocol.messages import UnitCommitment
from zoo_protocol.payments import job_record
from zoo_protocol.payments.job_record import CheckpointRecord, JobRecord, RecordError, SlashRecord, UnitRecord, leaf_of

HASH = "0x" + "ab" * 32
ADDRESS = "0x" + "11" * 20
_NUMBERS = ("tier", "units", "unitWeight", "segments", "samplingBps", "budget", "maxPrice", "waitUntil", "nonce")
ORDER = {"payer": ADDRESS, "specHash": HASH, **dict.fromkeys(_NUMBERS, "1")}


def unit(round_: int, slot: int, status: str = "verified") -> UnitRecord:
    started = ("cid", None, None, None)  # checkpoint, replica state, restored and eager payload
    committed = (64, HASH, HASH, "cid", HASH, "cid", "0x")
    return UnitRecord(round_, slot, ADDRESS, status, None, *started, *committed, 0, 0, 2_500, [1], [])


def record(**changes: object) -> JobRecord:
    fields: dict[str, object] = {
        "job_id": HASH,
        "network": "devnet",
        "tier": "bronze",
        "segments": 4,
        "environment_class": HASH,
        "spec_cid": "cid",
        "order": ORDER,
        "order_signature": "0x",
        "outcome": "completed",
        "clearing_price_wei_per_gpu_hour": "2500000000000000000",
        "auction": None,
        "units": [unit(1, 0), unit(0, 1), unit(0, 0, "rejected")],
        "slashes": [SlashRecord(0, 0, ADDRESS, "incorrect_computation", HASH, "cid", "dispute", None)],
        "checkpoints": [CheckpointRecord(0, "cid", "cid", "5.545177", "0.012000", 256, [ADDRESS])],
        "windows": [job_record.WindowRecord(0, HASH, [HASH])],
        "initial_loss": "5.545177",
        "final_loss": None,
        "final_model_cid": None,
        "times": {},
        "batch_cid": None,
    }
    return JobRecord(**(fields | changes))  # type: ignore[arg-type]


def test_job_record_round_trips_as_bytes() -> None:
    original = record()
    assert JobRecord.from_bytes(original.to_bytes()) == original


def test_paid_units_are_verified_ones_in_order() -> None:
    assert [(u.round, u.slot) for u in record().paid_units()] == [(0, 1), (1, 0)]


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        (("units", 0, "round"), "0", "record.units[0].round"),
        (("units", 0, "round"), True, "record.units[0].round"),
        (("units", 0, "drawn_segments"), 3, "record.units[0].drawn_segments"),
        (("tier",), None, "record.tier"),
        (("kind",), "zoo-job-record/1", "kind"),
        (("segments",), 2**16, "record.segments"),
        (("units", 0, "round"), -1, "record.units[0].round"),
        (("units", 0, "window_index"), -1, "record.units[0].window_index"),
        (("units", 0, "provider"), "nobody", "record.units[0].provider"),
        (("units", 0, "trace_root"), HASH + "00", "record.units[0].trace_root"),
        (("units", 0, "salt"), "0x", "record.units[0].salt"),
        (("windows", 0, "leaves", 0), HASH.upper(), "record.windows[0].leaves[0]"),
        (("slashes", 0, "evidence"), "", "record.slashes[0].evidence"),
        (("clearing_price_wei_per_gpu_hour",), "-1", "record.clearing_price_wei_per_gpu_hour"),
        (("initial_loss",), "nan", "record.initial_loss"),
        (("order", "tier"), "one", "record.order"),
        (("order", "budget"), str(2**96), "record.order"),
        (("order", "more"), "1", "record.order"),
    ],
)
def test_wrong_types_are_named(path: tuple[str | int, ...], value: object, field: str) -> None:
    document = changed(json.loads(record().to_bytes()), path, value)
    with pytest.raises(RecordError) as caught:
        JobRecord.from_bytes(json.dumps(document).encode())
    assert caught.value.field == field


def test_missing_and_unknown_keys_are_named() -> None:
    document = json.loads(record().to_bytes())
    for path, value in (("units", 0, "extra"), 1), (("units",), ...):
        with pytest.raises(RecordError, match=str(path[-1])):
            JobRecord.from_bytes(json.dumps(changed(document, path, value)).encode())


@pytest.mark.parametrize(
    "change",
    [{"round": -1}, {"round": 2**32}, {"slot": "0"}, {"provider": "nobody"}, {"provider": None}, {"traceRoot": "0x"}],
)
def test_invalid_commitment_has_no_leaf(change: dict[str, Any]) -> None:
    """Readers of damaged files expect a ValueError; another error would end a node."""
    unit = UnitCommitment(HASH, 0, 0, ADDRESS, HASH, HASH)
    assert len(leaf_of(unit)) == 32
    with pytest.raises(ValueError):
        leaf_of(replace(unit, **change))
