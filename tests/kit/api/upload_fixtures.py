"""Nodes that upload files in pieces and may stop halfway; their market is real."""

from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import select

from kit.jobs.jobs_fixtures import World
from market.platform.http.services import Services
from market.platform.storage.errors import BlobNotFound
from market.training.units.models import Unit
from zoo_compute.base.link import Link
from zoo_compute.chain.wallet import Wallet
from zoo_compute.client.http import Connection
from zoo_compute.node.market.calls import Lease, Market
from zoo_compute.node.work.held_lease import HeldLease
from zoo_compute.node.work.uploads import upload_file
from zoo_protocol.content.unixfs import PIECE_BYTES, cid_of_file
from zoo_protocol.messages import Domain, Heartbeat, typed_data

MODEL = {"hidden_size": 320, "num_hidden_layers": 1, "num_attention_heads": 4, "sequence_length": 8}
"""1.4 million parameters: a slot state of three pieces."""
TRAINING = {"rounds": 4, "inner_steps": 4, "segment_steps": 2, "warmup_steps": 1, "batch_size": 2}


class Stopped(BaseException):
    pass


class Node:
    """A node's wallet, file and connection."""

    def __init__(self, world: World, api: httpx.Client, address: str, domain: Domain) -> None:
        self.world, self.address, self.domain = world, address, domain
        self.key = "0x" + bytes(world.wallets[address].key).hex()
        self.url = str(api.base_url).rstrip("/")
        self.restart()

    def restart(self) -> None:
        self.link = Link()
        self.market = Market(Connection(self.url, wallet=Wallet(self.key), link=self.link))

    def lease(self, kind: str = "publish") -> Lease:
        lease = self.poll(kind)
        assert lease is not None
        return lease

    def poll(self, kind: str) -> Lease | None:
        def sign(challenge: str) -> str:
            return Wallet(self.key).sign_typed_data(typed_data(self.domain, Heartbeat(self.address, challenge)))

        return self.market.poll(sign, [kind])[1]

    def upload(self, lease: Lease, path: Path, *, stop_after: int | None = None) -> str:
        """Upload the file; with ``stop_after``, end the process after as many pieces."""
        sent, put = 0, self.market.put_piece

        def count(*arguments: Any) -> None:
            nonlocal sent
            if sent == stop_after:
                raise Stopped
            put(*arguments)
            sent += 1

        self.market.put_piece = count  # type: ignore[method-assign]
        self.sent = 0
        try:
            with HeldLease(self.market, lease) as held:
                return upload_file(self.market, held, path, self.link)
        finally:
            self.sent = sent
            self.market.put_piece = put  # type: ignore[method-assign]


@pytest.fixture(name="node")
def publishing_node(world: World, api: httpx.Client, services: Services) -> Node:
    node = Node(world, api, world.node(), services.domain)
    job_id = world.running(
        [node.address], document={**world.spec.to_dict(), "model_config": MODEL} | {"training_config": TRAINING}
    )
    world.deliver(node.address)
    world.close_round(job_id)
    return node


@pytest.fixture(name="state")
def published_state(node: Node, tmp_path: Path) -> Path:
    cid = node.world.one(select(Unit.slot_state_cid).where(Unit.round == 0))
    content = node.world.kept[node.address][cid]
    path = tmp_path / "state"
    path.write_bytes(content)
    assert -(-len(content) // PIECE_BYTES) == 3
    return path


def file_cid(path: Path) -> str:
    return cid_of_file(path.read_bytes())


def complete(node: Node, lease: Lease, cid: str) -> None:
    node.market.complete(lease, {"published_cid": cid})


def stored(world: World, cid: str) -> bool:
    try:
        world.storage.get(cid, max_bytes=2**26)
    except BlobNotFound:
        return False
    return True


def pieces_of(path: Path) -> list[bytes]:
    content = path.read_bytes()
    return [content[start : start + PIECE_BYTES] for start in range(0, len(content), PIECE_BYTES)]
