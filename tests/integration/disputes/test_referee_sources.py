"""Referees' sources: the provider, the job's record, the chain, and their own replays."""

from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from kit.chain.deployed_chain import OTHER, wallet
from kit.chain.faulty_rpc import Answer, FaultyRpc, Forward, Request, error_of
from kit.disputes.dispute_fixtures import ZEN, Delivered
from kit.disputes.referee_fixtures import REFEREES, RefereeWorld
from kit.errors import raises_code
from kit.verification.live_fixtures import Node

from market.platform.db.base import utc_now
from market.training.units.models import Unit
from market.training.uploads import service as uploads
from market.verification.disputes import service as disputes
from zoo_compute.base.errors import ApiError, Unreachable
from zoo_compute.chain.disputes import DisputePhase
from zoo_compute.chain.referees import RefereeChain
from zoo_compute.chain.settlements import ChainReader
from zoo_compute.chain.wallet import Wallet as NodeWallet
from zoo_compute.node.disk.workspace import Workspace
from zoo_compute.node.disputes.referee import Verdicts
from zoo_compute.node.market.calls import Disputed, Market
from zoo_compute.node.work.uploads import upload_disputed

pytestmark = pytest.mark.long

FIRST, SECOND = wallet(8), wallet(9)
NOWHERE = "http://127.0.0.1:1"
OWNER = "Zoo Labs"
CID = "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy"
MOST_BLOCKS = 50


def test_referee_needs_no_long_or_early_log_ranges(live: RefereeWorld, honest: Node, unit: Delivered) -> None:
    live.referees()
    opened = live.named(FIRST, unit, honest, 2)
    live.keep()
    live.settle(unit)
    live.deployed.anvil.mine(4 * MOST_BLOCKS)
    contracts, first = live.deployed.deployment.contracts, live.deployed.deployment.start_block

    def strict(request: Request, forward: Forward) -> Answer:
        start, end = (int(request["params"][0][name], 16) for name in ("fromBlock", "toBlock"))
        if start < first or end - start >= MOST_BLOCKS:
            return error_of(request, f"at most {MOST_BLOCKS} blocks, from {first} on", -32005)
        return forward(request)

    with FaultyRpc(live.deployed.anvil.url) as node:
        node.rule("eth_getLogs", strict)
        chain = RefereeChain(node.url, contracts, NodeWallet(REFEREES[0].key), first)
        opening = chain.opening(opened.dispute_id)
        assert (opening.unit_id, opening.provider, opening.unit) == (unit.unit_id, honest.address, unit.unit)
        shown = chain.revealed_trace(opened.dispute_id)
        assert shown == live.chain_of(OTHER).revealed_trace(opened.dispute_id) is not None
        assert chain.committee(opened.dispute_id) == live.chain_of(OTHER).committee(opened.dispute_id)
        assert chain.penalties_in(opened.dispute_id) == set()
        assert chain.revealed_trace("0x" + "12" * 32) is None
        settled = ChainReader(node.url, contracts, first).settled(unit.unit.jobId)
        assert settled.parts == ChainReader(live.deployed.anvil.url, contracts).settled(unit.unit.jobId).parts != []


def test_honest_unit_wins_without_served_state(
    live: RefereeWorld, honest: Node, unit: Delivered, caplog: pytest.LogCaptureFixture
) -> None:
    referees = live.referees()
    opened = live.named(FIRST, unit, honest, 2)
    assert live.judged(opened, referees) is DisputePhase.JUDGING
    assert "waiting_for_data" in caplog.text
    live.pass_patience()
    assert live.judged(opened, referees) is DisputePhase.CHALLENGER_LOST


def test_dishonest_provider_withholding_its_state_loses(live: RefereeWorld, cheat: Node) -> None:
    unit, referees = live.delivered(cheat), live.referees()
    opened = live.named(FIRST, unit, cheat, 2)
    assert live.judged(opened, referees) is DisputePhase.JUDGING
    live.pass_patience()
    assert live.judged(opened, referees) is DisputePhase.PROVIDER_LOST
    (reason,) = {
        verdict["reason"]
        for verdict in live.market(FIRST)._connection.get(f"/v1/disputes/{opened.dispute_id}/verdicts")
    }
    assert reason == "data_withheld"
    assert live.deployed.views.stake_of(cheat.address) == 500 * ZEN


