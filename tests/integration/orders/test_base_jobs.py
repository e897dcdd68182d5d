"""Quotes and submissions of jobs on a base model, over HTTP."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kit.api.clients import Caller, accepted
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
from kit.base_models import header_of, manifest_of, weights_changed, with_header, write_base
from sqlalchemy import select

from market.domain.network import ZEN
from market.jobs.models import Job
from market.orders import inputs
from market.platform.http.services import Services
from market.platform.storage.client import Storage
from market.training.aggregation import memory
from training_gym.model.folder import ModelManifest
from training_gym.spec.architectures import read_model
from training_gym.spec.config import TrainingSpec
from training_gym.spec.defaults import OF_FEW
from zoo_protocol.content.unixfs import cid_of_file

MODEL = read_model({"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "max_position_embeddings": 64})


@pytest.fixture(name="good")
def base_manifest(storage: Storage, tmp_path: Path) -> ModelManifest:
    write_base(tmp_path, MODEL)
    return manifest_of(tmp_path, lambda content: storage.put(content, max_bytes=1 << 20).cid)


@pytest.fixture(name="base")
def stored_base(storage: Storage, good: ModelManifest) -> str:
    return storage.put(good.to_bytes(), max_bytes=1 << 20).cid


@pytest.mark.parametrize("adapter", [None, {"r": 2}])
def test_base_completes_the_signed_specification(
    services: Services, payer: Caller, body: Body, base: str, adapter: Body | None
) -> None:
    training = {"inner_steps": 1000, "segment_steps": 100, "batch_size": 64}
    body |= {"model_config": {"base": base, "sequence_length": 16}, "training_config": training}
    body |= {} if adapter is None else {"adapter_config": adapter}
    quote = accepted(payer.post("/v1/quotes", json=body))
    spec = TrainingSpec.from_dict(quote["spec"], body["nodes"])
    assert (spec.base, spec.model.hidden_size, spec.model.sequence_length) == (base, 8, 16)
    decided = ("optimizer", "learning_rate", "weight_decay", *(OF_FEW.keys() - training))
    assert quote["settings_by_size"] == {name: getattr(spec.training, name) for name in decided}
    signed = {**body, "nonce": quote["nonce"], "order_signature": sign_document(payer, quote["order"])}
    assert accepted(payer.post("/v1/jobs", json=signed), 201)["spec"] == quote["spec"]
    with services.database.transaction() as session:
        [job] = session.scalars(select(Job))
        assert job.request["model_config"] == quote["spec"]["model_config"]
        assert job.request["adapter_config"] == adapter
    cloned = accepted(payer.post(f"/v1/jobs/{job.id}/clone", json={}))["quote"]
    assert cloned["spec_hash"] == quote["spec_hash"]


@pytest.mark.parametrize(
    ("changes", "code", "field", "reason"),
    [
        ({"hidden_size": 16}, "invalid-spec", "model_config.hidden_size", "contradicts_base"),
        ({"base": "nowhere"}, "invalid-spec", "model_config.base", "out_of_range"),
        ({"base": cid_of_file(b"no such model")}, "base-model-not-found", "model_config.base", None),
        ({"sequence_length": 65}, "invalid-spec", "model_config.sequence_length", "out_of_range"),
    ],
)
def test_unfit_base_settings_are_refused(
    services: Services, payer: Caller, body: Body, base: str, changes: Body, code: str, field: str, reason: str | None
) -> None:
    answer = payer.post("/v1/quotes", json=body | {"model_config": {"base": base} | changes})
    problem = answer.json()
    assert (answer.status_code, problem["code"], problem["field"]) == (422, code, field), problem
    assert problem.get("reason") == reason
    assert problem["remedy"]
    assert written(services) == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda good: good.to_bytes()[:-1], "malformed"),
        (lambda good: ModelManifest(good.config | {"model_type": "bert"}, good.files).to_bytes(), "unsupported_value"),
        (lambda good: ModelManifest(good.config, {}).to_bytes(), "missing_key"),
        (lambda good: weights_changed(good, size=1).to_bytes(), "wrong_size"),
        (lambda good: weights_changed(good, size=next(iter(good.files.values())).size + 1).to_bytes(), "wrong_size"),
        (lambda good: b" " * (1 << 21), "unreadable"),
    ],
)
def test_poisoned_base_is_refused_before_price(
    services: Services, payer: Caller, body: Body, good: ModelManifest, change: Any, reason: str
) -> None:
    assert refused_base(services, payer, body, change(good))["reason"] == reason


def refused_base(services: Services, payer: Caller, body: Body, manifest: bytes) -> dict[str, Any]:
    """Return the problem with which the market refuses a base before it quotes a price."""
    poisoned = services.part(Storage).put(manifest, max_bytes=1 << 21).cid
    answer = payer.post("/v1/quotes", json=body | {"model_config": {"base": poisoned}})
    problem: dict[str, Any] = answer.json()
    assert (answer.status_code, problem["code"]) == (422, "invalid-base-model"), problem
    assert problem["field"] == "model_config.base"
    assert poisoned in problem["detail"]
    assert problem["remedy"]
    assert written(services) == [0, 0, 0, 0]
    return problem


def changed(name: str, **entry: Any) -> Callable[[bytes], bytes]:
    """Change a tensor's entry in the header; the file keeps its size."""

    def change(content: bytes) -> bytes:
        header = header_of(content)
        return with_header(content, header | {name: header[name] | entry})

    return change


