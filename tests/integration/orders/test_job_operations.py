"""A payer's operations on a job: amend, pause, resume, extend, clone and report."""

from datetime import timedelta
from functools import partial
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from kit.api.clients import Caller, accepted, refusal, sign_in
from kit.api.submission_fixtures import app_on_chain, fake_chain  # noqa: F401  (fixtures)
from kit.jobs.jobs_fixtures import ENVIRONMENT, ZEN, World
from sqlalchemy import select, update

from market.auctions import clearing as auctions
from market.auctions.models import AuctionRound
from market.chain.views import ChainViews
from market.domain.network import DEVNET, NETWORKS
from market.jobs.models import Job, Slot
from market.orders import amendments
from market.platform.db.base import utc_now
from market.platform.http.types import LAST_INSTANT
from market.training.checkpoints.models import Checkpoint
from market.training.evaluation import service as evaluation
from market.training.leases import service as leases
from market.training.matching import book
from training_gym.spec.config import TrainingSpec
from training_gym.units.checkpoint import CheckpointManifest
from zoo_compute.base.errors import Mismatch
from zoo_compute.client.client import Client

Body = dict[str, Any]


def payer_of(api: httpx.Client, world: World, job_id: str) -> Caller:
    return sign_in(api, world.wallets[world.read(job_id).payer])


def _bids(world: World) -> list[tuple[str, int]]:
    return [(bid.id, bid.limit_price) for bid in world.call(book.open_bids, 1, "eu", utc_now())]


def test_waiting_job_is_amended_within_signed_order(api: httpx.Client, world: World) -> None:
    job_id = world.job()
    payer, path = payer_of(api, world, job_id), f"/v1/jobs/{job_id}"
    signed = payer.get(path).json()
    lower = payer.patch(path, json={"max_price": str(2 * ZEN)}).json()
    assert (lower["price_cap_wei"], lower["max_price_wei"]) == (str(2 * ZEN), str(4 * ZEN))
    assert _bids(world) == [(job_id, 2 * ZEN)]
    back = payer.patch(path, json={"max_price": str(4 * ZEN)}).json()
    assert back["price_cap_wei"] == str(4 * ZEN)
    problem = refusal(payer.patch(path, json={"max_price": str(4 * ZEN + 1)}), 409, "order-fixed")
    assert (problem["field"], "clone" in str(problem["remedy"])) == ("max_price", True)
    later = (world.read(job_id).wait_until + timedelta(seconds=1)).isoformat()
    refusal(payer.patch(path, json={"wait_until": later}), 409, "order-fixed")
    refusal(payer.patch(path, json={"max_price": "1"}), 422, "invalid-order")
    soon = (utc_now() + timedelta(seconds=30)).isoformat()
    shorter = payer.patch(path, json={"wait_until": soon}).json()
    assert (shorter["wait_until"], shorter["expires_at"] < signed["expires_at"]) == (signed["wait_until"], True)
    assert book.expire_due(world.database, utc_now() + timedelta(seconds=31)) == 1
    assert world.read(job_id).status == "expired"
    refusal(payer.patch(path, json={"max_price": str(ZEN)}), 409, "not-amendable")


def test_paused_waiting_job_leaves_book_and_still_expires(api: httpx.Client, world: World, nodes: list[str]) -> None:
    job_id = world.job()
    payer, path = payer_of(api, world, job_id), f"/v1/jobs/{job_id}"
    metrics = api.get("/metrics").text
    assert 'zoo_jobs{status="matching"} 1.0' in metrics
    assert 'zoo_providers{kind="provider",status="active"} 4.0' in metrics
    assert payer.post(f"{path}/pause").json()["paused_at"] is not None
    assert _bids(world) == []
    with world.database.transaction() as session:
        assert not book.assign(session, world.settings, job_id, ZEN, None, nodes, ENVIRONMENT)  # type: ignore[arg-type]
    assert payer.post(f"{path}/resume").json()["paused_at"] is None
    assert len(_bids(world)) == 1
    payer.post(f"{path}/pause")
    assert book.expire_due(world.database, utc_now() + timedelta(hours=1)) == 1
    refusal(payer.post(f"{path}/resume"), 409, "not-pausable")


