"""Deploy the contracts and write the deployment file.

A second run with the file in place does nothing. Missing options default to the market's variables.
"""

import argparse
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import rlp
from eth_account import Account
from eth_utils.address import is_address, to_canonical_address, to_checksum_address
from eth_utils.crypto import keccak

from market.chain.contracts.codec import Deployment, encode_call, encode_constructor
from market.chain.errors import ChainError
from market.chain.rpc.client import ChainClient, Receipt
from market.chain.transactions import fees
from market.domain.network import NETWORKS, ZEN, NetworkParameters
from zoo_protocol.contracts import CONTRACTS

INITIAL_SUPPLY_WEI = 100_000_000 * ZEN
ADMIN_DELAY_SECONDS = 2 * 86_400  # between proposing and accepting a new admin
_ANY_ACCOUNT = "0x" + "00" * 20  # as executor of the timelock: any account may execute due operations
_MAX_FEE_WEI = 500 * 10**9
_RECEIPT_DEADLINE_SECONDS = 300.0
BLOCK_HISTORY = "0x0000F90827F1C53a10cb7A02335B175320002935"  # EIP-2935


class DeploymentFailed(Exception):
    """The deployment failed; the message contains the action."""


@dataclass(frozen=True, slots=True)
class Roles:
    """Accounts of the contracts' roles. All changes by the admin pass the timelock.

    - ``admin`` proposes changes and payments of the treasury.
    - ``operator`` opens jobs, settles, commits windows and slashes.
    - ``guardian`` pauses intake and vetoes settlements and rewards.
    - ``acknowledger``, a plain key, signs inclusion acknowledgements.
    """

    admin: str
    operator: str
    guardian: str
    acknowledger: str


def deploy(
    client: ChainClient,
    deployer_key: str,
    network: NetworkParameters,
    roles: Roles,
    allocations: Mapping[str, int] | None = None,
    bond: int = 0,
) -> Deployment:
    """Deploy all contracts with the network's parameters.

    The deployer gets the initial supply. It transfers the allocations (wei of ZEN by address) and deposits the
    operator's bond for acknowledgements, in wei.

    Raises:
        DeploymentFailed: the chain has no history of block hashes, or a transaction reverted or was not mined.
        ChainError: the node refused or is unreachable.
    """
    client.check_chain()
    if not client.code(BLOCK_HISTORY):
        # Seeds are requested at finality, which can be later than the 256 blocks that BLOCKHASH serves.
        raise DeploymentFailed("the chain has no history of block hashes (EIP-2935). Choose a chain with it.")
    transactions = _Transactions(client, deployer_key)
    start_block = client.head().number + 1
    contracts = transactions.next_addresses(CONTRACTS)
    # No constructor calls another contract and all addresses are known, so all are sent at once.
    for name, arguments in _constructor_arguments(network, roles, contracts, transactions.address).items():
        transactions.send(None, encode_constructor(name, arguments), f"creation of {name}")
    transactions.wait()
    for address, wei in (allocations or {}).items():
        data = encode_call("ZenToken", "transfer", [address, wei])
        transactions.send(contracts["ZenToken"], data, f"allocation to {address}")
    transactions.wait()
    if bond > 0:
        omissions = contracts["Omissions"]
        transactions.send(contracts["ZenToken"], encode_call("ZenToken", "approve", [omissions, bond]), "approval")
        transactions.wait()
        transactions.send(omissions, encode_call("Omissions", "deposit", [bond]), "the operator's bond")
        transactions.wait()
    return Deployment(network.name, client.chain_id, start_block, contracts)


