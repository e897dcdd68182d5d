"""Outlier flags raise the sampling rate of a node's next units, and nothing else."""

from dataclasses import replace

import pytest
from kit.verification.verification_fixtures import RATE, VerificationWorld
from sqlalchemy import select, update

from market.domain.verification.sampling import FLAGGED_UNITS
from market.training.evaluation import service as evaluation
from market.training.evaluation.service import has_outlier_flag
from market.training.units.models import Unit
from market.training.units.service import unit_facts


def sampled_in_full(world: VerificationWorld, node: str, times_as_dear: int = 1) -> bool:
    with world.database.transaction() as session:
        unit_id = session.scalar(select(Unit.id).where(Unit.provider == node).limit(1))
        assert unit_id is not None
        unit = unit_facts(session, unit_id)
        return has_outlier_flag(session, replace(unit, gross_wei=times_as_dear * unit.gross_wei))


def test_closed_round_is_examined_during_next_one(world: VerificationWorld) -> None:
    nodes = [world.node() for _ in range(4)]
    job_id = world.delivered_job(nodes)
    assert [unit.doubts for unit in world.units(job_id, round=0)] == [None] * 4
    evaluation.validate(world.database, world.settings, world.storage, job_id)  # the round is open: nothing to examine
    assert [unit.doubts for unit in world.units(job_id, round=0)] == [None] * 4
    world.aggregate(job_id)
    evaluation.validate(world.database, world.settings, world.storage, job_id)
    found = [unit.doubts for unit in world.units(job_id, round=0)]
    assert all(codes is not None for codes in found)
    assert [sampled_in_full(world, unit.provider) for unit in world.units(job_id, round=0)] == [
        bool(unit.doubts) or unit.included is False for unit in world.units(job_id, round=0)
    ]
    evaluation.validate(world.database, world.settings, world.storage, job_id)
    assert [unit.doubts for unit in world.units(job_id, round=0)] == found


@pytest.mark.parametrize("sign", ["doubts", "exclusion"])
def test_flagged_node_is_sampled_more_without_loss(world: VerificationWorld, sign: str) -> None:
    node, other = world.node(), world.node()
    job_id = world.delivered_job([node, other])
    world.execute(update(Unit).values(doubts=[]))
    sign_of = {"doubts": {"doubts": ["cosine"]}, "exclusion": {"included": False, "exclusion_reason": "krum_outlier"}}
    world.execute(update(Unit).where(Unit.provider == node).values(sign_of[sign]))
    assert (sampled_in_full(world, node), sampled_in_full(world, other)) == (True, False)
    assert (sampled_in_full(world, node, 2), sampled_in_full(world, node, 3)) == (True, False)  # another kind of work
    committed = world.commit_window()
    world.latch(committed, "0x" + "5a" * 32)
    assert {unit.provider: unit.sampling_bps for unit in world.units(job_id)} == {node: 2 * RATE, other: RATE}
    assert world.slashes() == []
    assert {world.provider(name).status for name in (node, other)} == {"active"}


def test_lateness_is_no_outlier_and_old_flags_expire(world: VerificationWorld) -> None:
    node = world.node()
    job_id = world.delivered_job([node])
    world.execute(update(Unit).values(included=False, exclusion_reason="too_late"))
    assert not sampled_in_full(world, node)
    world.execute(update(Unit).values(doubts=["norm"]))
    [unit] = world.units(job_id)
    names = [c.name for c in Unit.__table__.columns if c.name not in ("id", "doubts", "window_id")]
    columns = {name: getattr(unit, name) for name in names}
    copies = [Unit(**columns | {"round": 100 + number, "trace_root": None}) for number in range(FLAGGED_UNITS)]
    world.add(*copies[:-1])
    assert sampled_in_full(world, node)
    world.add(copies[-1])
    assert not sampled_in_full(world, node)
