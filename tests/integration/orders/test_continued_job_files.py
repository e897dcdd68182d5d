"""Job files that continue the checkpoint of another job."""

import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from kit.api.clients import Cli
from kit.api.submission_fixtures import app_on_chain, fake_chain  # noqa: F401  (fixtures)
from kit.jobs.jobs_fixtures import ZEN, World
from sqlalchemy import update

from market.chain.views import ChainViews
from market.jobs.models import Job
from zoo_compute.base.errors import ExitCode, Mismatch
from zoo_compute.client import jobspec
from zoo_compute.client.client import Client


@pytest.fixture
def trained(app: FastAPI, world: World, nodes: list[str]) -> str:
    """A job with one round, whose payer has a balance."""
    job_id = world.delivered_job(nodes, rounds=1)
    world.aggregate(job_id)
    app.state.services.part(ChainViews).balances[world.wallets[world.read(job_id).payer].address] = 12 * ZEN
    return job_id


def test_job_file_continues_checkpoint(
    api: httpx.Client, world: World, trained: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wallet = world.wallets[world.read(trained).payer]
    with Client(str(api.base_url), private_key="0x" + bytes(wallet.key).hex()) as client:
        job = client.job(trained)
        before, last = job.state(), job.checkpoints()[-1]
        start = {"start_checkpoint": last.cid, "start_round": last.round, "start_rate_share": 0.5}
        data = {"dataset": before.spec["data_config"]["dataset"], "validation_samples": 0, **start}
        slower = {"learning_rate": before.spec["training_config"]["learning_rate"] / 3}
        document = {
            "model_config": before.spec["model_config"],
            "training_config": before.spec["training_config"] | slower,
            "data_config": data,
            "nodes": before.nodes,
            "budget_max": "2",
            "max_price": "3",
        }
        file = tmp_path / "job.json"
        file.write_text(json.dumps(document))
        spec = jobspec.load(file)
        honest = client.connection.post

        def another_round(path: str, body: Any = None, **how: Any) -> Any:
            return honest(path, body | {"data_config": data | {"start_round": last.round + 1}}, **how)

        with monkeypatch.context() as dishonest:
            dishonest.setattr(client.connection, "post", another_round)
            with pytest.raises(Mismatch, match="quote-mismatch"):
                client.submit(spec)
        further = client.submit(spec).state().spec
    assert further["data_config"].items() >= start.items()
    assert further["training_config"]["learning_rate"] == slower["learning_rate"]


def test_extension_of_diverged_job_warns(cli: Cli, world: World, trained: str) -> None:
    cli.be(bytes(world.wallets[world.read(trained).payer].key))
    unwarned = cli("job", "extend", trained, code=ExitCode.USAGE)
    assert ("confirmation-missing" in unwarned, "diverged_rates" in unwarned) == (True, False)
    world.execute(update(Job).where(Job.id == trained).values(status="failed", reason="diverged"))
    warned = cli("job", "extend", trained, code=ExitCode.USAGE)
    assert warned.index("[diverged_rates]") < warned.index("into escrow")
    lowered = cli.json("job", "extend", trained, "--start-rate-share", "0.3")  # advice is not on standard output
    assert lowered["spec"]["data_config"]["start_rate_share"] == 0.3


def test_lowered_extension_of_constant_rates_stays_low(cli: Cli, world: World, trained: str) -> None:
    before = world.read(trained)
    training = before.spec["training_config"] | {"final_rate_share": 1.0}
    world.execute(update(Job).where(Job.id == trained).values(spec=before.spec | {"training_config": training}))
    cli.be(bytes(world.wallets[before.payer].key))
    lowered = cli.json("job", "extend", trained, "--start-rate-share", "0.3")["spec"]
    assert lowered["data_config"]["start_rate_share"] == lowered["training_config"]["final_rate_share"] == 0.3


def test_extension_on_other_nodes_keeps_settings(cli: Cli, world: World, trained: str) -> None:
    before = world.read(trained)
    cli.be(bytes(world.wallets[before.payer].key))
    further = cli.json("job", "extend", trained, "--nodes", "8", "--budget", "2")
    copied = cli.json("job", "clone", trained, "--nodes", "2", "--budget", "2")
    assert (before.nodes, further["nodes"], copied["nodes"]) == (4, 8, 2)
    for made in further, copied:
        assert made["spec"]["training_config"] == before.spec["training_config"]
    assert further["spec"]["data_config"]["start_round"] == 1


@pytest.mark.parametrize("command", ["clone", "extend"])
def test_further_job_takes_another_wait(cli: Cli, world: World, trained: str, command: str) -> None:
    cli.be(bytes(world.wallets[world.read(trained).payer].key))
    first = cli.json("job", "show", trained)
    further = ("job", command, trained, "--budget", "2")
    by_default, asked = cli.json(*further), cli.json(*further, "--wait", "3h")
    assert wait_of(first) == pytest.approx(wait_of(by_default), abs=60)
    assert wait_of(asked) == pytest.approx(3 * 3600, abs=60)
    assert "[duration-malformed]" in cli("job", command, trained, "--wait", "soon", code=ExitCode.USAGE)


def wait_of(state: dict[str, str]) -> float:
    """Return seconds from submission to the end of the wait."""
    until, since = (datetime.fromisoformat(state[name]) for name in ("wait_until", "created_at"))
    return (until - since).total_seconds()


def test_extension_and_clone_take_another_name(cli: Cli, world: World, trained: str) -> None:
    cli.be(bytes(world.wallets[world.read(trained).payer].key))
    assert cli.json("job", "extend", trained, "--name", "moon-2", "--budget", "2")["name"] == "moon-2"
    assert cli.json("job", "clone", "moon-2", "--name", "moon-3")["name"] == "moon-3"
    assert cli.json("job", "clone", "moon-3")["name"] == "moon-3"
    refused = cli("job", "extend", trained, "--name", "Moon", "--yes", code=ExitCode.REFUSED)
    assert ("error: name" in refused, "[invalid-request]" in refused) == (True, True)


@pytest.mark.parametrize("what", ["clone", "extend"])
def test_proposal_on_more_nodes_evaluates_what_split_has(
    api: httpx.Client, app: FastAPI, world: World, nodes: list[str], what: str
) -> None:
    """Eight nodes evaluate 27 of 219 samples each."""
    world.spec = replace(world.spec, validation_samples=50, replicas=4)
    job_id = world.delivered_job(nodes, rounds=1)
    world.aggregate(job_id)
    wallet = world.wallets[world.read(job_id).payer]
    app.state.services.part(ChainViews).balances[wallet.address] = 12 * ZEN
    with Client(str(api.base_url), private_key="0x" + bytes(wallet.key).hex()) as client:
        made = getattr(client.job(job_id), what)(nodes=8).state()
    assert (made.nodes, made.spec["data_config"]["validation_samples"]) == (8, 27)
