"""Steps of every act on the command line: prepare, simulate, ask, send, report, follow."""

import os
import secrets
import time
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zoo_compute.base.errors import ConfigError, ZooError
from zoo_compute.terminal.output import confirm, print_facts, print_json, print_note

if TYPE_CHECKING:
    from zoo_compute.chain.governance import GovernanceChain
    from zoo_compute.client.client import Client
    from zoo_protocol.acts.calls import PreparedAct


class Export(StrEnum):
    """Form of an act that another wallet signs."""

    RAW = "raw"
    SAFE = "safe"


ExportTo = Annotated[
    Export | None,
    typer.Option(help="Print call data (raw) or a file for a Safe's transaction builder (safe); send nothing."),
]
Sender = Annotated[
    str | None, typer.Option(help="Simulate from this account; default: the wallet's.", metavar="ADDRESS")
]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Return once the transaction is mined, not final.")]
RPC_VARIABLE = "ZOO_CLIENT_RPC_URL"
"""Variable with the URL of a node that replaces the one of the market."""
OperationId = Annotated[str, typer.Argument(help="Id of the timelock's operation.", metavar="OPERATION")]


def governance_chain(client: "Client") -> "GovernanceChain":
    """Return the contracts of the client's network for reads and simulations."""
    from zoo_compute.chain.governance import GovernanceChain

    network = client.network()
    return GovernanceChain(_rpc_url(client), network.contracts, network.start_block)


def _rpc_url(client: "Client") -> str:
    """Return the person's own node, or else the one that the market names."""
    return os.environ.get(RPC_VARIABLE) or client.network().rpc_url


def pairs(given: Sequence[str]) -> dict[str, str]:
    """Return NAME=VALUE arguments by name. Raises ConfigError."""
    found = {}
    for text in given:
        name, sign, value = text.partition("=")
        if not sign:
            raise ConfigError(
                "argument-malformed",
                f"argument is {text!r}; expected NAME=VALUE",
                remedy="Run: zoo-compute admin acts --json",
            )
        found[name] = value
    return found


def prepare(chain: "GovernanceChain", key: str, arguments: Mapping[str, object]) -> "PreparedAct":
    """Return an act, or its proposal in the timelock. Raises ConfigError."""
    from zoo_protocol.acts import calls
    from zoo_protocol.acts.parameters import ActError

    try:
        return calls.prepare(key, arguments, chain.contracts, salt=secrets.token_bytes(32))
    except ActError as error:
        remedy = "Run: zoo-compute admin acts --json"
        raise ConfigError("act-malformed", str(error), remedy=remedy) from error


def perform(
    client: "Client",
    chain: "GovernanceChain",
    prepared: "PreparedAct",
    *,
    sender: str | None,
    export: Export | None,
    yes: bool,
    no_wait: bool,
    as_json: bool,
) -> None:
    """Simulate an act, and export it or send it with the wallet and follow it until final.

    Raises:
        ZooError: the contract would refuse it, or the transaction fails.
        ConfigError: there is no wallet, or no consent.
    """
    from zoo_protocol.acts.export import raw_transaction, safe_transaction

    account = _account(client, sender, is_export=export is not None)
    outcome = chain.simulate(prepared, account)
    if export is Export.RAW:
        print_json(raw_transaction(prepared, chain.contracts))
    elif export is Export.SAFE:
        print_json(safe_transaction(prepared, chain.contracts, created_at_ms=time.time_ns() // 1_000_000))
    if not outcome.passes:
        if export is None:
            raise ZooError("act-refused", f"{outcome.refusal}", remedy="Nothing was sent.")
        print_note(f"simulation: {outcome.refusal}")
    for warning in outcome.warnings:
        print_note(f"warning: if it were executed now: {warning}")
    if export is not None:
        return
    plan = {"act": prepared.title, "from": account, "to": f"{prepared.contract} {prepared.to}"}
    plan |= {f"effect {number}": words for number, words in enumerate(prepared.words, 1)}
    confirm(plan, "Sign and send?", yes=yes or as_json)
    _send(client, prepared, no_wait=no_wait, as_json=as_json)


def _account(client: "Client", sender: str | None, *, is_export: bool) -> str:
    """Return the account to simulate from. Raises ConfigError: another one would sign."""
    if sender is not None and is_export:
        return sender
    own = client.signing_wallet("this command").address
    if sender is not None and sender.lower() != own.lower():
        remedy = "Use the wallet of that account, or export the act for it with --export."
        raise ConfigError("sender-differs", f"--sender is {sender}; this wallet is {own}", remedy=remedy)
    return own


def _send(client: "Client", prepared: "PreparedAct", *, no_wait: bool, as_json: bool) -> None:
    from zoo_compute.chain.governance import ActSender

    wallet = ActSender(_rpc_url(client), client.network().contracts, client.signing_wallet("this command"))
    tx = wallet.send(prepared)
    _report(client, prepared, tx)
    if not no_wait:
        print_note(f"{tx} is mined; waiting until it is final …")
        wallet.wait_final(tx)
    facts: dict[str, Any] = {
        "act": prepared.key,
        "stage": prepared.stage.value,
        "operation_id": None if prepared.operation is None else prepared.operation.id,
        "tx": tx,
        "final": not no_wait,
    }
    if as_json:
        print_json(facts)
    else:
        print_facts({name.replace("_", " "): value for name, value in facts.items()})


def _report(client: "Client", prepared: "PreparedAct", tx: str) -> None:
    """Tell the market that this account sent the act, so that it raises no alarm."""
    body = {"tx_hash": tx, "act": prepared.key or "timelock", "stage": prepared.stage.value}
    try:
        client.connection.post("/v1/governance/sent-acts", body, repeatable=True)
    except ZooError as error:
        print_note(f"The market was not told of {tx} and may raise an alarm: {error.detail}")