def test_paused_running_job_finishes_leases_and_resumes(api: httpx.Client, world: World, nodes: list[str]) -> None:
    job_id = world.running(nodes)
    payer, path = payer_of(api, world, job_id), f"/v1/jobs/{job_id}"
    world.deliver(nodes[0])
    payer.post(f"{path}/pause")
    world.dispatch(job_id)
    assert len(_held(world, job_id)) == 4  # their leases are out
    for nodes_left in nodes[1:], []:
        refused = refusal(payer.post(f"{path}/extend", json={}), 409, "nothing-to-continue")
        assert refused["detail"] == "Its nodes have begun a round, whose data a continuation would read and pay again."
        world.deliver_all(nodes_left)
    world.dispatch(job_id)
    world.close_round(job_id)
    assert world.read(job_id).current_round == 1
    assert (len(world.units(job_id)), _held(world, job_id)) == (4, [])
    evaluation.validate(world.database, world.settings, world.storage, job_id)
    refusal(payer.post(f"{path}/extend", json={"budget_max": "1"}), 422, "budget-below-one-unit")
    proposed = payer.post(f"{path}/extend", json={}).json()
    assert proposed["request"]["training_config"]["rounds"] == 1
    assert payer.post(f"{path}/resume").json()["paused_at"] is None
    world.dispatch(job_id)
    assert sorted(_held(world, job_id)) == sorted(nodes)
    assert len(world.units(job_id, round=1)) == 4


def test_paused_job_without_quorum_is_not_extended(api: httpx.Client, world: World, nodes: list[str]) -> None:
    job_id = world.running(nodes, rounds=3)
    world.train_round(job_id, nodes)
    payer, path = payer_of(api, world, job_id), f"/v1/jobs/{job_id}"
    payer.post(f"{path}/pause")
    world.deliver(nodes[0])
    for node in nodes[1:]:
        lost = world.work(node)
        world.call(leases.fail, lost.lease.id, node, lost.lease.token, "out_of_memory", "")
    world.dispatch(job_id)
    assert _held(world, job_id) == []
    refused = refusal(payer.post(f"{path}/extend", json={}), 409, "nothing-to-continue")
    assert "resume or cancel the job" in refused["remedy"]


def _held(world: World, job_id: str) -> list[str]:
    return world.all(select(Slot.provider).where(Slot.job_id == job_id, Slot.provider.is_not(None)))


def test_pause_ends_in_time_for_settlement(api: httpx.Client, world: World, nodes: list[str]) -> None:
    job_id, network = world.running(nodes), NETWORKS["devnet"]
    payer, path = payer_of(api, world, job_id), f"/v1/jobs/{job_id}"
    payer.post(f"{path}/pause")
    limit = world.read(job_id).wait_until + amendments.longest_pause(network)
    assert amendments.end_long_pauses(world.database, network, limit - timedelta(seconds=1)) == 0
    assert amendments.end_long_pauses(world.database, network, limit) == 1
    job = world.read(job_id)
    assert (job.status, job.reason) == ("cancelled", "pause_expired")
    late = world.running([world.node() for _ in range(4)])
    with world.database.transaction() as session:
        session.get_one(Job, late).wait_until -= amendments.longest_pause(network) + timedelta(hours=1)
    refusal(payer_of(api, world, late).post(f"/v1/jobs/{late}/pause"), 409, "not-pausable")


