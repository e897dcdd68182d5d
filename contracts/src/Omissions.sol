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
import {Acknowledgement, DisputeMessages} from "./DisputeMessages.sol";
import {IOmissions} from "./interfaces/IOmissions.sol";
import {IWorkWindows} from "./interfaces/IWorkWindows.sol";
import {IZenToken} from "./interfaces/IZenToken.sol";
import {Messages, UnitCommitment} from "./Messages.sol";

/// @title Commitments that the operator promised to include and left out
/// @dev What the contract holds is the bond and the deposits of open claims.
contract Omissions is IOmissions, AccessControlDefaultAdminRules, EIP712, ReentrancyGuardTransient {
    using SafeERC20 for IZenToken;
    using SafeCast for uint256;
    using Messages for UnitCommitment;
    using DisputeMessages for Acknowledgement;

    bytes32 public constant OPERATOR_ROLE = keccak256("OPERATOR_ROLE");
    bytes32 public constant ACKNOWLEDGER_ROLE = keccak256("ACKNOWLEDGER_ROLE");

    /// @notice The ZEN token.
    IZenToken public immutable token;
    /// @notice Where units are committed.
    IWorkWindows public immutable windows;
    /// @inheritdoc IOmissions
    uint256 public bond;
    /// @notice Bond that was asked back and not taken.
    uint96 public requested;
    /// @notice Earliest time to take it.
    uint40 public releaseAt;

    Parameters private _parameters;
    mapping(bytes32 unitId => Claim) private _claims;

    /// @param zen The ZEN token.
    /// @param windows_ Where units are committed.
    /// @param parameters_ Amounts and delays.
    /// @param adminDelay Seconds between proposing and accepting a new admin.
    /// @param admin First holder of DEFAULT_ADMIN_ROLE.
    /// @param operator First holder of OPERATOR_ROLE and ACKNOWLEDGER_ROLE.
    constructor(
        IZenToken zen,
        IWorkWindows windows_,
        Parameters memory parameters_,
        uint48 adminDelay,
        address admin,
        address operator
    ) AccessControlDefaultAdminRules(adminDelay, admin) EIP712("ZooOmissions", "1") {
        require(address(zen) != address(0), InvalidParameter("token"));
        require(address(windows_) != address(0), InvalidParameter("windows"));
        uint256 longest = uint256(parameters_.claimPeriod) + parameters_.answerPeriod;
        require(parameters_.withdrawDelay >= longest, InvalidParameter("withdrawDelay"));
        token = zen;
        windows = windows_;
        _parameters = parameters_;
        _grantRole(OPERATOR_ROLE, operator);
        _grantRole(ACKNOWLEDGER_ROLE, operator);
    }

    /// @inheritdoc IOmissions
    function addBond(uint96 amount) external nonReentrant {
        require(amount > 0, ZeroAmount());
        bond += amount;
        emit BondAdded(msg.sender, amount, bond);
        token.safeTransferFrom(msg.sender, address(this), amount);
    }

    /// @inheritdoc IOmissions
    function requestBond(uint96 amount) external onlyRole(OPERATOR_ROLE) {
        require(amount > 0, ZeroAmount());
        uint256 total = uint256(requested) + amount;
        require(total <= bond, InsufficientBond(total, bond));
        requested = total.toUint96();
        releaseAt = (block.timestamp + _parameters.withdrawDelay).toUint40();
        emit BondRequested(total, releaseAt);
    }

    /// @inheritdoc IOmissions
    function withdrawBond(address to) external nonReentrant onlyRole(OPERATOR_ROLE) returns (uint256 amount) {
        amount = Math.min(requested, bond);
        require(amount > 0, ZeroAmount());
        require(block.timestamp >= releaseAt, BondHeld(releaseAt));
        requested = 0;
        bond -= amount;
        emit BondWithdrawn(to, amount);
        token.safeTransfer(to, amount);
    }

    /// @inheritdoc IOmissions
    function claim(UnitCommitment calldata unit, uint40 includeBy, bytes calldata signature) external nonReentrant {
        bytes32 unitId = unit.leaf();
        require(_claims[unitId].state == State.None, AlreadyClaimed(unitId));
        require(block.timestamp > includeBy, NotDueYet(includeBy));
        uint256 end = uint256(includeBy) + _parameters.claimPeriod;
        require(block.timestamp <= end, ClaimPeriodOver(end));
        address signer = ECDSA.recover(acknowledgementDigest(unitId, includeBy), signature);
        require(hasRole(ACKNOWLEDGER_ROLE, signer), InvalidAcknowledgement(signer));

        uint40 answerBy = (block.timestamp + _parameters.answerPeriod).toUint40();
        _claims[unitId] = Claim(msg.sender, includeBy, answerBy, State.Open);
        emit OmissionClaimed(unitId, msg.sender, answerBy);
        token.safeTransferFrom(msg.sender, address(this), _parameters.deposit);
    }

    /// @inheritdoc IOmissions
    function answer(UnitCommitment calldata unit, bytes32 windowRoot, bytes32[] calldata proof) external {
        bytes32 unitId = unit.leaf();
        Claim storage open = _openClaim(unitId);
        require(block.timestamp <= open.answerBy, AnswerPeriodOver(open.answerBy));
        bool inTime = windows.windows(windowRoot).committedAt <= open.includeBy;
        require(inTime && windows.includes(windowRoot, unit, proof), NotIncluded(unitId));
        open.state = State.Answered;
        bond += _parameters.deposit;
        emit OmissionAnswered(unitId, windowRoot);
    }

    /// @inheritdoc IOmissions
    function resolve(UnitCommitment calldata unit) external nonReentrant returns (uint256 amount) {
        bytes32 unitId = unit.leaf();
        Claim storage open = _openClaim(unitId);
        require(block.timestamp > open.answerBy, AnswerPending(open.answerBy));
        open.state = State.Compensated;
        amount = Math.min(_parameters.compensation, bond);
        bond -= amount;
        emit OmissionCompensated(unitId, unit.provider, amount);
        token.safeTransfer(unit.provider, amount);
        token.safeTransfer(open.claimant, _parameters.deposit);
    }

    /// @inheritdoc IOmissions
    function claims(bytes32 unitId) external view returns (Claim memory) {
        return _claims[unitId];
    }

    /// @inheritdoc IOmissions
    function parameters() external view returns (Parameters memory) {
        return _parameters;
    }

    /// @inheritdoc IOmissions
    function acknowledgementDigest(bytes32 unitId, uint40 includeBy) public view returns (bytes32) {
        return _hashTypedDataV4(Acknowledgement(unitId, includeBy).hash());
    }

    function _openClaim(bytes32 unitId) private view returns (Claim storage open) {
        open = _claims[unitId];
        require(open.state == State.Open, NoOpenClaim(unitId));
    }
}
