"""The client's signatures and refusals, and the notation of jobs and amounts."""

import asyncio
import json
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from eth_account import Account
from kit.errors import raises_code
from kit.nodes.lone_nodes import NETWORK as DEVNET

from training_gym.data.dataset import DatasetManifest, Shard
from training_gym.spec.config import TrainingSpec
from training_gym.spec.costs import flops_per_unit
from zoo_compute.audit.evidence import evidence_errors
from zoo_compute.base.amounts import format_zen, parse_zen
from zoo_compute.base.errors import ConfigError, Mismatch
from zoo_compute.base.models import JobState, Network, Quote
from zoo_compute.chain.settlements import ChainDisagrees
from zoo_compute.chain.wallet import Wallet, checked_address
from zoo_compute.client import jobspec, orders, uploads
from zoo_compute.client.client import Client
from zoo_compute.client.datasets import Request
from zoo_protocol import messages
from zoo_protocol.messages import Domain, JobOrder

WALLET = Wallet("0x" + "22" * 32)
CID = "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy"
ESCROW, TOKEN = "0x" + "e5" * 20, "0x" + "70" * 20
TIER = {"id": 1, "gpus": 4, "reserve_price_wei": "2500000000000000000", "minimum_stake_wei": "1"}
TIERS = {"tiers": {"bronze": TIER | {"reference_flops_per_gpu": {"float32": 10**10, "bfloat16": 10**10}}}}
CONTRACTS = {"contracts": {"JobEscrow": ESCROW, "ZenToken": TOKEN}}
NETWORK = Network.model_validate(DEVNET.model_dump() | {"chain_id": 31337} | CONTRACTS | TIERS)
REQUEST: dict[str, Any] = {
    "model_config": {"hidden_size": 64},
    "data_config": {"dataset": CID},
    "training_config": {"rounds": 3},
    "tier": "bronze",
    "nodes": 2,
    "budget_max": "1000000000000000000",
    "max_price": "3000000000000000000",
    "wait_until": "2030-01-01T00:00:00+00:00",
    "checkpoint": {},
}


def spec() -> TrainingSpec:
    sections = {key: REQUEST[key] for key in ("model_config", "data_config", "training_config")}
    return TrainingSpec.from_dict(sections, REQUEST["nodes"])


