"""Samples of a job's model from its page, on real checkpoints."""

import re
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from kit.api.console_clients import Browser, signed_in
from kit.api.submission_fixtures import app_on_chain  # noqa: F401  (a fixture)
from kit.base_models import manifest_of, write_base
from kit.jobs.jobs_fixtures import SPEC, TEXT, FakeChain, World
from sqlalchemy import select, update

from market.accounts.organisations import service as organisations
from market.accounts.organisations.service import Role
from market.accounts.spending import Caps
from market.jobs.models import Job
from market.platform.db.base import utc_now
from market.training.aggregation import memory
from market.training.checkpoints.models import Checkpoint
from market.training.generation import service as generation
from market.training.generation.models import Generation
from market.training.rounds import service as rounds
from training_gym.data.dataset import DatasetManifest, describe_shard
from training_gym.data.text_tokenizer import TextTokenizer, train_bpe
from training_gym.model.base import completed_settings
from training_gym.model.generate import continue_text
from training_gym.spec.config import TrainingSpec
from training_gym.spec.manifests import StoredFile
from training_gym.units.checkpoint import load_state
from worker.tasks import jobs as tasks
from zoo_protocol.content.unixfs import cid_of_file
from zoo_protocol.hashing import sha256, to_hex

FIELDS = {"prompt": "<b>the", "length": "12", "temperature": "0.7", "seed": "5"}
TOKENIZER = train_bpe(iter([TEXT.decode()] * 4), 270)


class ChainWithoutRoles(FakeChain):
    """Balances, and no role for anyone."""

    def many(self, views: Sequence[object], block: str) -> list[bool]:
        return [False for _ in views]


@pytest.fixture
def chain() -> FakeChain:
    return ChainWithoutRoles()


