"""Gas of each contract call, as separate transactions on the embedded chain.

The cost per unit counts everything from the commitment of its window to the claims of all providers and the fee. Gas is
equal on all machines. ``benchmarks/gas.json`` is the last output of ``python -m benchmarks.gas --json``. A test fails
if a row rises by more than five per cent.
"""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from eth_account import Account
from eth_account.signers.local import LocalAccount
from eth_typing import Hash32
from kit.chain.anvil import AnvilProcess
from kit.chain.deployed_chain import OPERATOR, OTHER, PAYER, Chain, chain_settings, deploy_contracts
from kit.chain.settling import UNIT_PRICE_WEI_PER_GPU_HOUR, pass_challenge_period, pay

from benchmarks.report import Row, progress, row, run
from market.chain.contracts.codec import decode_result, encode_call
from market.domain.network import DEVNET, ZEN
from zoo_compute.devnet.engines import find_anvil
from zoo_protocol import merkle
from zoo_protocol.hashing import from_hex, sha256, to_hex
from zoo_protocol.messages import Domain, UnitCommitment, permit_typed_data, sign, typed_data
from zoo_protocol.payments.job_record import unit_leaf
from zoo_protocol.payments.settlement_batch import JobLine, claim_leaf, settlement_hash
from zoo_protocol.verification import trace

PROVIDERS, JOBS = 20, 10
ENVIRONMENT = to_hex(sha256(b"environment class"))
_GAS_LIMIT = 12_000_000

_Posted = tuple[str, list[tuple[int, list[str]]]]  # root of a batch; amount and proof by provider


def measure(quick: bool) -> list[Row]:
    """Return all rows; quick runs are complete, since they take seconds."""
    with deployed() as bench:
        rows = bench.single_calls()
        for units in (1_000, 100_000):
            progress(f"settling a window of {units} units")
            spent = bench.window(units) / units
            rows.append(row(f"per_unit_{units}", "gas", [spent], "commit, latch, settle, claims, fee"))
        progress("disputing a unit")
        return rows + bench.dispute()


@contextmanager
def deployed() -> Iterator["Bench"]:
    """Yield a fresh chain with all contracts."""
    with AnvilProcess() as anvil, tempfile.TemporaryDirectory() as directory:
        progress("deploying the contracts")
        deployment = deploy_contracts(anvil)
        anvil.rpc("anvil_autoImpersonateAccount", True)
        yield Bench(Chain(anvil, deployment, chain_settings(anvil, deployment, Path(directory))))