def quote(**changes: Any) -> Quote:
    asked = spec()
    weight = -(-flops_per_unit(asked) * 10**6 * TIER["gpus"] // 10**10)  # one of four GPUs trains
    prices = ("reserve_price", "highest_payable_price", "cost_at_reserve", "cost_at_max_price")
    unit_prices = ("unit_price_at_reserve", "unit_price_at_max_price")
    amounts = dict.fromkeys((f"{name}_wei" for name in (*prices, *unit_prices)), "1")
    document = {
        "spec": asked.to_dict(),
        "spec_hash": asked.spec_hash(),
        "tier": "bronze",
        "units": 6,
        "unit_weight_us": weight,
        "segments_per_unit": 4,
        "fee_bps": 500,
        "sampling_bps": 200,
        "detection_probability": 0.25,
        "least_detection_probability": 0.02,
        "nonce": "77",
        "balance_wei": "0",
        "deposit_needed_wei": "1000000000000000000",
        "order": {"message": {"budget": "999"}},
    }
    return Quote.model_validate({**document, **amounts, **changes})


def test_client_signs_own_document_instead_of_market_one() -> None:
    job_id, body = orders.sign(REQUEST, quote(), NETWORK, WALLET)
    quoted = quote()
    order = JobOrder(
        payer=WALLET.address,
        specHash=quoted.spec_hash,
        tier=1,
        units=6,
        unitWeight=quoted.unit_weight_us,
        segments=spec().segments,
        samplingBps=200,
        budget=10**18,
        maxPrice=3 * 10**18,
        waitUntil=1_893_456_000,
        nonce=77,
    )
    assert job_id == messages.struct_hash(order)
    document = messages.typed_data(Domain(31337, ESCROW), order)
    assert messages.recover(document, body["order_signature"]) == WALLET.address
    assert {key: body[key] for key in REQUEST} == REQUEST
    assert body["nonce"] == "77"


def test_client_signs_requested_sampling_rate() -> None:
    request = REQUEST | {"sampling_bps": 1_500}
    job_id, body = orders.sign(request, quote(sampling_bps=1_500), NETWORK, WALLET)
    assert job_id != orders.sign(REQUEST, quote(), NETWORK, WALLET)[0]
    assert body["sampling_bps"] == 1_500
    with pytest.raises(Mismatch):  # the market quotes the lowest all the same
        orders.sign(request, quote(), NETWORK, WALLET)


@pytest.mark.parametrize(
    "changes", [{"spec_hash": "0x" + "00" * 32}, {"units": 7}, {"unit_weight_us": 1}, {"sampling_bps": 201}]
)
def test_client_refuses_quote_for_other_job(changes: dict[str, Any]) -> None:
    with raises_code(Mismatch, "quote-mismatch"):
        orders.sign(REQUEST, quote(**changes), NETWORK, WALLET)


@pytest.mark.parametrize(("samples", "rounds"), [(1152, 2), (1153, 3), (1728, 3), (1729, 4)])
def test_client_signs_only_its_own_rounds_of_epochs(samples: int, rounds: int) -> None:
    shard = (Shard(CID, samples * spec().model.sequence_length + 1, "0x" + "00" * 32),)
    stored = {CID: DatasetManifest(shard, shard).to_bytes()}
    request = orders.with_rounds(REQUEST | {"training_config": {"epochs": 1}}, stored.__getitem__)
    assert request == REQUEST | {"training_config": {"rounds": rounds}}
    if rounds == 3:
        assert orders.sign(request, quote(), NETWORK, WALLET) == orders.sign(REQUEST, quote(), NETWORK, WALLET)
        return
    with raises_code(Mismatch, "quote-mismatch"):
        orders.sign(request, quote(), NETWORK, WALLET)


def test_client_refuses_epochs_of_malformed_manifest() -> None:
    with raises_code(Mismatch, "quote-mismatch"):
        orders.with_rounds(REQUEST | {"training_config": {"epochs": 1}}, lambda _: b"{}")
    assert orders.with_rounds(REQUEST, lambda _: pytest.fail("reads a dataset")) == REQUEST


def test_client_signs_only_its_own_validation_samples() -> None:
    shard = (Shard(CID, 10**6, "0x" + "00" * 32),)
    stored = {CID: DatasetManifest(shard, shard).to_bytes()}
    request = orders.with_validation_samples(REQUEST, stored.__getitem__)
    assert request["data_config"]["validation_samples"] > 8
    evaluating = TrainingSpec.from_dict(orders._sections(request), request["nodes"])
    weight = -(-flops_per_unit(evaluating) * 10**6 * TIER["gpus"] // 10**10)
    asked = quote(spec_hash=evaluating.spec_hash(), unit_weight_us=weight)
    assert orders.sign(request, asked, NETWORK, WALLET)[1]["data_config"] == request["data_config"]
    with raises_code(Mismatch, "quote-mismatch"):
        orders.sign(request, quote(), NETWORK, WALLET)
    with raises_code(Mismatch, "quote-mismatch"):
        orders.with_validation_samples(REQUEST, lambda _: b"{}")


def test_amounts_are_exact() -> None:
    assert parse_zen("2.5") == 25 * 10**17
    assert parse_zen(5000) == 5000 * 10**18
    assert parse_zen(Decimal("0.000000000000000001")) == 1
    assert parse_zen("7 wei") == 7
    assert parse_zen("79228162514264337593543950335wei") == 2**96 - 1
    assert format_zen(25 * 10**17) == "2.5"
    assert format_zen(1_234_567 * 10**18 + 1) == "1,234,567.000000000000000001"
    assert format_zen(1, places=6) == "0"


@pytest.mark.parametrize("text", ["", "-1", "NaN", "inf", "1e40", "0.0000000000000000001", "0.5 wei", "ten", 0.1, True])
def test_malformed_amount_is_refused_by_field(text: Any) -> None:
    with raises_code(ConfigError, "amount-malformed") as error:
        parse_zen(text, "budget_max")
    assert "budget_max" in error.value.detail


def test_job_file_is_read_with_overrides(tmp_path: Path) -> None:
    file = tmp_path / "training_config.yaml"
    file.write_text(
        "tier: silver\nnodes: 4\nbudget_max: 100\nmax_price: 2.5\nwait: 30m\nsampling_bps: 500\n"
        "data_config: {train: train.txt, validation: held-out.txt, validation_samples: 3}\n"
        "training_config: {rounds: 3}\n"
    )
    spec = jobspec.load(file, {"budget_max": "7 wei"})
    assert (spec.tier, spec.nodes, spec.budget_max, spec.max_price) == ("silver", 4, 7, 25 * 10**17)
    assert spec.sampling_bps == 500
    assert spec.wait == timedelta(minutes=30)
    assert spec.dataset == Request((f"{tmp_path}/train.txt",), "bpe:8192", (f"{tmp_path}/held-out.txt",))
    assert (spec.training, spec.validation_samples) == ({"rounds": 3}, 3)


def test_job_file_sources_take_tokenizer_of_base(tmp_path: Path) -> None:
    file, folder = tmp_path / "job.yaml", tmp_path / "tokenizer"
    folder.mkdir()
    file.write_text(f"budget_max: 1\ndata_config: {{train: [a.jsonl, 'https://x/b']}}\nmodel_config: {{base: {CID}}}")
    assert jobspec.load(file).dataset == Request((f"{tmp_path}/a.jsonl", "https://x/b"), CID)
    given = {"train": "a.txt", "tokenizer": "tokenizer"}
    assert jobspec.load(file, {"data_config": given}).dataset == Request((f"{tmp_path}/a.txt",), str(folder))


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"train": 1}, "data_config.train cannot be 1"),
        ({"train": []}, "data_config.train cannot be"),
        ({"train": "a", "tokenizer": 8192}, "data_config.tokenizer cannot be 8192"),
        ({"train": "a", "test": "b"}, "data_config.test is not a known key"),
        ({"train": "a", "validation_samples": "2"}, "data_config.validation_samples cannot be '2'"),
        ({"validation": "a"}, "has neither train nor dataset"),
        ({"dataset": "x", "train": "a"}, "data_config.dataset must be a CID"),
    ],
)
def test_unusable_data_config_is_refused_by_field(tmp_path: Path, given: dict[str, object], named: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("budget_max: 1\ndata_config: {dataset: x}")
    with raises_code(ConfigError, "job-file-unusable", match=named):
        jobspec.load(file, {"data_config": given})


def test_job_file_numbers_keep_their_text(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(
        "budget_max: 1234567.100000000000000001\nmax_price: 2.50\ndata_config: {dataset: x}\n"
        "training_config: {learning_rate: 3e-4, muon_learning_rate: 2E-2, weight_decay: .1, rounds: 3}\n"
        "model_config: {architecture: 3e-4b}\n"
    )
    spec = jobspec.load(file)
    assert (spec.budget_max, spec.max_price) == (1_234_567_100_000_000_000_000_001, 25 * 10**17)
    assert spec.training == {"learning_rate": 0.0003, "muon_learning_rate": 0.02, "weight_decay": 0.1, "rounds": 3}
    assert spec.model == {"architecture": "3e-4b"}
    file.write_text('{"budget_max": 0.1, "data_config": {"dataset": "x"}, "training_config": {"learning_rate": 1e-05}}')
    assert (jobspec.load(file).budget_max, jobspec.load(file).training) == (10**17, {"learning_rate": 1e-05})


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("wait: 30", "Write wait as a number and a unit: 45s, 30m, 2h or 1d."),
        ("nodes: 2.5", "Write nodes as a whole number."),
        ("sampling_bps: 5 %", "Write sampling_bps as a whole number, such as 1000 for 10 %."),
        ("budget_max: [1]", "Write budget_max as an amount of ZEN such as 2.5, or of wei such as '2500 wei'."),
        ("requirements:", "Write requirements as settings by name, such as {regions: [eu-west]}."),
    ],
)
def test_wrong_key_type_error_shows_correct_form(tmp_path: Path, line: str, remedy: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(f"data_config: {{dataset: x}}\nbudget_max: 1\n{line}\n".replace("budget_max: 1\nbudget", "budget"))
    with pytest.raises(ConfigError) as error:
        jobspec.load(file)
    assert error.value.remedy == remedy


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("data_config: {dataset: x}\nbudget_max: 1\nmax_prise: 2", "'max_price'"),
        ("data_config: {dataset: x}", "budget_max is missing"),
        ("budget_max: 1", "data_config is missing"),
        ("data_config: {validation: a}\nbudget_max: 1", "data_config"),
        ("data_config: {dataset: x}\nbudget_max: 1\nnodes: many", "nodes cannot be 'many'"),
        ("data_config: {dataset: x}\nbudget_max: 1\nwait: soon", "wait is 'soon'"),
        (
            "data_config: {dataset: x}\nbudget_max: 1\ntraining_config: {learning_rate: .inf}",
            r"training_config\.learning_rate has a value that JSON does not allow",
        ),
        (
            "data_config: {dataset: x}\nbudget_max: 1\nmodel_config: {rope_parameters: {rope_theta: .nan}}",
            r"model_config\.rope_parameters\.rope_theta has a value",
        ),
        ("data_config: {dataset: x}\nbudget_max: 1\nmodel_config: {2026-01-01: 1}", "model_config has a value"),
        ("data_config: {dataset: x}\nbudget_max: 1\nmodel_config: &a {b: *a}", r"model_config\.b.* has a value"),
        (
            "data_config: {dataset: x}\nbudget_max: 1\nrequirements: {regions: [2026-01-01]}",
            r"requirements\.regions has a value",
        ),
        ("budget_max: 2026-99-99", "neither YAML nor JSON"),
        ("- 1", "must contain an object"),
        ("a: [", "neither YAML nor JSON"),
        ("[" * 3000, "nested too deeply"),
        ("data_config: {dataset: x}\nbudget_max: 1\nbudget_max: 100", "contains the key 'budget_max' twice"),
        ("data_config: {dataset: x}\nbudget_max: 1\ntraining_config: {rounds: 2, rounds: 3}", "the key 'rounds' twice"),
    ],
)
def test_invalid_job_file_error_names_problem(tmp_path: Path, text: str, named: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=named):
        jobspec.load(file)


