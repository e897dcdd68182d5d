"""Roles, pauses and the timelock as rows of the market, from a real chain."""

from dataclasses import dataclass
from datetime import timedelta

import pytest
from kit.chain.deployed_chain import ADMIN, OPERATOR, OTHER, PAYER, Chain
from kit.measures import statements
from sqlalchemy import select

from market.chain.service import final_block
from market.domain.network import DEVNET, ZEN
from market.governance import acts, parameters, payments, service
from market.governance.chain_events import HANDLERS
from market.governance.errors import ActRefused, OperationNotFound, SentActDiffers, SentActNotFound
from market.governance.models import GovernanceEvent, TimelockOperation
from market.governance.schemas import EventView, OperationView, ParameterValue, PreparedView
from market.platform.db.base import utc_now
from market.platform.db.session import Database
from market.platform.events.service import CHAIN, audit_entries
from zoo_protocol import abi
from zoo_protocol.acts.calls import Call, Contracts, Operation
from zoo_protocol.acts.table import Stage

_MOST_STATEMENTS = 4  # the delay, open events, known proposals, operations
GRANT = {"role": "OPERATOR_ROLE", "account": OTHER.address}


@dataclass
class GovernanceWorld:
    chain: Chain
    database: Database

    def __post_init__(self) -> None:
        self.index()

    def index(self) -> None:
        self.chain.anvil.mine(3)
        self.chain.index(self.database, {key: [handler] for key, handler in HANDLERS.items()})

    @property
    def contracts(self) -> Contracts:
        with self.database.transaction() as session:
            return service.contracts_of(session, self.chain.deployment, DEVNET)

    def prepare(self, key: str, arguments: dict[str, object]) -> PreparedView:
        return acts.prepare_act(self.chain.views, self.contracts, ADMIN.address, key, arguments)

    def send(self, prepared: PreparedView, *, reported: bool = False) -> str:
        assert prepared.simulation.passes, prepared.simulation
        call = {"from": ADMIN.address, "to": prepared.transaction.to, "data": prepared.transaction.data}
        tx = self.chain.anvil.send(call)
        if reported:
            self.report(ADMIN.address, prepared.act or "timelock", prepared.stage, tx)
        self.index()
        return tx

    def report(self, account: str, act: str, stage: Stage, tx: str) -> None:
        sent = acts.sent_transaction(self.chain.views, tx)
        contracts = self.contracts
        with self.database.transaction() as session:
            service.record_sent(session, contracts, account, act, stage, sent)

    def operations(self, *, pending: bool = False, later: timedelta = timedelta()) -> list[OperationView]:
        with self.database.transaction() as session:
            return service.operations(session, self.contracts, utc_now() + later, pending=pending)

    def alarms(self) -> list[EventView]:
        with self.database.transaction() as session:
            return service.alarms(session, self.contracts)

    def execute(self, operation_id: str) -> PreparedView:
        return acts.prepare_execution(self.chain.views, self.contracts, ADMIN.address, self._operation(operation_id))

    def cancel(self, operation_id: str) -> PreparedView:
        return acts.prepare_cancellation(self.chain.views, self.contracts, ADMIN.address, self._operation(operation_id))

    def _operation(self, operation_id: str) -> TimelockOperation:
        with self.database.transaction() as session:
            return service.operation_of(session, operation_id)

    def pass_delay(self) -> None:
        self.chain.anvil.rpc("evm_increaseTime", DEVNET.timelock_seconds)
        self.chain.anvil.mine()


@pytest.fixture
def governed(chain: Chain, database: Database) -> GovernanceWorld:
    return GovernanceWorld(chain, database)


def test_roles_of_deployment_raise_no_alarm(governed: GovernanceWorld) -> None:
    assert governed.alarms() == []
    with governed.database.transaction() as session:
        held = {(one.contract, one.role) for one in service.role_holders(session, ADMIN.address)}
        operator = {(one.contract, one.role) for one in service.role_holders(session, OPERATOR.address)}
    assert held == {
        ("Timelock", "PROPOSER_ROLE"),
        ("Timelock", "CANCELLER_ROLE"),
        ("JobEscrow", "GUARDIAN_ROLE"),
        ("JobEscrow", "PAUSER_ROLE"),
        ("ProviderStaking", "PAUSER_ROLE"),
        ("Rewards", "GUARDIAN_ROLE"),
    }
    assert ("JobEscrow", "OPERATOR_ROLE") in operator


