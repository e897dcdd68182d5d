"""A job's receipt, built from final chain events and the published record that they name."""

from typing import Any

from market.chain.contracts.codec import ChainEvent
from market.chain.service import final_events
from market.chain.views import ChainViews
from market.payments.settlement.errors import NotSettledYet
from market.platform.db.session import Database
from market.platform.storage.client import Storage
from market.platform.storage.errors import BlobNotFound
from market.training.checkpoints import service as checkpoints_service
from zoo_protocol.content.cid import cids_of_digest
from zoo_protocol.hashing import from_hex
from zoo_protocol.payments.job_record import MAX_RECORD_BYTES, JobRecord, SlashRecord
from zoo_protocol.payments.receipt import JobSettlement, Opened, Slashed, build_receipt


def job_receipt(database: Database, storage: Storage, chain: ChainViews, job_id: str) -> dict[str, Any]:
    """The receipt of a settled job as JSON.

    Raises:
        NotSettledYet: the chain has not settled the job with finality.
        StorageError: the record cannot be fetched.
    """
    with database.transaction() as session:
        events = [event for event in final_events(session, job_id) if event.contract == "JobEscrow"]
    opened = next((event for event in events if event.name == "JobOpened"), None)
    settlement = JobSettlement.from_events((event.name, event.args, event.tx_hash) for event in events)
    if opened is None or settlement.last is None:
        raise NotSettledYet(
            f"Job {job_id} is not settled on chain.", field="job_id", remedy="Wait for the job's 'settlement' event."
        )
    record = JobRecord.from_bytes(_fetch(storage, from_hex(settlement.last.record)))
    with database.transaction() as session:
        slashes = [
            _slashed(event, slash)
            for slash in record.slashes
            for event in final_events(session, slash.evidence)
            if event.name == "Slashed"
        ]
        rollbacks = checkpoints_service.rollbacks(session, job_id)
    on_open = Opened.from_event(opened.args, opened.tx_hash)
    return build_receipt(record, on_open, settlement, slashes, rollbacks, chain.treasury().balance_wei)


def _fetch(storage: Storage, digest: bytes) -> bytes:
    block, tree = cids_of_digest(digest)
    try:
        return storage.get(block, max_bytes=MAX_RECORD_BYTES)
    except BlobNotFound:
        return storage.get(tree, max_bytes=MAX_RECORD_BYTES)


def _slashed(event: ChainEvent, slash: SlashRecord) -> Slashed:
    args = event.args
    return Slashed(args["provider"], slash.offence, args["amount"], event.tx_hash, slash.path, slash.path_reason)
