import json
import re
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from training_gym.data.dataset import DatasetManifest
from training_gym.spec import config
from training_gym.spec.architectures import read_model
from training_gym.spec.config import TrainingConfig, TrainingSpec
from training_gym.spec.defaults import FEW_REPLICAS, LARGE_MODEL, OF_FEW, settings_by_size
from training_gym.spec.errors import GymError, SpecError
from training_gym.spec.methods import METHODS

DATASET = "Qm" + "a" * 44


def document(**sections: Any) -> dict[str, Any]:
    return {"data_config": {"dataset": DATASET}, **sections}


def spec_of(
    settings: dict[str, Any], model: dict[str, Any] | None = None, nodes: int = FEW_REPLICAS + 1
) -> TrainingSpec:
    return TrainingSpec.from_dict(document(model_config=model or {}, training_config=settings), nodes)


def training(**settings: Any) -> dict[str, Any]:
    return document(training_config=settings)


@pytest.mark.parametrize("module", ["spec.config", "aggregate.aggregation", "units.trace", "hardware.challenge"])
def test_config_imports_without_torch(module: str) -> None:
    check = f"import sys, training_gym.{module}; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True)


def test_canonical_form_and_hash_cover_every_setting() -> None:
    spec = spec_of({})
    assert TrainingSpec.from_dict(spec.to_dict()) == spec
    assert spec.spec_hash() == spec_of({"weight_decay": 0.05}).spec_hash()
    other = spec_of({"seed": 1})
    assert other.spec_hash() != spec.spec_hash()


def test_method_expands_to_settings() -> None:
    diloco = spec_of({"method": "diloco", "outer_momentum": 0.8})
    assert (diloco.training.top_k, diloco.training.value_bits, diloco.training.outer_momentum) == (4096, 8, 0.8)
    assert TrainingSpec.from_dict(diloco.to_dict()) == diloco
    sparse = spec_of({"method": "sparseloco"})
    assert (sparse.training.optimizer, sparse.training.inner_steps, sparse.training.top_k) == ("adamw", 30, 64)
    assert spec_of({"method": "default"}) == spec_of({})
    group = spec_of({"method": "powersgd"})
    assert (group.training.averaging, group.training.powersgd_rank) == ("steps", 4)


def training_of(model: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    settings = spec_of(given, model).to_dict()["training_config"]
    assert isinstance(settings, dict)
    return settings


DEFAULTS = training_of({}, {})
WHOLE_IN_STEPS = DEFAULTS | {"averaging": "steps", "gradient_shards": 2}
IDLE_IN_STEPS = {
    *("top_k", "value_bits", "down_top_k", "down_value_bits", "outer_learning_rate", "outer_momentum", "round_delay")
}


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"powersgd_rank": 4}, "powersgd_rank"),
        ({"method": "powersgd", "averaging": "rounds", "powersgd_rank": 2}, "powersgd_rank"),
        *(({"averaging": "steps", name: 1}, name) for name in sorted(IDLE_IN_STEPS)),
        ({"averaging": "steps", "gradient_shards": 2}, "gradient_shards"),
        ({"method": "ddp", "top_k": 64}, "top_k"),
        ({"optimizer": "adamw", "muon_learning_rate": 0.02}, "muon_learning_rate"),
        ({"method": "sparseloco", "muon_learning_rate": 0.02}, "muon_learning_rate"),
        ({"down_top_k": 0, "down_value_bits": 8}, "down_value_bits"),
        ({"method": "diloco", "down_value_bits": 4}, "down_value_bits"),
    ],
)
def test_ineffective_setting_is_refused(given: dict[str, Any], field: str) -> None:
    with pytest.raises(SpecError, match=r"has no effect.*remove it, or choose") as refusal:
        spec_of(given)
    assert (refusal.value.field, refusal.value.code) == (f"training_config.{field}", "unused_setting")


@pytest.mark.parametrize(
    "given",
    [
        {"method": "slow_links", "averaging": "steps"},  # the method's own
        {"method": "powersgd", "averaging": "rounds"},
        {"method": "diloco", "down_top_k": 64, "down_value_bits": 8},
        {"optimizer": "adamw", "muon_learning_rate": 0.04, "powersgd_rank": 0},  # equals the default
        {"averaging": "steps", "round_delay": 0, "top_k": 4096},
    ],
)
def test_settings_equal_to_method_or_default_are_accepted(given: dict[str, Any]) -> None:
    spec = spec_of(given)
    assert TrainingSpec.from_dict(spec.to_dict()) == spec


def test_older_specification_with_ineffective_settings_is_read() -> None:
    settings = DEFAULTS | {"powersgd_rank": 4, "optimizer": "adamw", "muon_learning_rate": 0.01}
    spec = spec_of(settings)
    assert spec.training.powersgd_rank == 4