@pytest.fixture
def context(world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    """Connections of the worker's tasks."""
    world.settings = world.settings.model_copy(update={"base_models_folder": tmp_path / "copies"})
    monkeypatch.setattr(tasks, "context", lambda: world)
    return world


def trained_job(world: World, document: dict[str, Any] | None = None) -> str:
    """Create a job with its first checkpoint."""
    job_id = world.job(document=document)
    assert rounds.build_initial_checkpoint(world.database, world.settings, world.storage, job_id) is None
    return job_id


def payer_of(world: World, api: httpx.Client, job_id: str) -> Browser:
    return signed_in(api, world.wallets[world.read(job_id).payer])


def sample_part(page: httpx.Response) -> str:
    assert page.status_code == 200, page.text[-2_000:]
    return page.text[page.text.index('<section id="sample"') :]


def sample(browser: Browser, job_id: str, **changes: str) -> str:
    """Request a sample, generate it, and return the part of the page with it."""
    answer = browser.submit(f"/jobs/{job_id}/samples", **FIELDS | changes)
    assert answer.status_code == 303, answer.text[-2_000:]
    address = answer.headers["location"]
    waiting = sample_part(browser.http.get(address))
    assert "waits for a worker" in waiting
    assert f'hx-get="{address}"' in waiting
    tasks.generate()
    return sample_part(browser.http.get(address))


def text_of(part: str) -> str:
    [text] = re.findall(r"</b>(.*)</pre>", part, re.DOTALL)
    assert "hx-get" not in part
    return str(text)


def test_newest_checkpoint_continues_escaped_prompt(context: World, api: httpx.Client) -> None:
    job_id = trained_job(context)
    browser = payer_of(context, api, job_id)
    assert 'name="prompt"' in browser.http.get(f"/console/jobs/{job_id}").text
    part = sample(browser, job_id)
    assert "<b>&lt;b&gt;the</b>" in part
    assert "12 tokens of the checkpoint after round 0" in part
    [row] = context.all(select(Generation))
    assert row.text == expected_text(context, row, FIELDS["prompt"])
    assert text_of(part)


def test_spoiled_newest_checkpoint_is_not_sampled(context: World, api: httpx.Client) -> None:
    nodes = [context.node() for _ in range(2)]
    job_id = context.running(nodes, rounds=4)
    for _ in range(2):
        context.train_round(job_id, nodes)
    for round_, loss in enumerate(("5.500000", "5.000000", "30.000000")):
        row = update(Checkpoint).where(Checkpoint.job_id == job_id, Checkpoint.round == round_)
        context.execute(row.values(validation_loss=loss, validation_error="0.010000", validation_samples=200))
    browser = payer_of(context, api, job_id)
    assert "tokens of the checkpoint after round 1" in sample(browser, job_id)
    [row] = context.all(select(Generation))
    assert row.model_cid == context.manifest(job_id, 1).model
    context.execute(update(Checkpoint).where(Checkpoint.round == 2).values(validation_loss="4.900000"))
    assert "tokens of the checkpoint after round 2" in sample(browser, job_id)
    context.change(Job, job_id, status="failed", reason="diverged")  # all replicas of the third round
    context.execute(update(Checkpoint).where(Checkpoint.round == 2).values(validation_loss="5.100000"))
    assert "tokens of the checkpoint after round 1" in sample(browser, job_id)


def expected_text(world: World, row: Generation, prompt: str, tokenizer: TextTokenizer | None = None) -> str:
    """Return what the library generates in this process."""
    spec = TrainingSpec.from_dict(world.read(row.job_id).spec)
    model = load_state(spec, world.storage.get(row.model_cid, max_bytes=1 << 20))
    found = continue_text(spec, model, tokenizer, prompt, 12, 0.7, 5)
    return found.text.replace("\0", "\ufffd")


def tokenized(world: World) -> dict[str, Any]:
    """Store a dataset whose tokens are words, and return a job's document."""
    tokens = b"".join(number.to_bytes(2, "little") for number in range(100, 200)) * 4
    put = world.storage.put
    split = describe_shard(put(tokens, max_bytes=2**20).cid, tokens, "uint16")
    file = StoredFile(put(TOKENIZER, max_bytes=2**20).cid, len(TOKENIZER), to_hex(sha256(TOKENIZER)))
    manifest = DatasetManifest((split,), (split,), 270, "uint16", file)
    dataset = put(manifest.to_bytes(), max_bytes=2**20).cid
    return {
        "model_config": {**SPEC["model_config"], "vocab_size": 270},
        "training_config": SPEC["training_config"],
        "data_config": {"dataset": dataset},
    }


def adapted(world: World, folder: Path) -> dict[str, Any]:
    """Store a base model, and return the document of a job that trains an adapter."""
    write_base(folder)
    manifest = manifest_of(folder, lambda content: world.storage.put(content, max_bytes=1 << 20).cid)
    base = world.storage.put(manifest.to_bytes(), max_bytes=1 << 20).cid
    return {
        "model_config": completed_settings({"base": base, "sequence_length": 8}, manifest),
        "training_config": SPEC["training_config"],
        "data_config": {"dataset": world.spec.dataset},
        "adapter_config": {"r": 2, "target_modules": ["q_proj"]},
    }


@pytest.mark.long
def test_tokenizer_of_dataset_makes_text(context: World, api: httpx.Client) -> None:
    job_id = trained_job(context, tokenized(context))
    prompt = "the quick brown fox"
    assert text_of(sample(payer_of(context, api, job_id), job_id, prompt=prompt))
    [row] = context.all(select(Generation))
    assert row.text == expected_text(context, row, prompt, TextTokenizer(TOKENIZER))
    assert row.text != expected_text(context, row, prompt)


@pytest.mark.long
def test_adapter_is_sampled_on_its_base(context: World, api: httpx.Client, tmp_path: Path) -> None:
    job_id = trained_job(context, adapted(context, tmp_path / "base"))
    assert text_of(sample(payer_of(context, api, job_id), job_id))


def test_members_sample_and_others_do_not(context: World, api: httpx.Client) -> None:
    job_id = trained_job(context)
    payer, member = payer_of(context, api, job_id), signed_in(api)
    path = f"/jobs/{job_id}/samples"
    assert member.submit(path, **FIELDS).status_code == 404
    with context.database.transaction() as session:
        owner = payer.wallet.address
        lab = organisations.create(session, owner, "Lab", Caps())
        organisations.set_member(session, lab.id, owner, member.wallet.address, Role.VIEWER, Caps())
        session.execute(update(Job).where(Job.id == job_id).values(organisation_id=lab.id))
    address = member.submit(path, **FIELDS).headers["location"]
    assert member.http.get(address).status_code == 200
    assert payer.http.get(address).status_code == 404, "a sample is for the wallet that asked"


def test_staff_does_not_sample_models_of_others(
    context: World, api: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = trained_job(context)
    monkeypatch.setattr(ChainWithoutRoles, "many", lambda self, views, block: [True for _ in views])
    staff = signed_in(api)
    page = staff.http.get(f"/console/jobs/{job_id}")
    assert page.status_code == 200
    assert 'name="prompt"' not in page.text
    assert staff.submit(f"/jobs/{job_id}/samples", **FIELDS).status_code == 404


@pytest.mark.parametrize(
    ("field", "value"),
    [("prompt", ""), ("length", "501"), ("temperature", "0"), ("temperature", "nan"), ("seed", "-1")],
)
def test_sample_beyond_limits_is_refused(context: World, api: httpx.Client, field: str, value: str) -> None:
    job_id = trained_job(context)
    assert (
        payer_of(context, api, job_id).submit(f"/jobs/{job_id}/samples", **FIELDS | {field: value}).status_code == 422
    )
    assert context.all(select(Generation)) == []


def refusal(browser: Browser, job_id: str, **changes: str) -> str:
    return sample_part(browser.submit(f"/jobs/{job_id}/samples", **FIELDS | changes))


def test_impossible_sample_is_refused_with_its_remedy(context: World, api: httpx.Client) -> None:
    job_id = context.job()
    browser = payer_of(context, api, job_id)
    assert "no-model-yet" in refusal(browser, job_id)
    rounds.build_initial_checkpoint(context.database, context.settings, context.storage, job_id)
    assert "null character" in refusal(browser, job_id, prompt="a\0b")
    with context.database.transaction() as session:
        memory.report(session, context.settings.model_copy(update={"worker_memory_gib": 0.1}), "small")
    assert "model-too-large" in refusal(browser, job_id)


def test_waiting_samples_are_bounded(context: World, api: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = trained_job(context)
    browser = payer_of(context, api, job_id)
    for _ in range(2):
        assert browser.submit(f"/jobs/{job_id}/samples", **FIELDS).status_code == 303
    assert "samples-busy" in refusal(browser, job_id)
    ended = update(Generation).values(ended_at=utc_now(), failure="time-up")
    context.execute(ended)
    monkeypatch.setattr(generation, "_MAX_OF_ACCOUNT", 2)
    assert "within an hour" in refusal(browser, job_id)
    context.execute(update(Generation).values(created_at=utc_now() - timedelta(hours=2)))
    with context.database.transaction() as session:
        generation.delete_expired(session)
    assert context.all(select(Generation)) == []
    monkeypatch.setattr(generation, "_MAX_OPEN", 0)
    assert "samples-busy" in refusal(browser, job_id)


def test_failures_say_what_to_do(context: World, api: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = trained_job(context)
    browser = payer_of(context, api, job_id)
    free = context.settings
    context.settings = free.model_copy(update={"worker_memory_gib": 0.1})
    assert "too little memory" in sample(browser, job_id)
    context.settings = free
    address = browser.submit(f"/jobs/{job_id}/samples", **FIELDS).headers["location"]
    context.execute(update(Generation).where(Generation.ended_at.is_(None)).values(model_cid=cid_of_file(b"absent")))
    tasks.generate()
    assert "files-unavailable" in browser.http.get(address).text
    address = browser.submit(f"/jobs/{job_id}/samples", **FIELDS).headers["location"]
    context.execute(update(Generation).where(Generation.ended_at.is_(None)).values(started_at=utc_now()))
    tasks.generate()
    assert "worker-lost" in browser.http.get(address).text
    address = browser.submit(f"/jobs/{job_id}/samples", **FIELDS).headers["location"]
    junk = context.storage.put(b"junk" * 99, max_bytes=1 << 20).cid
    context.execute(update(Generation).where(Generation.ended_at.is_(None)).values(model_cid=junk))
    tasks.generate()
    assert "model-unusable" in browser.http.get(address).text
