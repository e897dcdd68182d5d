"""Attestations in the market: shown as long as the registry on chain holds them."""

import time

import httpx
from kit.api.clients import sign_in
from kit.api.provider_calls import register, registered

from market.chain.contracts.codec import ChainEvent
from market.domain.network import DEVNET
from market.platform.db.base import from_unix, utc_now
from market.platform.db.session import Database
from market.providers.attestation import chain_events as attestation_chain_events

ACCEPTED = "0x" + "aa" * 32
REPORT = "0x" + "cc" * 32


def deliver(database: Database, name: str, **args: object) -> None:
    args = {"report": REPORT} | args
    event = ChainEvent("Attestations", name, args, "0x", 1, "0x", 0, int(time.time()))
    handler = {
        "Attested": attestation_chain_events.on_attested,
        "Revoked": attestation_chain_events.on_revoked,
        "MeasurementSet": attestation_chain_events.on_measurement_set,
    }[name]
    with database.transaction() as session:
        handler(session, event)


def attest(database: Database, provider: str, seconds: int = 3600) -> int:
    expires_at = int(time.time()) + seconds
    deliver(database, "Attested", provider=provider, key=ACCEPTED, measurement=ACCEPTED, expiresAt=expires_at)
    return expires_at


def shown(api: httpx.Client, provider: str) -> str | None:
    single = api.get(f"/v1/providers/{provider}").json()["attested_until"]
    [listed] = [item for item in api.get("/v1/providers").json()["items"] if item["address"] == provider]
    assert listed["attested_until"] == single
    return None if single is None else str(single)


def test_attestation_is_shown_until_it_is_revoked(api: httpx.Client, database: Database) -> None:
    caller = sign_in(api)
    assert register(caller).json()["attested_until"] is None
    attest(database, caller.address)
    later = attest(database, caller.address, seconds=7200)  # in the first one's place
    until = shown(api, caller.address)
    assert until is not None
    assert until.startswith(from_unix(later).strftime("%Y-%m-%dT%H:%M:%S"))
    deliver(database, "Revoked", provider=caller.address)
    assert shown(api, caller.address) is None


def test_withdrawn_measurement_ends_its_attestations(api: httpx.Client, database: Database) -> None:
    caller = registered(api)
    attest(database, caller.address)
    deliver(database, "MeasurementSet", measurement=ACCEPTED, accepted=True)
    deliver(database, "MeasurementSet", measurement="0x" + "bb" * 32, accepted=False)
    assert shown(api, caller.address) is not None
    deliver(database, "MeasurementSet", measurement=ACCEPTED, accepted=False)
    assert shown(api, caller.address) is None


def test_expired_attestation_does_not_count(database: Database) -> None:
    attest(database, "0x" + "11" * 20, seconds=-1)
    with database.transaction() as session:
        assert attestation_chain_events.attested_until(session, DEVNET, ["0x" + "11" * 20], utc_now()) == {}
