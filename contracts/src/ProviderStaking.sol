// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";
import {ExactTransfers} from "./base/ExactTransfers.sol";
import {ZenIntake} from "./base/ZenIntake.sol";
import {IProviderStaking} from "./interfaces/IProviderStaking.sol";
import {IZenToken} from "./interfaces/IZenToken.sol";

/// @title Stakes of providers and verifiers
/// @dev One storage slot for each account, a second one for accounts with a commitment.
contract ProviderStaking is IProviderStaking, ZenIntake {
    using ExactTransfers for IZenToken;
    using SafeERC20 for IZenToken;

    bytes32 public constant SLASHER_ROLE = keccak256("SLASHER_ROLE");
    bytes32 public constant DISPUTES_ROLE = keccak256("DISPUTES_ROLE");
    /// @notice Maximum seconds from now until the end of a commitment.
    uint256 public constant MAX_COMMITMENT = 365 days;
    /// @notice Highest dispute share of a penalty, in basis points.
    uint16 public constant MAX_DISPUTE_SHARE_BPS = 5_000;
    /// @inheritdoc IProviderStaking
    uint16 public constant LEAST_CHEAT_PENALTY_BPS = 5_000;
    uint16 private constant BPS = 10_000;
    uint8 private constant DOWNTIME = 1;
    uint8 private constant INCORRECT_COMPUTATION = 2;
    uint8 private constant WITHHELD_DATA = 4;
    uint8 private constant REFUSED_DATA = 7;

    /// @notice Seconds between a request to unstake and its withdrawal.
    uint256 public immutable unbondingDelay;
    /// @inheritdoc IProviderStaking
    mapping(bytes32 role => mapping(bytes32 evidence => bool)) public evidenceUsed;
    /// @inheritdoc IProviderStaking
    mapping(address provider => uint40) public committedUntil;

    uint96[5] private _minimumStakes;
    Penalty[7] private _penalties; // index i: offence i + 1
    mapping(address provider => Account) private _accounts;

    /// @param zen The ZEN token.
    /// @param delay Seconds that unbonding takes, at most a year.
    /// @param minimumStakes Minimum stake of each tier in wei of ZEN: verifier, Bronze, Silver, Gold, Iron.
    /// @param adminDelay Seconds between proposing and accepting a new admin.
    /// @param admin First holder of DEFAULT_ADMIN_ROLE.
    /// @param pauser First holder of PAUSER_ROLE.
    /// @param slasher First holder of SLASHER_ROLE.
    /// @param disputes First holder of DISPUTES_ROLE.
    constructor(
        IZenToken zen,
        uint40 delay,
        uint96[5] memory minimumStakes,
        uint48 adminDelay,
        address admin,
        address pauser,
        address slasher,
        address disputes
    ) ZenIntake(zen, adminDelay, admin, pauser) {
        require(delay <= 365 days, InvalidParameter("delay"));
        unbondingDelay = delay;
        _minimumStakes = minimumStakes;
        _grantRole(SLASHER_ROLE, slasher);
        _grantRole(DISPUTES_ROLE, disputes);
        _setPenalty(DOWNTIME, 500, 0);
        _setPenalty(INCORRECT_COMPUTATION, 5_000, 2_000);
        _setPenalty(3, 500, 0); // bandwidth violation
        _setPenalty(WITHHELD_DATA, 5_000, 2_000); // same as incorrect computation: a timeout must not be cheaper
        _setPenalty(5, 2_000, 0); // wrong replay of a verifier or referee
        _setPenalty(6, 10_000, 0); // equivocation of a referee
        _setPenalty(REFUSED_DATA, 5_000, 2_000); // same as incorrect computation: a refusal must not be cheaper
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
        uint40 releaseAt = SafeCast.toUint40(Math.max(block.timestamp + unbondingDelay, committedUntil[msg.sender]));
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
    function commit(uint40 until) external {
        uint256 latest = block.timestamp + MAX_COMMITMENT;
        require(
            until > block.timestamp && until > committedUntil[msg.sender] && until <= latest,
            InvalidCommitment(until, latest)
        );
        committedUntil[msg.sender] = until;
        emit Committed(msg.sender, until);
    }

    /// @inheritdoc IProviderStaking
    function slash(address provider, uint8 offence, bytes32 evidence)
        external
        nonReentrant
        returns (uint256 amount, uint256 share)
    {
        bool disputed = hasRole(DISPUTES_ROLE, msg.sender);
        if (!disputed) _checkRole(SLASHER_ROLE);
        _recordEvidence(disputed ? DISPUTES_ROLE : SLASHER_ROLE, evidence);
        if (offence == DOWNTIME) _requireCommitted(provider);

        Penalty memory row = penalty(offence);
        amount = _slashBalance(provider, row.bps);
        if (disputed) share = amount * row.disputeShareBps / BPS;
        emit Slashed(provider, offence, amount, share, evidence);
        token.burn(amount - share);
        if (share > 0) token.safeTransfer(msg.sender, share);
    }

    /// @inheritdoc IProviderStaking
    function release(address provider) external onlyRole(DEFAULT_ADMIN_ROLE) {
        require(_accounts[provider].jailed, NotJailed(provider));
        _accounts[provider].jailed = false;
        emit Released(provider);
    }

    /// @inheritdoc IProviderStaking
    function setPenalty(uint8 offence, uint16 bps, uint16 disputeShareBps) external onlyRole(DEFAULT_ADMIN_ROLE) {
        _setPenalty(offence, bps, disputeShareBps);
    }

    /// @inheritdoc IProviderStaking
    function setMinimumStake(uint8 tier, uint96 amount) external onlyRole(DEFAULT_ADMIN_ROLE) {
        _requireTier(tier);
        _minimumStakes[tier] = amount;
        emit MinimumStakeSet(tier, amount);
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
        _requireTier(tier);
        return _minimumStakes[tier];
    }

    /// @inheritdoc IProviderStaking
    function leastCheatPenalty(uint8 tier) external view returns (uint256) {
        return minimumStake(tier) * LEAST_CHEAT_PENALTY_BPS / BPS;
    }

    /// @inheritdoc IProviderStaking
    function penalty(uint8 offence) public view returns (Penalty memory) {
        _requireOffence(offence);
        return _penalties[offence - 1];
    }

    function _stake(uint96 amount) private {
        require(amount > 0, ZeroAmount());
        uint96 total = _accounts[msg.sender].stake + amount;
        _accounts[msg.sender].stake = total;
        emit Staked(msg.sender, amount, total);
        token.receiveExact(msg.sender, amount);
    }

    /// @dev Takes `bps` of the slashable balance, stake first, and jails.
    function _slashBalance(address provider, uint256 bps) private returns (uint256 amount) {
        Account memory account = _accounts[provider];
        amount = (uint256(account.stake) + account.unbonding) * bps / BPS;
        uint256 fromStake = Math.min(amount, account.stake);
        account.stake -= SafeCast.toUint96(fromStake);
        account.unbonding -= SafeCast.toUint96(amount - fromStake);
        if (!account.jailed) {
            account.jailed = true;
            emit Jailed(provider);
        }
        _accounts[provider] = account;
    }

    function _recordEvidence(bytes32 role, bytes32 evidence) private {
        require(!evidenceUsed[role][evidence], EvidenceUsed(evidence));
        evidenceUsed[role][evidence] = true;
    }

    function _setPenalty(uint8 offence, uint16 bps, uint16 disputeShareBps) private {
        _requireOffence(offence);
        require(bps <= BPS && disputeShareBps <= MAX_DISPUTE_SHARE_BPS, PenaltyTooHigh(bps, disputeShareBps));
        bool isFraud = offence == INCORRECT_COMPUTATION || offence == WITHHELD_DATA || offence == REFUSED_DATA;
        require(!isFraud || bps >= LEAST_CHEAT_PENALTY_BPS, PenaltyTooLow(bps, LEAST_CHEAT_PENALTY_BPS));
        _penalties[offence - 1] = Penalty(bps, disputeShareBps);
        emit PenaltySet(offence, bps, disputeShareBps);
    }

    /// @dev Downtime in a committed period can be proven for one unbonding delay after the period's end.
    function _requireCommitted(address provider) private view {
        uint256 until = committedUntil[provider];
        require(block.timestamp <= until + unbondingDelay, NotCommitted(provider, until));
    }

    function _requireOffence(uint8 offence) private view {
        require(offence >= 1 && offence <= _penalties.length, UnknownOffence(offence));
    }

    function _requireTier(uint8 tier) private view {
        require(tier < _minimumStakes.length, UnknownTier(tier));
    }
}
