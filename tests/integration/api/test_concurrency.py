"""Concurrency: no deadlock on a small pool; caps, jobs and deposits agree in any order."""

import secrets
import zlib
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from kit.api.clients import sign_in
from kit.jobs.jobs_fixtures import ENVIRONMENT, SPEC, ZEN, World, at_once, opened
from kit.killed import Killed
from kit.profile import examples
from sqlalchemy import func, select

from market.accounts import service as accounts
from market.accounts import spending
from market.accounts.errors import SpendingCapReached
from market.accounts.models import Spending
from market.accounts.service import Principal
from market.accounts.spending import Caps
from market.chain.models import TxIntent
from market.domain.lifecycle import IllegalTransition, IntentStatus, JobStatus
from market.domain.network import DEVNET
from market.jobs.models import Job
from market.jobs.service import get
from market.orders import amendments, submission
from market.orders.errors import BalanceTaken, NotCancellable
from market.orders.models import PayerDraws
from market.orders.schemas import SubmitJob
from market.orders.terms import SignedTerms, parse_terms
from market.payments.payables.service import end_settlement, record_payment, start_settling
from market.platform.db.base import utc_now
from market.platform.db.session import Database
from market.training.matching import book
from zoo_protocol.hashing import to_hex
from zoo_protocol.messages import struct_hash

CAP = 5 * ZEN
LATE = "deposit_after_rejection"  # such a job is cancelled at once: it trains nothing and costs nothing


def test_locks_with_equal_checksums_are_independent(database_url: str) -> None:
    """A payer that chooses nonces could produce two job ids with one 32-bit checksum."""
    assert zlib.crc32(b"plumless") == zlib.crc32(b"buckeroo")
    one, other = Database(database_url), Database(database_url)
    with (
        one.advisory_lock("plumless") as held,
        other.advisory_lock("buckeroo") as also,
        other.advisory_lock("plumless") as both,
    ):
        assert (held, also, both) == (True, True, False)
    with other.advisory_lock("plumless") as held:
        assert held


@pytest.mark.long
@pytest.mark.sized
def test_many_concurrent_requests_succeed_on_small_pool(api: httpx.Client, app: FastAPI, database_url: str) -> None:
    """Each request takes two transactions; a pool of three must serve them all."""
    caller = sign_in(api)
    small = Database(database_url, pool_size=2, max_overflow=1)
    app.state.services = replace(app.state.services, database=small)
    statuses: list[int] = []
    requests = examples(60, long=200)

    def ask(number: int) -> None:
        with httpx.Client(base_url=api.base_url, timeout=120, verify=False) as client:
            headers = caller.headers | {"Idempotency-Key": f"once-{number % 50}"}
            if number % 2:
                answer = client.post("/v1/organisations", json={"name": f"o{number % 50}"}, headers=headers)
            else:
                answer = client.get("/v1/organisations", headers=caller.headers)
            statuses.append(answer.status_code)

    assert at_once([partial(ask, number) for number in range(requests)]) == [None] * requests
    assert len(statuses) == requests
    assert set(statuses) <= {200, 201, 409}  # 409: the same request was still at work
    assert len(caller.get("/v1/organisations").json()) == 25  # one for each key
    small.dispose()


