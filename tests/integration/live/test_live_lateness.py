"""A provider that reveals its states late three days in a row: real training and chain."""

import json
from datetime import timedelta

from kit.verification.live_fixtures import CHEAT_ACCOUNT, HONEST_ACCOUNT, LiveWorld
from kit.verification.verification_fixtures import let_time_pass
from sqlalchemy import select

from market.chain.service import final_events
from market.domain.verification.sampling import OFFENCE_IDS
from market.training.leases.schemas import LeaseKind
from market.verification.penalties.models import LatePenalty
from market.verification.samples.models import LateState, Sample

ZEN = 10**18


def penalties(live: LiveWorld) -> list[LatePenalty]:
    return live.all(select(LatePenalty))


def test_third_late_day_slashes_and_pays_units(live: LiveWorld) -> None:
    late, prompt = live.provider_node(CHEAT_ACCOUNT), live.provider_node(HONEST_ACCOUNT)
    verifiers = [live.verifier_node() for _ in range(2)]
    for day in range(3):
        assert penalties(live) == []
        job_id = live.train(late, prompt)
        while not any(sample.status == "drawn" for sample in live.samples()):
            live.step()
        live.work_off(prompt, LeaseKind.REVEAL)
        with live.database.transaction() as session:
            for sample in session.scalars(select(Sample).where(Sample.status == "drawn")):
                let_time_pass(sample, is_taken=True)
        live.step()
        with live.database.transaction() as session:
            for row in session.scalars(select(LateState).where(LateState.booked.is_(None))):
                row.due_at -= timedelta(days=2 - day)
        live.decide(job_id, [late, prompt], verifiers)
        assert {unit.status for unit in live.units(job_id)} == {"verified"}
    for _ in range(3):
        live.step()

    [penalty] = penalties(live)
    assert (penalty.provider, penalty.amount_wei) == (late.address, 50 * ZEN)
    with live.database.transaction() as session:
        [slashed] = [event for event in final_events(session, penalty.evidence) if event.name == "Slashed"]
    assert (slashed.args["offence"], slashed.args["amount"]) == (OFFENCE_IDS["bandwidth_violation"], 50 * ZEN)
    views = live.deployed.views
    assert (views.stake_of(late.address), views.stake_of(prompt.address)) == (950 * ZEN, 1_000 * ZEN)
    assert live.provider(late.address).status == "jailed"
    assert live.provider(prompt.address).status == "active"
    document = json.loads(live.storage.get(penalty.evidence_cid, max_bytes=2**16))
    assert (document["kind"], document["provider"], len(document["late"])) == ("zoo-late/1", late.address, 3)
    assert live.slashes() == []