def _constructor_arguments(
    network: NetworkParameters, roles: Roles, contracts: Mapping[str, str], deployer: str
) -> dict[str, list[Any]]:
    zen, staking, timelock = (contracts[name] for name in ("ZenToken", "ProviderStaking", "Timelock"))
    governed = (ADMIN_DELAY_SECONDS, timelock)
    stakes = [network.verifier_minimum_stake_wei, *(tier.minimum_stake_wei for tier in network.tiers)]
    parties = [contracts["Treasury"], roles.operator, roles.guardian, contracts["Disputes"]]
    return {
        "Timelock": [network.timelock_seconds, [roles.admin], [_ANY_ACCOUNT]],
        "ZenToken": [network.token_cap_wei, INITIAL_SUPPLY_WEI, deployer, *governed, contracts["Emission"]],
        "Treasury": [zen, [bps for _, bps in network.treasury_split_bps], *governed, timelock],
        "ProviderStaking": [
            zen,
            network.unbonding_seconds,
            stakes,
            *governed,
            roles.guardian,
            roles.operator,
            contracts["Disputes"],
        ],
        "WorkWindows": [network.seed_delay_blocks, *governed, roles.operator],
        "JobEscrow": [
            zen,
            staking,
            parties,
            network.fee_bps,
            network.refund_delay_seconds,
            network.cancel_delay_seconds,
            network.challenge_seconds,
            *governed,
        ],
        "Disputes": [zen, staking, contracts["WorkWindows"], contracts["JobEscrow"], astuple(network.disputes)],
        "Omissions": [
            zen,
            contracts["WorkWindows"],
            astuple(network.omissions),
            *governed,
            roles.operator,
            roles.acknowledger,
        ],
        "Emission": [zen, contracts["Rewards"], network.emission_yearly_wei],
        "Rewards": [
            zen,
            staking,
            network.base_apy_bps,
            network.reward_epoch_seconds,
            network.reward_delay_seconds,
            *governed,
            roles.operator,
            roles.guardian,
        ],
        "Attestations": [network.attestation_seconds, *governed, roles.operator],
    }


def is_deployed(client: ChainClient, deployment: Deployment) -> bool:
    """Return True if the client's chain has code at every address of the deployment."""
    return client.chain_id == deployment.chain_id and all(
        client.code(address) for address in deployment.contracts.values()
    )


class _Transactions:
    """The deployer's transactions in order. A broken run starts again, since nothing is stored."""

    def __init__(self, client: ChainClient, key: str) -> None:
        self._client = client
        self._account = Account.from_key(key)
        self.address: str = self._account.address
        self._nonce = client.nonce(self.address)
        self._pending: list[tuple[str, str]] = []

    def next_addresses(self, names: Sequence[str]) -> dict[str, str]:
        """Return the addresses of contracts created next, in this order."""
        creator = to_canonical_address(self.address)
        created = (keccak(rlp.encode([creator, self._nonce + offset]))[-20:] for offset in range(len(names)))
        return dict(zip(names, map(to_checksum_address, created), strict=True))

    def send(self, to: str | None, data: bytes, what: str) -> None:
        """Send one transaction; ``wait`` waits for it."""
        quote = fees.quote(self._client.head().base_fee, self._client.priority_fee(), _MAX_FEE_WEI)
        fields = {
            "type": 2,
            "chainId": self._client.chain_id,
            "nonce": self._nonce,
            "value": 0,
            "data": data,
            "gas": self._client.estimate_gas(self.address, to, data) * 4 // 3,
            "maxFeePerGas": quote.max_fee,
            "maxPriorityFeePerGas": quote.priority_fee,
        } | ({"to": to} if to else {})
        signed = self._account.sign_transaction(fields)
        self._client.send_raw(bytes(signed.raw_transaction))
        self._pending.append((what, "0x" + signed.hash.hex()))
        self._nonce += 1

    def wait(self) -> None:
        """Wait until all transactions have succeeded."""
        deadline = time.monotonic() + _RECEIPT_DEADLINE_SECONDS
        for what, tx_hash in self._pending:
            receipt = self._receipt(tx_hash, deadline)
            if receipt is None:
                raise DeploymentFailed(f"{what}: {tx_hash} was not mined in time. Check the node and run this again.")
            if not receipt.succeeded:
                raise DeploymentFailed(f"{what}: {tx_hash} reverted")
        self._pending.clear()

    def _receipt(self, tx_hash: str, deadline: float) -> Receipt | None:
        while (receipt := self._client.receipt(tx_hash)) is None and time.monotonic() < deadline:
            time.sleep(0.1)
        return receipt


