"""Quotes and jobs over HTTP: every bad input is named, and writes nothing."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from kit.api.clients import Caller
from kit.api.submission_fixtures import (  # noqa: F401  (fixtures)
    Body,
    app_on_chain,
    fake_chain,
    funded_payer,
    job_body,
    sign_document,
    sign_job,
    stored_dataset,
    written,
)
from kit.jobs.jobs_fixtures import ZEN

from market.orders.errors import InvalidDataset, InvalidSpec
from market.orders.inputs import require_dataset, require_start
from market.platform.http.services import Services
from market.platform.storage.client import Storage
from training_gym.aggregate.outer_step import initial_outer_state, save_outer_state
from training_gym.data.dataset import DatasetManifest, Shard, describe_shard
from training_gym.spec.adapters import AdapterConfig
from training_gym.spec.architectures import RopeParameters
from training_gym.spec.config import MAX_SEGMENTS, TrainingSpec
from training_gym.units.checkpoint import CheckpointManifest, initial_checkpoint
from zoo_protocol.content.unixfs import cid_of_file


def _set(path: str, value: Any) -> Callable[[Body], None]:
    def change(body: Body) -> None:
        *sections, key = path.split(".")
        for section in sections:
            body = body[section]
        body[key] = value

    return change


FOREIGN = "0x" + "11" * 64 + "1b"
"""A well-formed signature of nobody in particular."""


def test_dataset_manifest_with_non_text_key_is_refused(services: Services, payer: Caller, body: Body) -> None:
    """JSON can hold half a surrogate pair, which UTF-8 cannot encode."""
    shard = (Shard(cid_of_file(b"split"), 9, "0x" + "00" * 32),)
    manifest = DatasetManifest(shard, shard).to_bytes().replace(b"{", b'{"\\ud800":1,', 1)
    dataset = services.part(Storage).put(manifest, max_bytes=1000).cid
    answer = payer.post("/v1/quotes", json=body | {"data_config": {"dataset": dataset}})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid-dataset")
    assert "\\ud800" in answer.json()["detail"]


def test_short_dataset_is_named_next_to_start_model(services: Services, payer: Caller, body: Body) -> None:
    storage = services.part(Storage)
    shard = (describe_shard(storage.put(b"short", max_bytes=1000).cid, b"short"),)
    dataset, model = (
        storage.put(content, max_bytes=1000).cid for content in (DatasetManifest(shard, shard).to_bytes(), b"model")
    )
    answer = payer.post("/v1/quotes", json=body | {"data_config": {"dataset": dataset, "start_model": model}})
    assert (answer.json()["code"], answer.json()["field"]) == ("invalid-dataset", "data_config.dataset")
    assert "sequence_length" in answer.json()["remedy"]


def checkpoint_of_unknown_job(storage: Storage, model: str, round_: int, outer_state: str | None = None) -> str:
    return checkpoint_of(storage, "0x" + "00" * 32, model, round_, outer_state)


def checkpoint_of(storage: Storage, job_id: str, model: str, round_: int, outer_state: str | None = None) -> str:
    manifest = CheckpointManifest(job_id, round_, None, model, outer_state, None, None, {}, round_, "0x" + "00" * 32)
    return storage.put(manifest.to_bytes(), max_bytes=1 << 20).cid


@pytest.mark.parametrize(
    ("path", "value", "remedy"),
    [
        ("model_config.vocab_size", 100, "Give a vocab_size of at least 256, or take another dataset."),
        ("training_config.objective", "sft", "Change the setting that the detail names, or take another dataset."),
        ("training_config.method", "ddp", "Choose the method default, slow_links, sparseloco or diloco"),
    ],
)
def test_remedy_names_setting_of_refusal(payer: Caller, body: Body, path: str, value: Any, remedy: str) -> None:
    section, name = path.split(".")
    refused = payer.post("/v1/quotes", json=body | {section: body[section] | {name: value}}).json()
    assert refused["remedy"].startswith(remedy), refused


@pytest.mark.parametrize("start", ["start_model", "start_checkpoint"])
def test_start_of_other_shapes_is_refused(services: Services, payer: Caller, body: Body, start: str) -> None:
    """Both models have as many parameters, so outer states of one size."""
    storage, data = services.part(Storage), body["data_config"]
    wide, deep = (
        {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": layers, "intermediate_size": size}
        for layers, size in ((1, 54), (2, 16))
    )
    spec, other = (TrainingSpec.from_dict({"model_config": one, "data_config": data}) for one in (wide, deep))
    assert (spec.num_parameters(), spec.model.vocab_size) == (other.num_parameters(), other.model.vocab_size)
    cid = storage.put(initial_checkpoint(spec), max_bytes=1 << 20).cid
    if start == "start_checkpoint":
        cid = checkpoint_of_unknown_job(storage, cid, round_=0)
    asked = body | {"data_config": data | {start: cid}}
    accepted, refused = (payer.post("/v1/quotes", json=asked | {"model_config": model}) for model in (wide, deep))
    assert accepted.status_code == 200, accepted.json()
    assert (refused.json()["code"], refused.json()["field"]) == ("invalid-dataset", f"data_config.{start}")


@pytest.mark.parametrize(("before", "now"), [(4, 8), (8, 4)])
def test_outer_momentum_of_other_nodes_is_named(
    services: Services, payer: Caller, body: Body, before: int, now: int
) -> None:
    """Few nodes have none by default, so a file without it continues only on as few."""
    storage = services.part(Storage)
    spec = TrainingSpec.from_dict({key: one for key, one in body.items() if key.endswith("_config")}, before)
    model, outer_state = (
        storage.put(content, max_bytes=1 << 20).cid
        for content in (initial_checkpoint(spec), save_outer_state(spec, initial_outer_state(spec)))
    )
    start = {"start_checkpoint": checkpoint_of_unknown_job(storage, model, 1, outer_state), "start_round": 1}
    asked = body | {"data_config": body["data_config"] | start, "nodes": now}
    refused = payer.post("/v1/quotes", json=asked).json()
    assert (refused["code"], refused["field"]) == ("invalid-dataset", "data_config.start_checkpoint")
    assert (
        f"which of outer_momentum, now {0 if now == 4 else 0.5}, and down_top_k, now 4096, are 0" in refused["detail"]
    )
    assert refused["remedy"].startswith("Keep the settings")
    kept = body["training_config"] | {"outer_momentum": spec.training.outer_momentum}
    assert payer.post("/v1/quotes", json=asked | {"training_config": kept}).status_code == 200


def test_place_in_data_of_unknown_job_is_required(services: Services, payer: Caller, body: Body) -> None:
    storage, settings = services.part(Storage), {key: one for key, one in body.items() if key.endswith("_config")}
    model = storage.put(initial_checkpoint(TrainingSpec.from_dict(settings)), max_bytes=1 << 20).cid
    start = body["data_config"] | {"start_checkpoint": checkpoint_of_unknown_job(storage, model, round_=3)}
    refused, accepted = (
        payer.post("/v1/quotes", json=body | {"data_config": start | {"start_round": round_}}) for round_ in (0, 1)
    )
    assert (refused.json()["reason"], accepted.status_code) == ("repeated_data", 200)


def test_data_of_earlier_jobs_are_not_repeated(services: Services, body: Body) -> None:
    """The job between reads other data. The one before it has half as many nodes."""
    storage, settings = services.part(Storage), {key: one for key, one in body.items() if key.endswith("_config")}
    first = TrainingSpec.from_dict(settings, 2)
    model = storage.put(initial_checkpoint(first), max_bytes=1 << 20).cid
    known, checkpoint = {"0x" + "1" * 64: first}, checkpoint_of(storage, "0x" + "1" * 64, model, round_=5)
    between = replace(first, dataset="b" * 59, start_checkpoint=checkpoint)
    known["0x" + "2" * 64] = between
    last = checkpoint_of(storage, "0x" + "2" * 64, model, round_=1)
    again = replace(first, replicas=4, start_checkpoint=last, start_round=2)
    with pytest.raises(InvalidSpec, match="expected at least 3"):
        require_start(storage, again, known.get)
    require_start(storage, replace(again, start_round=3), known.get)
    require_start(storage, replace(again, dataset="c" * 59, start_round=0), known.get)


@pytest.mark.parametrize(
    ("missing", "field"), [("start_model", "data_config.start_model"), ("base", "model_config.base")]
)
def test_continuation_names_first_model(services: Services, body: Body, missing: str, field: str) -> None:
    """The first model may have read in the plain seed's order."""
    storage, settings = services.part(Storage), {key: one for key, one in body.items() if key.endswith("_config")}
    plain = TrainingSpec.from_dict(settings)
    before = replace(plain, **{missing: "b" * 59})
    model = storage.put(initial_checkpoint(plain), max_bytes=1 << 20).cid
    known = {"0x" + "1" * 64: before}
    start = {"start_checkpoint": checkpoint_of(storage, "0x" + "1" * 64, model, round_=5), "start_round": 5}
    between = replace(before, dataset="c" * 59, start_checkpoint=start["start_checkpoint"], start_round=5)
    known["0x" + "2" * 64] = between
    later = {"start_checkpoint": checkpoint_of(storage, "0x" + "2" * 64, model, round_=1)}
    with pytest.raises(InvalidSpec, match=f"{field} is missing"):
        require_start(storage, replace(plain, **later), known.get)
    with pytest.raises(InvalidSpec, match=f"{field} is missing; expected {'b' * 59}") as refused:
        require_start(storage, replace(plain, **start), known.get)
    assert (refused.value.field, refused.value.extra) == (field, {"reason": "repeated_data"})
    for other in {"training": replace(plain.training, seed=1)}, {"dataset": "d" * 59}:  # perhaps read before, too
        with pytest.raises(InvalidSpec, match=f"{field} is missing"):
            require_start(storage, replace(plain, **start, **other), known.get)
        require_start(storage, replace(before, **start, **other), known.get)
    require_start(storage, replace(before, **start), known.get)


