"""The committed artifacts equal a build of the Solidity sources."""

import subprocess
import sys
from pathlib import Path

import pytest
from eth_utils.crypto import keccak

from market.chain.contracts import generate
from zoo_protocol import messages
from zoo_protocol.contracts import CONTRACTS, artifact

BUILD = Path(__file__).resolve().parents[2] / "contracts" / "build.py"


@pytest.mark.long
def test_committed_artifacts_match_sources() -> None:
    result = subprocess.run([sys.executable, BUILD, "--check"], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("name", CONTRACTS)
def test_artifact_can_be_deployed(name: str) -> None:
    built = artifact(name)
    assert built.name == name
    assert any(entry["type"] == "constructor" for entry in built.abi)
    assert len(bytes.fromhex(built.bytecode.removeprefix("0x"))) > 1_000  # hex throughout: no library left to link


def test_abi_order_has_signed_fields() -> None:
    open_job = next(entry for entry in artifact("JobEscrow").abi if entry.get("name") == "openJob")
    fields = [{"name": part["name"], "type": part["type"]} for part in open_job["inputs"][0]["components"]]
    assert fields == messages.JobOrder.TYPE


def test_every_error_has_its_own_selector() -> None:
    selectors: dict[bytes, str] = {}
    for name in CONTRACTS:
        for entry in artifact(name).abi:
            if entry["type"] == "error":
                signature = f"{entry['name']}({','.join(part['type'] for part in entry['inputs'])})"
                assert selectors.setdefault(keccak(text=signature)[:4], signature) == signature


def test_unknown_contract_is_named() -> None:
    with pytest.raises(ValueError, match="JobEscow"):
        artifact("JobEscow")


def test_bindings_match_artifacts(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert generate.main(["--check"]) == 0
    changed = tmp_path / "bindings.py"
    changed.write_text(generate.generate().replace("offence: int", "offence: str"))
    monkeypatch.setattr(generate, "TARGET", changed)
    assert generate.main(["--check"]) == 1
    assert "market.chain.contracts.generate" in capsys.readouterr().err
    assert generate.main([]) == 0
    assert generate.main(["--check"]) == 0
    monkeypatch.setattr(generate, "USED", {"ZenToken": ["balanceOff"]})
    with pytest.raises(ValueError, match="balanceOff"):
        generate.generate()
