// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";
import {ZenIntake} from "./base/ZenIntake.sol";
import {IProviderStaking} from "./interfaces/IProviderStaking.sol";
import {IZenToken} from "./interfaces/IZenToken.sol";

/// @title Stakes of providers and verifiers
/// @dev One storage slot per account.
contract ProviderStaking is IProviderStaking, ZenIntake {
    using SafeERC20 for IZenToken;

    bytes32 public constant SLASHER_ROLE = keccak256("SLASHER_ROLE");
    uint256 private constant BPS = 10_000;

    /// @notice Seconds between a request to unstake and its withdrawal.
    uint256 public immutable unbondingDelay;
    /// @inheritdoc IProviderStaking
    mapping(bytes32 evidence => bool) public evidenceUsed;

    uint96[4] private _minimumStakes;
    mapping(address provider => Account) private _accounts;

    /// @param zen The ZEN token.
    /// @param delay Seconds that unbonding takes, at most a year.
    /// @param minimumStakes Wei of ZEN that each tier demands: verifier, Bronze, Silver, Gold.
    /// @param adminDelay Seconds between proposing and accepting a new admin.
    /// @param admin First holder of DEFAULT_ADMIN_ROLE and PAUSER_ROLE.
    /// @param slasher First holder of SLASHER_ROLE.
    constructor(
        IZenToken zen,
        uint40 delay,
        uint96[4] memory minimumStakes,
        uint48 adminDelay,
        address admin,
        address slasher
    ) ZenIntake(zen, adminDelay, admin) {
        require(delay <= 365 days, InvalidParameter("delay"));
        unbondingDelay = delay;
        _minimumStakes = minimumStakes;
        _grantRole(SLASHER_ROLE, slasher);
    }

    /// @inheritdoc IProviderStaking
    function stake(uint96 amount) external nonReentrant whenNotPaused {
        _stake(amount);
    }

    /// @inheritdoc IProviderStaking
    function stakeWithPermit(uint96 amount, uint256 deadline, uint8 v, bytes32 r, bytes32 s)
        external
        nonReentrant
        whenNotPaused
    {
        _tryPermit(msg.sender, amount, deadline, v, r, s);
        _stake(amount);
    }

    /// @inheritdoc IProviderStaking
    function requestUnstake(uint96 amount) external {
        require(amount > 0, ZeroAmount());
        Account storage account = _accounts[msg.sender];
        uint96 staked = account.stake;
        require(amount <= staked, InsufficientStake(amount, staked));
        uint96 unbonding = account.unbonding + amount;
        uint40 releaseAt = SafeCast.toUint40(block.timestamp + unbondingDelay);
        account.stake = staked - amount;
        account.unbonding = unbonding;
        account.releaseAt = releaseAt;
        emit UnstakeRequested(msg.sender, amount, unbonding, releaseAt);
    }

    /// @inheritdoc IProviderStaking
    function withdraw() external nonReentrant {
        Account storage account = _accounts[msg.sender];
        uint96 amount = account.unbonding;
        require(amount > 0, NothingToWithdraw());
        require(block.timestamp >= account.releaseAt, StillUnbonding(account.releaseAt));
        account.unbonding = 0;
        emit Withdrawn(msg.sender, amount);
        token.safeTransfer(msg.sender, amount);
    }

    /// @inheritdoc IProviderStaking
    function slash(address provider, uint8 offence, bytes32 evidence)
        external
        nonReentrant
        onlyRole(SLASHER_ROLE)
        returns (uint256 amount)
    {
        require(!evidenceUsed[evidence], EvidenceUsed(evidence));
        evidenceUsed[evidence] = true;

        Account memory account = _accounts[provider];
        amount = (uint256(account.stake) + account.unbonding) * penaltyBps(offence) / BPS;
        uint256 fromStake = Math.min(amount, account.stake);
        account.stake -= SafeCast.toUint96(fromStake);
        account.unbonding -= SafeCast.toUint96(amount - fromStake);
        if (!account.jailed) {
            account.jailed = true;
            emit Jailed(provider);
        }
        _accounts[provider] = account;
        emit Slashed(provider, offence, amount, evidence);
        token.burn(amount);
    }

    /// @inheritdoc IProviderStaking
    function release(address provider) external onlyRole(DEFAULT_ADMIN_ROLE) {
        require(_accounts[provider].jailed, NotJailed(provider));
        _accounts[provider].jailed = false;
        emit Released(provider);
    }

    /// @inheritdoc IProviderStaking
    function accountOf(address provider) external view returns (Account memory) {
        return _accounts[provider];
    }

    /// @inheritdoc IProviderStaking
    function stakeOf(address provider) external view returns (uint256) {
        return _accounts[provider].stake;
    }

    /// @inheritdoc IProviderStaking
    function atRisk(address provider) external view returns (uint256) {
        Account storage account = _accounts[provider];
        return uint256(account.stake) + account.unbonding;
    }

    /// @inheritdoc IProviderStaking
    function isJailed(address provider) external view returns (bool) {
        return _accounts[provider].jailed;
    }

    /// @inheritdoc IProviderStaking
    function qualifies(address provider, uint8 tier) external view returns (bool) {
        Account storage account = _accounts[provider];
        return !account.jailed && account.stake >= minimumStake(tier);
    }

    /// @inheritdoc IProviderStaking
    function minimumStake(uint8 tier) public view returns (uint256) {
        require(tier < _minimumStakes.length, UnknownTier(tier));
        return _minimumStakes[tier];
    }

    /// @inheritdoc IProviderStaking
    function penaltyBps(uint8 offence) public pure returns (uint256) {
        if (offence == 1) return 500; // downtime in a committed period
        if (offence == 2) return 5_000; // incorrect computation
        if (offence == 3) return 500; // bandwidth violation
        if (offence == 4) return 2_000; // withheld data
        revert UnknownOffence(offence);
    }

    function _stake(uint96 amount) private {
        require(amount > 0, ZeroAmount());
        uint96 total = _accounts[msg.sender].stake + amount;
        _accounts[msg.sender].stake = total;
        emit Staked(msg.sender, amount, total);
        token.safeTransferFrom(msg.sender, address(this), amount);
    }
}