@pytest.mark.parametrize(
    ("given", "warmup"), [({}, 10), ({"rounds": 1, "inner_steps": 4}, 4), ({"rounds": 2, "method": "slow_links"}, 10)]
)
def test_default_warm_up_fits_short_job(given: dict[str, Any], warmup: int) -> None:
    assert training_of({}, given)["warmup_steps"] == warmup


def test_warm_up_beyond_job_names_its_setting() -> None:
    with pytest.raises(SpecError) as refusal:
        training_of({}, {"rounds": 1, "inner_steps": 4, "warmup_steps": 5})
    assert refusal.value.field == "training_config.warmup_steps"


@pytest.mark.parametrize(
    "given", [{"inner_steps": 500}, {"inner_steps": 509}, {"inner_steps": 21}, {"segment_steps": 7}]
)
def test_segment_named_by_refusal_is_accepted(given: dict[str, Any]) -> None:
    with pytest.raises(SpecError) as refusal:
        training_of({}, given)
    assert refusal.value.field == "training_config.segment_steps"
    named = re.search(r"(\d+) at least", refusal.value.message)
    assert named
    steps = given | {"segment_steps": int(named[1])}
    assert training_of({}, steps)["segment_steps"] == int(named[1])
    with pytest.raises(SpecError):
        training_of({}, steps | {"segment_steps": int(named[1]) - 1})


def test_diloco_has_published_rounds() -> None:
    for settings_ in ({"method": "diloco"}, {"method": "diloco", "inner_steps": 500}):
        assert training_of({}, settings_)["inner_steps"] == 500


