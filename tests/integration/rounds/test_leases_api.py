"""Leases over HTTP: waiting for one, and a unit from the offer to its delivery."""

import threading
import time
from datetime import datetime

import httpx
from kit.api.clients import sign_in
from kit.jobs.jobs_fixtures import World
from kit.jobs.unit_results import Work
from kit.waiting import delay

from market.platform.http.services import Services
from market.training.leases import schemas as leases_schemas
from market.training.leases import service as leases


def test_waiting_node_gets_work_when_available(api: httpx.Client, world: World) -> None:
    node, job_id = sign_in(api), world.job()
    assert node.post("/v1/leases/next", json={}).status_code == 204
    offered_at: list[float] = []

    def offer() -> None:
        delay(0.5)
        world.call(leases.create_lease, kind="pin", holder=node.address, job_id=job_id, task={"a": 1}, seconds=60)
        offered_at.append(time.monotonic())

    thread = threading.Thread(target=offer)
    thread.start()
    request = {"wait_seconds": 25, "kinds": ["pin", "reveal"]}
    lease = node.post("/v1/leases/next", json=request).json()
    thread.join()
    assert (lease["kind"], lease["task"]) == ("pin", {"a": 1})
    assert time.monotonic() - offered_at[0] < 10  # long before the wait was over
    assert node.post("/v1/leases/next", json=request | {"wait_seconds": 0}).status_code == 204


def test_unit_is_committed_and_completed_over_http(api: httpx.Client, services: Services, world: World) -> None:
    node = sign_in(api)
    world.wallets[node.address] = node.wallet
    world.register(node.address)
    job_id = world.running([node.address], redundancy=1)
    headers = node.headers
    answer = api.post("/v1/leases/next", json={"kinds": ["train"]}, headers=headers)
    lease = leases_schemas.LeaseView.model_validate(answer.json())
    path = f"/v1/leases/{lease.id}"
    beat = api.post(f"{path}/heartbeat", json={"token": lease.token, "step": 1}, headers=headers)
    assert datetime.fromisoformat(beat.json()["expires_at"]) > lease.expires_at
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
