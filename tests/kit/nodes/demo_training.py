"""The training report of a demonstration that met its expectations."""

from typing import Any

SLOW, HELD_UP, LEAVER = ("0x" + digit * 40 for digit in "234")
NAMES = {SLOW: "provider-2", LEAVER: "provider-3", HELD_UP: "provider-4"}

TRAINING: dict[str, Any] = {
    "update_bytes": 110_000,
    "model_bytes": 526_888,
    "delivered": 30,
    "joined": 30,
    "slow_link": {
        "provider": SLOW,
        "units": 4,
        "late": 0,
        "share_transfer": 0.1,
        "bytes_per_second": 430_000,
        "seconds_per_unit": 3.2,
        "quickest_seconds": 2.9,
        "asked_of_others": 4096,
        "told": [4096, 1526, 1526, 654],
        "by_the_rule": [4096, 1526, 1526, 654],
        "sent": [4096, 1526, 1526, 654],
        "committed": True,
        "least_bytes": 31_000,
        "whole_bytes": 122_000,
    },
    "late": {
        "provider": HELD_UP,
        "round": 1,
        "rounds_late": 1,
        "paid": True,
        "joined": [{"round": 2, "weight_one": 4096, "weight": 2896, "verdict": "included"}],
    },
    "leaver": {
        "provider": LEAVER,
        "left_after": 2,
        "lost": ["node_stopping"],
        "delivered_since": 4,
        "caught_up": {"round": 4, "from_round": 2, "updates": 2, "update_bytes": 66_092, "model_bytes": 526_888},
        "updates_on_storage": [33_046, 33_046],
    },
    "tokens_per_second": 9_000.0,
    "share_of_ideal": 0.7,
    "shares": {"compute": 0.7, "transfer": None, "wait": 0.2},
}
