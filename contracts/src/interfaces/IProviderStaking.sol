// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title Stakes of providers and verifiers
/// @notice All amounts in wei of ZEN, all times in Unix seconds. Tiers: 0 verifier, 1 Bronze, 2 Silver, 3 Gold.
/// Offences: 1 downtime in a committed period, 2 incorrect computation, 3 bandwidth violation, 4 withheld data, 5 wrong replay
/// (of a verifier, or of a referee against all others), 6 contradicting verdicts. The penalty table gives what each costs, in
/// basis points of everything at risk; only the admin (the timelock) changes it.
///
/// A staker's ZEN is in exactly one of three places: stake, unbonding, or gone (withdrawn or slashed). Stake and
/// unbonding together are at risk until withdrawn. Unbonding is one entry: a further request joins it and the whole
/// entry waits the full delay again, so that no request can free an earlier one sooner. Only the staker's own calls
/// move that time. Requests and withdrawals are open to jailed stakers and during a pause.
///
/// A staker may commit to be up until some time. Stake whose return is requested during that period stays at risk until
/// its end at least. What was unbonding before the commitment leaves as announced.
///
/// What is slashed is burned, but for the share that the table leaves to a decided dispute. That share goes to the
/// contract of the disputes, which covers costs with it, is at most half, and never follows from an accusation alone.
interface IProviderStaking {
    /// @param stake Counts towards the minimum of a tier.
    /// @param unbonding Requested back, not yet withdrawn, still at risk.
    /// @param releaseAt Earliest time to withdraw `unbonding`.
    /// @param jailed Whether the staker is barred from work.
    struct Account {
        uint96 stake;
        uint96 unbonding;
        uint40 releaseAt;
        bool jailed;
    }

    /// @param bps Basis points of everything at risk that the offence costs.
    /// @param disputeShareBps Basis points of that cost which the disputes contract gets if it convicted; the rest is burned.
    struct Penalty {
        uint16 bps;
        uint16 disputeShareBps;
    }

    /// @notice `provider` added `amount`; its stake is now `total`.
    event Staked(address indexed provider, uint256 amount, uint256 total);
    /// @notice `provider` moved `amount` from stake to unbonding; all of its `unbonding` may leave at `releaseAt`.
    event UnstakeRequested(address indexed provider, uint256 amount, uint256 unbonding, uint256 releaseAt);
    /// @notice `provider` took `amount` out.
    event Withdrawn(address indexed provider, uint256 amount);
    /// @notice `provider` promised to be up until `until`.
    event Committed(address indexed provider, uint256 until);
    /// @notice `provider` lost `amount` for `offence`: `share` went to the caller, the rest was burned. `evidence` identifies
    /// the proof, once.
    event Slashed(address indexed provider, uint8 offence, uint256 amount, uint256 share, bytes32 indexed evidence);
    /// @notice `provider` is barred from work.
    event Jailed(address indexed provider);
    /// @notice `provider` may work again.
    event Released(address indexed provider);

    /// @notice From now on `offence` costs `bps` of everything at risk, of which a dispute gets `disputeShareBps`.
    event PenaltySet(uint8 indexed offence, uint256 bps, uint256 disputeShareBps);
    /// @notice From now on `tier` demands `amount` of stake.
    event MinimumStakeSet(uint8 indexed tier, uint256 amount);

    /// @notice The amount is zero.
    error ZeroAmount();
    /// @notice More requested than the `available` stake.
    error InsufficientStake(uint256 requested, uint256 available);
    /// @notice Nothing is unbonding.
    error NothingToWithdraw();
    /// @notice Unbonding lasts until `releaseAt`.
    error StillUnbonding(uint256 releaseAt);
    /// @notice No such tier.
    error UnknownTier(uint8 tier);
    /// @notice No such offence.
    error UnknownOffence(uint8 offence);
    /// @notice A commitment must end later than now and than the present one, and by `latest`.
    error InvalidCommitment(uint256 until, uint256 latest);
    /// @notice No downtime to punish: the last commitment ended at `committedUntil` (0: none), too long ago.
    error NotCommitted(address provider, uint256 committedUntil);
    /// @notice A penalty is at most all that is at risk, and a dispute's share of it at most half.
    error PenaltyTooHigh(uint256 bps, uint256 disputeShareBps);
    /// @notice What ends a cheat costs at least `least` basis points: the price bound of orders counts on it.
    error PenaltyTooLow(uint256 bps, uint256 least);
    /// @notice The same role has punished this evidence before.
    error EvidenceUsed(bytes32 evidence);
    /// @notice The account is not jailed.
    error NotJailed(address provider);