def renamed(content: bytes) -> bytes:
    header = header_of(content)
    header["model.norm.height"] = header.pop("model.norm.weight")
    return with_header(content, header)


def without_last(content: bytes) -> bytes:
    header = header_of(content)
    last = max(header, key=lambda name: header[name]["data_offsets"])
    start, end = header.pop(last)["data_offsets"]
    return with_header(content, header)[: start - end]


def with_another(content: bytes) -> bytes:
    header = header_of(content)
    end = max(entry["data_offsets"][1] for entry in header.values())
    header["extra.weight"] = {"dtype": "F32", "shape": [2], "data_offsets": [end, end + 8]}
    return with_header(content, header) + bytes(8)


def with_length(change: Callable[[int, int], int]) -> Callable[[bytes], bytes]:
    """Change the stated length of the header, given this length and the file's size."""
    return lambda content: struct.pack("<Q", change(*struct.unpack_from("<Q", content), len(content))) + content[8:]


@pytest.mark.parametrize(
    ("change", "reason", "why"),
    [
        (
            changed("model.embed_tokens.weight", shape=[8, 256]),
            "wrong_tensors",
            "model.safetensors: model.embed_tokens.weight has the shape (8, 256); config.json makes (256, 8)",
        ),
        (changed("model.norm.weight", shape=[1] * 9), "malformed", "model.norm.weight has 9 dimensions"),
        (changed("model.norm.weight", dtype="I32"), "wrong_tensors", "model.norm.weight is 'I32'; expected one of"),
        (changed("model.norm.weight", dtype="F16"), "malformed", "or has another size"),
        (changed("model.norm.weight", dtype=["F32"]), "wrong_tensors", "model.norm.weight is ['F32']"),
        (renamed, "wrong_tensors", "model.norm.height is not a tensor of this model"),
        (without_last, "wrong_tensors", "model.norm.weight of the shape (8,) is missing"),
        (with_another, "wrong_tensors", "extra.weight is not a tensor of this model"),
        (with_length(lambda length, _size: length - 8), "malformed", "has no JSON header"),
        (with_length(lambda _length, size: size - 7), "malformed", "it is not a safetensors file"),
        (with_length(lambda _length, _size: (1 << 64) - 1), "malformed", "it is not a safetensors file"),
    ],
)
def test_poisoned_weights_are_refused_before_price(
    services: Services,
    payer: Caller,
    body: Body,
    tmp_path: Path,
    change: Callable[[bytes], bytes],
    reason: str,
    why: str,
) -> None:
    problem = refused_weights(services, payer, body, tmp_path, {"model.safetensors": change})
    assert problem["reason"] == reason, problem
    assert why in problem["detail"]


def refused_weights(
    services: Services, payer: Caller, body: Body, folder: Path, changes: dict[str, Callable[[bytes], bytes]]
) -> dict[str, Any]:
    """Return the problem with which the market refuses changes of good weights."""
    write_base(folder, MODEL)
    good = (folder / "model.safetensors").read_bytes()
    for name, change in changes.items():
        (folder / name).write_bytes(change(good))
    storage = services.part(Storage)
    manifest = manifest_of(folder, lambda content: storage.put(content, max_bytes=1 << 20).cid)
    return refused_base(services, payer, body, manifest.to_bytes())


def test_tensor_in_two_shards_is_refused_before_price(
    services: Services, payer: Caller, body: Body, tmp_path: Path
) -> None:
    def only_norm(content: bytes) -> bytes:
        end = max(entry["data_offsets"][1] for entry in header_of(content).values())
        entry = {"dtype": "F32", "shape": [8], "data_offsets": [0, 32]}
        return with_header(content, {"model.norm.weight": entry})[: 32 - end]

    problem = refused_weights(services, payer, body, tmp_path, {"model-2.safetensors": only_norm})
    assert problem["reason"] == "wrong_tensors", problem


