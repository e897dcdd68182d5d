// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {MerkleProof} from "@openzeppelin/contracts/utils/cryptography/MerkleProof.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {DisputeMessages} from "../DisputeMessages.sol";
import {IDisputeEscrow, IDisputes} from "../interfaces/IDisputes.sol";
import {IWorkWindows} from "../interfaces/IWorkWindows.sol";
import {IZenToken} from "../interfaces/IZenToken.sol";
import {ExactTransfers} from "./ExactTransfers.sol";
import {JobOrder, Messages, UnitCommitment} from "../Messages.sol";

/// @title Opening a dispute and narrowing it down to one step
/// @dev The present turn is in a dispute's first slot; an opened middle overwrites one end's state when it is answered.
abstract contract Bisection is IDisputes, ReentrancyGuardTransient {
    using DisputeMessages for UnitCommitment;
    using ExactTransfers for IZenToken;
    using Messages for JobOrder;
    using Messages for UnitCommitment;

    uint40 internal constant NO_DEADLINE = type(uint40).max;

    /// @notice The ZEN token.
    IZenToken public immutable token;
    /// @notice Where windows are committed.
    IWorkWindows public immutable windows;
    /// @notice Where jobs are paid, and whose domain providers sign commitments under.
    IDisputeEscrow public immutable escrow;

    uint96 internal immutable _bond;
    uint40 internal immutable _disputePeriod;
    uint40 internal immutable _turnPeriod;

    mapping(bytes32 disputeId => Dispute) internal _disputes;
    mapping(bytes32 unitId => Unit) internal _units;

    /// @param zen The ZEN token.
    /// @param windows_ Where windows are committed.
    /// @param escrow_ Where jobs are paid.
    /// @param terms_ The terms; see IDisputes.
    constructor(IZenToken zen, IWorkWindows windows_, IDisputeEscrow escrow_, Terms memory terms_) {
        require(address(zen) != address(0), InvalidParameter("token"));
        require(terms_.disputePeriod > 0, InvalidParameter("disputePeriod"));
        require(terms_.turnPeriod > 0, InvalidParameter("turnPeriod"));
        token = zen;
        windows = windows_;
        escrow = escrow_;
        _bond = terms_.bond;
        _disputePeriod = terms_.disputePeriod;
        _turnPeriod = terms_.turnPeriod;
    }

    /// @inheritdoc IDisputes
    function open(
        JobOrder calldata order,
        UnitCommitment calldata unit,
        bytes calldata commitmentSignature,
        bytes32 windowRoot,
        bytes32[] calldata windowProof,
        uint16 lo,
        uint16 hi
    ) external nonReentrant returns (bytes32 disputeId) {
        require(order.hash() == unit.jobId, WrongOrder(unit.jobId));
        require(lo < hi && hi <= order.segments, InvalidRange(lo, hi, order.segments));
        require(windows.includes(windowRoot, unit, windowProof), NotInWindow(windowRoot));
        _requireSigned(unit, commitmentSignature);

        bytes32 unitId = unit.leaf();
        _admit(unitId, windowRoot);
        disputeId = disputeIdOf(unitId, msg.sender, lo, hi);
        Dispute storage dispute = _disputes[disputeId];
        require(dispute.status == Status.None, DisputeExists(disputeId));
        (dispute.challenger, dispute.lo, dispute.hi) = (msg.sender, lo, hi);
        (dispute.provider, dispute.payer, dispute.unitId) = (unit.provider, order.payer, unitId);
        emit DisputeOpened(disputeId, unitId, unit.provider, msg.sender, lo, hi);
        _startTurn(disputeId, Status.Ends, _turnPeriod);
        token.take(msg.sender, _bond);
    }

    /// @inheritdoc IDisputes
    function revealEnds(
        bytes32 disputeId,
        UnitCommitment calldata unit,
        bytes32 environmentClass,
        Opening calldata lo,
        Opening calldata hi
    ) external nonReentrant {
        Dispute storage dispute = _requireTurn(disputeId, Status.Ends);
        _requireOpening(dispute, unit, dispute.lo, environmentClass, lo);
        _requireOpening(dispute, unit, dispute.hi, environmentClass, hi);
        dispute.environmentClass = environmentClass;
        dispute.loState = lo.state;
        dispute.hiState = hi.state;
        emit EndsRevealed(disputeId, environmentClass, lo.state, hi.state);
        _proceed(disputeId);
    }

    /// @inheritdoc IDisputes
    function revealMiddle(bytes32 disputeId, UnitCommitment calldata unit, Opening calldata middle)
        external
        nonReentrant
    {
        Dispute storage dispute = _requireTurn(disputeId, Status.Middle);
        uint16 boundary = _middle(dispute);
        _requireOpening(dispute, unit, boundary, dispute.environmentClass, middle);
        dispute.middleState = middle.state;
        emit MiddleRevealed(disputeId, boundary, middle.state);
        _startTurn(disputeId, Status.Answer, _turnPeriod);
    }

    /// @inheritdoc IDisputes
    function answer(bytes32 disputeId, bool agrees) external nonReentrant {
        Dispute storage dispute = _requireTurn(disputeId, Status.Answer);
        require(msg.sender == dispute.challenger, NotChallenger(msg.sender));
        uint16 middle = _middle(dispute);
        if (agrees) (dispute.lo, dispute.loState) = (middle, dispute.middleState);
        else (dispute.hi, dispute.hiState) = (middle, dispute.middleState);
        emit Narrowed(disputeId, dispute.lo, dispute.hi);
        _proceed(disputeId);
    }

    /// @inheritdoc IDisputes
    function disputes(bytes32 disputeId) external view returns (Dispute memory) {
        return _disputes[disputeId];
    }

    /// @inheritdoc IDisputes
    function units(bytes32 unitId) external view returns (Unit memory) {
        return _units[unitId];
    }

    /// @inheritdoc IDisputes
    function middleOf(bytes32 disputeId) external view returns (uint16) {
        return _middle(_disputes[disputeId]);
    }

    /// @inheritdoc IDisputes
    function disputeIdOf(bytes32 unitId, address challenger, uint16 lo, uint16 hi) public pure returns (bytes32) {
        return keccak256(abi.encode(unitId, challenger, lo, hi));
    }

    /// @dev The step from `lo` to `hi` = `lo` + 1 is isolated and both its states are known.
    function _judge(bytes32 disputeId) internal virtual;

    function _startTurn(bytes32 disputeId, Status status, uint256 period) internal {
        uint40 deadline = SafeCast.toUint40(block.timestamp + period);
        (_disputes[disputeId].status, _disputes[disputeId].deadline) = (status, deadline);
        emit TurnStarted(disputeId, status, deadline);
    }

    function _requireTurn(bytes32 disputeId, Status status) internal view returns (Dispute storage dispute) {
        dispute = _disputes[disputeId];
        require(dispute.status == status, WrongStatus(disputeId, dispute.status));
        _requireNotConvicted(dispute.unitId);
        require(block.timestamp <= dispute.deadline, TurnOver(dispute.deadline));
    }

    function _requireNotConvicted(bytes32 unitId) internal view {
        require(!_units[unitId].convicted, UnitConvicted(unitId));
    }

    function _proceed(bytes32 disputeId) private {
        if (_disputes[disputeId].hi - _disputes[disputeId].lo == 1) _judge(disputeId);
        else _startTurn(disputeId, Status.Middle, _turnPeriod);
    }

    /// @dev Counts a new dispute of the unit. A unit in two windows can be disputed in the period of either.
    function _admit(bytes32 unitId, bytes32 windowRoot) private {
        _requireNotConvicted(unitId);
        uint40 end = windows.windows(windowRoot).committedAt + _disputePeriod;
        require(block.timestamp <= end, DisputePeriodOver(end));
        Unit storage unit = _units[unitId];
        ++unit.open;
        if (end > unit.disputableUntil) unit.disputableUntil = end;
    }

    function _requireSigned(UnitCommitment calldata unit, bytes calldata signature) private view {
        (address signer,,) = ECDSA.tryRecoverCalldata(escrow.commitmentDigest(unit), signature);
        require(signer == unit.provider && signer != address(0), InvalidCommitmentSignature());
    }

    function _requireOpening(
        Dispute storage dispute,
        UnitCommitment calldata unit,
        uint16 boundary,
        bytes32 environmentClass,
        Opening calldata opening
    ) internal view {
        require(unit.leaf() == dispute.unitId, WrongUnit(dispute.unitId));
        bytes32 leaf = unit.stateLeaf(boundary, opening.state, environmentClass);
        require(MerkleProof.verifyCalldata(opening.proof, unit.traceRoot, leaf), InvalidOpening(boundary));
    }

    /// @dev The lower of two middles; between the ends whenever a step is left to find.
    function _middle(Dispute storage dispute) private view returns (uint16) {
        return dispute.lo + (dispute.hi - dispute.lo) / 2;
    }
}