def test_operation_is_followed_to_its_execution(governed: GovernanceWorld) -> None:
    proposal = governed.prepare("jobescrow.grant-role", GRANT)
    governed.send(proposal, reported=True)
    [waiting] = governed.operations(pending=True)
    assert (waiting.id, waiting.act, waiting.status) == (proposal.operation_id, "jobescrow.grant-role", "waiting")
    assert waiting.words == [f"Give {OTHER.address} the role OPERATOR_ROLE of JobEscrow."]
    assert waiting.ready_at - waiting.scheduled_at == timedelta(seconds=DEVNET.timelock_seconds)
    assert "not due" in str(governed.execute(waiting.id).simulation.refusal)
    governed.pass_delay()
    tx = governed.send(governed.execute(waiting.id))
    [done] = governed.operations(later=timedelta(days=3))
    assert (done.status, done.ended_tx, governed.operations(pending=True)) == ("executed", tx, [])
    with governed.database.transaction() as session:
        [role] = service.role_holders(session, OTHER.address)
        entries = audit_entries(session, kind="act", search="PROPOSE")
        events = audit_entries(session, subject=waiting.id)
        final = final_block(session)
    assert acts.follow(governed.chain.views, final, tx).status == "final"
    assert acts.follow(governed.chain.views, final - 9, tx).status == "mined"
    assert (role.contract, role.role) == ("JobEscrow", "OPERATOR_ROLE")
    assert [(entry.subject_id, entry.actor) for entry in entries] == [("jobescrow.grant-role", ADMIN.address)]
    assert [(entry.event, entry.actor) for entry in events] == [("call_executed", CHAIN), ("call_scheduled", CHAIN)]
    assert governed.alarms() == []  # the execution follows from the reported proposal


def test_unreported_proposal_raises_alarms_until_acknowledged(governed: GovernanceWorld) -> None:
    proposal = governed.prepare("jobescrow.grant-role", GRANT)
    governed.send(proposal)
    [proposed] = governed.alarms()
    assert proposed.kind == "call_scheduled"
    assert f"Give {OTHER.address} the role OPERATOR_ROLE of JobEscrow." in proposed.words
    governed.pass_delay()
    governed.send(governed.execute(str(proposal.operation_id)))
    assert {alarm.kind for alarm in governed.alarms()} == {"call_scheduled", "call_executed", "role_granted"}
    with governed.database.transaction() as session:
        service.acknowledge(session, proposed.id, ADMIN.address)
        [entry] = audit_entries(session, kind="governance", search="acknowledge")
    assert (entry.event, entry.actor, entry.data) == ("acknowledge", ADMIN.address, {"kind": "call_scheduled"})
    assert governed.alarms() == []


def test_proposal_beside_known_execution_raises_alarm(governed: GovernanceWorld) -> None:
    """Any account can execute a due operation, also from a contract that proposes."""
    proposal = governed.prepare("jobescrow.grant-role", GRANT)
    governed.send(proposal, reported=True)
    governed.pass_delay()
    tx = governed.send(governed.execute(str(proposal.operation_id)))
    with governed.database.transaction() as session:
        executed = session.scalars(select(GovernanceEvent).where(GovernanceEvent.tx_hash == tx)).all()
        shared = {"tx_hash": tx, "block_number": executed[0].block_number, "at": executed[0].at, "at_deployment": False}
        for number, (kind, operation) in enumerate((("call_scheduled", "aa"), ("call_executed", "bb"))):
            operation_id = f"0x{operation * 32}"
            event = GovernanceEvent(kind=kind, contract="Timelock", operation_id=operation_id, data={}, **shared)
            event.log_index = 1_000 + number
            session.add(event)
    assert {kind.kind for kind in executed} == {"call_executed", "role_granted"}
    with statements(governed.database) as sent:
        alarms = governed.alarms()
    assert {alarm.kind for alarm in alarms} == {"call_scheduled", "call_executed"}
    assert len(sent) <= _MOST_STATEMENTS


def test_cancelled_operation_can_be_scheduled_again(governed: GovernanceWorld) -> None:
    proposal = governed.prepare("escrow.set-fee", {"newFeeBps": "400"})
    governed.send(proposal)
    governed.send(governed.cancel(str(proposal.operation_id)))
    [cancelled] = governed.operations()
    assert cancelled.status == "cancelled"
    governed.send(proposal)
    [again] = governed.operations()
    assert (again.status, again.ended_tx) == ("waiting", None)


