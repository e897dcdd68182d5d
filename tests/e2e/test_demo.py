"""The demonstration from a terminal; an independent program recomputes its receipt."""

import base64
import hashlib
import json
import re
import subprocess
import sys
from typing import Any

import httpx
import pytest
from kit.engines.devnet import ROOT, Devnet, clean
from web3 import HTTPProvider, Web3

from zoo_protocol.contracts import artifact

KEYS = {
    *("job_id", "tier", "clearing_price_wei_per_gpu_hour", "units", "slashes", "checkpoints", "settlement_tx"),
    *("budget_wei", "escrowed_wei", "paid_wei", "fee_wei", "refund_wei", "treasury_balance_wei", "ledger_reconciled"),
    *("initial_loss", "final_loss", "final_error", "final_model_cid", "seconds", "story", "training"),
}
STAKES = {"providers": 1_000 * 10**18, "verifiers": 500 * 10**18}
PROVIDER_LOST = 5  # IDisputes.Status


@pytest.mark.timeout(1_300)  # a minute and a half on two idle cores
def test_demo_receipt_matches_chain_and_storage(devnet: Devnet) -> None:
    argv = [sys.executable, "-m", "zoo_compute", "demo", "--keep", "--json", "--directory", str(devnet.directory)]
    done = subprocess.run(argv, cwd=ROOT, env=clean(), capture_output=True, text=True, timeout=1_200, check=False)
    assert done.returncode == 0, done.stderr
    receipt = json.loads((devnet.directory / "demo-receipt.json").read_text())
    assert json.loads(done.stdout) == receipt
    assert set(receipt) >= KEYS
    info = json.loads(devnet.command("info", "--json").stdout)
    cheat = info["accounts"]["providers"][0]["address"]
    assert [(slash["provider"], slash["path"]) for slash in receipt["slashes"]] == [(cheat, "dispute")]
    _check_that_committee_upheld_dispute(info, receipt, cheat)
    _check_that_others_keep_their_stake(info)

    money = {name: int(receipt[f"{name}_wei"]) for name in ("budget", "escrowed", "paid", "fee", "refund")}
    moved = _transfers_of(info)
    assert moved[info["contracts"]["Treasury"]] == money["fee"]
    assert moved[info["accounts"]["user"]["address"]] == money["refund"]
    assert sum(moved.values()) == money["escrowed"] == money["paid"] + money["fee"] + money["refund"]
    owed: dict[str, int] = {}
    for unit in receipt["units"]:
        owed[unit["provider"]] = owed.get(unit["provider"], 0) + int(unit["paid_wei"])
    for provider, amount in owed.items():
        assert moved.get(provider, 0) == amount
    assert owed.get(cheat, 0) == 0
    assert money["fee"] == (money["paid"] + money["fee"]) * 5 // 100

    cids = {receipt["final_model_cid"], *(item["cid"] for item in receipt["checkpoints"])}
    cids |= {unit["payload_cid"] for unit in receipt["units"] if int(unit["paid_wei"]) > 0}
    for cid in cids:
        _check_block(info["ipfs_url"], cid)
    _find_slot_states(info["ipfs_url"], [item["cid"] for item in receipt["checkpoints"]])
    _replay_false_unit(devnet, info, receipt, cheat)
    assert "the model writes" in done.stderr
    assert "How the dishonest provider was caught" in done.stderr
    assert all(step["tx"] in done.stderr for step in receipt["story"]["chain"])
    assert "None of the 4 honest providers" in " ".join(done.stderr.split())
    assert "provider-2, on 4 Mbit/s, delivered" in done.stderr
    _check_that_slow_node_sent_assigned_level(info, receipt, done.stderr)
    assert "provider-4 was delayed between its commitment and its upload" in done.stderr
    _check_that_a_late_payload_was_joined_and_paid(info, receipt)
    assert f"provider-3 left after round {receipt['training']['leaver']['left_after']}" in done.stderr
    _check_that_the_leaver_caught_up_by_updates(info, receipt)
    assert "of the same nodes in one place" in done.stderr
    assert (devnet.directory / "demo-model" / "model.safetensors").stat().st_size > 0


def _check_that_committee_upheld_dispute(info: dict[str, Any], receipt: dict[str, Any], cheat: str) -> None:
    chain, disputes = Web3(HTTPProvider(info["rpc_url"])), info["contracts"]["Disputes"]
    (slashed,) = _events(info, "ProviderStaking", "Slashed")
    story = receipt["story"]
    assert slashed["args"]["provider"] == cheat
    assert "0x" + slashed["args"]["evidence"].hex() == story["dispute_id"]
    assert chain.eth.get_transaction(slashed["transactionHash"])["to"] == disputes
    (ended,) = _events(info, "Disputes", "DisputeEnded")
    assert ended["args"]["outcome"] == PROVIDER_LOST
    assert ended["transactionHash"] == slashed["transactionHash"]
    (given,) = _events(info, "Disputes", "VerdictGiven")
    (drawn,) = _events(info, "Disputes", "CommitteeDrawn")
    committee = drawn["args"]["committee"]
    verifiers = {account["address"] for account in info["accounts"]["verifiers"]}
    assert set(committee) <= verifiers
    assert len(set(committee)) == len(committee) == 3
    assert given["args"]["signatures"] >= 2
    assert story["committee"] == committee
    assert {verdict["provider_correct"] for verdict in story["verdicts"]} == {False}
    assert len(set(story["noticed"]["verifiers"])) >= 2
    named = [step["event"] for step in story["chain"]]
    first = ["WindowCommitted", "DisputeOpened", "TraceShown", "StepNamed", "CommitteeDrawn", "VerdictGiven"]
    assert named == first
    cost = story["cost"]
    burned, shared = int(cost["burned_wei"]), [cost["to_challenger_wei"], *cost["to_referees_wei"].values()]
    assert burned + sum(map(int, shared)) == slashed["args"]["amount"] == STAKES["providers"] // 2


