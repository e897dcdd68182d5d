"""Leases over HTTP: waiting for one, and a unit from the offer to its delivery."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import httpx
import pytest
from kit.api.clients import accepted, sign_in
from kit.api.provider_calls import beat, registered
from kit.errors import raises_code
from kit.jobs.jobs_fixtures import World
from kit.jobs.unit_results import Work
from kit.waiting import delay, wait_until
from sse_starlette.sse import AppStatus

from market.platform.http.services import Services
from market.training.leases import schemas as leases_schemas
from market.training.leases import service as leases
from market.training.leases.long_poll import LeaseWaiters
from market.training.leases.schemas import LeaseKind
from zoo_compute.base.errors import Unreachable
from zoo_compute.chain.wallet import Wallet
from zoo_compute.client.http import Connection
from zoo_compute.node.market.calls import Market
from zoo_protocol.hashing import to_hex
from zoo_protocol.messages import Heartbeat, typed_data


def test_waiting_node_gets_work_when_available(api: httpx.Client, services: Services, world: World) -> None:
    node, job_id = registered(api), world.job()
    assert beat(node, services.domain, kinds=list(LeaseKind))["lease"] is None
    offered_at: list[float] = []
    waiting = services.part(LeaseWaiters)._waiting

    def offer() -> None:
        wait_until(lambda: waiting)
        delay(0.5)
        world.call(leases.create_lease, kind="pin", holder=node.address, job_id=job_id, task={"a": 1}, seconds=60)
        offered_at.append(time.monotonic())

    thread = threading.Thread(target=offer)
    thread.start()
    kinds = ["pin", "reveal"]
    answer = beat(node, services.domain, wait_seconds=25, kinds=kinds)
    thread.join()
    assert (answer["lease"]["kind"], answer["lease"]["task"]) == ("pin", {"a": 1})
    assert time.monotonic() - offered_at[0] < 10  # long before the wait was over
    assert 300 < answer["waited_ms"] < 10_000
    assert beat(node, services.domain, kinds=kinds)["lease"] is None


def test_poll_without_signature_takes_no_lease(api: httpx.Client, world: World) -> None:
    node = registered(api)
    world.call(leases.create_lease, kind="pin", holder=node.address, job_id=world.job(), task={}, seconds=60)
    answer = accepted(node.post("/v1/leases/next", json={"kinds": ["pin"], "wait_seconds": 25}))
    assert (answer["counted"], answer["lease"]) == (False, None)
    assert answer["waited_ms"] < 10_000


def test_stopped_node_ends_poll_and_takes_no_lease(api: httpx.Client, services: Services, world: World) -> None:
    node, waiting = registered(api), services.part(LeaseWaiters)._waiting
    wallet = Wallet(to_hex(bytes(node.wallet.key)))
    connection = Connection(str(api.base_url), wallet=wallet)

    def sign(challenge: str) -> str:
        return wallet.sign_typed_data(typed_data(services.domain, Heartbeat(node.address, challenge)))

    with ThreadPoolExecutor() as pool:
        polled = pool.submit(Market(connection).poll, sign, ["pin"], 30.0)
        wait_until(lambda: waiting)
        connection.stop()
        with raises_code(Unreachable, "market-unreachable"):
            polled.result(25)  # less than the poll
    world.call(leases.create_lease, kind="pin", holder=node.address, job_id=world.job(), task={}, seconds=60)
    wait_until(lambda: not waiting)  # the market sees the offer, and the closed connection
    assert beat(node, services.domain, kinds=["pin"])["lease"] is not None


def test_stopping_server_answers_waiting_polls(
    api: httpx.Client, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AppStatus, "should_exit", True)  # as after SIGTERM
    answer = beat(registered(api), services.domain, kinds=["pin"], wait_seconds=25)
    assert answer["waited_ms"] < 10_000


def test_unit_is_committed_and_completed_over_http(api: httpx.Client, services: Services, world: World) -> None:
    node = sign_in(api)
    world.wallets[node.address] = node.wallet
    world.register(node.address)
    job_id = world.running([node.address], redundancy=1)
    headers = node.headers
    lease = leases_schemas.LeaseView.model_validate(beat(node, services.domain, kinds=["train"])["lease"])
    path = f"/v1/leases/{lease.id}"
    extended = api.post(f"{path}/heartbeat", json={"token": lease.token, "step": 1}, headers=headers)
    assert datetime.fromisoformat(extended.json()["expires_at"]) > lease.expires_at
    probed = api.post(f"{path}/heartbeat", json={"token": lease.token, "probe": "0x" + "77" * 32}, headers=headers)
    assert datetime.fromisoformat(probed.json()["expires_at"]) > lease.expires_at
    work = Work(world, lease, node.address)
    commitment = work.commitment(services.domain).model_dump(mode="json")
    assert api.post(f"{path}/commit", json=commitment, headers=headers).json()["status"] == "active"
    completion = work.completion().model_dump(mode="json")
    unknown = api.post(f"{path}/complete", json={**completion, "leafs": []}, headers=headers).json()
    assert unknown["code"] == "invalid-request"
    assert "leaves" in unknown["remedy"]
    wrong = {"token": lease.token, "proof": "0x" + "00" * 32}
    assert api.post(f"{path}/complete", json=wrong, headers=headers).json()["code"] == "wrong-step"
    assert api.post(f"{path}/complete", json=completion, headers=headers).json()["status"] == "done"
    late = api.post(f"{path}/fail", json={"token": lease.token, "code": "gave_up"}, headers=headers)
    assert (late.status_code, late.json()["code"]) == (409, "lease-lost")
    assert [unit.status for unit in world.units(job_id)] == ["uploaded"]


def test_open_work_lists_jobs_and_undecided_units(api: httpx.Client, world: World) -> None:
    node = sign_in(api)
    world.wallets[node.address] = node.wallet
    world.register(node.address)

    def open_work() -> object:
        return node.get("/v1/work").json()

    assert open_work() == {"job_ids": [], "undecided_units": 0}
    job_id = world.running([node.address], redundancy=1)
    assert open_work() == {"job_ids": [job_id], "undecided_units": 1}
    world.deliver(node.address)
    assert open_work() == {"job_ids": [job_id], "undecided_units": 1}, "delivered, but not verified yet"
    assert api.get("/v1/work").status_code == 401