    /// @notice Adds `amount` to the caller's stake (needs an allowance). Stops while paused.
    function stake(uint96 amount) external;

    /// @notice As `stake`, with an EIP-2612 permit of the caller for this contract over `amount`.
    function stakeWithPermit(uint96 amount, uint256 deadline, uint8 v, bytes32 r, bytes32 s) external;

    /// @notice Moves `amount` of the caller's stake to unbonding and restarts the delay of the whole entry.
    function requestUnstake(uint96 amount) external;

    /// @notice Pays out everything that the caller has unbonding, once its delay is over.
    function withdraw() external;

    /// @notice Promises that the caller is up until `until`: later than any earlier promise, at most 365 days from now.
    function commit(uint40 until) external;

    /// @notice Takes the offence's part of everything `provider` has at risk, stake first, and jails it. Only SLASHER_ROLE,
    /// whose slashes are burned whole, and DISPUTES_ROLE, which gets its share sent.
    /// @param provider Who is punished. With nothing at risk it is jailed all the same.
    /// @param offence Row of the penalty table: downtime (1), incorrect computation (2), bandwidth violation (3), withheld
    /// data (4), wrong replay (5), contradicting verdicts (6), refused data (7). Downtime needs a commitment that is running or ended no longer than the unbonding delay ago.
    /// @param evidence Hash that identifies the proof. Each role can use it once, and not use it up for the other.
    /// @return amount Wei taken from the provider.
    /// @return share Wei of it sent to the caller; the rest was burned.
    function slash(address provider, uint8 offence, bytes32 evidence) external returns (uint256 amount, uint256 share);

    /// @notice Lets a jailed staker work again. Only DEFAULT_ADMIN_ROLE.
    function release(address provider) external;

    /// @notice Sets a row of the penalty table, for whatever is punished from now on. Incorrect computation, withheld and
    /// refused data never cost less than LEAST_CHEAT_PENALTY_BPS. Only DEFAULT_ADMIN_ROLE.
    function setPenalty(uint8 offence, uint16 bps, uint16 disputeShareBps) external;

    /// @notice Sets the stake that `tier` demands from now on. Only DEFAULT_ADMIN_ROLE.
    function setMinimumStake(uint8 tier, uint96 amount) external;

    /// @notice The account of `provider`.
    function accountOf(address provider) external view returns (Account memory);

    /// @notice Stake that counts towards a tier.
    function stakeOf(address provider) external view returns (uint256);

    /// @notice Stake and everything not yet withdrawn.
    function atRisk(address provider) external view returns (uint256);

    /// @notice Whether `provider` is barred from work.
    function isJailed(address provider) external view returns (bool);

    /// @notice Stake that `tier` demands.
    function minimumStake(uint8 tier) external view returns (uint256);

    /// @notice Basis points of everything at risk that incorrect computation, withheld and refused data cost at least.
    function LEAST_CHEAT_PENALTY_BPS() external view returns (uint16);

    /// @notice Least wei that a cheat with the stake of `tier` loses when it is convicted, whatever the table says.
    function leastCheatPenalty(uint8 tier) external view returns (uint256);

    /// @notice Row of the penalty table for `offence`.
    function penalty(uint8 offence) external view returns (Penalty memory);

    /// @notice Time until which `provider` has promised to be up; 0 if it never has.
    function committedUntil(address provider) external view returns (uint40);

    /// @notice Whether `provider` is not jailed and has the stake that `tier` demands.
    function qualifies(address provider, uint8 tier) external view returns (bool);

    /// @notice Whether the holders of `role` have punished `evidence`.
    function evidenceUsed(bytes32 role, bytes32 evidence) external view returns (bool);
}