def main(arguments: Sequence[str] | None = None) -> int:
    """Deploy unless the file's contracts exist; exit status 1 on any failure."""
    options = _parser().parse_args(arguments)
    try:
        print(_run(options))
    except (ChainError, DeploymentFailed, OSError, ValueError) as error:
        print(f"deployment failed: {error}", file=sys.stderr)
        return 1
    return 0


def _run(options: argparse.Namespace) -> str:
    for option, variable in (("rpc_url", "ZOO_RPC_URL"), ("out", "ZOO_DEPLOYMENT_FILE")):
        if not getattr(options, option):
            raise DeploymentFailed(f"give --{option.replace('_', '-')} or set {variable}")
    key = os.environ.get(options.deployer_key_env)
    if not key:
        raise DeploymentFailed(f"set {options.deployer_key_env} to the deployer's private key")
    chain_id = ChainClient.ask_chain_id(options.rpc_url)
    client = ChainClient(options.rpc_url, chain_id)
    file = Path(options.out)
    if file.exists():
        if is_deployed(client, Deployment.load(file)):
            return f"{file}: the contracts exist already"
        raise DeploymentFailed(
            f"{file} names contracts that chain {chain_id} does not have. "
            "Correct the node's URL, or move the file away to deploy again."
        )
    deployer = _address_of(options.deployer_key_env) or ""
    acknowledger = options.acknowledger or _address_of("ZOO_ACKNOWLEDGER_KEY") or deployer
    roles = Roles(options.admin or deployer, options.operator or deployer, options.guardian or deployer, acknowledger)
    network, bond = NETWORKS[options.network], options.bond * ZEN
    deployment = deploy(client, key, network, roles, dict(options.allocate), bond)
    deployment.save(file)
    return f"{file}: deployed on chain {chain_id} from block {deployment.start_block}"


def _address_of(variable: str) -> str | None:
    key = os.environ.get(variable)
    try:
        return str(Account.from_key(key).address) if key else None
    except ValueError:  # the library's message contains the key
        raise DeploymentFailed(f"{variable} is not a private key; expected 32 bytes as hex") from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m market.chain.contracts.deploy", description=__doc__)
    add = parser.add_argument
    add("--rpc-url", default=os.environ.get("ZOO_RPC_URL"), help="default: ZOO_RPC_URL")
    add("--deployer-key-env", default="ZOO_OPERATOR_KEY", help="variable with the deployer's private key")
    add("--network", choices=sorted(NETWORKS), default=os.environ.get("ZOO_NETWORK") or "devnet")
    add("--out", default=os.environ.get("ZOO_DEPLOYMENT_FILE"), help="default: ZOO_DEPLOYMENT_FILE")
    add("--admin", type=_address, help="proposer of the timelock, the admin of all contracts; default: the deployer")
    add("--operator", type=_address, help="the market's signer; default: the deployer")
    add("--guardian", type=_address, help="account that may pause intake and veto settlements; default: the deployer")
    add(
        "--acknowledger",
        type=_address,
        help="signer of acknowledgements; default: the address of ZOO_ACKNOWLEDGER_KEY, otherwise the deployer",
    )
    add("--bond", type=_zen, default=0, metavar="ZEN", help="the operator's bond for acknowledgements; default: 0")
    listed = os.environ.get("DEPLOY_ALLOCATIONS") or ""
    add(
        "--allocate",
        type=_allocation,
        action="append",
        default=[_allocation(one) for one in listed.split(",") if one],
        metavar="ADDRESS=ZEN",
        help="repeatable; added to those of DEPLOY_ALLOCATIONS, which commas separate",
    )
    return parser


def _address(text: str) -> str:
    if not is_address(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not an address")
    return to_checksum_address(text)


def _zen(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of ZEN")
    return int(text)


def _allocation(text: str) -> tuple[str, int]:
    address, _, amount = text.partition("=")
    return _address(address), _zen(amount) * ZEN


if __name__ == "__main__":
    sys.exit(main())