def test_continuation_keeps_attention_heads(services: Services, body: Body) -> None:
    """Tensors have equal shapes without."""
    storage, settings = services.part(Storage), {key: one for key, one in body.items() if key.endswith("_config")}
    before = TrainingSpec.from_dict(settings)
    model, job_id = storage.put(initial_checkpoint(before), max_bytes=1 << 20).cid, "0x" + "1" * 64
    start = {"start_checkpoint": checkpoint_of(storage, job_id, model, round_=5), "start_round": 5}
    own = before.model
    heads = {
        "num_attention_heads": 2 * own.num_attention_heads,
        "num_key_value_heads": 2 * own.num_key_value_heads,
        "head_dim": own.head_dim // 2,
    }
    longer = {"sequence_length": 128, "max_position_embeddings": 128}
    with pytest.raises(InvalidDataset, match="num_attention_heads: is 2; expected 1, as in the job before") as refused:
        require_start(storage, replace(before, **start, model=replace(own, **heads)), {job_id: before}.get)
    assert refused.value.field == "data_config.start_checkpoint"
    assert str(refused.value.remedy).startswith("Keep the settings")
    require_start(storage, replace(before, **start, model=replace(own, **longer)), {job_id: before}.get)


@pytest.mark.parametrize(
    ("architecture", "changes"),
    [
        ("llama", {"rope_parameters": RopeParameters(rope_theta=20_000.0)}),
        ("llama", {"rms_norm_eps": 1e-5}),
        ("mistral", {"sliding_window": 4}),
        ("gemma2", {"query_pre_attn_scalar": 4}),
        ("gemma2", {"final_logit_softcapping": 9.0}),
        ("gpt2", {"layer_norm_epsilon": 1e-6}),
    ],
)
def test_continuation_keeps_function_of_model(
    services: Services, body: Body, architecture: str, changes: dict[str, Any]
) -> None:
    storage, settings = services.part(Storage), {key: one for key, one in body.items() if key.endswith("_config")}
    before = TrainingSpec.from_dict(settings | {"model_config": body["model_config"] | {"architecture": architecture}})
    model, job_id = storage.put(initial_checkpoint(before), max_bytes=1 << 20).cid, "0x" + "1" * 64
    start = {"start_checkpoint": checkpoint_of(storage, job_id, model, round_=5), "start_round": 5}
    require_start(storage, replace(before, **start), {job_id: before}.get)
    with pytest.raises(InvalidDataset, match=f"{min(changes)}: is .*, as in the job before"):
        require_start(storage, replace(before, **start, model=replace(before.model, **changes)), {job_id: before}.get)