LARGE = {"hidden_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 8}
"""101,204,992 parameters; with one layer less it is none."""


def test_large_model_gets_slow_link_settings_when_unset() -> None:
    plain, large = training_of({}, {}), training_of(LARGE, {})
    assert large == plain | METHODS["slow_links"]
    smaller = LARGE | {"num_hidden_layers": 7}
    assert read_model(LARGE).num_parameters() >= LARGE_MODEL > read_model(smaller).num_parameters()
    assert training_of(smaller, {}) == plain
    assert training_of(LARGE, {"method": "default"}) == plain
    assert training_of(LARGE, {"method": "diloco"}) == training_of({}, {"method": "diloco"})
    assert training_of(LARGE, {"averaging": "steps"}) == training_of({}, {"averaging": "steps"})
    # Without error feedback nothing keeps what sparse payloads leave out.
    assert training_of(LARGE, {"error_feedback_decay": 0.0}) == training_of({}, {"error_feedback_decay": 0.0})


def test_round_and_segment_lengths_are_decided_together() -> None:
    many = FEW_REPLICAS + 1
    assert settings_by_size(read_model(LARGE), {}, many) == METHODS["slow_links"]
    for given_one in ({"inner_steps": 20}, {"segment_steps": 4}):
        by_size = settings_by_size(read_model(LARGE), given_one, many)
        assert by_size.items() <= METHODS["slow_links"].items()
        assert METHODS["slow_links"].keys() - by_size == {"inner_steps", "segment_steps"}
        assert training_of(LARGE, given_one)["top_k"] == 64  # 20 steps are not a multiple of 6, and 30 not of 4


def test_few_replicas_take_the_plain_mean() -> None:
    def outer_step(nodes: int, **settings: Any) -> tuple[float, float]:
        found = spec_of(settings, nodes=nodes)
        assert TrainingSpec.from_dict(found.to_dict()) == found
        return found.training.outer_learning_rate, found.training.outer_momentum

    few, many = FEW_REPLICAS, FEW_REPLICAS + 1
    for method in ({}, {"method": "default"}):
        assert [outer_step(nodes, **method) for nodes in (1, few, many)] == [(1.0, 0.0), (1.0, 0.0), (0.9, 0.5)]
    assert outer_step(few, method="diloco") == (0.7, 0.9)
    assert outer_step(few, method="ddp") == (0.9, 0.5)
    assert outer_step(few, outer_momentum=0.5) == (0.9, 0.5)
    assert outer_step(few, outer_learning_rate=0.7) == (0.7, 0.5)
    assert settings_by_size(read_model({}), {}, few) == OF_FEW


def test_few_replicas_take_shorter_rounds_and_less_residual() -> None:
    def found(nodes: int, model: dict[str, Any] | None = None, **settings: Any) -> tuple[int, float]:
        training = spec_of(settings, model, nodes).training
        return training.inner_steps, training.error_feedback_decay

    few, many = FEW_REPLICAS, FEW_REPLICAS + 1
    for settings in ({}, {"method": "default"}, {"outer_momentum": 0.5}):
        assert [found(nodes, **settings) for nodes in (1, few, many)] == [(18, 0.5), (18, 0.5), (20, 0.95)]
    assert found(few, inner_steps=24) == (24, 0.5)
    assert found(few, segment_steps=10) == (20, 0.5)  # 18 steps are not a multiple of 10
    assert found(few, top_k=64) == found(few, top_k=4096) == (18, 0.95)
    assert found(few, error_feedback_decay=0.0) == (18, 0.0)
    assert found(few, method="slow_links") == found(few, LARGE) == (30, 0.95)
    assert found(few, method="diloco") == (500, 0.0)
    assert found(few, LARGE, top_k=128) == (30, 0.95)


@pytest.mark.parametrize("training", [{"optimizer": "adamw"}, {"method": "sparseloco"}])
def test_only_adamw_rate_falls_with_width(training: dict[str, Any]) -> None:
    for width, rate in ((16, 32e-3), (32, 32e-3), (64, 16e-3), (256, 4e-3), (2048, 0.5e-3)):
        model = {"hidden_size": width, "num_hidden_layers": 1, "num_attention_heads": 2}
        assert training_of(model, training)["learning_rate"] == pytest.approx(rate)
        assert training_of(model, training | {"learning_rate": 0.01})["learning_rate"] == 0.01
        assert training_of(model, {"optimizer": "muon"})["learning_rate"] == 32e-3
    large = training_of(LARGE, {"optimizer": "adamw"})
    assert (large["top_k"], large["learning_rate"]) == (64, 32e-3 * 32 / 1024)


@pytest.mark.parametrize("method", [None, *METHODS])
@pytest.mark.parametrize(
    ("adapter", "objective", "rate"),
    [
        (None, "causal_lm", 2e-5),
        (None, "sft", 2e-5),
        (None, "dpo", 1e-6),
        ({"r": 2}, "causal_lm", 2e-4),
        ({"r": 2}, "sft", 2e-4),
        ({"r": 2}, "dpo", 1e-5),
    ],
)
def test_base_model_is_trained_at_low_rates(
    adapter: dict[str, int] | None, objective: str, rate: float, method: str | None
) -> None:
    def training(**settings: Any) -> TrainingConfig:
        named = {"objective": objective} | settings | ({} if method is None else {"method": method})
        document = {"model_config": {"base": DATASET}, "data_config": {"dataset": DATASET}, "training_config": named}
        spec = TrainingSpec.from_dict(document | ({} if adapter is None else {"adapter_config": adapter}))
        assert TrainingSpec.from_dict(spec.to_dict()) == spec
        return spec.training

    if METHODS[method or "default"].get("averaging") == "steps" and objective != "causal_lm":
        return  # refused
    decay = 0.01 if adapter is None else 0.0
    for found in (training(), training(optimizer="adamw")):
        assert (found.optimizer, found.learning_rate, found.weight_decay) == ("adamw", rate, decay)
    assert training(learning_rate=0.5).learning_rate == 0.5
    if adapter is None:
        found = training(optimizer="muon")
        assert (found.learning_rate, found.muon_learning_rate) == (rate, 1e-5 if objective == "dpo" else 2e-4)
        assert training(optimizer="muon", muon_learning_rate=0.5).muon_learning_rate == 0.5


SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "optimizer": st.sampled_from(["adamw", "muon"]),
        "learning_rate": st.sampled_from([1e-3, 0.5]),
        "rounds": st.integers(1, 10_000),
        "inner_steps": st.integers(1, 6).map(lambda tens: 10 * tens),
        "segment_steps": st.sampled_from([1, 2, 5]),
        "warmup_steps": st.integers(0, 200),
        "top_k": st.integers(1, 4096),
        "value_bits": st.sampled_from([2, 4, 8]),
        "error_feedback_decay": st.sampled_from([0.0, 0.5, 1.0]),
        "down_top_k": st.integers(0, 4096),
        "down_value_bits": st.sampled_from([2, 4, 8]),
        "round_delay": st.integers(0, 1),
        "averaging": st.sampled_from(["rounds", "steps"]),
        "method": st.sampled_from(list(METHODS)),
    },
)


@given(settings=SETTINGS, large=st.booleans(), nodes=st.sampled_from([1, FEW_REPLICAS, FEW_REPLICAS + 1]))
def test_explicit_settings_are_kept_at_any_size(settings: dict[str, Any], large: bool, nodes: int) -> None:
    model = LARGE if large else {}
    named = {key: value for key, value in settings.items() if key != "method"}
    plain = TrainingConfig(**METHODS[settings.get("method", "default")] | named)
    segments, rest = divmod(plain.inner_steps, plain.segment_steps)
    by_size = settings_by_size(read_model(model), settings, nodes)
    found = plain if not by_size else replace(plain, **by_size)
    assume(rest == 0 and segments <= config.MAX_SEGMENTS and found.warmup_steps <= found.rounds * found.inner_steps)
    assume(plain.averaging == "rounds" or not IDLE_IN_STEPS & {name for name in named if named[name] != DEFAULTS[name]})
    assume(plain.down_top_k or named.get("down_value_bits", 2) == 2)
    spec = spec_of(settings, model, nodes)
    training = spec.to_dict()["training_config"]
    assert training.items() >= named.items()
    assert by_size.keys().isdisjoint(settings)
    assert spec.training == found
    assert large or by_size.keys() <= {"learning_rate", *(OF_FEW if nodes <= FEW_REPLICAS else ())}
    # A stored spec is complete: reading it again sets nothing.
    again = TrainingSpec.from_dict(spec.to_dict())
    assert (again, again.spec_hash()) == (spec, spec.spec_hash())
    assert settings_by_size(spec.model, training, nodes) == {}


