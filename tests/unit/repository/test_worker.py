"""The workers' wiring: every name that is sent has a task, every handled event exists."""

import re
from pathlib import Path

import pytest
from eth_account import Account

from market.chain.contracts.codec import Deployment
from market.domain.network import DEVNET
from market.settings import Settings
from worker import context
from worker.app import TASKS, create_app, schedule
from worker.task_dedup import DeduplicatedTask
from zoo_protocol.contracts import CONTRACTS, artifact

ROOT = Path(__file__).parents[3]


@pytest.fixture
def settings() -> Settings:
    return Settings(
        database_url="postgresql://unused",
        redis_url="redis://unused",
        rpc_url="http://unused",
        ipfs_api="http://unused",
        gateway_url="http://unused",
        deployment_file="unused",
        operator_key="0x" + "11" * 32,
    )


def test_every_sent_name_has_task(settings: Settings) -> None:
    app = create_app(settings)
    app.loader.import_default_modules()
    registered = {name for name in app.tasks if not name.startswith("celery.")}
    sent = set(schedule(settings))
    for file in (ROOT / "market").rglob("*.py"):
        source = file.read_text()
        sent |= set(re.findall(r'enqueue_after_commit\(\s*\w+,\s*"([\w.]+)"', source))
        sent |= set(re.findall(r'^(?:ADVANCE|DRAW|SEND_TASK) = "([\w.]+)"', source, flags=re.MULTILINE))
    assert sent == registered
    assert all(isinstance(app.tasks[name], DeduplicatedTask) for name in registered)


def test_webhooks_have_own_queue_and_process(settings: Settings) -> None:
    app = create_app(settings)
    app.loader.import_default_modules()
    names = [name for name in app.tasks if not name.startswith("celery.")]
    queues = {name: app.amqp.router.route({}, name)["queue"].name for name in names}
    assert {name for name, queue in queues.items() if queue != "celery"} == {"webhooks.deliver"}
    assert queues["webhooks.deliver"] == "webhooks"


def test_clock_process_loads_no_tasks(settings: Settings) -> None:
    app = create_app(settings, tasks=())
    assert app.conf.include == ()
    assert set(app.conf.beat_schedule) == set(schedule(settings))


def test_worker_accepts_only_json_and_acknowledges_late(settings: Settings) -> None:
    conf = create_app(settings).conf
    assert list(conf.accept_content) == ["json"]
    assert conf.task_acks_late
    assert conf.task_reject_on_worker_lost
    assert conf.worker_prefetch_multiplier == 1
    assert set(conf.include) == set(TASKS)


def test_handled_events_exist_and_ledger_is_first() -> None:
    deployment = Deployment("devnet", 1, 0, {name: Account.create().address for name in CONTRACTS})
    handlers = context.event_handlers(DEVNET, deployment)
    for contract, event in handlers:
        names = {entry["name"] for entry in artifact(contract).abi if entry["type"] == "event"}
        assert event in names, f"{contract} has no event {event}"
    heard = [[handler.__module__ for handler in chain] for chain in handlers.values()]
    assert all("market.ledger.chain_events" not in modules[1:] for modules in heard)
    assert sum(modules[0] == "market.ledger.chain_events" for modules in heard) > 10
