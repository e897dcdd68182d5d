"""``zoo-compute provider``: stake and earnings of a wallet."""

from datetime import UTC, datetime, timedelta
from math import inf
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zoo_compute.base.amounts import format_zen
from zoo_compute.base.errors import ApiError, ZooError
from zoo_compute.cli.session import ApiUrl, open_client
from zoo_compute.terminal.output import JsonFlag, JsonOfSent, Yes, confirm, in_zen, print_facts, print_json

if TYPE_CHECKING:
    from zoo_compute.base.models import Provider
    from zoo_compute.client.client import Client

app = typer.Typer(name="provider", help="Take out your stake and your earnings.", no_args_is_help=True)
ALL = "all"
_RUNNING = timedelta(minutes=2)  # a node reports at least once a minute


@app.command()
def unstake(
    amount: Annotated[str, typer.Argument(help="Amount in ZEN, or all.", metavar="ZEN")],
    yes: Yes = False,
    api_url: ApiUrl = None,
    as_json: JsonOfSent = False,
) -> None:
    """Begin to unbond stake. It can be slashed until its withdrawal.

    Stake below your tier's minimum is refused while your node has work.
    """
    from zoo_compute.base.amounts import parse_zen

    with open_client(api_url) as client:
        chain = client.chain()
        account = chain.stake_account()
        wei = account.stake if amount == ALL else parse_zen(amount)
        if not 0 < wei <= account.stake:
            detail = f"amount is {format_zen(wei)} ZEN; expected up to the stake, {format_zen(account.stake)} ZEN"
            raise ZooError("stake-too-low", detail, remedy="Give a smaller amount, or all.")
        _require_no_work(client, account.stake - wei)
        plan = {
            "unbonding": f"{format_zen(wei)} ZEN",
            "stake afterwards": f"{format_zen(account.stake - wei)} ZEN",
            "withdrawal from": _date(account.next_release_at),
        }
        if account.unbonding:
            plan["also until then"] = f"{format_zen(account.unbonding)} ZEN, so far until {_date(account.release_at)}"
        confirm(plan, "Unstake?", yes=yes or as_json)
        tx = chain.unstake(wei)
        account = chain.stake_account()
    shown = {"amount_wei": str(wei), "stake_wei": str(account.stake), "unbonding_wei": str(account.unbonding)}
    _print(shown | {"withdraw_from": _date(account.release_at), "tx": tx}, as_json)


@app.command()
def withdraw(yes: Yes = False, api_url: ApiUrl = None, as_json: JsonOfSent = False) -> None:
    """Withdraw all unbonded stake to your wallet, from the date that `unstake` showed.

    Stop the node first: a running node would add missing stake.
    """
    with open_client(api_url) as client:
        chain = client.chain()
        account = chain.stake_account()
        amount = f"{format_zen(account.unbonding)} ZEN"
        if account.unbonding == 0:
            raise ZooError("nothing-unbonding", "no stake is unbonding", remedy="Run: zoo-compute provider unstake all")
        if chain.time() < account.release_at:
            detail = f"{amount} can be withdrawn from {_date(account.release_at)}"
            raise ZooError("still-unbonding", detail, remedy="Repeat it then.")
        node = _registered(client)
        if node is not None and node.last_seen_at is not None and node.last_seen_at > datetime.now(UTC) - _RUNNING:
            detail = f"the node was seen at {node.last_seen_at:%Y-%m-%d %H:%M:%S} UTC; it would stake {amount} again"
            raise ZooError("node-running", detail, remedy="Stop the node, and repeat this two minutes later.")
        confirm({"withdrawal": amount}, "Withdraw?", yes=yes or as_json)
        tx = chain.withdraw_stake()
    _print({"amount_wei": str(account.unbonding), "tx": tx}, as_json)


@app.command()
def earnings(api_url: ApiUrl = None, as_json: JsonFlag = False) -> None:
    """Show the sums of pay, rewards and stake. `node earnings` and `node rewards` list them."""
    with open_client(api_url) as client:
        chain, rewards = client.chain(), client.rewards()
        account, now = chain.stake_account(), chain.time()
        unclaimed = [(one.claimable_at.timestamp(), one.amount_wei) for one in client.claims()]
        claimed = sum(one.amount_wei for one in client.claims(claimed=True))
        balance = chain.balance()
    later = [at for at, _ in unclaimed if at > now]
    shown = {
        "pay_claimed_wei": str(claimed),
        "pay_claimable_wei": str(sum(wei for at, wei in unclaimed if at <= now)),
        "pay_pending_wei": str(sum(wei for at, wei in unclaimed if at > now)),
        "next_pay_at": _date(min(later)) if later else None,
        "rewards_claimed_wei": str(rewards.claimed_wei),
        "rewards_claimable_wei": str(rewards.claimable.amount_wei if rewards.claimable else 0),
        "rewards_pending_wei": str(rewards.pending.amount_wei if rewards.pending else 0),
        "stake_wei": str(account.stake),
        "unbonding_wei": str(account.unbonding),
        "withdraw_from": _date(account.release_at) if account.unbonding else None,
        "balance_wei": str(balance),
    }
    _print(shown, as_json)


def _require_no_work(client: "Client", remaining: int) -> None:
    """Refuse a stake below the node's minimum while it has work. Raises ZooError."""
    node, work = _registered(client), client.open_work()
    if node is None or not (work.job_ids or work.undecided_units) or remaining >= _minimum(client, node):
        return
    jobs = ", ".join(work.job_ids) or "no job"
    raise ZooError(
        "work-open",
        f"the node works for {jobs} and has {work.undecided_units} units without a decision",
        remedy="Keep the node running until they are decided, or leave your tier's minimum staked.",
    )


def _minimum(client: "Client", node: "Provider") -> float:
    network = client.network()
    if node.kind == "verifier":
        return network.verifier_minimum_stake_wei
    return network.tiers[node.tier].minimum_stake_wei if node.tier in network.tiers else inf


def _registered(client: "Client") -> "Provider | None":
    from zoo_compute.base.models import Provider

    address = client.signing_wallet("this command").address
    try:
        return Provider.model_validate(client.connection.get(f"/v1/providers/{address}"))
    except ApiError as error:
        if error.code == "provider-not-found":
            return None
        raise


def _date(unix: float) -> str:
    return datetime.fromtimestamp(unix, UTC).isoformat()


def _print(facts: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(facts)
    else:
        print_facts({name.replace("_", " "): value for name, value in in_zen(facts).items()})
