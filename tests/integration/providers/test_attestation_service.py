"""A node's TEE quote is attested on chain, and any client can check it.

The machine and its vendor are stand-ins (`kit.fakes.dcap`); the market, the contracts and storage are real.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest
from eth_account import Account
from fastapi import FastAPI
from kit.api.clients import Caller, Cli, accepted, refusal, sign_in
from kit.api.provider_calls import HARDWARE, register
from kit.chain.deployed_chain import OTHER, PROVIDER, Chain
from kit.chain.deployed_chain import Wallet as ChainWallet
from kit.chain.on_chain import OnChain
from kit.fakes.dcap import Vendor
from kit.fakes.nras import AttestationService, tool_in

from market.chain.contracts.codec import Deployment
from market.chain.views import ChainViews
from market.domain.network import MAINNET
from market.platform.db.session import Database
from market.providers.models import Provider
from market.settings import Settings
from zoo_compute.chain.wallet import Wallet
from zoo_compute.client.http import Connection
from zoo_compute.node.attestation import AttestationRenewal, GpuSource, QuoteSource, collateral_from
from zoo_compute.node.market.calls import Market
from zoo_protocol.attestation.gpu_attestation import GpuStatement
from zoo_protocol.attestation.tee_quotes import Evidence, with_gpus
from zoo_protocol.hashing import from_hex


@dataclass
class AttestedWorld(OnChain):
    chain: Chain
    database: Database
    vendor: Vendor
    nvidia: AttestationService
    api: httpx.Client
    root: Path

    def accept(self, measurement: str, *, accepted: bool = True) -> None:
        timelock = self.chain.deployment.address("Timelock")  # its delay is not what is tested here
        self.chain.anvil.rpc("anvil_impersonateAccount", timelock)
        self.chain.anvil.rpc("anvil_setBalance", timelock, hex(10**18))
        self.chain.send(ChainWallet(timelock, ""), "Attestations", "setMeasurement", measurement, accepted)
        self.finalise()

    def challenge(self, caller: Caller) -> dict[str, str]:
        found: dict[str, str] = accepted(caller.post("/v1/attestations", json={}), 201)
        return found

    def answer(
        self, caller: Caller, challenge: str, quote: bytes, gpus: GpuStatement | None = None, **collateral: str
    ) -> httpx.Response:
        body: dict[str, object] = {"quote": quote.hex(), "collateral": self.vendor.collateral() | collateral}
        if gpus is not None:
            body["gpu_statement"] = gpus.as_document()
        return caller.post(f"/v1/attestations/{challenge}/quote", json=body)

    def quote(self, challenge: dict[str, str], gpus: GpuStatement | None = None) -> bytes:
        return self.vendor.quote(with_gpus(from_hex(challenge["report_data"], 64), gpus))

    def statement(self, challenge: dict[str, str], gpus: int) -> GpuStatement:
        return self.nvidia.statement(from_hex(challenge["gpu_nonce"]), gpus)

    def attested_until(self, caller: Caller) -> str | None:
        until: str | None = self.api.get(f"/v1/providers/{caller.address}").json()["attested_until"]
        return until


@pytest.fixture
def world(
    app: FastAPI, api: httpx.Client, chain: Chain, database: Database, settings: Settings, tmp_path: Path
) -> AttestedWorld:
    vendor, nvidia, root = Vendor(), AttestationService(), tmp_path / "root.der"
    root.write_bytes(vendor.root_der)
    changed = settings.model_copy(
        update={
            "attestation_root_ca": str(root),
            "gpu_attestation_keys": nvidia.trusted,
            "rpc_url": chain.anvil.url,
            "public_rpc_url": chain.anvil.url,
        }
    )
    services = replace(app.state.services, settings=changed)
    app.state.services = services.with_part(ChainViews, chain.views).with_part(Deployment, chain.deployment)
    return AttestedWorld(chain, database, vendor, nvidia, api, root)


def registered(world: AttestedWorld, key: str = PROVIDER.key, gpus: int = 0) -> Caller:
    caller = sign_in(world.api, Account.from_key(key))
    register(caller, hardware=HARDWARE | {"gpu_count": gpus})
    return caller


def attested_with(world: AttestedWorld, caller: Caller, gpus: int) -> None:
    challenge = world.challenge(caller)
    statement = world.statement(challenge, gpus) if gpus else None
    accepted(world.answer(caller, challenge["id"], world.quote(challenge, statement), statement), 202)
    world.finalise()


def accepted_measurement(world: AttestedWorld, caller: Caller) -> str:
    challenge = world.challenge(caller)
    problem = refusal(world.answer(caller, challenge["id"], world.quote(challenge)), 409, "measurement-not-accepted")
    measurement = str(problem["measurement"])
    world.accept(measurement)
    return measurement


def test_node_is_attested_on_chain_and_publicly_checkable(world: AttestedWorld, cli: Cli) -> None:
    caller = registered(world)
    measurement = accepted_measurement(world, caller)
    challenge = world.challenge(caller)
    answer = accepted(world.answer(caller, challenge["id"], world.quote(challenge)), 202)
    assert (answer["tee"], answer["measurement"]) == ("TDX", measurement)
    assert world.attested_until(caller) is None  # not final yet
    world.finalise()
    assert world.attested_until(caller) == answer["attested_until"].split(".")[0].rstrip("Z") + "Z"

    found = cli.json("verify", "attestation", caller.address, "--root-ca", world.root)
    assert (found["measurement"], found["report"], found["counts"]) == (measurement, answer["report"], True)
    assert "quote-refused" in cli("verify", "attestation", caller.address, code=6)  # under Intel's root it is nothing
    world.accept(measurement, accepted=False)
    assert world.attested_until(caller) is None
    assert cli.json("verify", "attestation", caller.address, "--root-ca", world.root)["counts"] is False


def test_challenge_accepts_one_answer_by_own_wallet(world: AttestedWorld) -> None:
    caller = registered(world)
    accepted_measurement(world, caller)
    first, outsider = world.challenge(caller), sign_in(world.api)
    old = world.quote(first)
    refusal(world.answer(outsider, first["id"], old), 404, "attestation-not-found")
    second = world.challenge(caller)  # takes the first one's place
    refusal(world.answer(caller, first["id"], old), 404, "attestation-not-found")
    problem = refusal(world.answer(caller, second["id"], old), 422, "invalid-quote")
    assert (problem["field"], problem["reason"]) == ("quote", "unbound")
    problem = refusal(world.answer(caller, second["id"], world.quote(second)[:600]), 422, "invalid-quote")
    assert problem["reason"] == "malformed"
    problem = refusal(world.answer(caller, second["id"], world.quote(second), pck_crl="00"), 422, "invalid-quote")
    assert problem["reason"] == "unverified"
    assert world.answer(caller, second["id"], world.quote(second)).status_code == 202
    refusal(world.answer(caller, second["id"], world.quote(second)), 409, "attestation-answered")
    refusal(world.api.post("/v1/attestations", json={}, headers=outsider.headers), 409, "not-registered")


def test_node_with_gpus_attests_all_or_none(world: AttestedWorld, cli: Cli) -> None:
    accepted_measurement(world, registered(world))
    caller = registered(world, gpus=2)
    first = world.challenge(caller)
    problem = refusal(world.answer(caller, first["id"], world.quote(first)), 409, "gpus-not-attested")
    assert (problem["field"], problem["detail"]) == (
        "gpu_statement",
        "the quote covers 0 GPUs; expected 2, as registered or as your tier has",
    )
    one, two = world.statement(first, 1), world.statement(first, 2)
    refusal(world.answer(caller, first["id"], world.quote(first, one), one), 409, "gpus-not-attested")
    problem = refusal(world.answer(caller, first["id"], world.quote(first), two), 422, "invalid-quote")
    assert (problem["field"], problem["reason"]) == ("quote", "unbound")  # the environment knows of no GPUs
    second = world.challenge(caller)
    problem = refusal(world.answer(caller, second["id"], world.quote(second, two), two), 422, "invalid-quote")
    assert (problem["field"], problem["reason"]) == ("gpu_statement", "unbound")  # of the challenge before
    forged = AttestationService().statement(from_hex(second["gpu_nonce"]), 2)
    problem = refusal(world.answer(caller, second["id"], world.quote(second, forged), forged), 422, "invalid-quote")
    assert (problem["field"], problem["reason"]) == ("gpu_statement", "unverified")

    attested_with(world, caller, 2)
    assert world.attested_until(caller) is not None
    found = cli.json(
        "verify", "attestation", caller.address, "--root-ca", world.root, "--gpu-key", world.nvidia.trusted
    )
    assert [gpu["model"] for gpu in found["gpus"]] == ["GH100", "GH100"]
    assert "quote-refused" in cli("verify", "attestation", caller.address, "--root-ca", world.root, code=6)
    registered(world, gpus=3)  # it says that it has one more
    assert world.attested_until(caller) is None


def test_undeclared_gpus_are_required_by_tier(app: FastAPI, world: AttestedWorld) -> None:
    """A node that declares 0 GPUs must not avoid their attestation."""
    app.state.services = replace(app.state.services, network=MAINNET)
    bronze = MAINNET.tier("bronze")
    caller = registered(world)
    accepted_measurement(world, caller)
    attested_with(world, caller, 0)
    assert world.attested_until(caller) is not None  # it has no tier, and gets no work
    world.change(Provider, caller.address, tier_id=bronze.id)
    assert world.attested_until(caller) is None
    challenge = world.challenge(caller)
    problem = refusal(world.answer(caller, challenge["id"], world.quote(challenge)), 409, "gpus-not-attested")
    assert problem["detail"] == "the quote covers 0 GPUs; expected 4, as registered or as your tier has"
    attested_with(world, caller, bronze.gpus)
    assert world.attested_until(caller) is not None


def test_gpus_attest_only_one_wallet(world: AttestedWorld) -> None:
    """A machine with GPUs could otherwise attest any number of others without."""
    accepted_measurement(world, registered(world))
    first, second = registered(world, gpus=2), registered(world, OTHER.key, gpus=1)
    attested_with(world, first, 2)
    attested_with(world, second, 1)  # one of the same two
    assert world.attested_until(second) is not None
    assert world.attested_until(first) is None
    registered(world, gpus=1)
    assert world.attested_until(first) is not None  # the other one is still its own


def test_soon_expiring_collateral_is_refused(world: AttestedWorld) -> None:
    caller = registered(world)
    accepted_measurement(world, caller)
    world.vendor.days = 0
    world.vendor.now = world.vendor.now.replace(microsecond=0)
    challenge = world.challenge(caller)
    problem = refusal(world.answer(caller, challenge["id"], world.quote(challenge)), 422, "invalid-quote")
    assert problem["reason"] in ("ending", "unverified")  # by the second


@pytest.fixture
def gramine(world: AttestedWorld, tmp_path: Path) -> Iterator[Path]:
    device = tmp_path / "attestation"
    device.mkdir()
    for name in ("user_report_data", "quote"):
        os.mkfifo(device / name)

    def serve() -> None:
        while len(data := (device / "user_report_data").read_bytes()) == 64:
            (device / "quote").write_bytes(world.vendor.quote(data))

    thread = threading.Thread(target=serve)
    thread.start()
    yield device
    (device / "user_report_data").write_bytes(b"end")
    thread.join()


def test_node_renews_its_attestation(world: AttestedWorld, gramine: Path) -> None:
    caller = registered(world)
    accepted_measurement(world, caller)
    wallet = Wallet(PROVIDER.key)
    with world.vendor.pccs() as pccs, closing(Connection(str(world.api.base_url), wallet=wallet)) as connection:
        market = Market(connection)
        attesting = AttestationRenewal(market, wallet.address, QuoteSource(gramine=gramine), collateral_from(pccs))
        attesting.keep()
        world.finalise()
        until = world.attested_until(caller)
        assert until is not None
        again = AttestationRenewal(market, wallet.address, QuoteSource(gramine=gramine / "gone"), collateral_from(pccs))
        again.keep()  # nothing is due: this machine could not be asked
    assert world.attested_until(caller) == until


def test_node_with_gpus_queries_nvidia_first(
    world: AttestedWorld, gramine: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    accepted_measurement(world, registered(world))
    caller, wallet = registered(world, gpus=4), Wallet(PROVIDER.key)
    source = QuoteSource(gramine=gramine)
    with (
        world.vendor.pccs() as pccs,
        world.nvidia.served(4) as nvidia,
        closing(Connection(str(world.api.base_url), wallet=wallet)) as connection,
    ):
        market, collateral = Market(connection), collateral_from(pccs)
        gone = GpuSource(str(tmp_path / "none"), nvidia)
        AttestationRenewal(market, wallet.address, source, collateral, gone).keep()
        assert "NVIDIA's attestation service gave no statement" in caplog.text
        AttestationRenewal(market, wallet.address, source, collateral, GpuSource(tool_in(tmp_path), nvidia)).keep()
        world.finalise()
    assert world.attested_until(caller) is not None


def test_node_without_tee_continues_unattested(world: AttestedWorld, caplog: pytest.LogCaptureFixture) -> None:
    registered(world)
    wallet = Wallet(PROVIDER.key)
    nowhere = QuoteSource(tsm=world.root / "no", gramine=world.root / "no")
    with closing(Connection(str(world.api.base_url), wallet=wallet)) as connection:
        AttestationRenewal(Market(connection), wallet.address, nowhere, collateral_from("http://127.0.0.1:1")).keep()
    assert "no TEE quote is available" in caplog.text


def test_linux_reports_use_own_entry(world: AttestedWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []
    left = tmp_path / f"zoo-{os.getpid()}"  # by a process of the same number that was killed, as all are in a container
    left.mkdir()
    monkeypatch.setattr(Path, "read_bytes", lambda path: asked.append(path.name.encode()) or b"quote")
    monkeypatch.setattr(Path, "write_bytes", lambda path, data: asked.append(path.name.encode() + data))
    source = QuoteSource(tsm=tmp_path, gramine=tmp_path / "none")
    assert source.quote(b"x" * 64) == b"quote"
    assert asked == [b"inblob" + b"x" * 64, b"outblob"]
    assert list(tmp_path.glob("zoo-*")) == [left]


def test_evidence_is_public_in_one_block(world: AttestedWorld, ipfs: dict[str, str]) -> None:
    caller = registered(world)
    accepted_measurement(world, caller)
    challenge = world.challenge(caller)
    cid = world.answer(caller, challenge["id"], world.quote(challenge)).json()["report_cid"]
    content = httpx.get(f"{ipfs['gateway']}/ipfs/{cid}", params={"format": "raw"}).content
    assert Evidence.from_bytes(content).provider == caller.address