def test_trained_job_is_extended_from_checkpoint_and_cloned(api: httpx.Client, world: World, nodes: list[str]) -> None:
    job_id = world.running(nodes, rounds=1)
    payer, path = payer_of(api, world, job_id), f"/v1/jobs/{job_id}"
    refusal(payer.post(f"{path}/extend", json={}), 409, "nothing-to-continue")
    world.deliver_all(nodes)
    world.aggregate(job_id)
    state = payer.get(path).json()
    metrics = payer.get(f"{path}/metrics").json()["rounds"]
    assert [point["validation_loss"] for point in metrics] == [state["initial_loss"], state["final_loss"]]
    assert (metrics[1]["units_included"], metrics[1]["train_loss"]) == (4, "5.500000")
    change = {"rounds": 3, "budget_max": str(2 * ZEN)}
    further = payer.post(f"{path}/extend", json=change).json()
    spec = TrainingSpec.from_dict(further["quote"]["spec"])
    last = world.all(select(Checkpoint.cid).where(Checkpoint.job_id == job_id, Checkpoint.round == 1))
    assert ([spec.start_checkpoint], spec.start_round, spec.start_model) == (last, 1, None)
    assert spec.training.rounds == 3
    assert "The data go on with round 2 of this size. " in further["quote"]["rate_schedule"]
    assert "restarted_rates" in {point["code"] for point in further["quote"]["advice"]}
    slower = payer.post(f"{path}/extend", json={"start_rate_share": 0.3}).json()["quote"]
    assert "restarted_rates" not in {point["code"] for point in slower["advice"]}
    refusal(payer.post(f"{path}/extend", json={"start_rate_share": 0}), 422, "invalid-request")
    assert further["quote"]["order"]["message"]["budget"] == str(2 * ZEN)
    assert spec.training.seed == TrainingSpec.from_dict(state["spec"]).training.seed
    for swapped in {"outer_momentum": 0.5}, {"outer_momentum": 0.5, "down_top_k": 0}:  # the second has equal bytes
        changed = further["request"] | {"training_config": further["request"]["training_config"] | swapped}
        refused = refusal(payer.post("/v1/quotes", json=changed), 422, "invalid-dataset")
        assert (refused["field"], "outer settings" in refused["detail"]) == ("data_config.start_checkpoint", True)
        assert "GET /v1/jobs/{id}/checkpoints" in refused["remedy"]
    first_round = {"data_config": {**further["request"]["data_config"], "start_round": 0}}
    for change, least in (first_round, 1), ({"nodes": 2}, 2), ({"nodes": 3}, 2):
        refused = refusal(payer.post("/v1/quotes", json=further["request"] | change), 422, "invalid-spec")
        assert (refused["field"], refused["reason"]) == ("data_config.start_round", "repeated_data")
        assert f"expected at least {least}. Less would read the same data again" in refused["detail"]
    in_other_order = first_round | {"training_config": {**further["request"]["training_config"], "seed": 9}}
    for change in {"nodes": 8}, in_other_order:
        accepted(payer.post("/v1/quotes", json=further["request"] | change))
    many = further["request"]["data_config"] | {"validation_samples": 4096}
    quote = payer.post("/v1/quotes", json=further["request"] | {"data_config": many}).json()
    assert quote["validation_samples"] == 54  # of the split's 219 samples, on four nodes
    again = payer.post(f"{path}/clone", json={"max_price": str(3 * ZEN)}).json()
    assert again["quote"]["spec_hash"] == state["spec_hash"]
    assert again["request"]["max_price"] == str(3 * ZEN)
    # The continuation begins with the first job's last model and outer state.
    continued = world.job(nodes=4, document=further["quote"]["spec"])
    world.place(continued, nodes)
    first = payer_of(api, world, continued).get(f"/v1/jobs/{continued}").json()
    assert first["initial_loss"] == state["final_loss"]
    made = world.all(select(Checkpoint.cid).where(Checkpoint.job_id == continued))
    before, after = (CheckpointManifest.from_bytes(world.storage.get(cid, max_bytes=1 << 20)) for cid in (*last, *made))
    assert before.outer_state == after.outer_state is not None
    copied = payer_of(api, world, continued).post(f"/v1/jobs/{continued}/clone", json={"nodes": 2}).json()
    assert copied["request"]["data_config"]["start_round"] == 2  # of two nodes, as much data as one of four


def test_far_wait_is_cloned_and_refused_elsewhere(api: httpx.Client, world: World) -> None:
    job_id = world.job()
    with world.database.transaction() as session:
        session.get_one(Job, job_id).wait_until = LAST_INSTANT
    path, headers = f"/v1/jobs/{job_id}", payer_of(api, world, job_id).headers
    assert api.post(f"{path}/clone", json={}, headers=headers).status_code == 200
    too_far = {"wait_until": "9999-12-31T23:59:59Z"}
    for answer in (
        api.post(f"{path}/clone", json=too_far, headers=headers),
        api.patch(path, json=too_far, headers=headers),
    ):
        assert refusal(answer, 422, "invalid-request")["field"] == "wait_until"


