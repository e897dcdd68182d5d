"""Duplicate replays of first segments: inner states expose copied claims."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from kit.errors import raising
from kit.verification.replay_records import replay_records
from kit.verification.verification_fixtures import VerificationWorld
from sqlalchemy import select, update

from market.platform.storage.client import Storage
from market.platform.storage.errors import StorageUnavailable
from market.providers.models import Provider
from market.settings import Settings
from market.training.leases import service as leases_service
from market.training.leases.errors import ReplayMismatch, ResultRefused
from market.training.leases.models import Lease
from market.training.leases.schemas import CompleteReplay, LeaseKind
from market.training.units import service as units
from market.verification.samples.models import Sample
from training_gym.spec.config import TrainingSpec

INNER, MADE_UP, OTHER_LEAF = "0x" + "11" * 32, "0x" + "99" * 32, "0x" + "ee" * 32


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"canary_bps": 10_000})


def drawn_first(world: VerificationWorld, verifiers: int, drawn: Sequence[int] = (0,), **options: Any) -> int:
    for _ in range(verifiers):
        world.verifier()
    job_id = world.delivered_job([world.node()], **options)
    (unit,) = world.units(job_id)
    world.challenge({unit.id: [*drawn]})
    return unit.id


def asked(world: VerificationWorld) -> list[str]:
    return [replay.verifier for replay in world.replays() if replay.status == "assigned"]


def answer_all(world: VerificationWorld, unit_id: int, *digests: str) -> list[str]:
    given = []
    for digest in digests:
        given.append(asked(world)[0])
        world.replay(given[-1], world.claim(unit_id, 0), digest)
    return given


def statuses(world: VerificationWorld) -> Counter[str]:
    return Counter(replay.status for replay in world.replays())


def test_duplicate_replay_asks_two_and_waits_for_both(world: VerificationWorld) -> None:
    unit_id = drawn_first(world, 4)
    first, second = asked(world)
    leases = world.all(select(Lease).where(Lease.kind == LeaseKind.REPLAY))
    tasks = [lease.task for lease in leases]
    assert tasks[0] == tasks[1]
    (sample,) = world.samples()
    assert tasks[0]["inner"] == {"step": 2, "nonce": sample.inner_nonce}  # the end
    assert len({replay.attempt for replay in world.replays()} & {0, 1, 2}) == 2

    world.replay(first, world.claim(unit_id, 0), INNER)
    assert world.unit(unit_id).status == "checking"
    assert asked(world) == [second]  # no third verifier until then
    world.replay(second, world.claim(unit_id, 0), INNER)
    assert world.unit(unit_id).status == "verified"
    assert statuses(world) == {"agreed": 2}
    assert {right for right, _, _ in replay_records(world).values()} == {1}
    assert replay_records(world).keys() == {first, second}


def test_outvoted_inner_state_with_equal_end_is_slashed(world: VerificationWorld) -> None:
    unit_id = drawn_first(world, 5)
    (copier,) = answer_all(world, unit_id, MADE_UP)
    honest = answer_all(world, unit_id, INNER)
    for _ in range(2):
        assert world.unit(unit_id).status == "checking"  # against a possible second copier, two answers prove nothing
        assert len(asked(world)) == 1
        honest += answer_all(world, unit_id, INNER)
    assert world.unit(unit_id).status == "verified"
    assert world.outcomes()[copier] == ("overruled", "wrong_replay")
    assert statuses(world) == {"overruled": 1, "agreed": 3}
    segment_wei = world.call(units.unit_facts, unit_id).gross_wei // world.spec.segments
    assert replay_records(world) == {copier: (0, 0, 1)} | dict.fromkeys(honest, (1, segment_wei, 0))

    world.advance()
    (slash,), (intent,) = world.slashes(), world.intents("slash")
    assert (slash.provider, slash.offence, intent.arguments) == (copier, "wrong_replay", [copier, "5", slash.evidence])
    assert world.provider(copier).status == "jailed"
    assert {world.provider(address).status for address in honest} == {"active"}
    assert world.provider(world.unit(unit_id).provider).status == "active"
    evidence = json.loads(world.storage.get(slash.evidence_cid, max_bytes=2**20))
    (sample,) = world.samples()
    assert (evidence["kind"], evidence["verifier"]) == ("zoo-evidence/5", copier)
    assert evidence["inner"] == {"step": 2, "nonce": sample.inner_nonce}
    found = {replay["verifier"]: replay["inner_digest"] for replay in evidence["replays"]}
    assert found == {copier: MADE_UP} | dict.fromkeys(honest, INNER)
    assert {replay["end_leaf"] for replay in evidence["replays"]} == {evidence["unit"]["leaves"][1]}


@pytest.mark.parametrize(
    ("verifiers", "digests"),
    [
        (4, [INNER, MADE_UP, MADE_UP, INNER]),
        (4, [INNER, MADE_UP, MADE_UP]),  # the fourth does not answer
        (4, [MADE_UP, INNER, INNER]),  # also here: two against one may be two copiers
        (5, [INNER, MADE_UP, MADE_UP, "0x" + "77" * 32, INNER]),
    ],
)
def test_inconclusive_duplicate_replay_blames_none_and_pays_provider(
    world: VerificationWorld, verifiers: int, digests: list[str]
) -> None:
    unit_id = drawn_first(world, verifiers)
    answer_all(world, unit_id, *digests)
    for _ in range(5):
        for silent in asked(world):
            assert world.unit(unit_id).status == "checking"
            world.give_up(silent, LeaseKind.REPLAY, "out_of_memory")
            world.execute(update(Provider).where(Provider.address == silent).values(status="exited"))  # it is gone
        world.advance()
    assert world.unit(unit_id).status == "verified"
    assert statuses(world)["overruled"] == 0
    assert (replay_records(world), world.slashes()) == ({}, [])


def test_differing_end_state_costs_no_stake_at_first(world: VerificationWorld) -> None:
    """The verifier's environment may have changed."""
    unit_id = drawn_first(world, 4)
    wrong = asked(world)[0]
    world.replay(wrong, OTHER_LEAF, MADE_UP)
    honest = answer_all(world, unit_id, INNER, INNER)
    assert world.unit(unit_id).status == "verified"
    assert world.outcomes()[wrong] == ("overruled", "suspended")
    assert replay_records(world).keys() == {wrong, *honest}
    assert world.slashes() == []


