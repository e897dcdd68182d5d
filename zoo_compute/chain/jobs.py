"""Queries on the jobs that a node worked for (contract JobEscrow)."""

from zoo_compute.chain.disputes import DisputeChain
from zoo_compute.chain.wallet import Block, chain_errors
from zoo_protocol.hashing import from_hex

_OPEN = 1
_STATE = 8


class JobChain(DisputeChain):
    """The escrow, in addition to the contract Disputes."""

    def is_over(self, job_id: str, block: Block) -> bool:
        """Return whether a job was settled or refunded by ``block``; False for an unknown job."""
        with chain_errors():
            job = self._escrow.functions.jobs(from_hex(job_id)).call(block_identifier=block.number)
        return int(job[_STATE]) > _OPEN
