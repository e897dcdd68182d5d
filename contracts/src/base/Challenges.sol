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

/// @title Opening of a dispute, trace reveal and segment selection
/// @dev The response deadline and the selected segment are in a dispute's first slot. The trace is not stored, since
/// the signed root has exactly one.
abstract contract Challenges is IDisputes, ReentrancyGuardTransient {
    using DisputeMessages for UnitCommitment;
    using ExactTransfers for IZenToken;
    using Messages for JobOrder;
    using Messages for UnitCommitment;

    /// @notice Maximum segments of a disputable unit. It bounds the gas of a trace reveal and matches the maximum of a
    /// job.
    uint16 public constant MAX_SEGMENTS = 64;
    uint40 internal constant NO_DEADLINE = type(uint40).max;

    /// @notice The ZEN token.
    IZenToken public immutable token;
    /// @notice Contract of the commitment windows.
    IWorkWindows public immutable windows;
    /// @notice Escrow of the jobs. Providers sign commitments under its EIP-712 domain.
    IDisputeEscrow public immutable escrow;

    uint96 internal immutable _bond;
    uint40 internal immutable _disputePeriod;
    uint40 internal immutable _responsePeriod;

    mapping(bytes32 disputeId => Dispute) internal _disputes;
    mapping(bytes32 unitId => Unit) internal _units;

    /// @param zen The ZEN token.
    /// @param windows_ Contract of the commitment windows.
    /// @param escrow_ Escrow of the jobs.
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
        _responsePeriod = terms_.turnPeriod;
    }

    /// @inheritdoc IDisputes
    function open(
        JobOrder calldata order,
        UnitCommitment calldata unit,
        bytes calldata commitmentSignature,
        bytes32 windowRoot,
        bytes32[] calldata windowProof
    ) external nonReentrant returns (bytes32 disputeId) {
        require(order.hash() == unit.jobId, WrongOrder(unit.jobId));
        uint16 segments = order.segments;
        require(segments > 0 && segments <= MAX_SEGMENTS, InvalidSegments(segments));
        _requireSigned(unit, commitmentSignature);

        bytes32 unitId = unit.leaf();
        _requireNotConvicted(unitId);
        uint40 end = _limitDisputes(unitId, windowRoot, windowProof);
        require(block.timestamp <= end, DisputePeriodOver(end));
        ++_units[unitId].open;
        disputeId = disputeIdOf(unitId, msg.sender);
        Dispute storage dispute = _disputes[disputeId];
        require(dispute.status == Status.None, DisputeExists(disputeId));
        (dispute.challenger, dispute.segments) = (msg.sender, segments);
        (dispute.provider, dispute.payer, dispute.unitId) = (unit.provider, order.payer, unitId);
        emit DisputeOpened(disputeId, unitId, unit.provider, msg.sender, segments);
        _startPhase(disputeId, Status.Trace, _responsePeriod);
        token.receiveExact(msg.sender, _bond);
    }

    /// @inheritdoc IDisputes
    function showTrace(
        bytes32 disputeId,
        UnitCommitment calldata unit,
        bytes32 environmentClass,
        bytes32[] calldata states
    ) external nonReentrant {
        Dispute storage dispute = _requirePhase(disputeId, Status.Trace);
        require(unit.leaf() == dispute.unitId, WrongUnit(dispute.unitId));
        require(states.length == uint256(dispute.segments) + 1, WrongStateCount(states.length));
        require(unit.rootOf(environmentClass, states) == unit.traceRoot, InvalidTrace());
        emit TraceShown(disputeId, environmentClass, states);
        if (dispute.segments == 1) _selectSegment(disputeId, 0);
        else _startPhase(disputeId, Status.Step, _responsePeriod);
    }

    /// @inheritdoc IDisputes
    function nameStep(bytes32 disputeId, uint16 step) external nonReentrant {
        Dispute storage dispute = _requirePhase(disputeId, Status.Step);
        require(msg.sender == dispute.challenger, NotChallenger(msg.sender));
        require(step < dispute.segments, NoSuchStep(step, dispute.segments));
        _selectSegment(disputeId, step);
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
    function disputeIdOf(bytes32 unitId, address challenger) public pure returns (bytes32) {
        return keccak256(abi.encode(unitId, challenger));
    }

    /// @dev Decides the dispute once the segment is selected and all states are revealed.
    function _decide(bytes32 disputeId) internal virtual;

    function _startPhase(bytes32 disputeId, Status status, uint256 period) internal {
        uint40 deadline = SafeCast.toUint40(block.timestamp + period);
        (_disputes[disputeId].status, _disputes[disputeId].deadline) = (status, deadline);
        emit TurnStarted(disputeId, status, deadline);
    }

    function _requirePhase(bytes32 disputeId, Status status) internal view returns (Dispute storage dispute) {
        dispute = _disputes[disputeId];
        require(dispute.status == status, WrongStatus(disputeId, dispute.status));
        _requireNotConvicted(dispute.unitId);
        require(block.timestamp <= dispute.deadline, TurnOver(dispute.deadline));
    }

    function _requireNotConvicted(bytes32 unitId) internal view {
        require(!_units[unitId].convicted, UnitConvicted(unitId));
    }

    /// @dev Stores and returns the last second at which the unit can be disputed. The earliest known window of the unit
    /// counts. A period that began again with each window would let the operator have old units disputed.
    function _limitDisputes(bytes32 unitId, bytes32 windowRoot, bytes32[] calldata windowProof)
        internal
        returns (uint40 end)
    {
        end = windows.windows(windowRoot).committedAt + _disputePeriod;
        require(MerkleProof.verifyCalldata(windowProof, windowRoot, unitId), NotInWindow(windowRoot));
        Unit storage unit = _units[unitId];
        if (unit.disputableUntil == 0 || end < unit.disputableUntil) unit.disputableUntil = end;
        else end = unit.disputableUntil;
    }

    function _selectSegment(bytes32 disputeId, uint16 step) private {
        _disputes[disputeId].step = step;
        emit StepNamed(disputeId, step);
        _decide(disputeId);
    }

    function _requireSigned(UnitCommitment calldata unit, bytes calldata signature) private view {
        (address signer,,) = ECDSA.tryRecoverCalldata(escrow.commitmentDigest(unit), signature);
        require(signer == unit.provider && signer != address(0), InvalidCommitmentSignature());
    }
}