def test_headers_of_slow_peer_are_not_awaited(
    services: Services, payer: Caller, body: Body, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "_HEADER_SECONDS", 0.0)
    answer = payer.post("/v1/quotes", json=body | {"model_config": {"base": base, "sequence_length": 16}})
    problem = answer.json()
    assert (answer.status_code, problem["code"], problem["field"]) == (422, "base-model-not-found", "model_config.base")
    assert written(services) == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("config", "reason", "why"),
    [
        ({"auto_map": {"AutoModel": "modeling_x.Model"}}, "unsupported_value", "config.json.auto_map: is refused"),
        ({"auto_map": {"AutoConfig": "evil/repo--x.C"}}, "unsupported_value", "the library's own classes"),
        ({"trust_remote_code": True}, "unknown_key", "config.json.trust_remote_code"),
        ({"attn_implementation": "evil/kernel"}, "unsupported_value", "Code from other repositories"),
        ({"num_hidden_layers": 10**9}, "out_of_range", "num_hidden_layers: is 1000000000; choose a value from 1 to"),
        ({"hidden_size": 10**400}, "out_of_range", "config.json.hidden_size"),
        ({"vocab_size": 1 << 20, "hidden_size": 16_384, "num_hidden_layers": 256}, "too_large", "at most 20000000000"),
        ({"rms_norm_eps": 1e999}, "out_of_range", "config.json.rms_norm_eps: is inf"),
        ({"id2label": {str(number): "label" * 9 for number in range(20_000)}}, "unreadable", "the limit is 1048576"),
        ({"num_hidden_layers": 64}, "wrong_size", "parameters of its configuration take"),
        ({"intermediate_size": 4096}, "wrong_size", "parameters of its configuration take"),
    ],
)
def test_poisoned_configuration_is_refused_before_price(
    services: Services, payer: Caller, body: Body, good: ModelManifest, config: dict[str, Any], reason: str, why: str
) -> None:
    poisoned = json.dumps(json.loads(good.to_bytes()) | {"config": good.config | config}).encode()
    problem = refused_base(services, payer, body, poisoned)
    assert problem["reason"] == reason, problem
    assert why in problem["detail"]


@pytest.mark.parametrize(
    ("names", "reason", "why"),
    [
        (["pytorch_model.bin"], "unsupported_value", "files.pytorch_model.bin: is refused"),
        (["model.safetensors", "modeling_x.py"], "unsupported_value", "no pickle or code"),
        (["model.safetensors", "../../x.safetensors"], "unsupported_value", "is refused"),
        (["model.safetensors", "model.pt"], "unsupported_value", "files.model.pt"),
        ([f"model-{number:05}.safetensors" for number in range(1000)], "too_large", "has 1000 files, beyond 64"),
    ],
)
def test_poisoned_file_names_are_refused_before_price(
    services: Services, payer: Caller, body: Body, good: ModelManifest, names: list[str], reason: str, why: str
) -> None:
    [file] = good.files.values()
    problem = refused_base(services, payer, body, ModelManifest(good.config, dict.fromkeys(names, file)).to_bytes())
    assert problem["reason"] == reason
    assert why in problem["detail"]


def test_dataset_beyond_base_vocabulary_is_refused(payer: Caller, body: Body, storage: Storage, tmp_path: Path) -> None:
    write_base(tmp_path / "small", read_model(MODEL.to_dict() | {"vocab_size": 100}))
    small = manifest_of(tmp_path / "small", lambda content: storage.put(content, max_bytes=1 << 20).cid)
    base = storage.put(small.to_bytes(), max_bytes=1 << 20).cid
    settings = {"base": base, "sequence_length": 8}
    problem = payer.post("/v1/quotes", json=body | {"model_config": settings}).json()
    assert (problem["code"], problem["field"]) == ("invalid-dataset", "model_config.vocab_size")


def test_unit_beyond_tier_memory_names_both_numbers(payer: Caller, body: Body) -> None:
    body["model_config"] = {"hidden_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 8, "sequence_length": 8}
    body["training_config"] = {"inner_steps": 4, "segment_steps": 1, "batch_size": 1}
    problem = payer.post("/v1/quotes", json=body).json()
    assert (problem["code"], problem["field"], problem["reason"]) == ("invalid-order", "tier", "unit_too_large")
    assert "GiB; each GPU of tier bronze has 0.93 GiB" in problem["detail"]
    accepted(
        payer.post("/v1/quotes", json=body | {"requirements": {"min_gpu_memory_gb": 16}, "budget_max": str(10 * ZEN)})
    )


def test_round_beyond_smallest_worker_names_both_numbers(services: Services, payer: Caller, body: Body) -> None:
    with services.database.transaction() as session:
        memory.report(session, services.settings.model_copy(update={"worker_memory_gib": 1e-5}), "small")
    problem = payer.post("/v1/quotes", json=body).json()
    found = problem["code"], problem["field"], problem["reason"]
    assert found == ("invalid-order", "model_config", "aggregation_too_large")
    assert "GiB; this market's smallest worker has 0.00 GiB" in problem["detail"]
