// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {
    AccessControlDefaultAdminRules
} from "@openzeppelin/contracts/access/extensions/AccessControlDefaultAdminRules.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {EIP712} from "@openzeppelin/contracts/utils/cryptography/EIP712.sol";
import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {ExactTransfers} from "./base/ExactTransfers.sol";
import {Acknowledgement, DisputeMessages} from "./DisputeMessages.sol";
import {IOmissions} from "./interfaces/IOmissions.sol";
import {IWorkWindows} from "./interfaces/IWorkWindows.sol";
import {IZenToken} from "./interfaces/IZenToken.sol";
import {Messages, UnitCommitment} from "./Messages.sol";

/// @title Omission claims against the operator
/// @dev One storage slot for each claim. Holds the bond and the stakes of open claims, nothing else.
contract Omissions is IOmissions, AccessControlDefaultAdminRules, ReentrancyGuardTransient, EIP712 {
    using DisputeMessages for Acknowledgement;
    using ExactTransfers for IZenToken;
    using Messages for UnitCommitment;
    using SafeERC20 for IZenToken;

    bytes32 public constant OPERATOR_ROLE = keccak256("OPERATOR_ROLE");
    bytes32 public constant ACKNOWLEDGER_ROLE = keccak256("ACKNOWLEDGER_ROLE");

    /// @notice The ZEN token.
    IZenToken public immutable token;
    /// @notice Contract of the commitment windows.
    IWorkWindows public immutable windows;
    /// @inheritdoc IOmissions
    uint256 public bond;
    /// @inheritdoc IOmissions
    uint256 public openClaims;

    uint96 private immutable _stake;
    uint96 private immutable _compensation;
    uint40 private immutable _claimPeriod;
    uint40 private immutable _responsePeriod;
    uint40 private immutable _withdrawalDelay;

    Withdrawal private _withdrawal;
    mapping(bytes32 unitId => Claim) private _claims;

    /// @param zen The ZEN token.
    /// @param windows_ Contract of the commitment windows.
    /// @param terms_ The terms; see IOmissions.
    /// @param adminDelay Seconds between proposing and accepting a new admin.
    /// @param admin First holder of DEFAULT_ADMIN_ROLE.
    /// @param operator First holder of OPERATOR_ROLE.
    /// @param acknowledger First holder of ACKNOWLEDGER_ROLE, an account with a key.
    constructor(
        IZenToken zen,
        IWorkWindows windows_,
        Terms memory terms_,
        uint48 adminDelay,
        address admin,
        address operator,
        address acknowledger
    ) AccessControlDefaultAdminRules(adminDelay, admin) EIP712("ZooOmissions", "1") {
        require(address(zen) != address(0), InvalidParameter("token"));
        require(terms_.compensation > 0, InvalidParameter("compensation"));
        require(terms_.claimPeriod > 0, InvalidParameter("claimPeriod"));
        require(terms_.responsePeriod > 0, InvalidParameter("responsePeriod"));
        require(terms_.withdrawalDelay >= terms_.claimPeriod, InvalidParameter("withdrawalDelay"));
        token = zen;
        windows = windows_;
        _stake = terms_.stake;
        _compensation = terms_.compensation;
        _claimPeriod = terms_.claimPeriod;
        _responsePeriod = terms_.responsePeriod;
        _withdrawalDelay = terms_.withdrawalDelay;
        _grantRole(OPERATOR_ROLE, operator);
        _grantRole(ACKNOWLEDGER_ROLE, acknowledger);
    }

    /// @inheritdoc IOmissions
    function deposit(uint96 amount) external nonReentrant {
        require(amount > 0, ZeroAmount());
        bond += amount;
        emit Deposited(msg.sender, amount, bond);
        token.receiveExact(msg.sender, amount);
    }

    /// @inheritdoc IOmissions
    function requestWithdrawal(uint96 amount) external onlyRole(OPERATOR_ROLE) {
        require(amount > 0, ZeroAmount());
        uint40 releaseAt = SafeCast.toUint40(block.timestamp + _withdrawalDelay);
        _withdrawal = Withdrawal(amount, releaseAt);
        emit WithdrawalRequested(amount, releaseAt);
    }

    /// @inheritdoc IOmissions
    function withdraw() external nonReentrant onlyRole(OPERATOR_ROLE) {
        Withdrawal memory announced = _withdrawal;
        require(announced.amount > 0, NoWithdrawal());
        require(block.timestamp >= announced.releaseAt, WithdrawalTooEarly(announced.releaseAt));
        uint256 held = openClaims * _compensation;
        require(bond > held, BondHeld(bond, held));
        uint256 amount = Math.min(announced.amount, bond - held);
        delete _withdrawal;
        bond -= amount;
        emit Withdrawn(msg.sender, amount, bond);
        token.safeTransfer(msg.sender, amount);
    }

    /// @inheritdoc IOmissions
    function claim(UnitCommitment calldata unit, uint40 includeBy, bytes calldata acknowledgement)
        external
        nonReentrant
    {
        bytes32 unitId = unit.leaf();
        require(msg.sender == unit.provider, NotProvider(msg.sender));
        require(block.timestamp > includeBy, ClaimTooEarly(includeBy));
        uint256 end = uint256(includeBy) + _claimPeriod;
        require(block.timestamp <= end, ClaimTooLate(end));
        require(_claims[unitId].state == State.None, ClaimExists(unitId));
        _requireAcknowledged(unitId, includeBy, acknowledgement);

        uint40 deadline = SafeCast.toUint40(block.timestamp + _responsePeriod);
        _claims[unitId] = Claim(msg.sender, includeBy, deadline, State.Open);
        ++openClaims;
        emit ClaimOpened(unitId, msg.sender, includeBy, deadline);
        token.receiveExact(msg.sender, _stake);
    }

    /// @inheritdoc IOmissions
    function respond(UnitCommitment calldata unit, bytes32 windowRoot, bytes32[] calldata proof) external {
        bytes32 unitId = unit.leaf();
        Claim memory claimed = _requireOpen(unitId);
        require(block.timestamp <= claimed.deadline, ResponseOver(claimed.deadline));
        require(windows.includes(windowRoot, unit, proof), NotInWindow(windowRoot));
        uint40 committedAt = windows.windows(windowRoot).committedAt;
        require(committedAt <= claimed.includeBy, IncludedTooLate(committedAt, claimed.includeBy));
        _claims[unitId].state = State.Answered;
        --openClaims;
        bond += _stake;
        emit ClaimAnswered(unitId, windowRoot);
    }

    /// @inheritdoc IOmissions
    function resolve(bytes32 unitId) external nonReentrant {
        Claim memory claimed = _requireOpen(unitId);
        require(block.timestamp > claimed.deadline, ResponseNotOver(claimed.deadline));
        uint256 compensation = Math.min(_compensation, bond);
        _claims[unitId].state = State.Compensated;
        --openClaims;
        bond -= compensation;
        emit Compensated(unitId, claimed.provider, compensation);
        token.safeTransfer(claimed.provider, _stake + compensation);
    }

    /// @inheritdoc IOmissions
    function withdrawal() external view returns (Withdrawal memory) {
        return _withdrawal;
    }

    /// @inheritdoc IOmissions
    function claims(bytes32 unitId) external view returns (Claim memory) {
        return _claims[unitId];
    }

    /// @inheritdoc IOmissions
    function terms() external view returns (Terms memory) {
        return Terms(_stake, _compensation, _claimPeriod, _responsePeriod, _withdrawalDelay);
    }

    /// @inheritdoc IOmissions
    function acknowledgementDigest(bytes32 unitId, uint40 includeBy) public view returns (bytes32) {
        return _hashTypedDataV4(Acknowledgement(unitId, includeBy).hash());
    }

    /// @notice Renounces a role of the caller, except ACKNOWLEDGER_ROLE: see CannotRenounce.
    function renounceRole(bytes32 role, address account) public override {
        require(role != ACKNOWLEDGER_ROLE, CannotRenounce());
        super.renounceRole(role, account);
    }

    /// @dev Accepts key signatures only. With ERC-1271 a contract could later disown its acknowledgements.
    function _requireAcknowledged(bytes32 unitId, uint40 includeBy, bytes calldata acknowledgement) private view {
        (address signer,,) = ECDSA.tryRecoverCalldata(acknowledgementDigest(unitId, includeBy), acknowledgement);
        require(signer != address(0) && hasRole(ACKNOWLEDGER_ROLE, signer), NotAcknowledged(signer));
    }

    function _requireOpen(bytes32 unitId) private view returns (Claim memory claimed) {
        claimed = _claims[unitId];
        require(claimed.state == State.Open, NoOpenClaim(unitId));
    }
}