def test_provider_withholding_start_state_loses(live: RefereeWorld, honest: Node, unit: Delivered) -> None:
    with live.database.transaction() as session:
        session.query(Unit).filter(Unit.provider == honest.address).update({"start_slot_state_cid": CID})
    referees = live.referees()
    opened = live.named(FIRST, unit, honest, 2)
    assert live.judged(opened, referees) is DisputePhase.JUDGING
    live.pass_patience()
    assert live.judged(opened, referees) is DisputePhase.PROVIDER_LOST


def test_settled_unit_is_judged_by_record_during_outage(
    live: RefereeWorld, honest: Node, unit: Delivered, caplog: pytest.LogCaptureFixture
) -> None:
    live.referees()
    opened = live.named(FIRST, unit, honest, 2)
    live.keep()
    alone = [live.referee(account, url=NOWHERE, owner=OWNER) for account in REFEREES]
    for referee in alone:
        referee.watch()
    assert "market_unreachable" in caplog.text
    live.settle(unit)
    live.pass_patience()
    for referee in alone:
        referee.watch()
    signed = {
        account.address: verdict
        for account in REFEREES
        for verdict in Verdicts(Workspace(live.directory / account.address).verdicts).all()
    }
    assert {(verdict.provider_correct, verdict.delivered) for verdict in signed.values()} == {(True, False)}
    signatures = {address: verdict.signature for address, verdict in signed.items()}
    live.chain_of(OTHER).submit_verdict(opened.dispute_id, True, signatures)
    assert live.state(opened).phase is DisputePhase.CHALLENGER_LOST


def test_missing_states_are_recomputed(
    live: RefereeWorld, honest: Node, unit: Delivered, caplog: pytest.LogCaptureFixture
) -> None:
    Workspace(live.directory / honest.address).tidy(keep_hours=0)
    referees = live.referees()
    opened = live.named(FIRST, unit, honest, 3)
    live.discloser(honest).watch()
    assert "unit_retrained" in caplog.text
    assert live.judged(opened, referees) is DisputePhase.CHALLENGER_LOST


def test_state_may_exceed_account_upload_limit(
    live: RefereeWorld, honest: Node, unit: Delivered, server: tuple[FastAPI, str]
) -> None:
    server[0].state.services.settings.max_blob_bytes = 1_000
    opened = live.named(FIRST, unit, honest, 2)
    live.discloser(honest).watch()
    assert live.row(opened).state_cid is not None
    with raises_code(ApiError, "not-disputed-provider"):  # only the provider may
        upload_disputed(live.market(SECOND), opened.dispute_id, Path(__file__))


def test_revealed_states_upload_in_pieces_and_stay(
    live: RefereeWorld, honest: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    referees = live.referees()
    unit = live.delivered(honest, seed=7_000_001)  # storage has the states of other seeds
    opened = live.named(FIRST, unit, honest, 2)
    discloser, sent = live.discloser(honest), []
    put = Market.put_piece

    def cut(market: Market, asking: Any, cid: str, number: int, *more: Any) -> None:
        sent.append((cid, number))
        put(market, asking, cid, number, *more)
        if len(sent) == 1:
            raise Unreachable("market-unreachable", "the link is cut after a piece")

    monkeypatch.setattr(Market, "put_piece", cut)
    discloser.watch()
    assert live.row(opened).state_cid is None
    discloser.watch()  # it goes on with what is not there yet
    state = live.row(opened).state_cid or ""
    assert len(sent) == len(set(sent))
    files = {cid for cid, _ in sent}
    assert state in files
    assert disputes.release_states(live.database, live.storage) == 0
    uploads.delete_stale(live.database, live.storage, utc_now())
    assert all(live.storage.is_pinned(cid) for cid in files)
    with raises_code(ApiError, "upload-incomplete"):  # a file that no party needs
        discloser.market.join_pieces(Disputed(opened.dispute_id), CID, 0)

    assert live.judged(opened, referees) is DisputePhase.CHALLENGER_LOST
    live.keep()
    assert disputes.release_states(live.database, live.storage) == len(files)
    assert not live.storage.is_pinned(state)
    assert disputes.release_states(live.database, live.storage) == 0