def test_confirmer_of_refuted_unit_is_no_copier(world: VerificationWorld) -> None:
    """It may run on the same defective hardware as the provider."""
    unit_id = drawn_first(world, 5)
    (confirming,) = answer_all(world, unit_id, MADE_UP)
    refuting = [asked(world)[0]]
    world.replay(refuting[0], OTHER_LEAF, INNER)
    for _ in range(2):
        refuting += asked(world)
        world.replay(refuting[-1], OTHER_LEAF, INNER)
    assert world.unit(unit_id).reason == "incorrect_computation"
    assert world.outcomes()[confirming] == ("overruled", "suspended")
    assert statuses(world) == {"overruled": 1, "disagreed": 3}
    assert {verifier for verifier, (right, _, _) in replay_records(world).items() if right} == {*refuting}


def test_single_verifier_suffices_when_class_is_small(world: VerificationWorld) -> None:
    unit_id = drawn_first(world, 3)
    answer_all(world, unit_id, INNER)
    assert world.unit(unit_id).status == "verified"
    assert statuses(world) == {"agreed": 1}


def test_earlier_state_is_asked_when_second_segment_sampled(world: VerificationWorld) -> None:
    training = {**world.spec.to_dict()["training_config"], "inner_steps": 16, "segment_steps": 2}
    world.spec = TrainingSpec.from_dict({**world.spec.to_dict(), "training_config": training})
    drawn_first(world, 4, drawn=[0, 1], document=world.spec.to_dict())
    (first,) = [sample for sample in world.samples() if sample.segment == 0]
    assert (first.inner_step, first.second_opinion) == (1, True)


def test_single_step_segment_with_revealed_end_asks_it(world: VerificationWorld) -> None:
    training = {**world.spec.to_dict()["training_config"], "inner_steps": 8, "segment_steps": 1}
    world.spec = TrainingSpec.from_dict({**world.spec.to_dict(), "training_config": training})
    drawn_first(world, 4, drawn=[0, 1], document=world.spec.to_dict())
    (first,) = [sample for sample in world.samples() if sample.segment == 0]
    assert (first.inner_step, first.inner_nonce, first.second_opinion) == (None, None, False)
    (only,) = asked(world)
    lease = world.replay(only, world.claim(first.unit_id, 0))
    assert lease.task["inner"] is None


