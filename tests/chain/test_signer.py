"""The hot key: where it comes from, that no text shows it, and what it may move."""

import json
import logging
import traceback
from pathlib import Path

import pytest
from eth_account import Account
from kit.chain.deployed_chain import OPERATOR, OTHER, PAYEE, PROVIDER, Chain, queue_payment
from pydantic import SecretStr, ValidationError
from sqlalchemy import text

from market.chain.errors import UnusableKey
from market.chain.service import intents_about
from market.chain.transactions.sender import Sender
from market.chain.transactions.signer import Signer
from market.domain.lifecycle import IntentStatus
from market.domain.network import DEVNET, ZEN
from market.platform.db.session import Database
from market.settings import Settings
from market.verification.penalties import service as penalties
from market.verification.penalties.models import Slash
from worker.chain_handlers import event_handlers
from zoo_protocol.messages import Acknowledgement, omissions_domain, recover_strictly, typed_data

PASSWORD = "correct horse"
ENGINES = {
    "ZOO_DATABASE_URL": "postgresql://zoo:database-secret@host/zoo",
    "ZOO_REDIS_URL": "redis://:redis-secret@host",
    "ZOO_RPC_URL": "https://host/v3/rpc-secret",
    "ZOO_IPFS_API": "http://host",
    "ZOO_GATEWAY_URL": "http://host",
    "ZOO_DEPLOYMENT_FILE": "deployment.json",
}


@pytest.fixture
def keystore(tmp_path: Path) -> Path:
    path = tmp_path / "operator.json"
    path.write_text(json.dumps(Account.encrypt(OPERATOR.key, PASSWORD, kdf="pbkdf2", iterations=1_000)))
    return path


def settings(monkeypatch: pytest.MonkeyPatch, **variables: object) -> Settings:
    for name, value in {**ENGINES, **variables}.items():
        monkeypatch.setenv(name, str(value))
    return Settings()  # type: ignore[call-arg]


def test_key_is_read_from_environment_or_encrypted_file(
    monkeypatch: pytest.MonkeyPatch, keystore: Path, tmp_path: Path
) -> None:
    assert Signer.from_settings(settings(monkeypatch, ZOO_OPERATOR_KEY=OPERATOR.key)).address == OPERATOR.address
    monkeypatch.setenv("ZOO_OPERATOR_KEY", "")
    password_file = tmp_path / "password"
    password_file.write_text(PASSWORD + "\n")
    in_file = settings(monkeypatch, ZOO_OPERATOR_KEYSTORE=keystore, ZOO_OPERATOR_KEYSTORE_PASSWORD_FILE=password_file)
    assert Signer.from_settings(in_file).address == OPERATOR.address
    monkeypatch.setenv("ZOO_OPERATOR_KEYSTORE_PASSWORD_FILE", "")
    given = settings(monkeypatch, ZOO_OPERATOR_KEYSTORE=keystore, ZOO_OPERATOR_KEYSTORE_PASSWORD=PASSWORD)
    signer = Signer.from_settings(given)
    document = {"type": 2, "chainId": 1, "nonce": 0, "to": PAYEE, "value": 0, "data": b"", "gas": 21_000}
    _, raw = signer.sign(document | {"maxFeePerGas": 2, "maxPriorityFeePerGas": 1})
    assert Account.recover_transaction(raw) == OPERATOR.address


def test_acknowledger_key_differs_from_operator_key(monkeypatch: pytest.MonkeyPatch, keystore: Path) -> None:
    given = settings(monkeypatch, ZOO_ACKNOWLEDGER_KEYSTORE=keystore, ZOO_ACKNOWLEDGER_KEYSTORE_PASSWORD=PASSWORD)
    signer = Signer.acknowledger(given)
    document = typed_data(omissions_domain(1, PAYEE), Acknowledgement("0x" + "12" * 32, 7))
    assert recover_strictly(document, signer.sign_typed_data(document)) == signer.address == OPERATOR.address
    with pytest.raises(UnusableKey, match="set ZOO_OPERATOR_KEYSTORE or ZOO_OPERATOR_KEY"):
        Signer.from_settings(given)
    monkeypatch.delenv("ZOO_ACKNOWLEDGER_KEYSTORE")
    with pytest.raises(ValidationError, match="ZOO_ACKNOWLEDGER_KEYSTORE goes with one of"):
        settings(monkeypatch)
    monkeypatch.delenv("ZOO_ACKNOWLEDGER_KEYSTORE_PASSWORD")
    with pytest.raises(UnusableKey, match="acknowledges commitments: set ZOO_ACKNOWLEDGER_KEYSTORE"):
        Signer.acknowledger(settings(monkeypatch))