def _check_that_slow_node_sent_assigned_level(info: dict[str, Any], receipt: dict[str, Any], output: str) -> None:
    """Check the payload headers, which contain the entries per chunk (docs/protocol.md)."""
    provider, slow = info["accounts"]["providers"][1]["address"], receipt["training"]["slow_link"]
    payloads = [
        _block(info["ipfs_url"], unit["payload_cid"])
        for unit in receipt["units"]
        if unit["provider"] == provider and unit["payload_cid"]
    ]
    assert slow["provider"] == provider
    assert [int.from_bytes(payload[6:8], "little") for payload in payloads] == slow["told"] == slow["by_the_rule"]
    assert min(map(len, payloads)) == slow["least_bytes"] <= slow["whole_bytes"]
    if min(slow["told"]) < slow["asked_of_others"]:
        assert f"{slow['least_bytes']} bytes instead of {slow['whole_bytes']}" in output
    else:  # this machine is busy
        assert slow["quickest_seconds"] > 5
        assert "the market assigned all entries" in output


def _check_that_a_late_payload_was_joined_and_paid(info: dict[str, Any], receipt: dict[str, Any]) -> None:
    provider, late = info["accounts"]["providers"][3]["address"], receipt["training"]["late"]
    (unit,) = (
        unit
        for unit in receipt["units"]
        if (unit["provider"], unit["round"]) == (provider, late["round"]) and unit["payload_cid"]
    )
    assert int(unit["paid_wei"]) > 0
    manifests = [json.loads(_block(info["ipfs_url"], item["cid"])) for item in receipt["checkpoints"]]
    records = [json.loads(_block(info["ipfs_url"], one["aggregation"])) for one in manifests if one["aggregation"]]
    used = [
        (record["round"], entry["verdict"], entry["weight"] / record["weight_one"])
        for record in records
        for entry in record["payloads"]
        if entry["payload"] == unit["payload_cid"]
    ]
    weight = (1 + late["rounds_late"]) ** -0.5
    assert late["rounds_late"] >= 1
    assert used == [(late["joined"][0]["round"], "included", pytest.approx(weight, abs=2**-11))]
    assert used[0][0] > late["round"]


def _check_that_the_leaver_caught_up_by_updates(info: dict[str, Any], receipt: dict[str, Any]) -> None:
    leaver = receipt["training"]["leaver"]
    caught_up = leaver["caught_up"]
    cids = [item["cid"] for item in receipt["checkpoints"][caught_up["from_round"] + 1 : caught_up["round"] + 1]]
    updates = [json.loads(_block(info["ipfs_url"], cid))["update"] for cid in cids]
    assert caught_up["updates"] == len(updates) >= 1
    assert caught_up["update_bytes"] == sum(len(_block(info["ipfs_url"], cid)) for cid in updates)
    assert caught_up["update_bytes"] * 7 < caught_up["model_bytes"] * caught_up["updates"]
    assert leaver["delivered_since"] >= 1


def _block(gateway: str, cid: str) -> bytes:
    answer = httpx.get(f"{gateway}/ipfs/{cid}", params={"format": "raw"})
    assert answer.status_code == 200
    return answer.content


def _check_that_others_keep_their_stake(info: dict[str, Any]) -> None:
    staking = _contract(info, "ProviderStaking")
    for kind, minimum in STAKES.items():
        for account in info["accounts"][kind][kind == "providers" :]:  # the first provider is dishonest
            assert staking.functions.stakeOf(account["address"]).call() == minimum


def _contract(info: dict[str, Any], name: str) -> Any:
    chain = Web3(HTTPProvider(info["rpc_url"]))
    return chain.eth.contract(address=info["contracts"][name], abi=artifact(name).abi)


def _events(info: dict[str, Any], contract: str, name: str) -> list[Any]:
    return list(_contract(info, contract).events[name]().get_logs(from_block=0))


def _find_slot_states(gateway: str, checkpoints: list[str]) -> None:
    manifests = [json.loads(_block(gateway, cid)) for cid in checkpoints]
    named = [sorted(manifest["slot_states"].values()) for manifest in manifests]
    assert (named[0], named[-1]) == ([], [])  # no unit starts from the last
    assert all(named[1:-1])
    answers = [httpx.get(f"{gateway}/ipfs/{cid}", params={"format": "raw"}) for cids in named[1:-1] for cid in cids]
    assert 200 in {answer.status_code for answer in answers}


