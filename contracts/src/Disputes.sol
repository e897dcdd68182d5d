// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {EIP712} from "@openzeppelin/contracts/utils/cryptography/EIP712.sol";
import {MerkleProof} from "@openzeppelin/contracts/utils/cryptography/MerkleProof.sol";
import {SignatureChecker} from "@openzeppelin/contracts/utils/cryptography/SignatureChecker.sol";
import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {Referees} from "./base/Referees.sol";
import {DisputeMessages, Verdict} from "./DisputeMessages.sol";
import {IDisputes} from "./interfaces/IDisputes.sol";
import {IJobEscrow} from "./interfaces/IJobEscrow.sol";
import {IProviderStaking} from "./interfaces/IProviderStaking.sol";
import {IWorkWindows} from "./interfaces/IWorkWindows.sol";
import {IZenToken} from "./interfaces/IZenToken.sol";
import {JobOrder, Messages, UnitCommitment} from "./Messages.sol";

/// @title Disputes about units of work
/// @dev A dispute is known by unit and challenger, so one who disputes badly on purpose keeps nobody else from disputing
/// well. A provider is slashed once for a unit, whoever convicts it first.
contract Disputes is Referees, EIP712, ReentrancyGuardTransient {
    using SafeERC20 for IZenToken;
    using SafeCast for uint256;
    using Messages for JobOrder;
    using Messages for UnitCommitment;
    using DisputeMessages for UnitCommitment;
    using DisputeMessages for Verdict;

    /// @notice Row of the penalty table for whoever loses as provider. Silence costs the same as a false step, or every
    /// cheat would fall silent.
    uint8 public constant OFFENCE = 2;
    /// @notice Committees that are drawn before a dispute ends without a verdict.
    uint8 public constant MAX_DRAWS = 3;

    /// @notice The ZEN token.
    IZenToken public immutable token;
    /// @notice Where units are committed.
    IWorkWindows public immutable windows;
    /// @notice Where they are paid.
    IJobEscrow public immutable escrow;

    /// @inheritdoc IDisputes
    mapping(address account => uint256) public owed;

    Parameters private _parameters;
    mapping(bytes32 disputeId => Dispute) private _disputes;
    mapping(bytes32 unitId => Unit) private _units;

    /// @param zen The ZEN token.
    /// @param staking_ Slashes providers; this contract must hold its DISPUTES_ROLE.
    /// @param windows_ Where units are committed.
    /// @param escrow_ Where they are paid; this contract must hold its DISPUTES_ROLE.
    /// @param parameters_ Amounts, delays and the size of a committee.
    constructor(
        IZenToken zen,
        IProviderStaking staking_,
        IWorkWindows windows_,
        IJobEscrow escrow_,
        Parameters memory parameters_
    ) Referees(staking_) EIP712("ZooDisputes", "1") {
        require(address(zen) != address(0), InvalidParameter("token"));
        require(address(windows_) != address(0), InvalidParameter("windows"));
        require(address(escrow_) != address(0), InvalidParameter("escrow"));
        uint256 costs = parameters_.providerCost + uint256(parameters_.committee) * parameters_.refereeFee;
        require(parameters_.bond >= costs, InvalidParameter("bond"));
        require(parameters_.turn > 0, InvalidParameter("turn"));
        require(parameters_.seedDelay > 0 && parameters_.seedDelay <= 200, InvalidParameter("seedDelay"));
        require(
            parameters_.quorum <= parameters_.committee && uint256(parameters_.quorum) * 2 > parameters_.committee,
            InvalidParameter("quorum")
        );
        token = zen;
        windows = windows_;
        escrow = escrow_;
        _parameters = parameters_;
    }

    /// @inheritdoc IDisputes
    function open(
        JobOrder calldata order,
        UnitCommitment calldata unit,
        bytes calldata signature,
        bytes32 windowRoot,
        bytes32[] calldata windowProof,
        uint16 lo,
        uint16 hi
    ) external nonReentrant returns (bytes32 disputeId) {
        bytes32 unitId = unit.leaf();
        disputeId = _disputeId(unitId, msg.sender);
        require(!_units[unitId].condemned, UnitCondemned(unitId));
        require(_disputes[disputeId].phase == Phase.None, DisputeExists(disputeId));
        require(order.hash() == unit.jobId, WrongOrder(unit.jobId));
        require(lo < hi && hi <= order.segments, InvalidStretch(lo, hi, order.segments));
        _requireCommitted(unit, signature, windowRoot, windowProof);

        Dispute storage dispute = _disputes[disputeId];
        dispute.challenger = msg.sender;
        (dispute.lo, dispute.hi) = (lo, hi);
        _units[unitId].open += 1;
        emit DisputeOpened(disputeId, unitId, unit.provider, msg.sender, lo, hi);
        _providersTurn(dispute);
        token.safeTransferFrom(msg.sender, address(this), _parameters.bond);
    }

    /// @inheritdoc IDisputes
    function reveal(
        UnitCommitment calldata unit,
        address challenger,
        bytes32 state,
        bytes32 environment,
        bytes32[] calldata proof
    ) external {
        (bytes32 disputeId, Dispute storage dispute) = _inTurn(unit, challenger, Phase.Reveal, unit.provider);
        uint16 middle = (dispute.lo + dispute.hi) / 2;
        _requireInTrace(unit, middle, state, environment, proof);
        dispute.phase = Phase.Choose;
        _startTurn(dispute);
        emit StateRevealed(disputeId, middle, state, environment, dispute.deadline);
    }

    /// @inheritdoc IDisputes
    function choose(UnitCommitment calldata unit, bool acceptsMiddle) external {
        (bytes32 disputeId, Dispute storage dispute) = _inTurn(unit, msg.sender, Phase.Choose, msg.sender);
        uint16 middle = (dispute.lo + dispute.hi) / 2;
        if (acceptsMiddle) dispute.lo = middle;
        else dispute.hi = middle;
        _providersTurn(dispute);
        emit HalfChosen(disputeId, dispute.lo, dispute.hi, dispute.deadline);
    }

    /// @inheritdoc IDisputes
    function openStep(
        UnitCommitment calldata unit,
        address challenger,
        bytes32[2] calldata states,
        bytes32 environment,
        bytes32[][2] calldata proofs
    ) external {
        (bytes32 disputeId, Dispute storage dispute) = _inTurn(unit, challenger, Phase.Open, unit.provider);
        _requireInTrace(unit, dispute.lo, states[0], environment, proofs[0]);
        _requireInTrace(unit, dispute.hi, states[1], environment, proofs[1]);
        dispute.phase = Phase.Draw;
        emit StateRevealed(disputeId, dispute.lo, states[0], environment, 0);
        emit StateRevealed(disputeId, dispute.hi, states[1], environment, 0);
        _scheduleDraw(disputeId, dispute);
    }

    /// @inheritdoc IDisputes
    function drawCommittee(UnitCommitment calldata unit, address challenger) external {
        (bytes32 disputeId, Dispute storage dispute) = _inPhase(unit, challenger, Phase.Draw);
        require(block.number > dispute.seedBlock, SeedNotReady(dispute.seedBlock));
        bytes32 blockHash = blockhash(dispute.seedBlock);
        if (blockHash == 0) return _scheduleDraw(disputeId, dispute);

        address payer = escrow.jobs(unit.jobId).payer;
        bytes32 seed = keccak256(abi.encode(blockHash, disputeId));
        address[] memory committee = _draw(seed, _parameters.committee, [unit.provider, challenger, payer]);
        dispute.draws += 1;
        dispute.committeeHash = keccak256(abi.encode(committee));
        dispute.phase = Phase.Judge;
        _startTurn(dispute);
        if (committee.length < _parameters.quorum) dispute.deadline = 0; // nothing to wait for: `timeout` goes on at once
        emit CommitteeDrawn(disputeId, dispute.draws, committee, dispute.deadline);
    }

    /// @inheritdoc IDisputes
    function submitVerdict(
        UnitCommitment calldata unit,
        address challenger,
        address[] calldata committee,
        bool providerCorrect,
        bytes[] calldata signatures
    ) external nonReentrant {
        (bytes32 disputeId, Dispute storage dispute) = _inPhase(unit, challenger, Phase.Judge);
        require(block.timestamp <= dispute.deadline, TurnOver(dispute.deadline));
        require(
            keccak256(abi.encode(committee)) == dispute.committeeHash && signatures.length == committee.length,
            WrongCommittee()
        );
        address[] memory signers =
            _signersOf(verdictDigest(disputeId, dispute.draws, providerCorrect), committee, signatures);
        require(signers.length >= _parameters.quorum, NoQuorum(signers.length, _parameters.quorum));
        if (providerCorrect) _acquit(disputeId, dispute, unit, signers);
        else _convict(disputeId, dispute, unit, signers);
    }

    /// @inheritdoc IDisputes
    function timeout(UnitCommitment calldata unit, address challenger) external nonReentrant {
        bytes32 disputeId = _disputeId(unit.leaf(), challenger);
        Dispute storage dispute = _disputes[disputeId];
        Phase phase = dispute.phase;
        require(phase != Phase.None && phase != Phase.Draw && phase != Phase.Over, WrongPhase(phase));
        require(block.timestamp > dispute.deadline, TurnRunning(dispute.deadline));
        address[] memory nobody = new address[](0);
        if (phase == Phase.Choose) _acquit(disputeId, dispute, unit, nobody);
        else if (phase != Phase.Judge) _convict(disputeId, dispute, unit, nobody);
        else if (dispute.draws < MAX_DRAWS) _scheduleDraw(disputeId, dispute);
        else _endWithoutVerdict(disputeId, dispute, unit.leaf());
    }

    /// @inheritdoc IDisputes
    function withhold(UnitCommitment calldata unit, uint256 batchId, uint80 price, bytes32[] calldata proof)
        external
        nonReentrant
    {
        bytes32 unitId = unit.leaf();
        Unit storage known = _units[unitId];
        require(known.open > 0 || known.condemned, UnitNotDisputed(unitId));
        escrow.withhold(batchId, unit, price, proof);
        if (known.condemned) escrow.release(unitId, false);
        else known.withheld = true;
    }

    /// @inheritdoc IDisputes
    function withdraw() external nonReentrant returns (uint256 amount) {
        amount = owed[msg.sender];
        require(amount > 0, NothingOwed());
        owed[msg.sender] = 0;
        emit Withdrawn(msg.sender, amount);
        token.safeTransfer(msg.sender, amount);
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
    function parameters() external view returns (Parameters memory) {
        return _parameters;
    }

    /// @inheritdoc IDisputes
    function verdictDigest(bytes32 disputeId, uint32 draw, bool providerCorrect) public view returns (bytes32) {
        return _hashTypedDataV4(Verdict(disputeId, draw, providerCorrect).hash());
    }

    /// @dev The provider loses: its stake by the table, the unit's pay, and what the winner spent.
    function _convict(
        bytes32 disputeId,
        Dispute storage dispute,
        UnitCommitment calldata unit,
        address[] memory signers
    ) private {
        bytes32 unitId = unit.leaf();
        if (_units[unitId].condemned) return _void(disputeId, dispute, unitId);
        _condemn(unitId);
        _close(dispute, unitId);
        (uint256 slashed, uint256 share) = staking.slash(unit.provider, OFFENCE, disputeId);
        emit ProviderConvicted(disputeId, unitId, slashed, share);
        uint256 rest = share - _payReferees(signers, share);
        uint256 cost = Math.min(rest, _parameters.challengerCost);
        _credit(dispute.challenger, _parameters.bond + cost);
        _burn(rest - cost);
    }

    /// @dev The challenger loses its bond; the unit's pay is free again once nobody else disputes it.
    function _acquit(bytes32 disputeId, Dispute storage dispute, UnitCommitment calldata unit, address[] memory signers)
        private
    {
        bytes32 unitId = unit.leaf();
        _close(dispute, unitId);
        emit ProviderAcquitted(disputeId, unitId);
        uint256 rest = _parameters.bond - _parameters.providerCost;
        _credit(unit.provider, _parameters.providerCost);
        _burn(rest - _payReferees(signers, rest));
        Unit storage known = _units[unitId];
        if (known.open == 0 && known.withheld) {
            known.withheld = false;
            escrow.release(unitId, true);
        }
    }

    /// @dev Pay only what was verified: without a verdict nobody is punished, and the unit is not paid.
    function _endWithoutVerdict(bytes32 disputeId, Dispute storage dispute, bytes32 unitId) private {
        _condemn(unitId);
        _void(disputeId, dispute, unitId);
    }

    function _void(bytes32 disputeId, Dispute storage dispute, bytes32 unitId) private {
        _close(dispute, unitId);
        emit DisputeVoided(disputeId, unitId);
        _credit(dispute.challenger, _parameters.bond);
    }

    function _condemn(bytes32 unitId) private {
        Unit storage known = _units[unitId];
        known.condemned = true;
        if (known.withheld) {
            known.withheld = false;
            escrow.release(unitId, false);
        }
    }

    function _close(Dispute storage dispute, bytes32 unitId) private {
        dispute.phase = Phase.Over;
        _units[unitId].open -= 1;
    }

    /// @dev Pays the fee to each, or what there is in equal parts.
    function _payReferees(address[] memory signers, uint256 funds) private returns (uint256 paid) {
        if (signers.length == 0) return 0;
        uint256 fee = Math.min(_parameters.refereeFee, funds / signers.length);
        for (uint256 i = 0; i < signers.length; ++i) {
            _credit(signers[i], fee);
        }
        return fee * signers.length;
    }

    function _credit(address account, uint256 amount) private {
        if (amount == 0) return;
        owed[account] += amount;
        emit Credited(account, amount);
    }

    function _burn(uint256 amount) private {
        if (amount > 0) token.burn(amount);
    }

    function _providersTurn(Dispute storage dispute) private {
        dispute.phase = dispute.hi - dispute.lo == 1 ? Phase.Open : Phase.Reveal;
        _startTurn(dispute);
    }

    function _startTurn(Dispute storage dispute) private {
        dispute.deadline = (block.timestamp + _parameters.turn).toUint40();
    }

    function _scheduleDraw(bytes32 disputeId, Dispute storage dispute) private {
        dispute.phase = Phase.Draw;
        dispute.seedBlock = (block.number + _parameters.seedDelay).toUint64();
        emit DrawScheduled(disputeId, dispute.seedBlock);
    }

    function _inTurn(UnitCommitment calldata unit, address challenger, Phase phase, address player)
        private
        view
        returns (bytes32 disputeId, Dispute storage dispute)
    {
        (disputeId, dispute) = _inPhase(unit, challenger, phase);
        require(msg.sender == player, NotYourTurn(msg.sender));
        require(block.timestamp <= dispute.deadline, TurnOver(dispute.deadline));
    }

    function _inPhase(UnitCommitment calldata unit, address challenger, Phase phase)
        private
        view
        returns (bytes32 disputeId, Dispute storage dispute)
    {
        disputeId = _disputeId(unit.leaf(), challenger);
        dispute = _disputes[disputeId];
        require(dispute.phase == phase, WrongPhase(dispute.phase));
    }

    function _requireCommitted(
        UnitCommitment calldata unit,
        bytes calldata signature,
        bytes32 windowRoot,
        bytes32[] calldata windowProof
    ) private view {
        require(
            SignatureChecker.isValidSignatureNowCalldata(unit.provider, escrow.commitmentDigest(unit), signature),
            InvalidCommitmentSignature()
        );
        require(windows.includes(windowRoot, unit, windowProof), InvalidProof());
        uint256 end = windows.windows(windowRoot).committedAt + uint256(_parameters.period);
        require(block.timestamp <= end, PeriodOver(end));
    }

    function _signersOf(bytes32 digest, address[] calldata committee, bytes[] calldata signatures)
        private
        view
        returns (address[] memory signers)
    {
        signers = new address[](committee.length);
        uint256 count = 0;
        for (uint256 i = 0; i < committee.length; ++i) {
            if (SignatureChecker.isValidSignatureNowCalldata(committee[i], digest, signatures[i])) {
                signers[count++] = committee[i];
            }
        }
        assembly ("memory-safe") {
            mstore(signers, count) // shortens the list to those who signed
        }
    }

    function _requireInTrace(
        UnitCommitment calldata unit,
        uint16 boundary,
        bytes32 state,
        bytes32 environment,
        bytes32[] calldata proof
    ) private pure {
        bytes32 leaf = unit.traceLeaf(boundary, state, environment);
        require(MerkleProof.verifyCalldata(proof, unit.traceRoot, leaf), InvalidProof());
    }

    function _disputeId(bytes32 unitId, address challenger) private pure returns (bytes32) {
        return keccak256(abi.encode(unitId, challenger));
    }
}