def test_continued_adapter_keeps_base_and_scale(services: Services, body: Body) -> None:
    storage, settings = services.part(Storage), {key: one for key, one in body.items() if key.endswith("_config")}
    before = replace(TrainingSpec.from_dict(settings), base="b" * 59, adapter=AdapterConfig())
    model, job_id = storage.put(initial_checkpoint(before), max_bytes=1 << 20).cid, "0x" + "1" * 64
    start = {"start_checkpoint": checkpoint_of(storage, job_id, model, round_=5), "start_round": 5}
    require_start(storage, replace(before, **start, adapter=AdapterConfig(lora_dropout=0.5)), {job_id: before}.get)
    for change, name in (({"base": "d" * 59}, "base"), ({"adapter": AdapterConfig(lora_alpha=8.0)}, "lora_alpha")):
        with pytest.raises(InvalidDataset, match=f"{name}: is .*, as in the job before"):
            require_start(storage, replace(before, **start, **change), {job_id: before}.get)


def test_mask_of_long_documents_is_refused(services: Services, body: Body) -> None:
    """Without borders attention needs no mask."""
    storage, settings = services.part(Storage), {key: one for key, one in body.items() if key.endswith("_config")}
    spec = TrainingSpec.from_dict(settings)
    long = replace(spec, model=replace(spec.model, sequence_length=65_536, max_position_embeddings=65_536))
    text = bytes(65_537)
    shard = describe_shard(storage.put(text, max_bytes=1 << 20).cid, text)
    plain, parted = (DatasetManifest((shard,), (shard,), separator=separator).to_bytes() for separator in (None, 0))
    require_dataset(storage, replace(long, dataset=storage.put(plain, max_bytes=1 << 20).cid))
    with pytest.raises(InvalidDataset, match="sequence_length: is 65536; expected at most 32768"):
        require_dataset(storage, replace(long, dataset=storage.put(parted, max_bytes=1 << 20).cid))