def test_batch_of_operations_is_one_row(governed: GovernanceWorld) -> None:
    at = governed.chain.deployment.address
    fees = [abi.encode_call("JobEscrow", "setFee", [bps]) for bps in (100, 200)]
    arguments = [[at("JobEscrow")] * 2, [0, 0], fees, bytes(32), b"\x02" * 32, DEVNET.timelock_seconds]
    governed.chain.send(ADMIN, "Timelock", "scheduleBatch", *arguments)
    governed.index()
    [found] = governed.operations()
    assert found.act is None
    assert found.words == [f"Set the fee of new jobs to {bps} % ({bps}00 bps) of their pay." for bps in (1, 2)]
    governed.pass_delay()
    assert governed.execute(found.id).simulation.passes


def test_pause_without_report_raises_alarm(governed: GovernanceWorld) -> None:
    governed.send(governed.prepare("escrow.pause", {}))
    [alarm] = governed.alarms()
    assert alarm.words == f"{ADMIN.address} paused the intake of JobEscrow."
    governed.send(governed.prepare("staking.pause", {}), reported=True)
    assert [one.id for one in governed.alarms()] == [alarm.id]


def test_parameters_show_value_and_waiting_change(governed: GovernanceWorld) -> None:
    def read() -> dict[str, ParameterValue]:
        with governed.database.transaction() as session:
            found = parameters.parameters(session, governed.contracts, DEVNET, utc_now())
        return {one.label: one for one in found}

    before = read()
    assert (before["Fee"].words, before["Minimum stake gold"].value) == ("5 %", DEVNET.tiers[2].minimum_stake_wei)
    assert before["Penalty for refused data"].words == "50 % of the stake; the dispute's share is 20 %"
    assert (before["Timelock's delay"].words, before["Yearly uptime reward"].words) == ("2 days", "20 %")
    change = governed.prepare("staking.set-minimum", {"tier": "gold", "amount": "7"})
    governed.send(change)
    waiting = read()
    assert [one.id for one in waiting["Minimum stake gold"].pending] == [change.operation_id]
    assert waiting["Minimum stake silver"].pending == []
    governed.pass_delay()
    tx = governed.send(governed.execute(str(change.operation_id)))
    after = read()["Minimum stake gold"]
    assert (after.value, after.tx_hash, after.pending) == (7 * ZEN, tx, [])


def test_only_own_transaction_of_act_ends_alarm(governed: GovernanceWorld) -> None:
    proposal = governed.prepare("jobescrow.grant-role", GRANT)
    tx = governed.send(proposal)
    other = governed.chain.send(PAYER, "ZenToken", "transfer", OTHER.address, 1)
    claims = (
        (OTHER.address, "jobescrow.grant-role", Stage.PROPOSE, tx),  # sent by another account
        (ADMIN.address, "jobescrow.revoke-role", Stage.PROPOSE, tx),
        (ADMIN.address, "jobescrow.grant-role", Stage.EXECUTE, tx),
        (PAYER.address, "jobescrow.grant-role", Stage.PROPOSE, str(other)),  # no act
    )
    for claim in claims:
        with pytest.raises(SentActDiffers):
            governed.report(*claim)
    with pytest.raises(SentActNotFound):
        governed.report(ADMIN.address, "jobescrow.grant-role", Stage.PROPOSE, "0x" + "0a" * 32)
    assert [alarm.kind for alarm in governed.alarms()] == ["call_scheduled"]
    governed.report(ADMIN.address, "jobescrow.grant-role", Stage.PROPOSE, tx)
    assert governed.alarms() == []
    for reported in (True, False):
        cancelled = governed.send(governed.cancel(str(proposal.operation_id)), reported=reported)
        assert [alarm.tx_hash for alarm in governed.alarms()] == ([] if reported else [cancelled])
        if reported:
            governed.send(proposal, reported=True)  # a cancelled operation can be scheduled again