def test_whole_numbers_are_accepted_for_real_settings() -> None:
    whole = spec_of({"learning_rate": 1})
    assert whole.spec_hash() == spec_of({"learning_rate": 1.0}).spec_hash()


TOO_LARGE = {"hidden_size": 8192, "num_hidden_layers": 48, "num_attention_heads": 64}
LONG_WINDOWS = {"model_config": {"sequence_length": 2048}}


@pytest.mark.parametrize(
    ("wrong", "field", "code", "says"),
    [
        (training(lerning_rate=1e-3), "training_config.lerning_rate", "unknown_key", "'learning_"),
        (document(modelconfig={}), "modelconfig", "unknown_key", "'model_config'"),
        (document(model_config=[]), "model_config", "wrong_type", "object"),
        ({}, "data_config", "wrong_type", "object"),
        ({"data_config": {}}, "data_config.dataset", "missing_key", "CID"),
        ({"data_config": {"dataset": "../etc/passwd"}}, "data_config.dataset", "out_of_range", "CID"),
        (training(rounds=True), "training_config.rounds", "wrong_type", "whole number"),
        (training(rounds=8.0), "training_config.rounds", "wrong_type", "whole number"),
        (training(rounds=0), "training_config.rounds", "out_of_range", "from 1 to"),
        (training(learning_rate="1"), "training_config.learning_rate", "wrong_type", "number"),
        (training(learning_rate=float("nan")), "training_config.learning_rate", "out_of_range", "from"),
        (training(learning_rate=10**400), "training_config.learning_rate", "out_of_range", "from"),
        (training(weight_decay=-(10**400)), "training_config.weight_decay", "out_of_range", "1"),
        (training(method="fedavg"), "training_config.method", "unsupported_value", "'diloco'"),
        (training(method=["x"]), "training_config.method", "unsupported_value", "'diloco'"),
        (training(value_bits=3), "training_config.value_bits", "unsupported_value", "2, 4, 8"),
        (training(segment_steps=7), "training_config.segment_steps", "not_divisible", "20"),
        (training(gradient_shards=3), "training_config.gradient_shards", "unsupported_value", "1, 2, 4, 8"),
        (training(gradient_shards=8, batch_size=12), "training_config.gradient_shards", "not_divisible", "12"),
        (training(**WHOLE_IN_STEPS), "training_config.gradient_shards", "unsupported_value", "expected 1"),
        (training(inner_steps=960), "training_config.segment_steps", "out_of_range", "480 seg"),
        (training(warmup_steps=145), "training_config.warmup_steps", "out_of_range", "144"),
        (document(model_config={"num_attention_heads": 5}), "model_config.num_attention_heads", "not_divisible", "64"),
        (document(model_config={"architecture": "rnn"}), "model_config.architecture", "unsupported_value", "'gpt2'"),
        (document(model_config=TOO_LARGE), "model_config.hidden_size", "out_of_range", "parameters"),
        (training(batch_size=4096) | LONG_WINDOWS, "training_config.batch_size", "out_of_range", "tokens"),
    ],
)
def test_wrong_specification_is_refused_by_field(wrong: dict[str, Any], field: str, code: str, says: str) -> None:
    with pytest.raises(SpecError, match=says) as refusal:
        TrainingSpec.from_dict(wrong)
    assert (refusal.value.field, refusal.value.code) == (field, code)


@pytest.mark.parametrize("key", ["\ud800", "a\0b", "x" * 1_000_000])
def test_refusal_can_be_printed_and_stored(key: str) -> None:
    manifest = json.dumps({"kind": "zoo-dataset/1", "tokenizer": "bytes", "train": {}, "validation": {}, key: 1})
    for refused in (
        lambda: spec_of({key: 1}),
        lambda: TrainingSpec.from_dict({key: 1}),
        lambda: spec_of({"optimizer": key}),
        lambda: DatasetManifest.from_bytes(manifest.encode()),
    ):
        with pytest.raises(GymError) as refusal:
            refused()
        for text in (refusal.value.field, refusal.value.message, str(refusal.value)):
            assert text.encode().decode().isprintable()
            assert len(text) < 1500
