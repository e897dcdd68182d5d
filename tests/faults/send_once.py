"""One step of the sender: ``send_once.py DATABASE_URL RPC_URL DEPLOYMENT_FILE KEY``."""

import sys
from pathlib import Path

from pydantic import SecretStr

sys.path.insert(0, str(Path(__file__).parents[2]))

import market.tables  # noqa: F401  # foreign keys cross features
from market.chain.contracts.codec import Deployment
from market.chain.rpc.client import ChainClient
from market.chain.transactions.sender import Sender
from market.chain.transactions.signer import Signer
from market.platform.db.session import Database
from market.settings import Settings


def main(database_url: str, rpc_url: str, deployment_file: str, key: str) -> None:
    deployment = Deployment.load(Path(deployment_file))
    settings = Settings(
        database_url=database_url,
        redis_url="redis://unused",
        rpc_url=rpc_url,
        ipfs_api="http://unused",
        gateway_url="http://unused",
        deployment_file=deployment_file,
        operator_key=SecretStr(key),
    )
    client = ChainClient(rpc_url, deployment.chain_id)
    Sender(Database(database_url), client, deployment, Signer.from_settings(settings), settings, {}).step()


main(*sys.argv[1:])
