"""The deployment program on a real chain."""

from pathlib import Path

import pytest
from kit.chain.deployed_chain import BOND, FUNDS, OPERATOR, OTHER, PAYER, PROVIDER, Chain, deploy_contracts

from market.chain.contracts.bindings import JobEscrow
from market.chain.contracts.codec import Deployment, encode_call
from market.chain.contracts.deploy import BLOCK_HISTORY, INITIAL_SUPPLY_WEI, DeploymentFailed, main
from market.chain.rpc.client import ChainClient
from market.chain.views import ChainViews, JobState
from market.domain.network import DEVNET, MIN_FRAUD_PENALTY_BPS, ZEN
from market.domain.verification.sampling import OFFENCE_IDS


def options_of(chain: Chain, file: Path, *more: str) -> list[str]:
    return ["--rpc-url", chain.anvil.url, "--deployer-key-env", "DEPLOYER", "--out", str(file), *more]


def test_contracts_hold_network_parameters(chain: Chain) -> None:
    views = chain.views
    assert views.total_supply() == INITIAL_SUPPLY_WEI
    assert views.balance_of(OPERATOR.address) == INITIAL_SUPPLY_WEI - 3 * FUNDS - BOND
    assert views.balance_of(chain.deployment.address("Omissions")) == BOND
    assert [share.share_bps for share in views.treasury().shares] == [5_000, 3_000, 2_000]
    bronze = DEVNET.tier("bronze")
    chain.stake(PROVIDER, bronze.minimum_stake_wei - 1)
    assert not views.qualifies(PROVIDER.address, bronze.id)
    chain.stake(PROVIDER, 1)
    assert views.qualifies(PROVIDER.address, bronze.id)
    assert not views.qualifies(PROVIDER.address, DEVNET.tier("silver").id)
    [unknown] = views.many([JobEscrow.jobs("0x" + "11" * 32)], "latest")
    assert unknown["state"] == JobState.NONE
    assert {PAYER.address, OTHER.address}.isdisjoint(chain.deployment.contracts.values())


def test_penalty_table_matches_network_and_order_minimum(chain: Chain) -> None:
    staking = chain.deployment.address("ProviderStaking")

    def read(function: str, *arguments: int) -> int:
        return int.from_bytes(
            chain.client().call(staking, encode_call("ProviderStaking", function, arguments))[:32], "big"
        )

    table = {name: read("penalty", row) for name, row in OFFENCE_IDS.items()}
    assert table == dict(DEVNET.penalty_bps)
    assert read("LEAST_CHEAT_PENALTY_BPS") == MIN_FRAUD_PENALTY_BPS
    for tier in DEVNET.tiers:
        assert read("leastCheatPenalty", tier.id) == tier.min_fraud_penalty_wei


def test_chain_without_block_history_is_refused(chain: Chain) -> None:
    chain.anvil.rpc("anvil_setCode", BLOCK_HISTORY, "0x")
    with pytest.raises(DeploymentFailed, match="EIP-2935"):
        deploy_contracts(chain.anvil)


def test_repeated_deployment_does_nothing(
    chain: Chain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "new.json"
    monkeypatch.setenv("DEPLOYER", OPERATOR.key)
    options = options_of(chain, file, "--network", "devnet")
    monkeypatch.setenv("DEPLOY_ALLOCATIONS", f"{OTHER.address}=3,")
    assert main([*options, "--allocate", f"{PAYER.address}=7"]) == 0
    first, head = file.read_text(), chain.views.head_number()
    assert main(options) == 0
    assert "already" in capsys.readouterr().out
    assert (file.read_text(), chain.views.head_number()) == (first, head)
    views = ChainViews(ChainClient(chain.anvil.url, 31337), Deployment.load(file))
    assert [views.balance_of(holder) for holder in (PAYER.address, OTHER.address)] == [7 * ZEN, 3 * ZEN]


def test_deployment_failures_are_explained_without_key(
    chain: Chain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = dict.fromkeys(chain.deployment.contracts, "0x" + "12" * 20)
    file = tmp_path / "elsewhere.json"
    Deployment("devnet", 31337, 1, elsewhere).save(file)
    options = options_of(chain, file)
    assert main(options) == 1
    assert "set DEPLOYER" in capsys.readouterr().err
    monkeypatch.setenv("DEPLOYER", OPERATOR.key)
    assert main(options) == 1
    assert "does not have" in capsys.readouterr().err
    file.unlink()
    monkeypatch.setenv("DEPLOYER", "0xsecretsecret")
    assert main(options) == 1
    failure = capsys.readouterr().err
    assert "not a private key" in failure
    assert "secretsecret" not in failure
    assert main(["--rpc-url", "http://127.0.0.1:9", "--deployer-key-env", "DEPLOYER", "--out", str(file)]) == 1
    assert not file.exists()
