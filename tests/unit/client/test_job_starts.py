"""The start of a job from a model or a checkpoint, in job files and in the client."""

from pathlib import Path
from typing import Any

import pytest
from kit.errors import raises_code

from zoo_compute.base.errors import ConfigError
from zoo_compute.chain.wallet import Wallet
from zoo_compute.client import datasets, jobspec
from zoo_compute.client.client import Client
from zoo_compute.client.jobspec import JobSpec

CID = "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy"
FURTHER = {"start_checkpoint": CID, "start_round": 4, "start_rate_share": 0.5}


def load(folder: Path, data: dict[str, Any]) -> JobSpec:
    file = folder / "job.yaml"
    file.write_text("budget_max: 1\nmax_price: 2\ndata_config: {dataset: x}")
    return jobspec.load(file, {"data_config": data})


@pytest.mark.parametrize("start", [{"start_model": CID}, FURTHER, FURTHER | {"start_model": CID}])
def test_start_becomes_part_of_request(tmp_path: Path, start: dict[str, Any]) -> None:
    spec = load(tmp_path, {"dataset": CID, "validation_samples": 0, **start})
    client = Client("http://market.test", wallet=Wallet("0x" + "22" * 32))
    assert client._request(spec)["data_config"] == {"dataset": CID, "validation_samples": 0, **start}
    with_sources = load(tmp_path, {"train": "a.txt", "tokenizer": "bpe:400", **start})
    assert with_sources.dataset == datasets.Request((f"{tmp_path}/a.txt",), "bpe:400")
    assert with_sources.data_settings() == start


@pytest.mark.parametrize(
    ("start", "named"),
    [
        ({"start_model": "model"}, "data_config.start_model: is not a CID"),
        ({"start_model": 5}, "data_config.start_model: must be the CID"),
        ({"start_checkpoint": "x"}, "data_config.start_checkpoint: is not a CID"),
        ({**FURTHER, "start_round": -1}, "data_config.start_round: is -1; give a whole number"),
        ({**FURTHER, "start_round": True}, "data_config.start_round: is True"),
        ({**FURTHER, "start_rate_share": 0}, "data_config.start_rate_share: is 0; give a share"),
        ({**FURTHER, "start_rate_share": "1"}, "data_config.start_rate_share: is '1'"),
        ({"start_round": 3}, "data_config.start_round: continues a checkpoint"),
        ({"start_model": CID, "start_checkpoint": CID}, "data_config.start_model: is given with start_checkpoint"),
    ],
)
def test_unusable_start_is_refused(tmp_path: Path, start: dict[str, Any], named: str) -> None:
    with raises_code(ConfigError, "job-start-unusable", match=named) as refused:
        load(tmp_path, {"train": "a.txt", **start})
    assert refused.value.remedy
    with raises_code(ConfigError, "job-start-unusable", match=named):
        JobSpec(CID, 1, **start)


@pytest.mark.parametrize(
    ("data", "named"),
    [
        ({"start_checkpoint": None}, "data_config.start_checkpoint has no value"),
        ({1: CID}, "data_config.1 is not a known key"),
        ({"start_modle": CID}, "data_config.start_modle is not a known key; the nearest is 'start_model'"),
        ({"start_model": CID, "train": "a.txt"}, "data_config.dataset must be a CID, and the only source"),
    ],
)
def test_unclear_data_key_is_refused(tmp_path: Path, data: dict[str, Any], named: str) -> None:
    with raises_code(ConfigError, "job-file-unusable", match=named):
        load(tmp_path, {"dataset": CID, **data})
