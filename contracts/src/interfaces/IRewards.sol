// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title Rewards for uptime, bandwidth and verification
/// @notice The rewarder posts one Merkle root per epoch. A leaf says how much an account has earned **ever**: it is
/// `keccak(keccak(abi.encode(account, cumulative)))`, and inner nodes hash their children in ascending order. So an
/// account that skips epochs claims all at once with its last leaf, and no proof pays twice. Amounts in wei of ZEN,
/// times in Unix seconds.
///
/// The rewarder is bounded on chain. The base reward of an epoch is at most the given yearly rate on all ZEN in the staking
/// contract at that time, for the time since the epoch before. All that was ever posted is at most all that ever arrived here (by
/// emission or gift), and all that is ever paid is at most what was posted. A new root waits `claimDelay` seconds, in
/// which a guardian can veto it; until then the root before it stays in force.
interface IRewards {
    /// @param root Merkle root over the cumulative earnings of all accounts; 0 before the first epoch.
    /// @param total Sum of all leaves: everything ever posted.
    /// @param postedAt When it was posted; for the time before the first epoch: the deployment.
    /// @param number Number of the epoch, counted from 1. A vetoed one keeps its number.
    struct Epoch {
        bytes32 root;
        uint128 total;
        uint40 postedAt;
        uint64 number;
    }

    /// @notice Epoch `number` adds the three parts to what was posted before; claims with `root` open at `claimableAt`.
    event EpochPosted(
        uint256 indexed number,
        bytes32 root,
        uint256 baseTotal,
        uint256 bandwidthTotal,
        uint256 verifierTotal,
        uint256 claimableAt
    );
    /// @notice A guardian stopped epoch `number`.
    event EpochVetoed(uint256 indexed number, bytes32 root);
    /// @notice `amount` of what `account` earned went to `to`; `cumulative` is all it was ever paid.
    event Claimed(address indexed account, address indexed to, uint256 amount, uint256 cumulative);
    /// @notice The base reward of an epoch is from now on bounded by `apyBps` a year.
    event ApySet(uint256 apyBps);

    /// @notice A constructor argument makes no sense.
    /// @param parameter Its name.
    error InvalidParameter(string parameter);
    /// @notice The yearly rate must be within 15 % and 25 %.
    error InvalidApy(uint256 apyBps);
    /// @notice The root is zero.
    error ZeroRoot();
    /// @notice The next epoch can be posted from `notBefore` on.
    error TooEarly(uint256 notBefore);
    /// @notice The base reward is more than stakes can have earned.
    error BaseAboveBound(uint256 baseTotal, uint256 bound);
    /// @notice More posted in all than ever arrived.
    error Unfunded(uint256 total, uint256 funded);
    /// @notice No root is waiting.
    error NothingPending();
    /// @notice The proof does not lead from this account and amount to the root in force.
    error InvalidProof();
    /// @notice Everything up to this amount was paid already.
    error NothingToClaim();
    /// @notice The leaves of this root add up to more than was posted.
    error ClaimsAbovePosted(uint256 paid, uint256 total);

    /// @notice Posts the next epoch. Only REWARDER_ROLE, once no root is waiting and `minEpoch` has passed since the epoch
    /// in force was posted.
    /// @param root Merkle root over the cumulative earnings of all accounts, this epoch's included.
    /// @param baseTotal Base reward for uptime on stake, of all accounts, of this epoch alone.
    /// @param bandwidthTotal Bonus for bytes served, likewise.
    /// @param verifierTotal Reward of verifiers, likewise.
    function postEpoch(bytes32 root, uint96 baseTotal, uint96 bandwidthTotal, uint96 verifierTotal) external;

    /// @notice Drops the root that is waiting, as if it had never been posted. Only GUARDIAN_ROLE.
    function veto() external;

    /// @notice Pays `account` what it has earned and was not paid yet. Anybody may call it.
    /// @param cumulative All that the account has earned ever, as in its leaf.
    function claim(address account, uint256 cumulative, bytes32[] calldata proof) external;

    /// @notice As `claim`, of the caller's earnings, to `to`.
    function claimTo(address to, uint256 cumulative, bytes32[] calldata proof) external;

    /// @notice Sets the yearly rate that bounds the base reward, from 1,500 to 2,500 basis points; it holds for the whole of
    /// the epoch that is posted next. Only DEFAULT_ADMIN_ROLE.
    function setApy(uint16 newApyBps) external;

    /// @notice The epoch in force: claims prove against its root.
    function currentEpoch() external view returns (Epoch memory);

    /// @notice The epoch that waits, if any (otherwise all zero), and when its claims open.
    function pendingEpoch() external view returns (Epoch memory epoch, uint256 claimableAt);

    /// @notice Most base reward that an epoch posted now could have.
    function baseBound() external view returns (uint256);

    /// @notice All that ever arrived here.
    function funded() external view returns (uint256);

    /// @notice All that was ever paid out.
    function paidOut() external view returns (uint256);

    /// @notice All that `account` was ever paid.
    function claimed(address account) external view returns (uint256);

    /// @notice Yearly rate that bounds the base reward, in basis points.
    function apyBps() external view returns (uint16);
}