def test_treasury_payments_are_listed(governed: GovernanceWorld) -> None:
    chain = governed.chain
    chain.send(PAYER, "ZenToken", "transfer", chain.deployment.address("Treasury"), 1_000 * ZEN)
    person = {"amount": "2", "purpose": "Audit"}
    acts_of = (
        ("treasury.grant", person | {"recipient": OTHER.address}),
        ("treasury.spend", person | {"to": OTHER.address, "destination": "security audits"}),
    )
    for key, arguments in acts_of:
        proposal = governed.prepare(key, dict(arguments))
        governed.send(proposal)
        governed.pass_delay()
        governed.send(governed.execute(str(proposal.operation_id)))
    with governed.database.transaction() as session:
        found = payments.payments(session, limit=50)
        newest = payments.payments(session, limit=1)
    assert [(one.fund, one.amount_wei, one.grant_id) for one in found] == [
        ("security audits", 2 * ZEN, None),
        ("community grants", 2 * ZEN, 1),
    ]
    assert {one.recipient for one in found} == {OTHER.address}
    assert newest == found[:1]


def test_equal_grants_of_transaction_have_own_numbers(governed: GovernanceWorld) -> None:
    chain = governed.chain
    chain.send(PAYER, "ZenToken", "transfer", chain.deployment.address("Treasury"), 1_000 * ZEN)
    data = abi.encode_call("Treasury", "grant", [OTHER.address, ZEN, b"tutorial".ljust(32, b"\0")])
    grant = Call(chain.deployment.address("Treasury"), 0, data)
    twice = Operation((grant, grant), "0x" + "01" * 32, is_batch=True).arguments()
    chain.send(ADMIN, "Timelock", "scheduleBatch", *twice, DEVNET.timelock_seconds)
    governed.pass_delay()
    chain.send(ADMIN, "Timelock", "executeBatch", *twice)
    governed.index()
    with governed.database.transaction() as session:
        found = payments.payments(session, limit=50)
    assert [one.grant_id for one in found] == [2, 1]
    assert len({one.tx_hash for one in found}) == 1


def test_new_delay_applies_to_next_proposal(governed: GovernanceWorld) -> None:
    proposal = governed.prepare("timelock.set-delay", {"newDelay": "259200"})
    governed.send(proposal)
    governed.pass_delay()
    governed.send(governed.execute(str(proposal.operation_id)))
    assert governed.contracts.delay_seconds == 259_200
    assert governed.prepare("escrow.set-fee", {"newFeeBps": "400"}).delay_seconds == 259_200


def test_unknown_act_and_operation_are_refused(governed: GovernanceWorld) -> None:
    with pytest.raises(ActRefused, match="expected one of") as refused:
        governed.prepare("treasury.gift", {})
    assert refused.value.field == "arguments.act"
    with pytest.raises(OperationNotFound):
        governed.execute("0x" + "00" * 32)


def test_stranger_is_told_the_missing_role(governed: GovernanceWorld) -> None:
    prepared = acts.prepare_act(governed.chain.views, governed.contracts, PAYER.address, "escrow.pause", {})
    assert not prepared.simulation.passes
    assert prepared.simulation.refusal == f"{PAYER.address} lacks the role PAUSER_ROLE. Use an account that holds it."


def test_foreign_epoch_raises_alarm_and_is_vetoed(governed: GovernanceWorld) -> None:
    chain = governed.chain
    chain.send(PAYER, "ZenToken", "transfer", chain.deployment.address("Rewards"), 1_000 * ZEN)
    chain.anvil.rpc("evm_increaseTime", DEVNET.reward_epoch_seconds)
    chain.anvil.mine()
    chain.send(OPERATOR, "Rewards", "postEpoch", b"\x01" * 32, 0, ZEN, 0)
    governed.index()
    with governed.database.transaction() as session:
        [shown] = service.payouts_under_challenge(session, utc_now())
    assert (shown.kind, shown.number, shown.net_wei, shown.agrees) == ("epoch", 1, ZEN, False)
    [alarm] = governed.alarms()
    assert alarm.words.startswith(f"Reward epoch 1 pays 1 ZEN ({ZEN} wei) and is not in the market's record.")
    governed.send(governed.prepare("rewards.veto", {}), reported=True)
    chain.send(OPERATOR, "Rewards", "postEpoch", b"\x02" * 32, 0, ZEN, 0)
    governed.index()
    with governed.database.transaction() as session:
        shown = service.payouts_under_challenge(session, utc_now())[-1]
    assert (shown.root, shown.vetoed_tx) == ("0x" + "02" * 32, None)