@pytest.mark.parametrize(
    ("change", "code", "field"),
    [
        (_set("budget_max", "10000"), "budget-below-one-unit", "budget_max"),
        (_set("tier", "platinum"), "unknown-tier", "tier"),
        (_set("budget_max", "-5"), "invalid-request", "budget_max"),
        (_set("max_price", "2.5"), "invalid-request", "max_price"),
        (_set("max_price", 5), "invalid-request", "max_price"),
        (_set("max_price", "1"), "invalid-order", "max_price"),
        (_set("budget_max", str(2**96)), "invalid-order", "budget_max"),
        (_set("wait_until", "2020-01-01T00:00:00Z"), "invalid-order", "wait_until"),
        (_set("wait_until", "tomorrow"), "invalid-request", "wait_until"),
        (_set("wait_until", "9999-12-31T23:59:59Z"), "invalid-request", "wait_until"),
        (_set("wait_until", "9999-12-31T23:59:59-14:00"), "invalid-request", "wait_until"),
        (_set("wait_until", "0001-01-01T00:00:00+14:00"), "invalid-request", "wait_until"),
        (_set("nodes", 0), "invalid-request", "nodes"),
        (_set("training_config.inner_stepz", 3), "invalid-spec", "training_config.inner_stepz"),
        (_set("training_config.rounds", 5000), "invalid-order", "training_config.rounds"),
        (_set("training_config.segment_steps", 10), "invalid-spec", "training_config.segment_steps"),  # 100 segments
        (_set("training_config.method", "ddp"), "invalid-spec", "training_config.averaging"),
        (_set("training_config.powersgd_rank", 1), "invalid-spec", "training_config.powersgd_rank"),
        (_set("learning_rate", 1), "invalid-request", "learning_rate"),
        (_set("requirements", {"region": "eu"}), "invalid-request", "requirements.region"),
        (_set("requirements", {"regions": ["EU west"]}), "invalid-request", "requirements.regions.0"),
        (_set("requirements", {"regions": ["eu"], "excluded_regions": ["eu"]}), "invalid-request", "requirements"),
        (_set("requirements", {"environment_classes": ["x"]}), "invalid-request", "requirements.environment_classes.0"),
        (_set("requirements", {"min_gpu_memory_gb": -1}), "invalid-request", "requirements.min_gpu_memory_gb"),
        (_set("requirements", {"min_reliability_bps": 10_001}), "invalid-request", "requirements.min_reliability_bps"),
        (_set("sampling_bps", 199), "invalid-order", "sampling_bps"),
        (_set("sampling_bps", 2_501), "invalid-order", "sampling_bps"),
        (_set("sampling_bps", 0), "invalid-request", "sampling_bps"),
        (_set("requirements", {"attested": True}), "invalid-request", "requirements.attested"),
        (_set("data_config.dataset", cid_of_file(b"nowhere")), "dataset-not-found", "data_config.dataset"),
    ],
)
def test_invalid_jobs_are_refused_by_quote_and_submission(
    services: Services,
    payer: Caller,
    body: Body,
    change: Callable[[Body], None],
    code: str,
    field: str,
) -> None:
    submission_body = sign_job(payer, body)
    for path, document in (("/v1/quotes", body), ("/v1/jobs", submission_body)):
        document = {**document, "training_config": dict(document["training_config"])}
        document["data_config"] = dict(document["data_config"])
        change(document)
        answer = payer.post(path, json=document, headers={"Idempotency-Key": path})
        problem = answer.json()
        # A spoiled submission is no longer what was signed, which may be noticed before the field is.
        if path == "/v1/quotes" or problem["code"] != "invalid-signature":
            assert (problem["code"], problem["field"]) == (code, field), problem
        assert 400 <= answer.status_code < 500
        assert problem["remedy"]
    assert written(services) == [0, 0, 0, 0]


