"""Wrong arguments of the methods of a job, refused before a request."""

import math
from typing import Any
from unittest.mock import MagicMock

import pytest
from kit.errors import raises_code

from zoo_compute.base.errors import ConfigError
from zoo_compute.chain.wallet import Wallet
from zoo_compute.client.client import Client
from zoo_compute.client.job import Job

JOB_ID = "0x" + "11" * 32


@pytest.mark.parametrize(
    ("changes", "remedy"),
    [
        ({"rounds": "3"}, "Give rounds as a whole number."),
        ({"rounds": 2.0}, "Give rounds as a whole number."),
        ({"nodes": True}, "Give nodes as a whole number."),
        ({"budget_max": 1.5}, "Give budget_max as a whole number of wei."),
        ({"wait_until": "tomorrow"}, "Give wait_until as a datetime."),
        ({"name": 5}, "Give name as a text."),
        ({"organisation": "lab"}, "Give organisation as an organisation's id, or 0 for your own account."),
        ({"final_rate_share": math.nan}, "Give final_rate_share as a share from 0 to 1."),
        ({"final_rate_share": "0.5"}, "Give final_rate_share as a share from 0 to 1."),
        ({"start_rate_share": True}, "Give start_rate_share as a share above 0, up to 1."),
    ],
)
def test_wrong_change_is_refused_by_name(changes: dict[str, Any], remedy: str) -> None:
    client = MagicMock()
    for method in (Job(client, JOB_ID).extend, Job(client, JOB_ID).clone):
        with raises_code(ConfigError, "change-malformed", match=next(iter(changes))) as refused:
            method(**changes)
        assert refused.value.remedy == remedy
    client.submit_proposed.assert_not_called()


def test_absent_changes_are_not_sent() -> None:
    client = MagicMock()
    Job(client, JOB_ID).extend(rounds=None, final_rate_share=1, max_price=None, organisation=0)
    client.submit_proposed.assert_called_once_with(JOB_ID, "extend", {"final_rate_share": 1, "organisation": 0}, None)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"length": -1}, "length"),
        ({"length": "5"}, "length"),
        ({"prompt": 5}, "prompt"),
        ({"temperature": 0}, "temperature"),
        ({"temperature": math.nan}, "temperature"),
        ({"seed": -1}, "seed"),
    ],
)
def test_malformed_sample_setting_is_refused(settings: dict[str, Any], name: str) -> None:
    with raises_code(ConfigError, "sample-malformed", match=name) as refused:
        Job(MagicMock(), JOB_ID).sample(**{"prompt": "a", "length": 5, **settings})
    assert (refused.value.remedy or "").startswith(f"Give {name} as ")


@pytest.mark.parametrize("job_id", [None, 5, b"0x"])
def test_job_id_must_be_text(job_id: Any) -> None:
    with raises_code(ConfigError, "job-malformed"):
        Client("http://market.test", wallet=Wallet("0x" + "22" * 32)).job(job_id)