def test_previous_challenger_key_is_accepted(monkeypatch: pytest.MonkeyPatch, keystore: Path) -> None:
    assert Signer.challenger(settings(monkeypatch, ZOO_CHALLENGER_KEY=OTHER.key), previous=True) is None
    former = {"ZOO_PREVIOUS_CHALLENGER_KEYSTORE": keystore, "ZOO_PREVIOUS_CHALLENGER_KEYSTORE_PASSWORD": PASSWORD}
    given = settings(monkeypatch, ZOO_CHALLENGER_KEY=OTHER.key, **former)
    found = Signer.challenger(given), Signer.challenger(given, previous=True)
    assert [signer and signer.address for signer in found] == [OTHER.address, OPERATOR.address]
    with pytest.raises(ValidationError, match="ZOO_PREVIOUS_CHALLENGER"):
        settings(monkeypatch, ZOO_PREVIOUS_CHALLENGER_KEY=OTHER.key)  # and a file as well


def test_unusable_key_is_refused_with_message(monkeypatch: pytest.MonkeyPatch, keystore: Path, tmp_path: Path) -> None:
    with pytest.raises(UnusableKey, match="set ZOO_OPERATOR_KEYSTORE or ZOO_OPERATOR_KEY"):
        Signer.from_settings(settings(monkeypatch))
    with pytest.raises(UnusableKey, match="password is wrong"):
        Signer.from_keystore(keystore, SecretStr("wrong"))
    with pytest.raises(UnusableKey, match="No such file"):
        Signer.from_keystore(tmp_path / "none.json", SecretStr(PASSWORD))
    for key in ("", "0x12", "0x" + "00" * 32, "0x" + "ff" * 32, "zz" * 32):
        with pytest.raises(UnusableKey, match="secp256k1"):
            Signer(SecretStr(key))
    for variables, complaint in (
        ({"ZOO_OPERATOR_KEY": OPERATOR.key, "ZOO_OPERATOR_KEYSTORE": keystore}, "not both"),
        ({"ZOO_OPERATOR_KEY": "", "ZOO_OPERATOR_KEYSTORE": keystore}, "goes with one of"),
        ({"ZOO_OPERATOR_KEYSTORE": "", "ZOO_OPERATOR_KEYSTORE_PASSWORD": PASSWORD}, "goes with one of"),
    ):
        with pytest.raises(ValidationError, match=complaint):
            settings(monkeypatch, **variables)