def test_quote_names_last_trade_price_and_training_time(api: httpx.Client, world: World, nodes: list[str]) -> None:
    def quote(job_id: str) -> Body:
        cloned: Body = accepted(payer_of(api, world, job_id).post(f"/v1/jobs/{job_id}/clone", json={}))
        return cloned["quote"]

    job_id = world.job(nodes=len(nodes), rounds=3, max_price=3 * ZEN)
    before = quote(job_id)
    assert (before["last_price_wei"], before["cost_at_last_price_wei"]) == (None, None)
    tier = DEVNET.tier("bronze")
    assert before["expected_seconds"] == pytest.approx(3 * before["unit_weight_us"] / 1e6 / tier.gpus)
    for _ in range(2):  # open the books, and let them become due
        auctions.clear_due(world.database, world.settings, DEVNET)
        world.execute(update(AuctionRound).values(closes_at=utc_now()))
    auctions.clear_due(world.database, world.settings, DEVNET)
    assert world.read(job_id).status == "running"
    after = quote(job_id)
    assert after["last_price_wei"] == str(tier.reserve_price_wei)  # a thin book trades at the reserve
    assert after["cost_at_last_price_wei"] == after["cost_at_reserve_wei"]


def test_client_signs_exactly_requested_terms(api: httpx.Client, app: FastAPI, world: World, nodes: list[str]) -> None:
    job_id = world.delivered_job(nodes, rounds=1)
    world.aggregate(job_id)
    wallet = world.wallets[world.read(job_id).payer]
    app.state.services.part(ChainViews).balances[wallet.address] = 12 * ZEN
    with Client(str(api.base_url), private_key="0x" + bytes(wallet.key).hex()) as client:
        job = client.job(job_id)
        assert [point["round"] for point in job.metrics()] == [0, 1]
        until = (utc_now() + timedelta(hours=5)).replace(microsecond=0)
        shares = {"final_rate_share": 0.5, "start_rate_share": 0.3}
        further = job.extend(budget_max=2 * ZEN, rounds=3, wait_until=until, **shares).state()
        assert (further.status, further.budget_wei, further.rounds) == ("submitted", 2 * ZEN, 3)
        assert (further.wait_until, further.spec["data_config"]["start_round"]) == (until, 1)
        assert further.spec["training_config"]["final_rate_share"] == 0.5
        assert further.spec["data_config"]["start_rate_share"] == 0.3
        again = job.clone().state()
        assert (again.budget_wei, again.spec) == (10 * ZEN, job.state().spec)
        waiting = Client.job(client, again.id)
        assert waiting.amend(max_price=3 * ZEN).status == "submitted"
        assert waiting.cancel().status == "submitted"
        honest = client.connection.post
        for section, name, value, asked in (
            (None, "max_price", str(100 * ZEN), {}),
            (None, "name", "another", {"name": "moon-2"}),
            (None, "wait_until", (until + timedelta(days=9)).isoformat(), {}),
            (None, "wait_until", (until + timedelta(seconds=1)).isoformat(), {"wait_until": until}),
            ("training_config", "learning_rate", 1.0, {}),
            ("training_config", "rounds", 5, {}),
            ("training_config", "warmup_steps", 0, {}),
            ("training_config", "final_rate_share", 0.9, {}),
            ("data_config", "start_rate_share", 0.9, {"start_rate_share": 0.3}),
            ("data_config", "start_rate_share", 0.9, {}),
            ("data_config", "start_round", 9, {}),
            ("data_config", "validation_samples", 1, {}),
            ("data_config", "start_checkpoint", world.checkpoint(job_id, 0), {}),
            ("data_config", "dataset", "another", {}),
        ):
            changed = partial(_changed, section, name, value)
            client.connection.post = lambda path, body=None, *, to=changed, **how: to(honest(path, body, **how))  # type: ignore[method-assign]
            with pytest.raises(Mismatch, match=name):
                job.extend(rounds=3, **asked)


def _changed(section: str | None, name: str, value: Any, answer: Any) -> Any:
    if isinstance(answer, dict) and "request" in answer:
        request = answer["request"]
        (request if section is None else request[section])[name] = value
    return answer


def test_retried_operation_gets_first_answer(api: httpx.Client, world: World) -> None:
    job_id = world.job()
    payer, path = payer_of(api, world, job_id), f"/v1/jobs/{job_id}"
    headers = payer.headers | {"Idempotency-Key": "pause-1"}
    first = api.post(f"{path}/pause", headers=headers)
    payer.post(f"{path}/resume")
    again = api.post(f"{path}/pause", headers=headers)
    assert (again.json(), again.headers["idempotent-replayed"]) == (first.json(), "true")
    assert world.read(job_id).paused_at is None  # nothing was done for the retry
    refusal(api.post(f"{path}/cancel", headers=headers), 422, "idempotency-key-reused")
