"""The job commands against the real API."""

import io
import json
import os
import re
import sys
from pathlib import Path

import pytest
from eth_account import Account
from fastapi import FastAPI
from kit.api.clients import Cli
from kit.jobs.jobs_fixtures import SPEC, ZEN, FakeChain, World, store_dataset
from sqlalchemy import delete, select, update

from market.accounts.organisations.models import Member
from market.chain.views import ChainViews
from market.jobs.models import Job
from market.platform.events.models import JobEventRow
from market.platform.storage.client import Storage
from market.settings import Settings
from training_gym.spec.defaults import OF_FEW
from zoo_compute.base.errors import ExitCode
from zoo_compute.base.models import Event
from zoo_compute.terminal.watch import describe


def test_why_names_filters_and_remedies_to_payer(cli: Cli, world: World) -> None:
    world.node(region="us")
    for price in (1, 9):
        world.node(price=price * ZEN)
    job_id = world.job(nodes=2, max_price=3 * ZEN, requirements={"regions": ["eu"]})
    assert "job-not-found" in cli("job", "why", job_id, code=ExitCode.REFUSED)  # it is another payer's
    cli.be(bytes(world.wallets[world.read(job_id).payer].key))
    found = cli.json("job", "why", job_id)
    assert (found["job_id"], found["nodes_total"], found["nodes"]) == (job_id, 3, 2)
    assert "asks_above_limit" in [finding["code"] for finding in found["findings"]]
    removed = {step["code"]: (step["removes"], step["left"]) for step in found["constraints"]}
    assert removed["region"] == (1, 2)
    assert [change["field"] for change in found["changes"]] == ["requirements.regions", "nodes"]

    shown = cli("job", "why", job_id)
    for finding in found["findings"]:
        assert f"{finding['sentence']}  [{finding['code']}]" in shown
    assert "Of 3 nodes of the tier; 2 are wanted:" in shown
    assert "Its limit is 3 ZEN per GPU-hour:" in shown
    assert "bronze.eu" in shown
    for change in found["changes"]:
        assert f"{change['field']}: {change['sentence']}" in shown


def test_pause_is_shown_with_job_status(cli: Cli, world: World) -> None:
    job_id = world.running([world.node(), world.node()])
    cli.be(bytes(world.wallets[world.read(job_id).payer].key))
    for command in (("job", "pause"), ("job", "show"), ("job", "list")):
        assert "running, paused" in cli(*command)
    assert cli.json("job", "show")["status"] == cli.json("job", "list")[0]["status"] == "running"
    assert f"zoo-compute job resume {job_id}  [paused]" in cli("job", "why")
    for command in (("job", "resume"), ("job", "show"), ("job", "list")):
        assert "paused" not in cli(*command).replace("paused_at", "")


def test_show_names_unit_of_prices(cli: Cli, world: World) -> None:
    job_id = world.job(max_price=4 * ZEN)
    cli.be(bytes(world.wallets[world.read(job_id).payer].key))
    shown = cli("job", "amend", job_id, "--max-price", "3")
    assert re.search(r"^max_price +4 ZEN per GPU-hour\n", shown, re.MULTILINE)
    assert re.search(r"^price_cap +3 ZEN per GPU-hour\n", shown, re.MULTILINE)


def test_refused_job_command_names_next_one(cli: Cli, world: World) -> None:
    job_id = world.job()
    cli.be(bytes(world.wallets[world.read(job_id).payer].key))
    world.execute(update(Job).values(status="expired"))
    assert f"zoo-compute job extend {job_id} " in cli("job", "resume", job_id, code=ExitCode.REFUSED)
    assert f"zoo-compute job clone {job_id} " in cli("job", "extend", job_id, code=ExitCode.REFUSED)
    assert "`zoo-compute job list`" in cli("job", "show", "0x" + "12" * 32, code=ExitCode.REFUSED)


def descriptions(world: World, job_id: str) -> list[str | None]:
    """Return the lines that `job watch` prints."""
    rows = world.all(select(JobEventRow).where(JobEventRow.job_id == job_id).order_by(JobEventRow.id))
    return [describe(Event(id=row.id, kind=row.kind, data=row.data)) for row in rows]


def test_watch_shows_pause_of_amended_job(cli: Cli, world: World) -> None:
    job_id = world.job()
    cli.be(bytes(world.wallets[world.read(job_id).payer].key))
    cli("job", "pause")
    cli("job", "amend", job_id, "--max-price", "3")
    assert descriptions(world, job_id)[-2:] == ["job is matching, paused"] * 2
    cli("job", "resume")
    cli("job", "amend", job_id, "--max-price", "2")
    assert descriptions(world, job_id)[-2:] == ["job is matching, resumed", "job is matching"]


