// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title Stakes of providers and verifiers
/// @notice Amounts in wei of ZEN, times in Unix seconds. Tiers: 0 verifier, 1 Bronze, 2 Silver, 3 Gold, 4 Iron.
/// The slashable balance of an account is its stake plus its unbonding balance.
///
/// Offences, the rows of the penalty table:
///
/// - 1: downtime in a committed period.
/// - 2: incorrect computation.
/// - 3: bandwidth violation.
/// - 4: data withholding.
/// - 5: wrong replay of a verifier, or of a referee against all others of its committee.
/// - 6: equivocation of a referee.
/// - 7: refused data.
///
/// The table gives each penalty in basis points of the slashable balance. Only the admin (the timelock) changes it.
///
/// ZEN of an account is in exactly one of three places: staked, unbonding, or gone (withdrawn or slashed). Unbonding is
/// one entry. A further request joins it and restarts the delay of the whole entry, so a request never frees an earlier
/// one sooner. Only the account's own calls move that time. Jailed accounts can request and withdraw, also during a
/// pause.
///
/// An account can commit to be up until a given time. Stake requested during that period stays slashable at least until
/// its end. Stake that was unbonding before the commitment leaves as scheduled.
///
/// Slashed ZEN is burned, except for the dispute share of the table. The disputes contract receives that share to cover
/// costs. It is at most half, and an open dispute alone never pays it.
interface IProviderStaking {
    /// @param stake Wei that count towards the minimum stake of a tier.
    /// @param unbonding Wei requested for withdrawal, still slashable.
    /// @param releaseAt Earliest Unix time to withdraw `unbonding`.
    /// @param jailed Whether the account is jailed.
    struct Account {
        uint96 stake;
        uint96 unbonding;
        uint40 releaseAt;
        bool jailed;
    }

    /// @param bps Penalty in basis points of the slashable balance.
    /// @param disputeShareBps Basis points of the penalty sent to the disputes contract if it slashed; the rest is
    /// burned.
    struct Penalty {
        uint16 bps;
        uint16 disputeShareBps;
    }

    /// @notice `provider` staked `amount` wei; its stake is now `total`.
    event Staked(address indexed provider, uint256 amount, uint256 total);
    /// @notice `provider` moved `amount` wei from stake to unbonding. All `unbonding` wei can leave at `releaseAt`.
    event UnstakeRequested(address indexed provider, uint256 amount, uint256 unbonding, uint256 releaseAt);
    /// @notice `provider` withdrew `amount` wei.
    event Withdrawn(address indexed provider, uint256 amount);
    /// @notice `provider` committed to be up until `until`.
    event Committed(address indexed provider, uint256 until);
    /// @notice `provider` was slashed `amount` wei for `offence`. `share` went to the caller; the rest was burned.
    /// `evidence` identifies the proof.
    event Slashed(address indexed provider, uint8 offence, uint256 amount, uint256 share, bytes32 indexed evidence);
    /// @notice `provider` is jailed.
    event Jailed(address indexed provider);
    /// @notice `provider` is not jailed any more.
    event Released(address indexed provider);

    /// @notice From now on `offence` costs `bps` of the slashable balance, of which a dispute gets `disputeShareBps`.
    event PenaltySet(uint8 indexed offence, uint256 bps, uint256 disputeShareBps);
    /// @notice From now on the minimum stake of `tier` is `amount` wei.
    event MinimumStakeSet(uint8 indexed tier, uint256 amount);

    /// @notice The amount is zero.
    error ZeroAmount();
    /// @notice `requested` wei exceed the `available` stake.
    error InsufficientStake(uint256 requested, uint256 available);
    /// @notice The caller has zero wei unbonding.
    error NothingToWithdraw();
    /// @notice The unbonding delay lasts until `releaseAt`.
    error StillUnbonding(uint256 releaseAt);
    /// @notice `tier` is greater than 4.
    error UnknownTier(uint8 tier);
    /// @notice `offence` is not a row of the penalty table.
    error UnknownOffence(uint8 offence);
    /// @notice `until` is not later than now and the current commitment, or is after `latest`.
    error InvalidCommitment(uint256 until, uint256 latest);
    /// @notice The last commitment ended at `committedUntil` (0: none), longer ago than the unbonding delay.
    error NotCommitted(address provider, uint256 committedUntil);
    /// @notice The penalty exceeds the slashable balance, or the dispute share exceeds half of the penalty.
    error PenaltyTooHigh(uint256 bps, uint256 disputeShareBps);
    /// @notice A fraud penalty is below `least` basis points, on which the price bound of orders relies.
    error PenaltyTooLow(uint256 bps, uint256 least);
    /// @notice The same role has already slashed with this evidence.
    error EvidenceUsed(bytes32 evidence);
    /// @notice The account is not jailed.
    error NotJailed(address provider);