class SubmissionsMachine(RuleBasedStateMachine):
    """Submissions by one capped key, in any order with deposits, matches, ends and crashes."""

    world: World

    def __init__(self) -> None:
        super().__init__()
        self.jobs: list[str] = []

    @initialize()
    def account(self) -> None:
        self.payer = str(self.world.wallet().address)
        with self.world.database.transaction() as session:
            caps = Caps(total_wei=CAP)
            key = accounts.create_key(session, self.payer, "capped", 1, ["jobs:write"], caps).credential
            assert key.limit_id is not None
            self.limit: int = key.limit_id
            self.principal = Principal(self.payer, frozenset(), key.id, "key", limit_id=self.limit)

    @rule(zen=st.integers(1, 4), threads=st.integers(1, 6), crashes=st.booleans())
    def submit(self, zen: int, threads: int, crashes: bool) -> None:
        jobs = [self._checked(zen * ZEN) for _ in range(threads)]

        def send(index: int) -> None:
            with self.world.database.transaction() as session:
                submission.write_within_caps(session, jobs[index], self.principal)
                if crashes and index % 2:
                    raise Killed

        for job, error in zip(jobs, at_once([partial(send, index) for index in range(threads)]), strict=True):
            assert error is None or isinstance(error, SpendingCapReached | BalanceTaken | Killed), error
            if error is None:
                self.jobs.append(job.job_id)

    @rule(data=st.data(), fails=st.booleans())
    def deposit(self, data: Any, fails: bool) -> None:
        job_id = self._any(data)
        if job_id is None:
            return

        def arrive() -> None:
            with self.world.database.transaction() as session:
                if fails:
                    intent = session.scalars(select(TxIntent).where(TxIntent.subject == job_id)).first()
                    assert intent is not None
                    session.expunge(intent)
                    intent.status, intent.detail = IntentStatus.REVERTED, "ERC20InsufficientAllowance()"
                    submission.on_open_intent(session, intent)
                else:
                    submission.on_job_opened(session, opened(get(session, job_id).order))

        assert at_once([arrive] * 3) == [None] * 3

    @rule(data=st.data())
    def match(self, data: Any) -> None:
        job_id = self._any(data)
        if job_id is None:
            return
        nodes = [self.world.node()]

        def assign() -> None:
            with self.world.database.transaction() as session:
                book.assign(session, self.world.settings, job_id, ZEN, None, nodes, ENVIRONMENT)  # type: ignore[arg-type]

        assert at_once([assign] * 2) == [None] * 2

    @rule(data=st.data())
    def cancel(self, data: Any) -> None:
        job_id = self._any(data)
        if job_id is None:
            return

        def stop() -> None:
            with self.world.database.transaction() as session:
                amendments.cancel(session, self.principal, job_id)

        for error in at_once([stop] * 2):
            assert error is None or isinstance(error, NotCancellable | IllegalTransition), error

    @rule(data=st.data(), share=st.integers(0, 100))
    def settle(self, data: Any, share: int) -> None:
        job_id = self._any(data)
        if job_id is None:
            return
        with self.world.database.transaction() as session:
            start_settling(session)
            job = session.get_one(Job, job_id)
            status, escrowed = job.status, job.escrowed_wei
            paid = 0 if job.reason == LATE else escrowed * share // 100
        if status != JobStatus.SETTLING:
            return

        def final() -> None:
            with self.world.database.transaction() as session:
                tx = to_hex(secrets.token_bytes(32))
                record_payment(session, job_id, paid_wei=paid, fee_wei=0, refund_wei=escrowed - paid)
                if not end_settlement(session, job_id, tx=tx, at=utc_now()):
                    raise Killed  # another thread ended it: the payment rolls back

        assert sum(error is None for error in at_once([final] * 3)) == 1

    @invariant()
    def nothing_is_overspent_and_everything_agrees(self) -> None:
        if not hasattr(self, "limit"):
            return
        with self.world.database.transaction() as session:
            jobs = session.scalars(select(Job).where(Job.payer == self.payer)).all()
            assert {job.id for job in jobs} == set(self.jobs)
            expected = 0
            for job in jobs:
                if job.status == "settled":
                    assert (job.paid_wei or 0) + (job.fee_wei or 0) + (job.refund_wei or 0) == job.escrowed_wei
                    expected += (job.paid_wei or 0) + (job.fee_wei or 0)
                elif job.status != "rejected" and job.reason != LATE:
                    expected += job.budget_wei
            assert spending.usage(session, self.limit).spent_total_wei == expected <= CAP
            total = session.scalar(select(PayerDraws.total_wei).where(PayerDraws.payer == self.payer)) or 0
            assert total == sum(job.budget_wei for job in jobs if job.status != "rejected") <= 2 * CAP
            rows = select(func.count()).select_from(Spending).where(Spending.limit_id == self.limit)
            assert session.scalar(rows) == len(jobs)  # nothing is left of what failed
            deposits = select(func.count()).select_from(TxIntent).where(TxIntent.subject.in_(self.jobs))
            assert session.scalar(deposits) == len(jobs)  # one deposit each

    def _any(self, data: Any) -> str | None:
        return data.draw(st.sampled_from(self.jobs)) if self.jobs else None

    def _checked(self, budget: int) -> SignedTerms:
        """A submission as it stands after its checks; signatures are not what is tested here."""
        request = SubmitJob.model_validate(
            {
                **SPEC,
                "training_config": {**SPEC["training_config"], "inner_steps": 1000, "segment_steps": 100},
                "data_config": {"dataset": self.world.spec.dataset},
                "tier": "bronze",
                "nodes": 1,
                "budget_max": str(budget),
                "max_price": str(3 * ZEN),
                "wait_until": (utc_now() + timedelta(hours=1)).isoformat(),
                "nonce": str(secrets.randbits(128)),
                "order_signature": "0x" + "11" * 65,
            }
        )
        terms = parse_terms(request, DEVNET, utc_now())
        order = terms.order(self.payer, request.nonce)
        return SignedTerms(request, terms, order, struct_hash(order), "0x" + "11" * 65, 2 * CAP)


@pytest.mark.sized
def test_interleaving_never_overspends_cap_or_loses_deposit(world: World) -> None:
    machine = type("Machine", (SubmissionsMachine,), {"world": world})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples(2, long=60),
            stateful_step_count=14,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
