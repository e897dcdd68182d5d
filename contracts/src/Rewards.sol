// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {
    AccessControlDefaultAdminRules
} from "@openzeppelin/contracts/access/extensions/AccessControlDefaultAdminRules.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {MerkleProof} from "@openzeppelin/contracts/utils/cryptography/MerkleProof.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {IRewards} from "./interfaces/IRewards.sol";
import {IZenToken} from "./interfaces/IZenToken.sol";

/// @title Rewards for uptime, bandwidth and verification
/// @dev Stores the last two epochs. The last one comes into force when its delay is over, without a call.
contract Rewards is IRewards, AccessControlDefaultAdminRules, ReentrancyGuardTransient {
    using SafeERC20 for IZenToken;

    bytes32 public constant REWARDER_ROLE = keccak256("REWARDER_ROLE");
    bytes32 public constant GUARDIAN_ROLE = keccak256("GUARDIAN_ROLE");
    /// @notice Lowest yearly rate, in basis points.
    uint16 public constant MIN_APY_BPS = 1_500;
    /// @notice Highest yearly rate, in basis points.
    uint16 public constant MAX_APY_BPS = 2_500;
    /// @notice Share of the funds not posted yet that an epoch can post, in basis points.
    uint16 public constant POST_SHARE_BPS = 1_000;
    /// @notice Maximum of `minEpoch` and `claimDelay`, in seconds.
    uint256 public constant MAX_DELAY = 30 days;
    uint256 private constant BPS = 10_000;
    uint256 private constant YEAR = 365 days;

    /// @notice The ZEN token.
    IZenToken public immutable token;
    /// @notice Staking contract. Its ZEN balance bounds the base reward.
    address public immutable staking;
    /// @notice Minimum seconds between two epochs.
    uint256 public immutable minEpoch;
    /// @notice Seconds between posting a root and its first claim.
    uint256 public immutable claimDelay;
    /// @inheritdoc IRewards
    uint16 public apyBps;
    uint64 private _epochs;
    /// @inheritdoc IRewards
    uint256 public paidOut;
    /// @inheritdoc IRewards
    mapping(address account => uint256) public claimed;

    Epoch private _previous;
    Epoch private _last; // all zero after a veto and before the first epoch

    /// @param zen The ZEN token.
    /// @param staking_ Staking contract.
    /// @param apyBps_ First yearly rate in basis points, 1,500 to 2,500.
    /// @param minEpoch_ Minimum seconds between two epochs, at most MAX_DELAY.
    /// @param claimDelay_ Seconds between posting a root and its first claim, at most MAX_DELAY.
    /// @param adminDelay Seconds between proposing and accepting a new admin.
    /// @param admin First holder of DEFAULT_ADMIN_ROLE.
    /// @param rewarder First holder of REWARDER_ROLE.
    /// @param guardian First holder of GUARDIAN_ROLE.
    constructor(
        IZenToken zen,
        address staking_,
        uint16 apyBps_,
        uint40 minEpoch_,
        uint40 claimDelay_,
        uint48 adminDelay,
        address admin,
        address rewarder,
        address guardian
    ) AccessControlDefaultAdminRules(adminDelay, admin) {
        require(address(zen) != address(0), InvalidParameter("token"));
        require(staking_ != address(0), InvalidParameter("staking"));
        require(minEpoch_ <= MAX_DELAY, InvalidParameter("minEpoch"));
        require(claimDelay_ <= MAX_DELAY, InvalidParameter("claimDelay"));
        token = zen;
        staking = staking_;
        minEpoch = minEpoch_;
        claimDelay = claimDelay_;
        _setApy(apyBps_);
        _previous.postedAt = SafeCast.toUint40(block.timestamp);
        _grantRole(REWARDER_ROLE, rewarder);
        _grantRole(GUARDIAN_ROLE, guardian);
    }

    /// @inheritdoc IRewards
    function postEpoch(bytes32 root, uint96 baseTotal, uint96 bandwidthTotal, uint96 verifierTotal)
        external
        onlyRole(REWARDER_ROLE)
    {
        require(root != 0, ZeroRoot());
        require(!_isPending(), TooEarly(_claimableAt(_last)));
        Epoch memory current = currentEpoch();
        require(block.timestamp >= current.postedAt + minEpoch, TooEarly(current.postedAt + minEpoch));
        uint256 bound = baseBound();
        require(baseTotal <= bound, BaseAboveBound(baseTotal, bound));
        uint256 sum = uint256(baseTotal) + bandwidthTotal + verifierTotal;
        bound = postBound();
        require(sum <= bound, PostAboveBound(sum, bound));

        uint256 total = current.total + sum;
        _previous = current;
        _last = Epoch(root, SafeCast.toUint128(total), SafeCast.toUint40(block.timestamp), ++_epochs);
        emit EpochPosted(_epochs, root, baseTotal, bandwidthTotal, verifierTotal, _claimableAt(_last));
    }

    /// @inheritdoc IRewards
    function veto() external onlyRole(GUARDIAN_ROLE) {
        require(_isPending(), NothingPending());
        emit EpochVetoed(_last.number, _last.root);
        delete _last;
    }

    /// @inheritdoc IRewards
    function claim(address account, uint256 cumulative, bytes32[] calldata proof) external nonReentrant {
        _claim(account, account, cumulative, proof);
    }

    /// @inheritdoc IRewards
    function claimTo(address to, uint256 cumulative, bytes32[] calldata proof) external nonReentrant {
        _claim(msg.sender, to, cumulative, proof);
    }

    /// @inheritdoc IRewards
    function setApy(uint16 newApyBps) external onlyRole(DEFAULT_ADMIN_ROLE) {
        _setApy(newApyBps);
    }

    /// @inheritdoc IRewards
    function pendingEpoch() external view returns (Epoch memory epoch, uint256 claimableAt) {
        if (_isPending()) (epoch, claimableAt) = (_last, _claimableAt(_last));
    }

    /// @inheritdoc IRewards
    function currentEpoch() public view returns (Epoch memory) {
        return _last.number == 0 || _isPending() ? _previous : _last;
    }

    /// @inheritdoc IRewards
    function baseBound() public view returns (uint256) {
        uint256 elapsed = block.timestamp - currentEpoch().postedAt;
        return token.balanceOf(staking) * apyBps * elapsed / (YEAR * BPS);
    }

    /// @inheritdoc IRewards
    function postBound() public view returns (uint256) {
        return (funded() - currentEpoch().total) * POST_SHARE_BPS / BPS;
    }

    /// @inheritdoc IRewards
    function funded() public view returns (uint256) {
        return token.balanceOf(address(this)) + paidOut;
    }

    function _claim(address account, address to, uint256 cumulative, bytes32[] calldata proof) private {
        Epoch memory current = currentEpoch();
        bytes32 leaf = keccak256(bytes.concat(keccak256(abi.encode(account, cumulative))));
        require(MerkleProof.verifyCalldata(proof, current.root, leaf), InvalidProof());
        require(cumulative > claimed[account], NothingToClaim());
        uint256 amount = cumulative - claimed[account];
        uint256 paid = paidOut + amount;
        require(paid <= current.total, ClaimsAbovePosted(paid, current.total));
        paidOut = paid;
        claimed[account] = cumulative;
        emit Claimed(account, to, amount, cumulative);
        token.safeTransfer(to, amount);
    }

    function _setApy(uint16 newApyBps) private {
        require(newApyBps >= MIN_APY_BPS && newApyBps <= MAX_APY_BPS, InvalidApy(newApyBps));
        apyBps = newApyBps;
        emit ApySet(newApyBps);
    }

    /// @dev Returns whether the last epoch is pending. Without a last epoch its time is 0, so the delay is over.
    function _isPending() private view returns (bool) {
        return block.timestamp < _claimableAt(_last);
    }

    function _claimableAt(Epoch storage epoch) private view returns (uint256) {
        return epoch.postedAt + claimDelay;
    }
}