def test_no_text_shows_key_or_password(
    monkeypatch: pytest.MonkeyPatch, keystore: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secret = OPERATOR.key.removeprefix("0x")
    texts: list[str] = []

    def keep(*values: object) -> None:
        texts.extend(form for value in values for form in (repr(value), str(value)))
        logging.getLogger("test").info("%s %r", values, values)

    def fails(attempt: object) -> None:
        try:
            attempt()  # type: ignore[operator]
        except Exception as error:
            texts.append("".join(traceback.format_exception(error)))
            keep(error)
        else:
            raise AssertionError("did not fail")

    given = settings(monkeypatch, ZOO_OPERATOR_KEY=OPERATOR.key)
    signer = Signer.from_settings(given)
    keep(given, given.model_dump(), given.model_dump_json(), signer, signer.__dict__)
    with_password = {"ZOO_OPERATOR_KEYSTORE": keystore, "ZOO_OPERATOR_KEYSTORE_PASSWORD": PASSWORD}
    fails(lambda: settings(monkeypatch, **with_password))  # both are set
    monkeypatch.setenv("ZOO_STUCK_AFTER_BLOCKS", "none")
    fails(lambda: settings(monkeypatch))
    fails(lambda: Signer(SecretStr(OPERATOR.key + "0")))
    fails(lambda: Signer(SecretStr(secret[:-1] + "g")))
    fails(lambda: Signer.from_keystore(keystore, SecretStr(PASSWORD + "!")))
    fails(lambda: signer.sign({"nonce": "none"}))
    shown = "\n".join([*texts, caplog.text]).lower()
    assert "operator_key" in shown
    for hidden in (secret[:-1], PASSWORD):
        assert hidden not in shown
    for hidden in ("database-secret", "redis-secret", "rpc-secret"):
        assert hidden not in repr(given)


def limited(chain: Chain, database: Database, **limits: int) -> Sender:
    changed = chain.settings.model_copy(update=limits)
    return Sender(database, chain.client(), chain.deployment, Signer(SecretStr(OPERATOR.key)), changed, {})


def states(database: Database) -> dict[str, tuple[str, str | None]]:
    with database.transaction() as session:
        return {found.key: (found.status, found.reason) for found in intents_about(session, PAYEE)}


def step(chain: Chain, sender: Sender) -> None:
    for _ in range(5):
        sender.step()
        chain.anvil.mine()


def test_transaction_over_limit_waits_with_its_reason(chain: Chain, database: Database) -> None:
    for key, amount in (("large", 11), ("first", 9), ("second", 7), ("small", 3)):
        queue_payment(database, key, amount * ZEN)
    careful = limited(chain, database, max_zen_per_transaction=10, max_zen_per_day=12)
    step(chain, careful)
    assert states(database) == {
        "large": (IntentStatus.QUEUED, "limit_per_transaction"),
        "first": (IntentStatus.FINAL, None),
        "second": (IntentStatus.QUEUED, "limit_per_day"),
        "small": (IntentStatus.FINAL, None),
    }
    assert chain.views.balance_of(PAYEE) == 12 * ZEN
    assert not careful.step()
    with database.transaction() as session:
        session.execute(text("UPDATE tx_attempts SET created_at = created_at - interval '25 hours'"))
    step(chain, careful)
    assert states(database)["second"] == (IntentStatus.FINAL, None)
    step(chain, limited(chain, database, max_zen_per_transaction=20, max_zen_per_day=30))
    assert states(database)["large"] == (IntentStatus.FINAL, None)
    assert chain.views.balance_of(PAYEE) == 30 * ZEN


def test_slashing_shares_daily_limit_with_payments(chain: Chain, database: Database) -> None:
    stakers = {PROVIDER: 6 * ZEN, OTHER: 5 * ZEN}
    for staker, amount in stakers.items():
        chain.stake(staker, amount)
    chain.send(OTHER, "ProviderStaking", "requestUnstake", 4 * ZEN)  # still at risk until it is withdrawn
    chain.anvil.mine(3)
    handlers = event_handlers(DEVNET, chain.deployment)
    chain.index(database, handlers)
    queue_payment(database, "pay", 3 * ZEN)
    for number, staker in enumerate(stakers):
        with database.transaction() as session:
            evidence = "0x" + f"{number:064x}"
            slash = Slash(job_id=PAYEE, provider=staker.address, offence="incorrect_computation", evidence=evidence)
            penalties._request_slash(session, slash)
    careful = limited(chain, database, max_zen_per_day=10)
    step(chain, careful)
    first, second = (f"slash:0x{number:064x}:0" for number in range(2))
    assert states(database)[first] == (IntentStatus.FINAL, None)
    assert states(database)[second] == (IntentStatus.QUEUED, "limit_per_day")
    assert [chain.views.at_risk(staker.address) for staker in stakers] == [3 * ZEN, 5 * ZEN]
    with database.transaction() as session:
        session.execute(text("UPDATE tx_attempts SET created_at = created_at - interval '25 hours'"))
    step(chain, careful)
    assert chain.views.at_risk(OTHER.address) == 5 * ZEN // 2


def test_daily_gas_is_bounded(chain: Chain, database: Database) -> None:
    chain.anvil.rpc("anvil_setNextBlockBaseFeePerGas", hex(200_000 * 10**9))
    chain.anvil.mine()
    for number in range(4):
        queue_payment(database, f"pay-{number}", 1)
    high_fees = {"max_fee_gwei": 10**6, "stuck_after_blocks": 10**6}
    limited(chain, database, max_ether_per_day=60, **high_fees).step()  # each may cost about 25 ether
    waiting = [key for key, (_, reason) in states(database).items() if reason == "limit_gas_per_day"]
    assert waiting == ["pay-2", "pay-3"]
    assert {states(database)[key][0] for key in waiting} == {IntentStatus.QUEUED}


def test_replaced_transaction_counts_once(chain: Chain, database: Database) -> None:
    """No limit delays a replacement: a stuck payment blocks all later ones."""
    chain.anvil.automine(False)
    queue_payment(database, "pay", 9 * ZEN)
    sender = limited(chain, database, max_zen_per_day=10, stuck_after_blocks=1)
    for _ in range(3):
        sender.step()
        chain.anvil.rpc("anvil_setNextBlockBaseFeePerGas", hex(10**12))
        chain.anvil.mine()
    with database.transaction() as session:
        [found] = intents_about(session, PAYEE)
        assert len(found.attempts) > 1
    queue_payment(database, "small", 1 * ZEN)
    sender.step()
    assert states(database)["small"][1] is None
