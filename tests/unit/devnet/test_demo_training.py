"""The demonstration's expectations of slow link, late payload and leaver."""

from typing import Any

import pytest
from kit.documents import changed
from kit.nodes.demo_training import LEAVER, NAMES, TRAINING

from zoo_compute.demo import training as demo_training

LATE, LESS = TRAINING["late"], "it is below the others' level"
BEARS = "the slow link's compression level follows the rule"
SENT = "the slow link sent the assigned number of entries and committed to it"
JOINED, WEIGHS = "a payload came late and was aggregated once", "its weight follows its delay"
CAUGHT_UP = "it caught up by the missed updates"


def _broken(training: Any) -> set[str]:
    return {promise for promise, is_so in demo_training.checks(training).items() if not is_so}


def test_kept_expectations_pass() -> None:
    assert _broken(TRAINING) == set()


@pytest.mark.parametrize(
    ("path", "value", "broken"),
    [
        (("slow_link", "told"), [4096] * 4, {BEARS, LESS, SENT}),
        (("slow_link", "by_the_rule"), [4096, 1526, 654, 654], {BEARS}),
        (("slow_link", "sent"), [4096] * 4, {SENT}),
        (("slow_link", "committed"), False, {SENT}),
        (("slow_link", "least_bytes"), 122_000, {"fewer entries are smaller"}),
        (("late",), None, {JOINED, WEIGHS, "the late node is paid"}),
        (("late", "joined"), [], {JOINED, WEIGHS}),
        (("late", "joined"), LATE["joined"] * 2, {JOINED, WEIGHS}),
        (("late", "joined", 0, "round"), 1, {JOINED}),
        (("late", "joined", 0, "verdict"), "krum_outlier", {JOINED, WEIGHS}),
        (("late", "joined", 0, "weight"), 4096, {WEIGHS}),
        (("late", "rounds_late"), 0, {WEIGHS}),
        (("late", "rounds_late"), 2, {WEIGHS}),
        (("late", "paid"), False, {"the late node is paid"}),
        (("leaver", "delivered_since"), 0, {"the leaver returned"}),
        (("leaver", "caught_up"), None, {CAUGHT_UP}),
        (("leaver", "updates_on_storage"), [], {CAUGHT_UP}),
        (("leaver", "updates_on_storage"), [33_046, 33_047], {CAUGHT_UP}),
        (("leaver", "caught_up", "update_bytes"), 526_888, {CAUGHT_UP}),
        (("model_bytes",), 526_889, {CAUGHT_UP}),
    ],
)
def test_broken_expectation_is_named(path: tuple[str | int, ...], value: object, broken: set[str]) -> None:
    assert _broken(changed(TRAINING, path, value)) == broken


def _all_of_it(quickest_seconds: float | None) -> Any:
    all_of_it = dict.fromkeys(("told", "by_the_rule", "sent"), [4096] * 4)
    seen = {"least_bytes": 121_000, "quickest_seconds": quickest_seconds, "seconds_per_unit": 9.0}
    return TRAINING | {"slow_link": TRAINING["slow_link"] | all_of_it | seen}


def test_whole_payload_is_reported_on_busy_machine() -> None:
    assert _broken(_all_of_it(5.1)) == set()
    assert _broken(_all_of_it(4.9)) == {LESS}
    assert _broken(_all_of_it(None)) == {LESS}
    line = demo_training.report_lines(_all_of_it(5.1), NAMES, 4.0)[1]
    assert "units of 9.0 s on this busy machine, a whole payload of 122000 bytes" in line


def test_report_names_compression_levels_weight_and_bytes() -> None:
    _, slow, late, leaver, _ = demo_training.report_lines(TRAINING, NAMES, 4.0)
    assert slow.startswith("provider-2, on 4 Mbit/s, delivered 4 units")
    assert "430 kB/s measured" in slow
    assert "1526 or 654 of 4096 entries in 3 of them: 31000 bytes instead of 122000" in slow
    assert "provider-4 was delayed" in late
    assert "round 2 closed without its payload, which was aggregated in round 3 at 0.71 of" in late
    assert "provider-3 left after round 2 (node_stopping), returned and delivered 4 more units" in leaver
    assert "2 updates: 66092 bytes instead of the model's 526888" in leaver


def test_unmeasured_rate_is_absent() -> None:
    def line(number: int, path: tuple[str, ...], value: object) -> str:
        return demo_training.report_lines(changed(TRAINING, path, value), NAMES, 4.0)[number]

    assert "With an unmeasured rate" in line(1, ("slow_link", "bytes_per_second"), None)
    assert "0 kB on the wire" in line(0, ("update_bytes",), 0)
    assert line(3, ("leaver", "lost"), []).startswith(NAMES[LEAVER])
    assert "it fetched the update: 66092 bytes" in line(3, ("leaver", "caught_up", "updates"), 1)