def test_impossible_path_counts_as_no_file() -> None:
    with raises_code(ConfigError, "file-unreadable", match="embedded null byte"):
        uploads.send_file(MagicMock(), Path("corpus\0.txt"), 1)


def test_wallet_hides_key_and_explains_errors(tmp_path: Path) -> None:
    assert "22" * 32 not in repr(WALLET)
    for wrong in ("0x12", "zz" * 32, "00" * 32, "ff" * 32):
        with raises_code(ConfigError, "private-key-malformed") as error:
            Wallet(wrong)
        assert wrong not in error.value.detail
    keystore = tmp_path / "key.json"
    keystore.write_text(json.dumps(Account.encrypt("22" * 32, "secret", kdf="pbkdf2", iterations=2)))
    environment = {"ZOO_KEYSTORE": str(keystore), "ZOO_KEYSTORE_PASSWORD": "secret"}
    wallet = Wallet.from_environment(environment)
    assert wallet is not None
    assert wallet.address == WALLET.address
    with raises_code(ConfigError, "keystore-unusable"):
        Wallet.from_environment(environment | {"ZOO_KEYSTORE_PASSWORD": "wrong"})
    assert Wallet.from_environment({}) is None


def test_model_is_written_to_writable_file(tmp_path: Path) -> None:
    client = Client("http://market.test", wallet=WALLET)
    client._network = NETWORK
    with raises_code(ConfigError, "file-unwritable") as error:
        client.download(CID, tmp_path / "none" / "model.safetensors")
    assert "none/model.safetensors: No such file" in error.value.detail


