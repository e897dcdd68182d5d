"""Due actions in a dispute by the contract's state, and a referee's verdict by its replay."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kit.errors import raises_code

from market.chain.contracts.bindings import DisputesDispute, DisputesUnit
from market.domain.lifecycle import DISPUTE_STATUSES, DisputeStatus
from market.domain.network import DEVNET
from market.payments.settlement import dispute_keeper
from market.payments.settlement.dispute_keeper import Ballot, ballots, due_ballots, due_in_dispute, due_vote
from market.verification.disputes.models import Verdict
from market.verification.disputes.referee_evidence import dissenting_verdict
from training_gym.spec.config import TrainingSpec
from zoo_compute.audit.dispute_case import Case
from zoo_compute.audit.misconduct_proof import prove_misconduct
from zoo_compute.chain.disputes import DisputePhase, RevealedTrace
from zoo_compute.content.blockstore import BlockNotFound
from zoo_compute.content.gateway import GatewayUnavailable
from zoo_compute.node.disk.workspace import Workspace
from zoo_compute.node.disputes import segment_verdict
from zoo_compute.node.disputes.segment_verdict import DataDeadline, Finding, NoVerdict, ReplayContext, decide_segment
from zoo_compute.node.execution.executor import ExecutorError
from zoo_protocol.content.unixfs import cid_of_file
from zoo_protocol.hashing import canonical_json, from_hex, keccak, to_hex
from zoo_protocol.messages import REPLAYED, JobOrder, UnitCommitment
from zoo_protocol.verification.trace import payload_hash, state_leaf

DISPUTE, UNIT = "0x" + "d1" * 32, "0x" + "0a" * 32
A, B, C, D, E = ("0x" + digit * 40 for digit in "12345")


def state(status: DisputeStatus, *, deadline: int = 100, seed_block: int = 10, draw: int = 0) -> DisputesDispute:
    return {
        "challenger": A,
        "segments": 4,
        "step": 1,
        "deadline": deadline,
        "status": DISPUTE_STATUSES.index(status),
        "draw": draw,
        "provider": B,
        "seedBlock": seed_block,
        "pool": 6,
        "payer": C,
        "listedBy": 1,
        "scheduledAt": 1,
        "unitId": UNIT,
        "committee": "0x" + "00" * 32,
    }


def unit_state(open_: int = 1, *, until: int = 50, unpaid: bool = False, convicted: bool = False) -> DisputesUnit:
    return {"open": open_, "disputableUntil": until, "unpaid": unpaid, "convicted": convicted}


def verdict(referee: str, correct: bool, reason: str = "x") -> Verdict:
    named = {"dispute_id": DISPUTE, "draw": 0, "referee": referee, "signature": "0x" + referee[-2:] * 65}
    return Verdict(**named, provider_correct=correct, reason=reason)


S = DisputeStatus


def test_market_and_node_know_contract_statuses() -> None:
    assert [status.name for status in DISPUTE_STATUSES] == [turn.name for turn in DisputePhase]


@pytest.mark.parametrize(
    ("status", "block", "time", "convicted", "due"),
    [
        (S.TRACE, 5, 100, False, None),
        (S.TRACE, 5, 101, False, "expire"),
        (S.STEP, 5, 101, False, "expire"),
        (S.JUDGING, 5, 100, False, None),
        (S.JUDGING, 5, 101, False, "replaceCommittee"),
        (S.JUDGING, 5, 101, True, "dismiss"),
        (S.DRAWING, 10, 101, False, None),
        (S.DRAWING, 11, 0, False, "drawCommittee"),
        (S.DRAWING, 11, 0, True, "dismiss"),
        (S.TRACE, 5, 101, True, "dismiss"),
        (S.PROVIDER_LOST, 99, 999, True, None),
        (S.UNDECIDED, 99, 999, False, None),
    ],
)
def test_due_action_follows_from_chain(
    status: DisputeStatus, block: int, time: int, convicted: bool, due: str | None
) -> None:
    found = due_in_dispute(DISPUTE, state(status), unit_state(convicted=convicted), block, time, [A, B])
    assert (found and found.call["function"]) == due
    if due == "replaceCommittee":
        assert found is not None
        assert found.call["arguments"] == [DISPUTE, [A, B]]


def test_committee_without_final_block_is_not_replaced() -> None:
    assert due_in_dispute(DISPUTE, state(S.JUDGING), unit_state(), 5, 101, None) is None


def test_unanimous_quorum_is_sent_with_gaps() -> None:
    committee = [A, B, C, D, E]
    two_two = [verdict(A, True), verdict(B, True), verdict(C, False), verdict(D, False)]
    assert list(ballots(committee, two_two, 3)) == []
    (found,) = ballots(committee, [*two_two, verdict(E, False)], 3)
    assert (found.provider_correct, found.committee) == (False, committee)
    assert [len(signature) > 2 for signature in found.signatures] == [False, False, True, True, True]
    due = due_vote(DISPUTE, 0, found)
    assert due.call["arguments"] == [DISPUTE, False, committee, found.signatures]
    late = due_in_dispute(DISPUTE, state(S.JUDGING), unit_state(), 5, 101, committee)
    assert late is not None
    assert late.call["function"] == "replaceCommittee"


DRAWN_AT = 1_000_000
WAITED = DRAWN_AT + DEVNET.verdict_wait_seconds
DEADLINE = DRAWN_AT + DEVNET.disputes.verdict_seconds
LATE = DEADLINE - DEVNET.disputes.verdict_seconds // dispute_keeper.PARTIAL_BALLOT_DIVISOR


@pytest.mark.parametrize(
    ("findings", "time", "sent"),
    [
        ([True, True], WAITED - 1, []),  # the third may still come
        ([True, True], WAITED, [True]),
        ([True, True, False], DRAWN_AT, [True]),  # all have answered
        ([True, False], LATE, []),  # no quorum
        ([True, False], LATE + 1, [True, False]),
        ([True], DEADLINE, [True]),
        ([], DEADLINE, []),
    ],
)
def test_quorum_waits_for_others_and_partial_until_late(findings: list[bool], time: int, sent: list[bool]) -> None:
    committee = [A, B, C]
    verdicts = [verdict(referee, correct) for referee, correct in zip(committee, findings, strict=False)]
    judging = state(S.JUDGING, deadline=DEADLINE)
    found = due_ballots(judging, committee, verdicts, DEVNET, time)
    assert [ballot.provider_correct for ballot in found] == sent
    assert due_in_dispute(DISPUTE, judging, unit_state(), 5, time, committee) is None
    assert due_ballots(state(S.DRAWING, deadline=DEADLINE), committee, verdicts, DEVNET, time) == []


def test_votes_for_each_side_are_submitted_separately() -> None:
    def key(correct: bool) -> str:
        return due_vote(DISPUTE, 0, Ballot(correct, [A], ["0x" + "11" * 65])).key

    assert key(True) != key(False)
    kept = ballots([A, B, C], [verdict(A, True), verdict(B, False)], 1)
    assert [(one.provider_correct, [len(s) > 2 for s in one.signatures]) for one in kept] == [
        (True, [True, False, False]),
        (False, [False, True, False]),
    ]


@pytest.mark.parametrize(
    ("reasons", "odd"),
    [
        (["step_correct"] * 4 + ["step_false"], E),
        (["step_false", "step_correct", "diverged", "step_false", "step_false"], B),
        (["step_correct"] * 3 + ["step_false"] * 2, None),
        (["step_correct"] * 5, None),
        (["step_correct"] * 3 + ["step_false"], None),  # one is absent
        (["step_correct"] * 4 + ["data_withheld"], None),
        (["step_correct"] * 3 + ["data_withheld", "step_false"], None),
        (["wrong_start"] * 4 + ["step_correct"], None),
    ],
)
def test_only_signer_against_all_others_is_wrong(reasons: list[str], odd: str | None) -> None:
    committee = [A, B, C, D, E]
    given = zip(committee, reasons, strict=False)
    signed = [verdict(who, reason == "step_correct", reason) for who, reason in given]
    found = dissenting_verdict(committee, signed)
    assert (found and found.referee) == odd
    votes = {(0, one.referee): {one.provider_correct: "0x"} for one in signed if one.reason in REPLAYED}
    assert [(one.referee, one.offence) for one in prove_misconduct(votes, 0, committee)] == ([(odd, 5)] if odd else [])


def test_committee_of_two_proves_no_fault() -> None:
    signed = [verdict(who, right, "step_false") for who, right in ((A, True), (B, False))]
    assert dissenting_verdict([A, B], signed) is None
    assert prove_misconduct({(0, A): {True: "0x"}, (0, B): {False: "0x"}}, 0, [A, B]) == []


def test_later_draw_is_separate_occasion() -> None:
    keys = {
        due_in_dispute(DISPUTE, state(S.DRAWING, draw=draw, seed_block=seed), unit_state(), 99, 0, None).key  # type: ignore[union-attr]
        for draw, seed in ((0, 10), (0, 50), (1, 50))
    }
    assert len(keys) == 3


@pytest.mark.parametrize(
    ("unit", "claimable_at", "time", "due"),
    [
        (unit_state(0), 60, 50, None),
        (unit_state(0), None, 51, "restore"),
        (unit_state(1), 60, 51, None),
        (unit_state(0, unpaid=True), 60, 59, None),
        (unit_state(0, unpaid=True), None, 99, None),
        (unit_state(0, unpaid=True), 60, 60, "returnStruck"),
    ],
)
def test_held_payout_follows_dispute_outcome(
    unit: DisputesUnit, claimable_at: int | None, time: int, due: str | None
) -> None:
    found = dispute_keeper.due_for_unit(UNIT, unit, claimable_at, time)
    assert (found and found.call["function"]) == due


ENVIRONMENT, OTHER_CLASS = "0x" + "e1" * 32, "0x" + "e2" * 32
DIGESTS = [to_hex(keccak(bytes([boundary]))) for boundary in range(5)]
SPEC = TrainingSpec.from_dict(
    {
        "model_config": {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "sequence_length": 16},
        "data_config": {"dataset": "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy"},
        "training_config": {"rounds": 1, "inner_steps": 8, "segment_steps": 2, "batch_size": 2, "warmup_steps": 1},
    }
)
PAYLOAD, SALT = "0x" + "77" * 32, "0x" + "55" * 32
ORDER = JobOrder(A, SPEC.spec_hash(), 1, 1, 1, 4, 200, 1, 1, 1, 1)
COMMITMENT = UnitCommitment(UNIT, 0, 1, B, "0x" + "33" * 32, to_hex(payload_hash(from_hex(PAYLOAD), B, from_hex(SALT))))
CASE = Case(ORDER, COMMITMENT, ENVIRONMENT, "spec", "checkpoint", None, None, None, None, SALT)


def leaf(boundary: int, digest: str | None = None) -> str:
    return to_hex(state_leaf(UNIT, 0, 1, boundary, from_hex(digest or DIGESTS[boundary]), ENVIRONMENT))


class Gateway:
    def __init__(self, state: Any = BlockNotFound("gone")) -> None:
        self.state = state

    def fetch(self, cid: str, *, max_bytes: int) -> bytes:
        return canonical_json(SPEC.to_dict())

    def download(self, cid: str, path: Path, *, max_bytes: int) -> int:
        if isinstance(self.state, Exception):
            raise self.state
        path.write_bytes(self.state)
        return len(self.state)


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(segment_verdict, "unit_task", lambda *_: {})

    def find(
        step: int = 2,
        *,
        case: Case = CASE,
        state: Any = b"state",
        over: bool = False,
        could_serve: bool = True,
        environment: str = ENVIRONMENT,
        shown: str = ENVIRONMENT,
        **answers: Any,
    ) -> Finding:
        def run(task: dict[str, Any]) -> dict[str, Any]:
            answer = answers[task["kind"]]
            if isinstance(answer, Exception):
                raise answer
            return dict(answer)

        bench = ReplayContext(Workspace(tmp_path), Gateway(state), environment, run)  # type: ignore[arg-type]
        revealed, deadline = RevealedTrace(shown, DIGESTS), DataDeadline(over, could_serve)
        return decide_segment(case, revealed, step, STATE_CID, deadline, bench)

    return find


def replayed(boundary: int, payload: str | None = None) -> dict[str, Any]:
    return {"end_leaf": leaf(boundary), "payload_sha256": payload}


STATE_CID = cid_of_file(b"neither what the gateway gives nor what an earlier case left")
WHOLE = {"state_digests": DIGESTS, "leaves": [leaf(boundary) for boundary in range(5)], "payload_sha256": PAYLOAD}
MISMATCH = ExecutorError("start_state_mismatch", "state", "is another one")


def test_segment_is_correct_when_replay_ends_as_committed(found: Any) -> None:
    assert found(replay=replayed(3)) == Finding(True, "step_correct")
    assert found(replay=replayed(2)) == Finding(False, "step_false")


def test_first_step_starts_from_round_checkpoint(found: Any) -> None:
    assert found(0, replay=replayed(1)) == Finding(True, "step_correct")
    assert found(0, replay=MISMATCH) == Finding(False, "wrong_start")


def test_last_step_end_covers_payload(found: Any) -> None:
    assert found(3, replay=replayed(4, PAYLOAD)) == Finding(True, "step_correct")
    assert found(3, replay=replayed(4, "0x" + "78" * 32)) == Finding(False, "wrong_payload")
    undelivered = replace(CASE, salt=None)
    assert found(3, case=undelivered, replay=replayed(4, "0x" + "78" * 32)) == Finding(True, "step_correct")


@pytest.mark.parametrize("state", [BlockNotFound("gone"), b"another"])
def test_unavailable_state_is_awaited_then_recomputed(found: Any, state: Any) -> None:
    with raises_code(NoVerdict, "waiting_for_data"):
        found(state=state, replay=MISMATCH)
    assert found(state=state, over=True, replay=MISMATCH, train=WHOLE) == Finding(True, "step_correct")
    other = {**WHOLE, "leaves": [leaf(0)] * 5}
    assert found(state=state, over=True, replay=MISMATCH, train=other) == Finding(False, "step_false")
    earlier = {**WHOLE, "state_digests": [DIGESTS[0]] * 5}
    assert found(state=state, over=True, replay=MISMATCH, train=earlier) == Finding(False, "data_withheld")


def test_provider_without_serving_means_is_not_blamed(found: Any) -> None:
    silent = {"over": True, "could_serve": False, "state": BlockNotFound("gone")}
    assert found(**silent, train=WHOLE) == Finding(True, "step_correct")
    with raises_code(NoVerdict, "market_unreachable"):
        found(**silent, train={**WHOLE, "state_digests": [DIGESTS[0]] * 5})


def test_referee_or_gateway_fault_gives_no_verdict(found: Any) -> None:
    for answers, code in (
        ({"replay": ExecutorError("out_of_memory", "task", "too large")}, "out_of_memory"),
        ({"state": GatewayUnavailable("down"), "over": True, "replay": MISMATCH}, "gateway_unavailable"),
        ({"environment": OTHER_CLASS, "over": True}, "environment_mismatch"),
        ({"case": replace(CASE, order=replace(ORDER, specHash="0x" + "00" * 32))}, "wrong_specification"),
        ({"case": replace(CASE, order=replace(ORDER, segments=5))}, "wrong_specification"),
    ):
        with raises_code(NoVerdict, code):
            found(**answers)


def test_diverged_or_other_class_unit_is_false(found: Any) -> None:
    diverged = ExecutorError("diverged", "training_config.learning_rate", "loss is not finite")
    assert found(replay=diverged) == Finding(False, "diverged")
    assert found(shown=OTHER_CLASS, environment=OTHER_CLASS) == Finding(False, "wrong_environment")