    /// @notice Adds `amount` wei to the caller's stake. Requires an allowance. Stops while paused.
    function stake(uint96 amount) external;

    /// @notice Does the same as `stake`, with an EIP-2612 permit of the caller for this contract over `amount` wei.
    function stakeWithPermit(uint96 amount, uint256 deadline, uint8 v, bytes32 r, bytes32 s) external;

    /// @notice Moves `amount` wei of the caller's stake to unbonding and restarts the delay of the whole entry.
    function requestUnstake(uint96 amount) external;

    /// @notice Pays out the caller's whole unbonding balance after its delay.
    function withdraw() external;

    /// @notice Commits the caller to be up until `until`: later than any earlier commitment, at most 365 days from now.
    function commit(uint40 until) external;

    /// @notice Takes the penalty of the offence from the slashable balance of `provider`, stake first, and jails it.
    /// Only SLASHER_ROLE and DISPUTES_ROLE. A slash by SLASHER_ROLE is burned in full. DISPUTES_ROLE receives its
    /// share.
    /// @param provider Account to slash. It is jailed even if its slashable balance is zero.
    /// @param offence Row of the penalty table, 1 to 7. Downtime (1) requires a commitment that is running or ended at
    /// most one unbonding delay ago.
    /// @param evidence Hash that identifies the proof. Each role can use it once, independent of the other role.
    /// @return amount Wei taken from the provider.
    /// @return share Wei of `amount` sent to the caller; the rest was burned.
    function slash(address provider, uint8 offence, bytes32 evidence) external returns (uint256 amount, uint256 share);

    /// @notice Releases a jailed account. Only DEFAULT_ADMIN_ROLE.
    function release(address provider) external;

    /// @notice Sets a row of the penalty table for future slashes. Incorrect computation, withheld data and refused
    /// data never cost less than LEAST_CHEAT_PENALTY_BPS. Only DEFAULT_ADMIN_ROLE.
    function setPenalty(uint8 offence, uint16 bps, uint16 disputeShareBps) external;

    /// @notice Sets the minimum stake of `tier` from now on, in wei. Only DEFAULT_ADMIN_ROLE.
    function setMinimumStake(uint8 tier, uint96 amount) external;

    /// @notice Returns the account of `provider`.
    function accountOf(address provider) external view returns (Account memory);

    /// @notice Returns the stake that counts towards a tier, in wei.
    function stakeOf(address provider) external view returns (uint256);

    /// @notice Returns the slashable balance: stake plus unbonding, in wei.
    function atRisk(address provider) external view returns (uint256);

    /// @notice Returns whether `provider` is jailed.
    function isJailed(address provider) external view returns (bool);

    /// @notice Returns the minimum stake of `tier`, in wei.
    function minimumStake(uint8 tier) external view returns (uint256);

    /// @notice Lowest penalty for incorrect computation, withheld data and refused data, in basis points of the
    /// slashable balance.
    function LEAST_CHEAT_PENALTY_BPS() external view returns (uint16);

    /// @notice Returns the lowest fraud penalty at the minimum stake of `tier`, in wei, for any penalty table.
    function leastCheatPenalty(uint8 tier) external view returns (uint256);

    /// @notice Returns the row of the penalty table for `offence`.
    function penalty(uint8 offence) external view returns (Penalty memory);

    /// @notice Returns the Unix time until which `provider` committed to be up; 0 if it never did.
    function committedUntil(address provider) external view returns (uint40);

    /// @notice Returns whether `provider` is not jailed and has the minimum stake of `tier`.
    function qualifies(address provider, uint8 tier) external view returns (bool);

    /// @notice Returns whether the holders of `role` have slashed with `evidence`.
    function evidenceUsed(bytes32 role, bytes32 evidence) external view returns (bool);
}