def test_unknown_key_names_its_nearest(payer: Caller, body: Body) -> None:
    body["training_config"] = {**body["training_config"], "batchsize": 4}
    detail = payer.post("/v1/quotes", json=body).json()["detail"]
    assert "'batch_size'" in detail


@pytest.mark.parametrize(
    ("spoil", "code", "field"),
    [
        ({"order_signature": "0x1234"}, "invalid-signature", "order_signature"),
        ({"order_signature": "0x" + "00" * 65}, "invalid-signature", "order_signature"),
        ({"order_signature": "junk"}, "invalid-request", "order_signature"),
        ({"order_signature": FOREIGN}, "invalid-signature", "order_signature"),
        ({"nonce": "7"}, "invalid-signature", "order_signature"),
        ({"nodes": 5}, "invalid-signature", "order_signature"),
        ({"budget_max": str(2 * ZEN)}, "invalid-signature", "order_signature"),
    ],
)
def test_signature_must_match_caller_and_job(
    services: Services, payer: Caller, body: Body, spoil: Body, code: str, field: str
) -> None:
    answer = payer.post("/v1/jobs", json={**sign_job(payer, body), **spoil})
    problem = answer.json()
    assert (answer.status_code, problem["code"], problem["field"]) == (422, code, field), problem
    assert written(services) == [0, 0, 0, 0]


def test_order_with_too_many_segments_is_refused(services: Services, payer: Caller, body: Body) -> None:
    most = {**body["training_config"], "inner_steps": MAX_SEGMENTS * 10, "segment_steps": 10}
    job = {**body, "training_config": most}
    submission_body = sign_job(payer, job)
    quote = payer.post("/v1/quotes", json=job).json()
    assert quote["order"]["message"]["segments"] == str(MAX_SEGMENTS)
    order = {**quote["order"]["message"], "segments": str(MAX_SEGMENTS + 1), "nonce": submission_body["nonce"]}
    finer = {**job, "training_config": {**most, "inner_steps": (MAX_SEGMENTS + 1) * 10}}
    signature = sign_document(payer, {**quote["order"], "message": order})
    for refused, code in ((finer, "invalid-spec"), (job, "invalid-signature")):  # in the open, and under a smaller spec
        asked = {**submission_body, **refused, "order_signature": signature}
        assert payer.post("/v1/jobs", json=asked).json()["code"] == code
    assert written(services) == [0, 0, 0, 0]
    assert payer.post("/v1/jobs", json=submission_body).status_code == 201


def test_budget_over_balance_is_quoted_but_refused(services: Services, payer: Caller, body: Body) -> None:
    submission_body = sign_job(payer, {**body, "budget_max": str(101 * ZEN)})
    problem = payer.post("/v1/jobs", json=submission_body).json()
    assert (problem["code"], problem["field"]) == ("insufficient-balance", "budget_max")
    assert written(services) == [0, 0, 0, 0]
