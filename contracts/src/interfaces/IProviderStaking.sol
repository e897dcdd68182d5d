// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title Stakes of providers and verifiers
/// @notice All amounts in wei of ZEN, all times in Unix seconds. Tiers: 0 verifier, 1 Bronze, 2 Silver, 3 Gold.
/// Offences: 1 downtime (5 %), 2 incorrect computation (50 %), 3 bandwidth violation (5 %), 4 withheld data (20 %), each
/// of everything at risk.
///
/// A staker's ZEN is in exactly one of three places: stake, unbonding, or gone (withdrawn or burned). Stake and
/// unbonding together are at risk until withdrawn. Unbonding is one entry: a further request joins it and the whole
/// entry waits the full delay again, so that no request can free an earlier one sooner. Only the staker's own calls
/// move that time. Requests and withdrawals are open to jailed stakers and during a pause.
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

    /// @notice `provider` added `amount`; its stake is now `total`.
    event Staked(address indexed provider, uint256 amount, uint256 total);
    /// @notice `provider` moved `amount` from stake to unbonding; all of its `unbonding` may leave at `releaseAt`.
    event UnstakeRequested(address indexed provider, uint256 amount, uint256 unbonding, uint256 releaseAt);
    /// @notice `provider` took `amount` out.
    event Withdrawn(address indexed provider, uint256 amount);
    /// @notice `amount` of `provider` was burned for `offence`; `evidence` identifies the proof, once.
    event Slashed(address indexed provider, uint8 offence, uint256 amount, bytes32 indexed evidence);
    /// @notice `provider` is barred from work.
    event Jailed(address indexed provider);
    /// @notice `provider` may work again.
    event Released(address indexed provider);

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
    /// @notice This evidence was punished before.
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

    /// @notice Burns the offence's share of everything `provider` has at risk, stake first, and jails it. Only SLASHER_ROLE.
    /// @param provider Who is punished. With nothing at risk it is jailed all the same.
    /// @param offence Row of the penalty table, 1 to 4.
    /// @param evidence Hash that identifies the proof off chain; each can be used once.
    /// @return amount Wei burned.
    function slash(address provider, uint8 offence, bytes32 evidence) external returns (uint256 amount);

    /// @notice Lets a jailed staker work again. Only DEFAULT_ADMIN_ROLE.
    function release(address provider) external;

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

    /// @notice Basis points of everything at risk that `offence` costs.
    function penaltyBps(uint8 offence) external pure returns (uint256);

    /// @notice Whether `provider` is not jailed and has the stake that `tier` demands.
    function qualifies(address provider, uint8 tier) external view returns (bool);

    /// @notice Whether `evidence` was punished.
    function evidenceUsed(bytes32 evidence) external view returns (bool);
}