def test_job_is_named_by_its_id() -> None:
    client = Client("http://market.test", wallet=WALLET)
    assert client.job("0x" + "AB" * 32).id == "0x" + "ab" * 32
    for wrong in ("", "0x12", "../network", f"0x{'ab' * 32}/units"):
        with raises_code(ConfigError, "job-malformed"):
            client.job(wrong)


def test_prompt_has_at_least_one_character() -> None:
    with pytest.raises(ConfigError, match="prompt-empty"):
        Client("http://market.test", wallet=WALLET).job("0x" + "00" * 32).sample("", 10)


def test_chain_contradiction_raises_error_with_code() -> None:
    with pytest.raises(Mismatch) as error, evidence_errors():
        raise ChainDisagrees("no_window", "there is none")
    assert (error.value.code, error.value.detail) == ("no-window", "there is none")


def test_malformed_address_is_refused() -> None:
    assert checked_address(WALLET.address.lower()) == WALLET.address
    for wrong in ("0x12", "", WALLET.address.swapcase().replace("0X", "0x")):
        with raises_code(ConfigError, "bad-address"):
            checked_address(wrong)


@pytest.mark.parametrize(
    ("text", "found"), [(None, "0xab"), ("0xAB1", "0xab1"), ("0xc", "0xc"), ("moon", "0xc"), ("0x" + "d" * 64, "0xd")]
)
def test_job_is_found_by_start_or_name(monkeypatch: pytest.MonkeyPatch, text: str | None, found: str) -> None:
    client = client_with_jobs(monkeypatch)
    assert client.find_job(text).id.startswith(found)


@pytest.mark.parametrize(("text", "code"), [("0xab", "job-ambiguous"), ("sun", "job-unknown")])
def test_unclear_job_is_refused(monkeypatch: pytest.MonkeyPatch, text: str, code: str) -> None:
    with raises_code(ConfigError, code):
        client_with_jobs(monkeypatch).find_job(text)


def client_with_jobs(monkeypatch: pytest.MonkeyPatch) -> Client:
    starts = {"0xab0": None, "0xab1": None, "0xc": "moon"}
    states = [JobState.model_construct(id=start.ljust(66, "0"), name=name) for start, name in starts.items()]
    monkeypatch.setattr(Client, "jobs", lambda _: iter(states))
    return Client("http://market.test", wallet=WALLET)


async def _awaited(state: JobState) -> JobState:
    found: JobState = await state
    return found


def test_awaited_job_state_is_returned_unchanged() -> None:
    state = JobState.model_construct(id="0x00", status="settled", reason="completed")
    assert asyncio.run(_awaited(state)) is state
