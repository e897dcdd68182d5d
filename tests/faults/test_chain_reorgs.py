"""Reorganisations under jobs in every state: the records equal those of a fresh index."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.chain.anvil import AnvilProcess
from kit.chain.deployed_chain import OPERATOR, OTHER, PAYER, PROVIDER, Chain, deploy_own, intent
from kit.chain.indexing import booked, canonical_logs, cursor, forget, fresh
from kit.chain.settling import claim_pay, open_job, pass_challenge_period, pay, penalty, settle_job, settlement
from sqlalchemy.orm import Session

from market.chain.contracts.bindings import JobEscrow
from market.chain.contracts.codec import ChainEvent
from market.chain.indexer import EventHandlers
from market.chain.service import queue_intent
from market.chain.views import JobState
from market.domain.lifecycle import IntentStatus
from market.domain.network import ZEN
from market.ledger import chain_events as ledger_chain_events
from market.ledger.reconciliation import reconcile
from market.platform.db.session import Database

EPOCH_BLOCKS = 4
FINALITY = 2 * EPOCH_BLOCKS  # blocks on top of a final one


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Chain]:
    with AnvilProcess(epoch_blocks=EPOCH_BLOCKS) as anvil:
        yield deploy_own(anvil, tmp_path, depth=FINALITY)


def recording(chain: Chain, seen: list[tuple[str, int, str]]) -> EventHandlers:
    def note(session: Session, event: ChainEvent) -> None:
        seen.append((event.block_hash, event.log_index, event.name))

    return {key: [handler, note] for key, handler in ledger_chain_events.handlers(chain.deployment).items()}


def settle_down(chain: Chain, database: Database) -> None:
    chain.anvil.mine(FINALITY + 1)
    chain.index(database)


def _state(chain: Chain, job: str) -> int:
    [found] = chain.views.many([JobEscrow.jobs(job)], "latest")
    return found["state"]


def test_funded_settled_and_slashed_jobs_survive_reorganisations(deep: Chain, database: Database) -> None:
    deep.stake(PROVIDER, 2_000 * ZEN)
    settle_down(deep, database)

    gone = open_job(deep, budget=7 * ZEN)
    deep.index(database)
    deep.anvil.reorg(1)
    assert _state(deep, gone) == JobState.NONE
    kept = open_job(deep, budget=3 * ZEN)
    deep.index(database)
    settle_job(deep, kept, units=4)
    deep.send(OPERATOR, *_flat(penalty("0x" + "03" * 32)))
    deep.index(database)
    deep.anvil.reorg(2)  # neither settled nor slashed
    deep.index(database)
    settle_job(deep, kept, units=1)
    deep.stake(PROVIDER, 10 * ZEN)  # the penalty is larger on this branch
    deep.send(OPERATOR, *_flat(penalty("0x" + "04" * 32)))
    settle_down(deep, database)
    pass_challenge_period(deep)
    claim_pay(deep, kept, units=1)
    deep.index(database)
    deep.anvil.reorg(1)  # not claimed
    pass_challenge_period(deep)
    claim_pay(deep, kept, units=1)
    settle_down(deep, database)

    proof = reconcile(database, deep.client(), deep.deployment)
    assert proof.agrees, proof.differences
    accounts = {account for _, _, account, _ in booked(database)}
    assert f"escrow:{kept}" in accounts
    assert f"escrow:{gone}" not in accounts
    assert [line[3] for line in booked(database) if line[2] == "burned"] == [1_005 * ZEN]
    earned = [line[3] for line in booked(database) if line[2] == f"wallet:{PROVIDER.address}" and line[3] > 0]
    assert earned == [pay(1)]
    assert (booked(database), canonical_logs(database)) == fresh(database, deep)


def _flat(call: tuple[str, str, list[object]]) -> tuple[object, ...]:
    contract, function, arguments = call
    return contract, function, *arguments


@pytest.mark.parametrize("seed", range(3))
def test_any_history_equals_fresh_index(deep: Chain, database: Database, seed: int) -> None:
    """Take a random walk over events, reorganisations above finality and partial indexing."""
    dice = random.Random(seed)
    seen: list[tuple[str, int, str]] = []
    handlers = recording(deep, seen)
    jobs: list[str] = []
    settled: list[tuple[str, int]] = []

    def settle() -> None:
        held = [job for job in jobs if _state(deep, job) == JobState.OPEN]
        if held:
            settled.append((dice.choice(held), dice.randrange(3)))
            settle_job(deep, *settled[-1])

    def claim() -> None:
        if settled:
            claim_pay(deep, *dice.choice(settled))  # refused where the settlement is gone, too young, or claimed

    def reorganise() -> None:
        deep.anvil.reorg(dice.randint(1, FINALITY))

    actions = [
        lambda: jobs.append(open_job(deep, budget=dice.randint(1, 9) * ZEN)),
        settle,
        claim,
        lambda: pass_challenge_period(deep),
        lambda: deep.stake(dice.choice((PROVIDER, OTHER)), dice.randint(1, 9) * ZEN),
        lambda: deep.send(OPERATOR, *_flat(penalty(f"0x{dice.getrandbits(256):064x}"))),
        lambda: deep.send(PAYER, "ZenToken", "transfer", deep.deployment.address("Treasury"), dice.randint(1, 9)),
        reorganise,
        lambda: deep.anvil.mine(dice.randint(1, 3)),
        lambda: deep.indexer(database, handlers).step(dice.randint(1, 5)),
        lambda: deep.index(database, handlers),
    ]
    for _ in range(100):
        dice.choice(actions)()
    deep.anvil.mine(FINALITY + 1)
    deep.index(database, handlers)

    proof = reconcile(database, deep.client(), deep.deployment)
    assert proof.agrees, proof.differences
    result, handed_over = (booked(database), canonical_logs(database)), list(seen)
    assert len(handed_over) == len(set(handed_over)), "each event once"
    forget(database)
    seen.clear()
    deep.index(database, handlers)
    assert (booked(database), canonical_logs(database)) == result
    assert seen == handed_over


def test_payment_is_made_and_booked_once_across_reorgs(deep: Chain, database: Database) -> None:
    deep.stake(PROVIDER, 2_000 * ZEN)
    job = open_job(deep, budget=3 * ZEN)
    settle_down(deep, database)
    for key, call in (("settle", settlement(job)), ("slash", penalty("0x" + "05" * 32))):
        contract, function, arguments = call
        with database.transaction() as session:
            queue_intent(
                session, key=key, kind=key, subject=job, contract=contract, function=function, arguments=arguments
            )
    deep.anvil.automine(False)
    sender, indexer = deep.sender(database), deep.indexer(database)
    for depth in (1, 2, 5, FINALITY):
        for _ in range(depth):
            sender.step()
            deep.anvil.mine()
            indexer.step()
        deep.anvil.reorg(depth)
    for _ in range(FINALITY + 2):
        sender.step()
        deep.anvil.mine()
    deep.index(database)
    assert {intent(database, key).status for key in ("settle", "slash")} == {IntentStatus.FINAL}
    for key in ("settle", "slash"):  # outbid where a reorganisation made it look stuck, but never at another nonce
        assert {attempt.nonce for attempt in intent(database, key).attempts} == {intent(database, key).nonce}
    proof = reconcile(database, deep.client(), deep.deployment)
    assert proof.agrees, proof.differences
    assert cursor(database).finalised_number == deep.client().finalised().number
    assert (booked(database), canonical_logs(database)) == fresh(database, deep)
