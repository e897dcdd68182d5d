"""Governance and audit log over REST, with the rights of each route."""

import httpx
import pytest
from fastapi import FastAPI
from kit.api.clients import Caller, accepted, refusal, sign_in
from kit.records import Records

from market.accounts.models import Account
from market.chain.contracts.codec import Deployment
from market.chain.rpc.client import Receipt, Transaction
from market.chain.views import ChainViews
from market.governance.models import GovernanceEvent
from market.platform.db.base import utc_now
from market.platform.events.models import AuditEvent
from market.platform.http.services import Services
from zoo_protocol import abi

TX, OTHER_TX = "0x" + "0a" * 32, "0x" + "0b" * 32


def event(kind: str, tx: str, **fields: object) -> GovernanceEvent:
    given = {"contract": "JobEscrow", "data": {"sender": "0x0"}, "log_index": 0, "block_number": 1, "at": utc_now()}
    return GovernanceEvent(kind=kind, tx_hash=tx, **(given | {"at_deployment": False} | fields))


@pytest.fixture
def admin(api: httpx.Client, records: Records) -> Caller:
    caller = sign_in(api)
    records.change(Account, caller.address, roles=["admin"])
    return caller


class PausingNode:
    """Chain's node with one transaction: a pause of the escrow. It notes connections in use."""

    def __init__(self, services: Services, sender: str) -> None:
        escrow = services.part(Deployment).address("JobEscrow")
        self.client = self
        self.connections: list[int] = []
        self._pool = services.database.engine.pool
        self._sent = Transaction(TX, sender, escrow, 0, abi.encode_call("JobEscrow", "pause", []))

    def transaction(self, tx_hash: str) -> Transaction | None:
        self.connections.append(self._pool.checkedout())  # type: ignore[attr-defined]
        return self._sent if tx_hash == TX else None

    def receipt(self, _tx_hash: str) -> Receipt | None:
        self.connections.append(self._pool.checkedout())  # type: ignore[attr-defined]
        return None


def test_only_role_holders_report_sent_acts(
    app: FastAPI, services: Services, api: httpx.Client, records: Records
) -> None:
    guardian, stranger = sign_in(api), sign_in(api)
    node = PausingNode(services, guardian.address.lower())
    app.state.services = services.with_part(ChainViews, node)
    role = {"role": "PAUSER_ROLE", "account": guardian.address, "at_deployment": True}
    records.add(event("role_granted", OTHER_TX, **role), event("paused", TX, account=guardian.address))
    body = {"tx_hash": TX, "act": "escrow.pause", "stage": "direct"}
    refusal(stranger.post("/v1/governance/sent-acts", json=body), 403, "not-permitted")
    assert [alarm["kind"] for alarm in accepted(api.get("/v1/governance/alarms"))] == ["paused"]
    for _ in range(2):
        assert guardian.post("/v1/governance/sent-acts", json=body).status_code == 204
    assert accepted(api.get("/v1/governance/alarms")) == []
    [held] = accepted(api.get("/v1/governance/roles"))
    assert (held["contract"], held["role"], held["account"]) == ("JobEscrow", "PAUSER_ROLE", guardian.address)
    refusal(guardian.post("/v1/governance/sent-acts", json={**body, "tx_hash": OTHER_TX}), 404, "sent-act-not-found")
    refusal(guardian.post("/v1/governance/sent-acts", json={**body, "act": "escrow.unpause"}), 422, "sent-act-differs")
    assert accepted(guardian.get(f"/v1/governance/transactions/{TX}"))["status"] == "waiting"
    assert set(node.connections) == {0}  # none waits for the chain
    records.add(event("role_revoked", "0x" + "0c" * 32, role="PAUSER_ROLE", account=guardian.address))
    refusal(guardian.post("/v1/governance/sent-acts", json=body), 403, "not-permitted")


def test_only_admins_acknowledge_alarms(api: httpx.Client, records: Records, admin: Caller) -> None:
    records.add(event("paused", TX, account=admin.address))
    [alarm] = accepted(api.get("/v1/governance/alarms"))
    assert "zoo_governance_alarms 1.0" in api.get("/metrics").text
    path = f"/v1/governance/events/{alarm['id']}/acknowledge"
    refusal(sign_in(api).post(path), 403, "not-permitted")
    assert admin.post(path).status_code == 204
    refusal(admin.post("/v1/governance/events/999/acknowledge"), 404, "governance-event-not-found")
    assert "zoo_governance_alarms 0.0" in api.get("/metrics").text
    [shown] = accepted(api.get("/v1/governance/events"))["items"]
    assert (shown["is_alarm"], shown["acknowledged_by"]) == (False, admin.address)


def test_audit_log_is_paged_and_searched_by_admins(api: httpx.Client, records: Records, admin: Caller) -> None:
    refusal(sign_in(api).get("/v1/audit"), 403, "not-permitted")
    rows = [("job", "0xa", "matched", "market"), ("job", "0xb", "cancel", admin.address), ("act", "x", "veto", "0xC")]
    records.add(
        *(
            AuditEvent(subject_kind=kind, subject_id=subject, event=name, actor=actor, data={"note": f"50%_{name}"})
            for kind, subject, name, actor in rows
        )
    )

    def found(**query: object) -> list[str]:
        return [one["event"] for one in accepted(admin.get("/v1/audit", params=query))["items"]]

    first = accepted(admin.get("/v1/audit", params={"limit": 2, "kind": "job"}))
    assert [one["event"] for one in first["items"]] == ["cancel", "matched"]
    assert found(kind="job", after=first["next_after"]) == []
    assert found(actor=admin.address.lower()) == ["cancel"]
    assert found(subject="0xa") == ["matched"]
    assert found(search="50%_VET") == ["veto"]
    assert found(search="%veto%") == []
    for name in ("actor", "subject", "kind", "search"):
        refusal(admin.get("/v1/audit", params={name: "a\0"}), 422, "invalid-request")