class Bench:
    """Calls on one chain, and their gas."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._keys = [Account.from_key(sha256(f"gas {index}".encode())) for index in range(PROVIDERS + 10)]
        self._batches = 0
        self._judged: tuple[str, list[LocalAccount]] = "", []
        for key in self._keys:
            chain.anvil.rpc("anvil_setBalance", key.address, hex(10**20))
        self._fund(self._keys[:PROVIDERS], 1)  # providers hold some ZEN, as after staking

    def _fund(self, keys: Sequence[LocalAccount], wei: int) -> None:
        for key in keys:
            self._gas(OPERATOR.address, "ZenToken", "transfer", key.address, wei)

    def _gas(self, sender: str, contract: str, function: str, *arguments: Any) -> int:
        call = {
            "from": sender,
            "to": self._chain.deployment.address(contract),
            "data": to_hex(encode_call(contract, function, arguments)),
            "gas": hex(_GAS_LIMIT),
        }
        receipt = self._chain.anvil.rpc("eth_getTransactionReceipt", self._chain.anvil.send(call))
        if receipt["status"] != "0x1":
            raise RuntimeError(f"{contract}.{function} reverted: {self._chain.anvil.rpc('eth_call', call, 'latest')}")
        return int(receipt["gasUsed"], 16)

    def single_calls(self) -> list[Row]:
        """Return the rows of stake, deposit, open, commit, settle, claim and slash."""
        stakers = self._keys[PROVIDERS : PROVIDERS + 5]
        staking = self._chain.deployment.address("ProviderStaking")
        self._fund(stakers, 2_000 * ZEN)
        for staker in stakers:
            self._gas(staker.address, "ZenToken", "approve", staking, 2_000 * ZEN)
        stakes = [self._gas(s.address, "ProviderStaking", "stake", 1_000 * ZEN) for s in stakers]
        slashes = [
            self._gas(OPERATOR.address, "ProviderStaking", "slash", staker.address, 2, to_hex(sha256(bytes([index]))))
            for index, staker in enumerate(stakers)
        ]
        deposits = [self._deposit() for _ in range(3)]
        opened, opening = zip(*(self._open(1_000) for _ in range(3)), strict=True)
        commits = [
            self._gas(OPERATOR.address, "WorkWindows", "commitWindow", to_hex(sha256(f"w{i}".encode())), 1_000)
            for i in range(4)
        ][1:]
        settles = [self._settle([job], 1_000, last=True)[0] for job in opened]
        return [
            row("stake", "gas", stakes, "of a new account, with an allowance"),
            row("deposit", "gas", deposits, "with permit; the payer's first is the dearest"),
            row("open_job", "gas", opening, "with signed order, from the balance"),
            row("commit_window", "gas", commits, "the first window ever costs 17,100 more: it begins the count"),
            row("settle_1000_units", "gas", settles, "one job of 20 providers, with the refund of the rest"),
            *self._claims(),
            row("slash", "gas", slashes, "of an account that was never slashed"),
        ]

    def _claims(self) -> list[Row]:
        batches = []
        for _ in range(11):
            job, _gas = self._open(1_000)
            batches.append(self._settle([job], 1_000, last=True)[1])
        pass_challenge_period(self._chain)
        first = [self._claim(index, batches[:1]) for index in range(5)]
        many = [self._claim(index, batches) for index in range(5, 10)]
        again = [self._claim(index, batches[1:2]) for index in range(5)]
        return [
            row("claim_first", "gas", first, "a provider that holds ZEN and never claimed"),
            row("claim_next", "gas", [(all_ - one) / 10 for all_, one in zip(many, first, strict=True)], "of eleven"),
            row("claim_later", "gas", again, "a call for one batch by a provider that claimed before"),
        ]

    def window(self, units: int) -> float:
        """Return the gas from the commitment of a window of ten jobs to the last of twenty claims."""
        jobs = [self._open(units // JOBS)[0] for _ in range(JOBS)]
        root = to_hex(sha256(f"window of {units}".encode()))
        spent = self._gas(OPERATOR.address, "WorkWindows", "commitWindow", root, units)
        self._chain.anvil.mine(DEVNET.seed_delay_blocks + 1)
        spent += self._gas(OPERATOR.address, "WorkWindows", "latchSeed", root)
        gas, batch = self._settle(jobs, units // JOBS, last=False)
        pass_challenge_period(self._chain)
        spent += gas + sum(self._claim(index, [batch]) for index in range(PROVIDERS))
        return spent + self._gas(OTHER.address, "JobEscrow", "collectFees", [batch[0]])

    def _deposit(self) -> int:
        deployment, deadline = self._chain.deployment, 2**40
        token, escrow = deployment.address("ZenToken"), deployment.address("JobEscrow")
        nonce = self._chain.views.wallet(PAYER.address)[1]
        chain_id = self._chain.client().chain_id
        permit = permit_typed_data(chain_id, token, "ZEN", PAYER.address, escrow, ZEN, nonce, deadline)
        raw = from_hex(sign(PAYER.key, permit), 65)
        split = (raw[64], raw[:32], raw[32:64])
        return self._gas(OTHER.address, "JobEscrow", "deposit", PAYER.address, ZEN, deadline, *split)

    def _open(self, units: int) -> tuple[str, int]:
        job, arguments = self._chain.order(units * 10**15 + ZEN, units)
        return job, self._gas(OTHER.address, "JobEscrow", "openJob", *arguments)

    def _settle(self, jobs: Sequence[str], units: int, *, last: bool) -> tuple[int, _Posted]:
        """Return the gas of one batch over all units of these jobs, its root, and providers' claims."""
        self._batches += 1
        lines = [JobLine(job, UNIT_PRICE_WEI_PER_GPU_HOUR, units, 0, 1, last, ENVIRONMENT) for job in jobs]
        share = pay(units * len(jobs) // PROVIDERS)
        leaves = [claim_leaf(key.address, share) for key in self._keys[:PROVIDERS]]
        units_root = sha256(f"units {self._batches}".encode())  # never disputed
        claims_root = merkle.root(leaves)
        sibling = merkle.parent_hash(units_root, settlement_hash(claims_root, units_root, lines))
        arguments = [to_hex(claims_root), to_hex(units_root), [line.as_argument() for line in lines]]
        gas = self._gas(OPERATOR.address, "JobEscrow", "settle", *arguments)
        proofs = [[to_hex(node) for node in (*merkle.proof(leaves, i), sibling)] for i in range(PROVIDERS)]
        return gas, (to_hex(merkle.parent_hash(claims_root, sibling)), [(share, proof) for proof in proofs])

    def _claim(self, index: int, batches: Sequence[_Posted]) -> int:
        items = [{"amount": amount, "proof": proof} for _, claims in batches for amount, proof in (claims[index],)]
        address = self._keys[index].address
        return self._gas(address, "JobEscrow", "claim", address, items)

    def dispute(self) -> list[Row]:
        """Return the rows of a challenge of a unit of 64 segments, and of a silent committee."""
        spent = self.transactions_of_a_dispute(64)
        step = max(spent["show"], spent["name"])
        contradiction, wrong = self._proofs()
        silent = self._silence()
        return [
            row("dispute_open", "gas", [spent["open"]]),
            row("dispute_step", "gas", [step], "a party's dearest turn: the provider shows a trace of 64 segments"),
            row("dispute_name", "gas", [spent["name"]], "the challenger names the step"),
            row("dispute_draw", "gas", [spent["draw"]], "a committee of three, of five referees"),
            row("dispute_verdict", "gas", [spent["verdict"]], "three signatures; slashes"),
            row("dispute_votes_kept", "gas", [silent["kept"]], "one signature, which decides nothing"),
            row(
                "dispute_replace",
                "gas",
                [silent["replace"]],
                "a committee of which all but one were silent; strikes them",
            ),
            row("referee_contradiction", "gas", [contradiction], "two signatures of one referee; slashes"),
            row("referee_wrong_verdict", "gas", [wrong], "three signatures, one against all others; slashes"),
        ]

    def _silence(self) -> dict[str, int]:
        """Return the gas of storing a committee's only signature, and of replacing the committee."""
        dispute, spent = self._named(1)
        _, correct, committee, signatures = self._verdict(dispute, self._keys[PROVIDERS + 5 : PROVIDERS + 10])
        self._gas(OTHER.address, "Disputes", "drawCommittee", dispute)
        one = [signatures[0], *["0x" for _ in signatures[1:]]]
        spent["kept"] = self._gas(OTHER.address, "Disputes", "submitVerdict", dispute, correct, committee, one)
        self._chain.anvil.rpc("evm_increaseTime", DEVNET.disputes.verdict_seconds + 1)
        return spent | {"replace": self._gas(OTHER.address, "Disputes", "replaceCommittee", dispute, committee)}

    def transactions_of_a_dispute(self, segments: int) -> dict[str, int]:
        """Return the gas of each transaction of a dispute about a false last segment, in order.

        The transactions are those of the market and the nodes. A unit of one segment needs no segment selection. The
        draw and the verdict are two transactions, since referees sign once a final block has the committee.
        """
        dispute, spent = self._named(segments)
        verdict = self._verdict(dispute, self._keys[PROVIDERS + 5 : PROVIDERS + 10])
        spent["draw"] = self._gas(OTHER.address, "Disputes", "drawCommittee", dispute)
        return spent | {"verdict": self._gas(OTHER.address, "Disputes", "submitVerdict", *verdict)}

    def _named(self, segments: int) -> tuple[str, dict[str, int]]:
        """Return a dispute ready for the committee draw, and the gas of each transaction until then."""
        provider, challenger, *referees = self._keys[PROVIDERS + 3 : PROVIDERS + 10]
        deployment = self._chain.deployment
        self._fund([challenger], DEVNET.disputes.bond_wei)
        self._gas(challenger.address, "ZenToken", "approve", deployment.address("Disputes"), DEVNET.disputes.bond_wei)
        self._register(referees)

        job, arguments = self._chain.order(ZEN, segments=segments)
        self._gas(OTHER.address, "JobEscrow", "openJob", *arguments)
        states = [sha256(f"state {j}".encode()) for j in range(segments + 1)]
        leaves = [trace.state_leaf(job, 0, 0, j, state, ENVIRONMENT) for j, state in enumerate(states)]
        root = to_hex(trace.trace_root(leaves))
        unit = UnitCommitment(job, 0, 0, provider.address, root, ENVIRONMENT)
        domain = Domain(self._chain.client().chain_id, deployment.address("JobEscrow"))
        signature = sign(to_hex(bytes(provider.key)), typed_data(domain, unit))
        window = to_hex(unit_leaf(job, 0, 0, provider.address, root, ENVIRONMENT))
        self._gas(OPERATOR.address, "WorkWindows", "commitWindow", window, 1)

        fields = {name: getattr(unit, name) for name in unit.__slots__}
        opening = [arguments[0], fields, signature, window, []]
        spent = {"open": self._gas(challenger.address, "Disputes", "open", *opening)}
        dispute = self._view("Disputes", "disputeIdOf", window, challenger.address)
        trace_ = [dispute, fields, ENVIRONMENT, [to_hex(state) for state in states]]
        spent["show"] = self._gas(provider.address, "Disputes", "showTrace", *trace_)
        if segments > 1:
            spent["name"] = self._gas(challenger.address, "Disputes", "nameStep", dispute, segments - 1)
        self._chain.anvil.mine(DEVNET.disputes.seed_delay_blocks + 1)
        return dispute, spent

    def _register(self, referees: Sequence[LocalAccount]) -> None:
        if self._view("Disputes", "refereeCount"):
            return
        self._fund(referees, 600 * ZEN)
        for referee in referees:
            staking = self._chain.deployment.address("ProviderStaking")
            self._gas(referee.address, "ZenToken", "approve", staking, 600 * ZEN)
            self._gas(referee.address, "ProviderStaking", "stake", 600 * ZEN)
            self._gas(referee.address, "Disputes", "registerReferee")

    def _verdict(self, dispute: str, referees: Sequence[LocalAccount]) -> list[Any]:
        """Return the arguments of ``submitVerdict`` by the committee of a draw in the next block."""
        committee = self._view("Disputes", "drawCommittee", dispute)
        keys = {referee.address: referee for referee in referees}
        self._judged = dispute, [keys[address] for address in committee]
        signatures = [self._signed(seat, False) if seat < 3 else "0x" for seat in range(len(committee))]
        return [dispute, False, committee, signatures]

    def _signed(self, seat: int, provider_correct: bool) -> str:
        dispute, members = self._judged
        digest = self._view("Disputes", "verdictDigest", dispute, 0, provider_correct)
        return to_hex(bytes(members[seat].unsafe_sign_hash(Hash32(from_hex(digest))).signature))

    def _proofs(self) -> tuple[int, int]:
        """Return the gas of two slashes of referees: for equivocation and for a wrong verdict."""
        dispute, members = self._judged
        both = [self._signed(0, True), self._signed(0, False)]
        contradiction = self._gas(OTHER.address, "Disputes", "proveContradiction", dispute, 0, *both)
        signatures = [self._signed(seat, seat == 1) for seat in range(len(members))]
        committee = [member.address for member in members]
        proof = [dispute, False, committee, signatures, 1]
        return contradiction, self._gas(OTHER.address, "Disputes", "proveWrongVerdict", *proof)

    def _view(self, contract: str, function: str, *arguments: Any) -> Any:
        data = to_hex(encode_call(contract, function, arguments))
        call = {"to": self._chain.deployment.address(contract), "data": data}
        answer = self._chain.anvil.rpc("eth_call", call, "latest")
        return decode_result(contract, function, bytes.fromhex(answer[2:]))


if __name__ == "__main__":
    run("gas", measure, needs=find_anvil)
