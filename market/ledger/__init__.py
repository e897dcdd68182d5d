"""Double-entry ledger of every wei of ZEN that the contracts hold, have held or have burned.

A balance is the sum of an account's postings. The sum of all balances is always zero. Chart of accounts:

- ``wallet:<address>``: ZEN paid by the contracts to an address, minus its payments.
- ``escrow``: ZEN in the escrow contract without a job or payer, from stray transfers only.
- ``balance:<address>``: free balance of a payer in the escrow contract.
- ``escrow:<job id>``: escrow of one job.
- ``pay:<batch>``: unclaimed pay of a settlement batch.
- ``fee:<batch>``: its fee that is not collected yet.
- ``withheld:<unit id>``: pay and fee of a unit during its dispute.
- ``stake``: ZEN in the staking contract without a staker, from stray transfers only.
- ``stake:<address>``: slashable balance of a staker.
- ``treasury``: ZEN in the treasury contract.
- ``rewards``: ZEN in the rewards contract that no epoch promises.
- ``rewards:pending``: rewards of the last posted epoch, which a veto can revert until the next post.
- ``rewards:posted``: rewards of earlier epochs, minus all claims.
- ``disputes``: ZEN in the dispute contract outside bonds and credits, from stray transfers only.
- ``dispute:<dispute id>``: bond of an open dispute.
- ``credit:<address>``: credits from disputes, not withdrawn yet.
- ``omissions``: ZEN in the omission contract outside bond and claims, from stray transfers only.
- ``bond``: the operator's bond for acknowledgements.
- ``omission:<unit id>``: a provider's deposit for an open omission claim.
- ``burned``: destroyed ZEN.
- ``issuance``: minus all created ZEN.

Two independent sources must agree. The token's transfers move ZEN between wallets and contracts. The contracts' events
divide each contract's ZEN among its accounts.
"""
