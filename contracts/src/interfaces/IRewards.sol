// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title Rewards for uptime, bandwidth and verification
/// @notice The rewarder posts one Merkle root for each epoch. A leaf contains an account's **total** earnings to date:
/// `keccak(keccak(abi.encode(account, cumulative)))`. Inner nodes hash their children in ascending order. An account
/// that skips epochs claims everything with its last leaf, and no proof pays twice. Amounts in wei of ZEN, times in
/// Unix seconds.
///
/// Four bounds limit the rewarder:
///
/// - The base reward of an epoch is at most the yearly rate on all staked ZEN, for the time since the previous epoch.
/// - All rewards of an epoch are at most a tenth of the funds that are not posted yet. The rest stays for later epochs.
/// - The sum of all posted rewards is at most all ZEN that ever arrived here, by emission or gift.
/// - The sum of all payouts is at most the sum of all posted rewards.
///
/// A guardian can veto a new root for `claimDelay` seconds. Until then the previous root stays in force.
interface IRewards {
    /// @param root Merkle root over the cumulative earnings of all accounts; 0 before the first epoch.
    /// @param total Sum of all leaves in wei: all rewards ever posted.
    /// @param postedAt Unix time of posting; of the deployment before the first epoch.
    /// @param number Number of the epoch, counted from 1. A vetoed epoch keeps its number.
    struct Epoch {
        bytes32 root;
        uint128 total;
        uint40 postedAt;
        uint64 number;
    }

    /// @notice Epoch `number` adds three amounts in wei to the posted total. Claims with `root` open at `claimableAt`.
    event EpochPosted(
        uint256 indexed number,
        bytes32 root,
        uint256 baseTotal,
        uint256 bandwidthTotal,
        uint256 verifierTotal,
        uint256 claimableAt
    );
    /// @notice A guardian vetoed epoch `number`.
    event EpochVetoed(uint256 indexed number, bytes32 root);
    /// @notice `amount` wei of the rewards of `account` went to `to`; `cumulative` is the total paid to date.
    event Claimed(address indexed account, address indexed to, uint256 amount, uint256 cumulative);
    /// @notice From now on `apyBps` a year bounds the base reward of an epoch.
    event ApySet(uint256 apyBps);

    /// @notice A constructor argument is outside its range.
    /// @param parameter Argument that is invalid.
    error InvalidParameter(string parameter);
    /// @notice The yearly rate is not within 1,500 and 2,500 basis points.
    error InvalidApy(uint256 apyBps);
    /// @notice The root is zero.
    error ZeroRoot();
    /// @notice The next epoch can be posted from `notBefore` on.
    error TooEarly(uint256 notBefore);
    /// @notice The base reward exceeds the bound given by stakes, rate and time.
    error BaseAboveBound(uint256 baseTotal, uint256 bound);
    /// @notice The epoch's rewards exceed the share of the unposted funds that one epoch can post.
    error PostAboveBound(uint256 sum, uint256 bound);
    /// @notice No epoch is pending.
    error NothingPending();
    /// @notice The proof does not lead from this account and amount to the root in force.
    error InvalidProof();
    /// @notice The account was already paid this amount or more.
    error NothingToClaim();
    /// @notice The payouts would exceed the posted total: the leaves of this root add up to more.
    error ClaimsAbovePosted(uint256 paid, uint256 total);

    /// @notice Posts the next epoch. Only REWARDER_ROLE. Requires that no root is pending and that `minEpoch` seconds
    /// passed since the epoch in force was posted.
    /// @param root Merkle root over the cumulative earnings of all accounts, including this epoch.
    /// @param baseTotal Base reward for uptime on stake: sum over all accounts for this epoch, in wei.
    /// @param bandwidthTotal Bonus for bytes served: sum over all accounts for this epoch, in wei.
    /// @param verifierTotal Reward of verifiers: sum over all accounts for this epoch, in wei.
    function postEpoch(bytes32 root, uint96 baseTotal, uint96 bandwidthTotal, uint96 verifierTotal) external;

    /// @notice Deletes the pending root. Only GUARDIAN_ROLE.
    function veto() external;

    /// @notice Pays `account` its rewards that are not yet paid. Any account may call.
    /// @param cumulative Total earnings of the account in wei, as in its leaf.
    function claim(address account, uint256 cumulative, bytes32[] calldata proof) external;

    /// @notice Pays the caller's rewards to `to`; otherwise as `claim`.
    function claimTo(address to, uint256 cumulative, bytes32[] calldata proof) external;

    /// @notice Sets the yearly rate that bounds the base reward, 1,500 to 2,500 basis points. It applies to the whole
    /// of the epoch that is posted next. Only DEFAULT_ADMIN_ROLE.
    function setApy(uint16 newApyBps) external;

    /// @notice Returns the epoch in force. Claims are proven against its root.
    function currentEpoch() external view returns (Epoch memory);

    /// @notice Returns the pending epoch (all zero if none) and the Unix time at which its claims open.
    function pendingEpoch() external view returns (Epoch memory epoch, uint256 claimableAt);

    /// @notice Returns the maximum base reward of an epoch posted now, in wei.
    function baseBound() external view returns (uint256);

    /// @notice Returns the maximum sum of all rewards of an epoch posted now, in wei.
    function postBound() external view returns (uint256);

    /// @notice Returns all wei that ever arrived here.
    function funded() external view returns (uint256);

    /// @notice All wei that were ever paid out.
    function paidOut() external view returns (uint256);

    /// @notice Returns all wei that `account` was ever paid.
    function claimed(address account) external view returns (uint256);

    /// @notice Yearly rate that bounds the base reward, in basis points.
    function apyBps() external view returns (uint16);
}