def _replay_false_unit(devnet: Devnet, info: dict[str, Any], receipt: dict[str, Any], cheat: str) -> None:
    found_out = {"provider": cheat, "status": "rejected", "reason": "incorrect_computation"}  # by replays of samples
    unit = next(unit for unit in receipt["units"] if found_out.items() <= unit.items())
    place = f"{receipt['job_id']}:{unit['round']}:{unit['slot']}"
    argv = [sys.executable, "-m", "zoo_compute", "verify", "unit", place, "--json", "--api-url", info["api_url"]]
    other_account = {"ZOO_PRIVATE_KEY": "0x" + "77" * 32}
    done = subprocess.run(argv, cwd=ROOT, env=clean() | other_account, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    judged = {attempt["provider"]: attempt for attempt in found["attempts"]}
    difference = judged.pop(cheat)["difference"]
    assert difference["first_step"] == 1
    assert difference["tensor"] is not None
    for attempt in judged.values():
        assert (attempt["status"], attempt["agrees"], attempt["difference"]) == ("verified", True, None)


def _transfers_of(info: dict[str, Any]) -> dict[str, int]:
    chain = Web3(HTTPProvider(info["rpc_url"]))
    inputs = [("from", "address", True), ("to", "address", True), ("value", "uint256", False)]
    event = {
        "type": "event",
        "name": "Transfer",
        "anonymous": False,
        "inputs": [{"name": name, "type": kind, "indexed": indexed} for name, kind, indexed in inputs],
    }
    token = chain.eth.contract(address=Web3.to_checksum_address(info["contracts"]["ZenToken"]), abi=[event])
    moved: dict[str, int] = {}
    of_escrow = {"from": info["contracts"]["JobEscrow"]}
    for log in token.events.Transfer().get_logs(from_block=0, argument_filters=of_escrow):
        moved[log["args"]["to"]] = moved.get(log["args"]["to"], 0) + log["args"]["value"]
    return moved


def _check_block(gateway: str, cid: str) -> None:
    text = cid[1:].upper()
    digest = base64.b32decode(text + "=" * (-len(text) % 8))[4:]
    assert hashlib.sha256(_block(gateway, cid)).digest() == digest


@pytest.mark.timeout(1_300)
def test_finetune_demo_slashes_made_up_adapter(devnet: Devnet) -> None:
    argv = [sys.executable, "-m", "zoo_compute", "demo", "--job", "finetune", "--keep", "--json"]
    argv += ["--directory", str(devnet.directory)]
    done = subprocess.run(argv, cwd=ROOT, env=clean(), capture_output=True, text=True, timeout=1_200, check=False)
    assert done.returncode == 0, done.stderr
    receipt = json.loads(done.stdout)
    info = json.loads(devnet.command("info", "--json").stdout)
    cheat = info["accounts"]["providers"][0]["address"]
    assert [(slash["provider"], slash["path"]) for slash in receipt["slashes"]] == [(cheat, "dispute")]
    _check_that_committee_upheld_dispute(info, receipt, cheat)
    _check_that_others_keep_their_stake(info)
    folder = devnet.directory / "demo-chat-model"
    adapter, base = folder / "adapter_model.safetensors", folder / "base" / "model.safetensors"
    assert 0 < adapter.stat().st_size < base.stat().st_size
    assert re.search("^chat: .*[a-z]", done.stderr, re.MULTILINE)


@pytest.mark.timeout(1_300)
def test_processes_demo_repeats_unit_and_slashes(devnet: Devnet) -> None:
    argv = [sys.executable, "-m", "zoo_compute", "demo", "--job", "processes", "--keep", "--json"]
    argv += ["--directory", str(devnet.directory)]
    done = subprocess.run(argv, cwd=ROOT, env=clean(), capture_output=True, text=True, timeout=1_200, check=False)
    assert done.returncode == 0, done.stderr
    receipt = json.loads(done.stdout)
    info = json.loads(devnet.command("info", "--json").stdout)
    cheat = info["accounts"]["providers"][0]["address"]
    assert [(slash["provider"], slash["path"]) for slash in receipt["slashes"]] == [(cheat, "dispute")]
    _check_that_committee_upheld_dispute(info, receipt, cheat)
    _check_that_others_keep_their_stake(info)
    own = [(unit["round"], unit["status"], unit["reason"]) for unit in receipt["units"] if unit["provider"] == cheat]
    assert own[:3] == [(0, "lost", "process_lost"), (0, "verified", None), (1, "rejected", "incorrect_computation")]
    moved = _transfers_of(info)
    owed = {unit["provider"]: 0 for unit in receipt["units"]}
    for unit in receipt["units"]:
        owed[unit["provider"]] += int(unit["paid_wei"])
    assert owed == {provider: moved.get(provider, 0) for provider in owed}
    assert 0 < owed[cheat] < sum(owed.values())
    assert "trained on 2 processes over" in done.stderr
