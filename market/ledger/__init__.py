"""The double-entry ledger: a mirror of every wei of ZEN that the contracts hold, have held or have burned.

Chart of accounts (a balance is the sum of an account's postings; all balances together are always zero):

==========================  ==========================================================================
``wallet:<address>``        the outside world: what flowed from the contracts to an address, less what it paid in
``escrow``                  ZEN in the escrow contract that no job accounts for; only a stray transfer leaves any
``escrow:<job id>``         what the escrow contract holds for one job
``pay:<batch>``             what a settlement batch still holds for providers to claim
``fee:<batch>``             what it still holds for the treasury
``withheld:<unit id>``      a unit's pay and fee while its dispute lasts
``stake``                   ZEN in the staking contract that no staker accounts for, as above
``stake:<address>``         what one staker has at risk: stake and unbonding
``treasury``                ZEN in the treasury contract
``rewards``                 ZEN in the rewards contract that is not promised to anybody yet
``rewards:pending``         what the last posted epoch promised; a veto takes it back until the next one is posted
``rewards:posted``          what the epochs before promised, less all claims; with the line above: what can be claimed
``disputes``                ZEN in the dispute contract that is neither of the next two, as above
``dispute:<dispute id>``    the bond of an open dispute
``credit:<address>``        what disputes have credited to somebody that has not withdrawn it
``omissions``               ZEN in the omission contract that is neither of the next two, as above
``bond``                    the operator's bond for acknowledged commitments
``omission:<unit id>``      a provider's stake in an open claim that its commitment was left out
``burned``                  ZEN that was destroyed
``issuance``                minus all ZEN ever created
==========================  ==========================================================================

Two independent sources must agree: the token's own transfers move ZEN between the wallets and the contracts; the
contracts' events spread ``escrow``, ``stake``, ``rewards``, ``disputes`` and ``omissions`` over jobs, batches,
units, stakers, epochs, disputes, credits, bond and claims.
"""
