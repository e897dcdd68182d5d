"""``zoo-compute devnet``: up, info, down, reset, and recovery after kill -9 of everything."""

import os
import signal

import httpx
import psutil
from kit.engines.devnet import Devnet
from kit.waiting import wait_until
from web3 import HTTPProvider, Web3

from zoo_compute.client.client import Client

ACCOUNTS = {"operator", "acknowledger", "challenger", "admin", "treasury", "user", "providers", "verifiers"}


def test_devnet_recovers_from_kill_until_reset(devnet: Devnet) -> None:
    info = devnet.up("--providers", "2", "--verifiers", "1")
    assert {"api_url", "rpc_url", "ipfs_url", "chain_id", "contracts", "accounts"} <= set(info)
    assert set(info["accounts"]) == ACCOUNTS
    assert [len(info["accounts"][name]) for name in ("providers", "verifiers")] == [2, 1]
    assert all(set(one) == {"address", "private_key"} for one in info["accounts"]["providers"])
    chain = Web3(HTTPProvider(info["rpc_url"]))
    assert chain.eth.chain_id == info["chain_id"]
    assert all(chain.eth.get_code(address) for address in info["contracts"].values())
    assert _statuses(info["api_url"]) == {"active"}
    assert httpx.get(f"{info['api_url']}/docs").status_code == 200

    user, admin = (info["accounts"][name] for name in ("user", "admin"))
    with Client(api_url=info["api_url"], private_key=user["private_key"]) as client:
        hook = client.connection.post("/v1/webhooks", {"url": "http://127.0.0.1:9/hook"})
        assert hook["secret"].startswith("whsec_")
        assert not client.connection.get("/v1/me")["is_admin"]
    with Client(api_url=info["api_url"], private_key=admin["private_key"]) as client:
        assert client.connection.get("/v1/me")["is_admin"]
        assert client.connection.get("/v1/jobs", {"all": True})["jobs"] == []

    pids = devnet.pids()
    assert devnet.up()["pids"] == info["pids"], "a second up uses the stack that runs"
    refused = devnet.command("up", "--detach", "--providers", "3", check=False)
    assert (refused.returncode, "devnet-options-differ" in refused.stderr) == (7, True)
    assert devnet.command("reset", check=False).returncode == 7

    supervisor = psutil.Process(pids["api"]).ppid()
    for pid in (supervisor, *pids.values()):
        os.kill(pid, signal.SIGKILL)
    assert devnet.command("info", check=False).returncode == 7
    again = devnet.up()
    for key in ("api_url", "rpc_url", "ipfs_url", "contracts", "accounts"):
        assert again[key] == info[key]
    assert set(again["pids"].values()).isdisjoint(pids.values())
    assert _statuses(info["api_url"]) == {"active"}

    running = devnet.pids()
    devnet.command("down")
    assert not [name for name, pid in running.items() if psutil.pid_exists(pid)]
    assert "nothing was running" in devnet.command("down").stderr
    devnet.command("reset")
    assert not devnet.directory.exists()


def test_up_recovers_parts_of_killed_supervisor(devnet: Devnet) -> None:
    info = devnet.up("--providers", "1", "--verifiers", "1")
    pids = devnet.pids()
    os.kill(psutil.Process(pids["api"]).ppid(), signal.SIGKILL)
    os.kill(pids["anvil"], signal.SIGKILL)
    assert psutil.pid_exists(pids["api"]), "the parts outlive their supervisor"
    again = devnet.up()
    assert again["contracts"] == info["contracts"]
    assert not [name for name, pid in pids.items() if psutil.pid_exists(pid)]

    api = devnet.pids()["api"]
    os.kill(api, signal.SIGKILL)
    wait_until(
        lambda: devnet.pids().get("api") not in (None, api) and _answers(info["api_url"]),
        "the supervisor did not restart the API",
        seconds=300,
    )


def _statuses(api_url: str) -> set[str]:
    return {provider["status"] for provider in httpx.get(f"{api_url}/v1/providers").json()["items"]}


def _answers(api_url: str) -> bool:
    try:
        return httpx.get(f"{api_url}/healthz").status_code == 200
    except httpx.TransportError:
        return False