def test_first_verifier_is_always_asked_for_inner_state(world: VerificationWorld) -> None:
    """Otherwise the question would reveal a duplicate replay."""
    world.settings = world.settings.model_copy(update={"canary_bps": 1})  # as good as never
    unit_id = drawn_first(world, 4)
    (only,) = asked(world)
    lease = world.replay(only, world.claim(unit_id, 0), MADE_UP)
    assert lease.task["inner"] is not None
    assert world.unit(unit_id).status == "verified"
    assert replay_records(world).keys() == {only}


def test_result_without_requested_digest_is_refused_and_reassigned(world: VerificationWorld) -> None:
    unit_id = drawn_first(world, 4)
    first, second = asked(world)
    salt, claim = "0x" + "05" * 32, world.claim(unit_id, 0)
    lease = world.pulled(first, LeaseKind.REPLAY)
    world.commit_replay(first, lease, claim, salt)
    with pytest.raises(ResultRefused) as refused:
        world.complete(lease, first, CompleteReplay(token=lease.token, end_leaf=claim, salt=salt))
    assert (refused.value.field, refused.value.extra) == ("inner_digest", {"reason": "inner_digest_missing"})
    world.advance()
    assert world.outcomes()[first] == ("abandoned", "result_withheld")
    assert second in asked(world)
    assert len(asked(world)) == 2


def test_digest_counts_only_as_committed(world: VerificationWorld) -> None:
    unit_id = drawn_first(world, 4)
    verifier, claim = asked(world)[0], world.claim(unit_id, 0)
    lease = world.pulled(verifier, LeaseKind.REPLAY)
    salt = "0x" + "05" * 32
    world.commit_replay(verifier, lease, claim, salt, MADE_UP)

    def reveal(digest: str) -> None:
        result = CompleteReplay(token=lease.token, end_leaf=claim, inner_digest=digest, salt=salt)
        world.complete(lease, verifier, result)

    with pytest.raises(ReplayMismatch):
        reveal(INNER)
    reveal(MADE_UP)
    assert {replay.inner_digest for replay in world.replays()} == {MADE_UP, None}


def test_unrequested_digest_is_refused(world: VerificationWorld) -> None:
    world.settings = world.settings.model_copy(update={"canary_bps": 0})
    unit_id = drawn_first(world, 4)
    with pytest.raises(ResultRefused) as refused:
        world.replay(asked(world)[0], world.claim(unit_id, 0), INNER)
    assert refused.value.extra == {"reason": "wrong_inner_digest"}


def test_killed_market_asks_both_and_slashes_once(world: VerificationWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    made, create = [], leases_service.create_lease

    def killed(session: Any, **values: Any) -> Any:
        made.append(values["kind"])
        if made.count("replay") == 2:
            raise KeyboardInterrupt
        return create(session, **values)

    with monkeypatch.context() as patch:
        patch.setattr(leases_service, "create_lease", killed)
        with pytest.raises(KeyboardInterrupt):
            drawn_first(world, 4)
    assert world.replays() == []  # neither of the two, as a single request would reveal that it is the only one
    world.advance()
    world.advance()
    assert len(asked(world)) == 2

    (unit_id,) = {sample.unit_id for sample in world.samples()}
    (copier,) = answer_all(world, unit_id, MADE_UP)
    again = VerificationWorld(str(world.database.engine.url.render_as_string(False)), world.storage, world.settings)
    again.chain, again.wallets = world.chain, world.wallets
    try:  # another process goes on from what the database has
        answer_all(again, unit_id, INNER, INNER)

        with monkeypatch.context() as patch:
            patch.setattr(Storage, "put_block", raising(StorageUnavailable("no answer")))
            with pytest.raises(StorageUnavailable):
                answer_all(again, unit_id, INNER)
        assert again.unit(unit_id).status == "verified"
        assert again.slashes() == []
        for _ in range(2):
            again.advance()
        assert [slash.provider for slash in again.slashes()] == [copier]
    finally:
        again.database.dispose()


def test_sample_without_inner_state_uses_end_state(world: VerificationWorld) -> None:
    unit_id = drawn_first(world, 4)
    with world.database.transaction() as session:
        session.execute(update(Sample).values(inner_nonce=None, inner_step=None, second_opinion=False))
        for lease in session.scalars(select(Lease).where(Lease.kind == LeaseKind.REPLAY)):
            lease.task = {key: value for key, value in lease.task.items() if key != "inner"}
    world.replay(asked(world)[0], world.claim(unit_id, 0))
    assert world.unit(unit_id).status == "verified"
    world.replay(asked(world)[0], world.claim(unit_id, 0))
    assert statuses(world) == {"agreed": 2}