def test_quote_shows_size_dependent_settings_and_warnings(
    cli: Cli, app: FastAPI, storage: Storage, tmp_path: Path
) -> None:
    app.state.services = app.state.services.with_part(ChainViews, FakeChain())
    model = {"hidden_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 8, "sequence_length": 8}
    job = tmp_path / "job.json"
    asked = {
        "model_config": model,
        "training_config": {"optimizer": "adamw", "learning_rate": 1e-3, "batch_size": 1, "rounds": 8, "top_k": 128},
        "data_config": {"dataset": store_dataset(storage)},
        "requirements": {"min_gpu_memory_gb": 8},
        "budget_max": 100,
        "max_price": 3,
    }
    job.write_text(json.dumps(asked))
    found = cli.json("job", "quote", job)
    assert (found["settings_by_size"]["inner_steps"], found["settings_by_size"]["down_top_k"]) == (30, 64)
    assert "top_k" not in found["settings_by_size"]
    shown = cli("job", "quote", job)
    assert "inner_steps 30" in shown
    assert re.search(r"batch of a replica +1 sequences per inner step\n", shown)
    assert re.search(r"optimiser +adamw, peak rate 0.001\n", shown)
    job.write_text(json.dumps(asked | {"training_config": {"muon_learning_rate": 0.03, "rounds": 8}}))
    shown = cli("job", "quote", job)
    assert re.search(r"batch of a replica +16 sequences per inner step\n", shown)
    assert re.search(r"optimiser +muon, peak rate 0.03; adamw, peak rate 0.0\d+, for the rest\n", shown)
    job.write_text(json.dumps(asked | {"training_config": {**asked["training_config"], "method": "default"}}))
    by_size = cli.json("job", "quote", job)["settings_by_size"]
    assert by_size == {key: OF_FEW[key] for key in OF_FEW if key != "error_feedback_decay"}  # of all entries only
    job.write_text(json.dumps({**asked, "training_config": found["spec"]["training_config"]}))
    assert "set by model and nodes          nothing" in cli("job", "quote", job)


def answer(patch: pytest.MonkeyPatch, text: str) -> None:
    """Type a text at a terminal."""
    typed = io.StringIO(text)
    patch.setattr(typed, "isatty", lambda: True, raising=False)
    patch.setattr(sys, "stdin", typed)


def test_budget_is_escrowed_only_with_consent(
    cli: Cli, app: FastAPI, storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wallet, job = Account.create(), tmp_path / "job.json"
    app.state.services = app.state.services.with_part(ChainViews, FakeChain({str(wallet.address): 100 * ZEN}))
    cli.be(bytes(wallet.key))
    job.write_text(json.dumps({**SPEC, "data_config": {"dataset": store_dataset(storage)}, "budget_max": 10}))
    assert "confirmation-missing" in cli("job", "submit", job, code=ExitCode.USAGE)
    answer(monkeypatch, "n\n")
    refused = cli("job", "submit", job, code=ExitCode.FAILED)
    assert "into escrow         10 ZEN; what is not spent comes back" in refused
    assert "learning rates      warm-up over " in refused  # of a continuation also what it keeps
    quoted = re.sub(" +", " ", cli("job", "quote", job))
    for row in ("batch of a replica", "optimiser", "learning rates", "rounds", "maximum cost"):
        shown = re.search(rf"^{row}  .*\n", refused, re.MULTILINE)
        assert shown is not None
        assert re.sub(" +", " ", shown[0]) in quoted
    assert cli.json("job", "list") == []
    answer(monkeypatch, "y\n")
    first = cli("job", "submit", job).strip()
    assert [found["id"] for found in cli.json("job", "list")] == [first]
    assert cli.json("job", "submit", job)["budget_wei"] == str(10 * ZEN)
    assert cli("job", "submit", job, "--yes").startswith("0x")


def test_chain_commands_report_unreachable_chain(cli: Cli, settings: Settings) -> None:
    for command in (("verify", "attestation", "0x" + "00" * 20), ("dispute", "open", f"0x{'12' * 32}:0:0")):
        assert "chain-unreachable" in cli(*command, code=ExitCode.UNREACHABLE)


@pytest.fixture
def job_file(cli: Cli, app: FastAPI, storage: Storage, tmp_path: Path) -> Path:
    """A job of 10 ZEN; the caller has a balance."""
    wallet, job = Account.create(), tmp_path / "job.json"
    app.state.services = app.state.services.with_part(ChainViews, FakeChain({str(wallet.address): 100 * ZEN}))
    cli.be(bytes(wallet.key))
    job.write_text(json.dumps({**SPEC, "data_config": {"dataset": store_dataset(storage)}, "budget_max": 10}))
    return job


def test_newest_job_is_cancelled_only_with_consent(cli: Cli, job_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = cli.json("job", "submit", job_file, "--name", "moon-1")["id"]
    shown = cli("job", "cancel", code=ExitCode.USAGE)
    assert "confirmation-missing" in shown
    for name, value in (("id", job_id), ("name", "moon-1"), ("status", "submitted")):
        assert re.search(rf"^{name} +{value}\n", shown, re.MULTILINE)
    assert "delivered units are verified and paid, the rest is refunded" in shown
    answer(monkeypatch, "n\n")
    assert "not-confirmed" in cli("job", "cancel", code=ExitCode.FAILED)
    assert not cli.json("job", "show")["cancel_requested"]
    answer(monkeypatch, "y\n")
    assert re.search(r"^cancel_requested +True\n", cli("job", "cancel"), re.MULTILINE)


def test_empty_amendment_is_refused_before_request(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZOO_API_URL", "http://127.0.0.1:9")
    refused = cli("job", "amend", code=ExitCode.USAGE)
    assert "neither --max-price nor --wait is given, so nothing was sent  [nothing-to-amend]" in refused
    assert "try: Give one or both" in refused


@pytest.mark.parametrize("option", ["--yes", "--json"])
def test_script_cancels_job_without_question(cli: Cli, job_file: Path, option: str) -> None:
    cli("job", "submit", job_file, "--yes")
    cli("job", "cancel", option)
    assert cli.json("job", "show")["cancel_requested"]


def test_job_is_submitted_for_organisation(cli: Cli, job_file: Path) -> None:
    job = job_file
    found = cli.json("org", "create", "lab", "--per-job", "10")
    submitted = cli.json("job", "submit", job, "--organisation", found["id"])
    assert submitted["organisation_id"] == found["id"]
    again = cli.json("job", "clone", submitted["id"])
    assert cli.json("job", "show", again["id"])["organisation_id"] == found["id"]
    capped = cli("job", "submit", job, "--yes", "--budget", "11", "--organisation", found["id"], code=ExitCode.REFUSED)
    assert "[spending-cap-reached]" in capped
    assert "[organisation-not-found]" in cli(
        "job", "submit", job, "--yes", "--organisation", found["id"] + 1, code=ExitCode.REFUSED
    )
    assert cli.json("job", "submit", job)["organisation_id"] is None
    assert cli.json("job", "submit", job, "--organisation", 0)["organisation_id"] is None


def test_viewer_finds_organisation_jobs_by_id(cli: Cli, job_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    payer, viewer = os.environ["ZOO_PRIVATE_KEY"], Account.create()
    cli.be(bytes(viewer.key))
    assert cli.json("org", "list") == []  # signs in
    cli.be(payer)
    lab = cli.json("org", "create", "lab")["id"]
    cli("org", "member", lab, viewer.address, "--role", "viewer")
    job_id = cli.json("job", "submit", job_file, "--organisation", lab, "--name", "moon-1", "--budget", "2")["id"]
    cli("job", "submit", job_file, "--yes", "--budget", "2")

    cli.be(bytes(viewer.key))
    assert cli.json("job", "list") == []
    assert [one["id"] for one in cli.json("job", "list", "--organisation", lab)] == [job_id]
    assert cli.json("job", "show", job_id)["name"] == "moon-1"
    for text in ("moon-1", job_id[:10]):
        assert "--organisation" in cli("job", "show", text, code=ExitCode.USAGE)
    assert "[not-permitted]" in cli("job", "cancel", job_id, "--yes", code=ExitCode.REFUSED)
    assert "[organisation-not-found]" in cli("job", "list", "--organisation", lab + 1, code=ExitCode.REFUSED)


@pytest.mark.parametrize("role", ["viewer", None])
def test_former_member_clones_for_own_account(cli: Cli, world: World, job_file: Path, role: str | None) -> None:
    lab = cli.json("org", "create", "lab")["id"]
    first = cli.json("job", "submit", job_file, "--organisation", lab)
    world.execute(update(Member).values(role="viewer") if role else delete(Member))
    refused = cli("job", "clone", first["id"], "--yes", code=ExitCode.REFUSED)
    assert "[not-permitted]" in refused if role else "[organisation-not-found]" in refused
    assert "error: organisation: " in refused
    assert "0 is your own account" in refused
    assert cli.json("job", "clone", first["id"], "--organisation", 0)["organisation_id"] is None
