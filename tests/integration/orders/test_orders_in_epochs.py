"""Jobs with epochs: quoted and refused over HTTP, signed by the client for the same rounds."""

import json
from pathlib import Path
from typing import Any

import pytest
from eth_account import Account
from kit.api.clients import Caller, Cli, accepted
from kit.api.submission_fixtures import (  # noqa: F401  (fixtures)
    Body,
    app_on_chain,
    fake_chain,
    funded_payer,
    job_body,
    sign_document,
    stored_dataset,
    written,
)
from kit.jobs.jobs_fixtures import SPEC, TEXT, ZEN, FakeChain
from sqlalchemy import select

from market.jobs.models import Job
from market.platform.http.services import Services
from market.platform.storage.client import Storage
from training_gym.data.dataset import DatasetManifest, describe_shard
from zoo_compute.base.errors import ExitCode
from zoo_protocol.content.unixfs import cid_of_file

SAMPLES = (len(TEXT) - 1) // SPEC["model_config"]["sequence_length"]
READ = 4 * 4 * 2
"""Samples of a round: nodes, inner steps, batch size."""


def with_length(body: Body, **length: Any) -> Body:
    """Return the body with short rounds, and this length of the job."""
    settings = {name: value for name, value in SPEC["training_config"].items() if name != "rounds"}
    return body | {"training_config": settings | length}


def test_epochs_are_quoted_and_signed_as_rounds(services: Services, payer: Caller, body: Body) -> None:
    body = with_length(body, epochs=2.5)
    quote = accepted(payer.post("/v1/quotes", json=body))
    rounds = quote["spec"]["training_config"]["rounds"]
    assert rounds * READ >= 2.5 * SAMPLES > (rounds - 1) * READ
    assert "epochs" not in quote["spec"]["training_config"]
    assert quote["units"] == rounds * 4
    assert quote["spec_hash"] == accepted(payer.post("/v1/quotes", json=with_length(body, rounds=rounds)))["spec_hash"]
    signed = {**body, "nonce": quote["nonce"], "order_signature": sign_document(payer, quote["order"])}
    job = accepted(payer.post("/v1/jobs", json=signed), 201)
    assert (job["spec"], job["rounds"]) == (quote["spec"], rounds)
    with services.database.transaction() as session:
        [stored] = session.scalars(select(Job))
        assert stored.request["training_config"] == with_length(body, rounds=rounds)["training_config"]
    cloned = accepted(payer.post(f"/v1/jobs/{job['id']}/clone", json={}))["quote"]
    assert cloned["spec_hash"] == quote["spec_hash"]


@pytest.mark.parametrize(
    ("length", "reason", "named"),
    [
        ({"epochs": 2, "rounds": 8}, "contradicts_rounds", ("is 2, and rounds is 8", "Remove one")),
        (
            {"epochs": 500},
            "out_of_range",
            ("is 500", f"{SAMPLES} samples", f"{-(-500 * SAMPLES // READ)} rounds", "2500"),
        ),
        ({"epochs": 0}, "out_of_range", ("is 0",)),
    ],
)
def test_unusable_epochs_are_refused_with_numbers(
    services: Services, payer: Caller, body: Body, length: Body, reason: str, named: tuple[str, ...]
) -> None:
    unsigned = {"nonce": "7", "order_signature": "0x" + "00" * 65}
    for path, rest in (("/v1/quotes", {}), ("/v1/jobs", unsigned)):
        problem = payer.post(path, json=with_length(body, **length) | rest).json()
        assert (problem["code"], problem["field"], problem["reason"]) == (
            "invalid-spec",
            "training_config.epochs",
            reason,
        )
        assert all(part in problem["detail"] for part in named), problem
    assert written(services) == [0, 0, 0, 0]


def test_dataset_of_epochs_is_refused_as_any(storage: Storage, payer: Caller, body: Body) -> None:
    def stored(content: bytes) -> str:
        return storage.put(content, max_bytes=1 << 20).cid

    def of(text: bytes) -> DatasetManifest:
        shard = (describe_shard(stored(text), text),)
        return DatasetManifest(shard, shard)

    refused = {
        cid_of_file(b"nowhere"): "dataset-not-found",
        stored(b"{}"): "invalid-dataset",
        stored(of(b"short").to_bytes()): "invalid-dataset",
        stored(of(TEXT).to_bytes().replace(b'"tokens":1760', b'"tokens":0')): "invalid-dataset",
    }
    assert len(refused) == 4
    for dataset, code in refused.items():
        answers = [
            payer.post("/v1/quotes", json=with_length(body, **length) | {"data_config": {"dataset": dataset}}).json()
            for length in ({"epochs": 1}, {"rounds": 1})
        ]
        assert [answer["code"] for answer in answers] == [code, code]
        assert answers[0]["detail"] == answers[1]["detail"]
        assert answers[0]["field"] == "data_config.dataset"


def test_client_signs_rounds_of_uploaded_sources(
    cli: Cli, services: Services, chain: FakeChain, tmp_path: Path
) -> None:
    wallet, job = Account.create(), tmp_path / "job.json"
    chain.balances[wallet.address] = 100 * ZEN
    cli.be(bytes(wallet.key))
    (tmp_path / "text.txt").write_bytes(TEXT)
    asked = with_length(SPEC, epochs=3) | {
        "data_config": {"train": "text.txt", "validation": "text.txt", "tokenizer": "bpe:300"},
        "nodes": 2,
        "budget_max": 10,
    }
    job.write_text(json.dumps(asked))
    quote = cli.json("job", "quote", job)
    rounds = quote["spec"]["training_config"]["rounds"]
    manifest = DatasetManifest.from_bytes(
        services.part(Storage).get(quote["spec"]["data_config"]["dataset"], max_bytes=1 << 20)
    )
    samples = sum((shard.tokens - 1) // 8 for shard in manifest.train)
    assert rounds * READ // 2 >= 3 * samples > (rounds - 1) * READ // 2
    assert ["rounds", str(rounds)] in [line.split() for line in cli("job", "quote", job).splitlines()]
    state = cli.json("job", "submit", job)
    assert (state["spec"], state["rounds"]) == (quote["spec"], rounds)


def test_client_reports_refused_epochs(cli: Cli, chain: FakeChain, dataset: str, tmp_path: Path) -> None:
    wallet, job = Account.create(), tmp_path / "job.json"
    chain.balances[wallet.address] = 100 * ZEN
    cli.be(bytes(wallet.key))
    for length, named in (({"epochs": 1, "rounds": 1}, "Remove one"), ({"epochs": 10**5}, f"{SAMPLES} samples")):
        job.write_text(json.dumps(with_length(SPEC, **length) | {"data_config": {"dataset": dataset}, "budget_max": 1}))
        refused = cli("job", "submit", job, "--yes", code=ExitCode.REFUSED)
        assert "training_config.epochs" in refused
        assert named in refused
