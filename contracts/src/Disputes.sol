// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {Blockhash} from "@openzeppelin/contracts/utils/Blockhash.sol";
import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";
import {Multicall} from "@openzeppelin/contracts/utils/Multicall.sol";
import {Challenges} from "./base/Challenges.sol";
import {Referees} from "./base/Referees.sol";
import {Verdicts} from "./base/Verdicts.sol";
import {IDisputeEscrow, IDisputes, IDisputeStaking} from "./interfaces/IDisputes.sol";
import {IWorkWindows} from "./interfaces/IWorkWindows.sol";
import {IZenToken} from "./interfaces/IZenToken.sol";
import {Messages, UnitCommitment} from "./Messages.sol";

/// @title Disputes over work units: verdict, penalty and payout
/// @dev Holds the bonds of open disputes and the credits, nothing else. No amount is computed from the token balance.
contract Disputes is Verdicts, Multicall {
    using Messages for UnitCommitment;
    using SafeERC20 for IZenToken;

    /// @notice Row of the penalty table for the losing provider. A timeout has the same penalty as an incorrect
    /// segment. Otherwise a timeout would be the cheaper choice for a dishonest provider.
    uint8 public constant OFFENCE = 2;
    uint256 private constant MAX_SEATS = 15; // bounds the gas of a draw and of a verdict

    uint96 private immutable _cost;
    uint96 private immutable _refereeFee;
    uint40 private immutable _verdictPeriod;
    uint8 private immutable _seedDelay;
    uint8 private immutable _seats;
    uint8 private immutable _quorum;
    uint8 private immutable _maxDraws;

    /// @inheritdoc IDisputes
    mapping(address account => uint256) public credits;

    mapping(bytes32 step => bool) private _foundCorrect;

    /// @param zen The ZEN token.
    /// @param staking_ Staking contract; this contract needs DISPUTES_ROLE there.
    /// @param windows_ Contract of the commitment windows.
    /// @param escrow_ Escrow of the jobs; this contract needs DISPUTES_ROLE there.
    /// @param terms_ The terms; see IDisputes. The bond must cover the winner's cost and the fees of a full committee.
    constructor(
        IZenToken zen,
        IDisputeStaking staking_,
        IWorkWindows windows_,
        IDisputeEscrow escrow_,
        Terms memory terms_
    ) Challenges(zen, windows_, escrow_, terms_) Referees(staking_) {
        require(terms_.verdictPeriod > 0, InvalidParameter("verdictPeriod"));
        require(terms_.seedDelay > 0 && terms_.seedDelay <= 200, InvalidParameter("seedDelay"));
        require(terms_.seats > 0 && terms_.seats <= MAX_SEATS, InvalidParameter("seats"));
        require(terms_.quorum <= terms_.seats && 2 * uint256(terms_.quorum) > terms_.seats, InvalidParameter("quorum"));
        require(terms_.maxDraws > 0, InvalidParameter("maxDraws"));
        uint256 costs = terms_.cost + uint256(terms_.refereeFee) * terms_.seats;
        require(terms_.bond >= costs, InvalidParameter("bond"));
        _cost = terms_.cost;
        _refereeFee = terms_.refereeFee;
        _verdictPeriod = terms_.verdictPeriod;
        _seedDelay = terms_.seedDelay;
        _seats = terms_.seats;
        _quorum = terms_.quorum;
        _maxDraws = terms_.maxDraws;
    }

    /// @inheritdoc IDisputes
    function rejectLate(bytes32 disputeId, bytes32 windowRoot, bytes32[] calldata windowProof) external nonReentrant {
        Dispute storage dispute = _requirePhase(disputeId, Status.Trace);
        uint40 end = _limitDisputes(dispute.unitId, windowRoot, windowProof);
        require(dispute.deadline - _responsePeriod > end, OpenedInTime(end));
        _reject(disputeId, new address[](0));
    }

    /// @inheritdoc IDisputes
    function drawCommittee(bytes32 disputeId) external nonReentrant returns (address[] memory committee) {
        Dispute storage dispute = _requirePhase(disputeId, Status.Drawing);
        require(block.number > dispute.seedBlock, SeedNotReady(dispute.seedBlock));
        bytes32 blockHash = Blockhash.blockHash(dispute.seedBlock);
        if (blockHash == 0) {
            _fixSeedBlock(dispute);
            emit DrawScheduled(disputeId, dispute.draw, dispute.seedBlock, dispute.pool);
            return committee;
        }
        --pendingDraws;
        bytes32 seed = keccak256(abi.encode(blockHash, disputeId, dispute.draw));
        address[3] memory parties = [dispute.provider, dispute.challenger, dispute.payer];
        Draw memory by = Draw(seed, dispute.pool, _seats, dispute.listedBy, dispute.scheduledAt);
        (address[] memory drawn, bool complete) = _drawReferees(by, parties);
        if (complete) {
            committee = drawn;
            dispute.committee = keccak256(abi.encode(committee));
            emit CommitteeDrawn(disputeId, dispute.draw, committee);
            _startPhase(disputeId, Status.Judging, _verdictPeriod);
        } else {
            _redraw(disputeId);
        }
    }

    /// @inheritdoc IDisputes
    function submitVerdict(
        bytes32 disputeId,
        bool providerCorrect,
        address[] calldata committee,
        bytes[] calldata signatures
    ) external nonReentrant {
        Dispute storage dispute = _requirePhase(disputeId, Status.Judging);
        (uint256 votes, SeatVotes memory seatVotes) = _countVotes(disputeId, providerCorrect, committee, signatures);
        if (votes < _quorum) return _storePartialVotes(disputeId, providerCorrect, seatVotes);
        address[] memory signers = _verdictSigners(committee, seatVotes);
        emit VerdictGiven(disputeId, dispute.draw, providerCorrect, votes);
        if (providerCorrect) {
            _foundCorrect[_segmentKey(dispute)] = true;
            _reject(disputeId, signers);
        } else {
            _uphold(disputeId, signers);
        }
    }

    /// @inheritdoc IDisputes
    function expire(bytes32 disputeId) external nonReentrant {
        Dispute storage dispute = _requireOpen(disputeId);
        require(dispute.status != Status.Judging, WrongStatus(disputeId, Status.Judging));
        _requireDeadlinePassed(dispute);
        if (dispute.status == Status.Step) _reject(disputeId, new address[](0));
        else _uphold(disputeId, new address[](0));
    }

    /// @inheritdoc IDisputes
    function replaceCommittee(bytes32 disputeId, address[] calldata committee) external nonReentrant {
        Dispute storage dispute = _disputes[disputeId];
        require(dispute.status == Status.Judging, WrongStatus(disputeId, dispute.status));
        _requireDeadlinePassed(dispute);
        _requireCommittee(disputeId, committee);
        uint256 signed = signedSeats(disputeId);
        for (uint256 i = 0; i < committee.length; ++i) {
            if (signed & (1 << i) == 0) _delist(committee[i]);
        }
        _redraw(disputeId);
    }

    /// @inheritdoc IDisputes
    function dismiss(bytes32 disputeId) external nonReentrant {
        Dispute storage dispute = _requireOpen(disputeId);
        require(_units[dispute.unitId].convicted, UnitNotConvicted(dispute.unitId));
        if (dispute.status == Status.Drawing) --pendingDraws;
        _credit(disputeId, dispute.challenger, _bond);
        _close(disputeId, Status.Moot, 0);
    }

    /// @inheritdoc IDisputes
    function withhold(UnitCommitment calldata unit, uint256 batchId, uint80 price, bytes32[] calldata proof)
        external
        nonReentrant
    {
        bytes32 unitId = unit.leaf();
        bool unpaid = _units[unitId].unpaid;
        require(unpaid || _units[unitId].open > 0, NotDisputed(unitId));
        escrow.withhold(batchId, unit, price, proof);
        if (unpaid) escrow.release(unitId, false);
    }

    /// @inheritdoc IDisputes
    function restore(bytes32 unitId) external nonReentrant {
        require(_isCleared(unitId), NotRestorable(unitId, _units[unitId].disputableUntil));
        escrow.release(unitId, true);
    }

    /// @inheritdoc IDisputes
    function withdraw() external nonReentrant {
        uint256 amount = credits[msg.sender];
        require(amount > 0, NothingToWithdraw());
        credits[msg.sender] = 0;
        emit Withdrawn(msg.sender, amount);
        token.safeTransfer(msg.sender, amount);
    }

    /// @inheritdoc IDisputes
    function terms() external view returns (Terms memory) {
        return Terms({
            bond: _bond,
            cost: _cost,
            refereeFee: _refereeFee,
            disputePeriod: _disputePeriod,
            turnPeriod: _responsePeriod,
            verdictPeriod: _verdictPeriod,
            seedDelay: _seedDelay,
            seats: _seats,
            quorum: _quorum,
            maxDraws: _maxDraws
        });
    }

    /// @inheritdoc Challenges
    function _decide(bytes32 disputeId) internal override {
        if (_foundCorrect[_segmentKey(_disputes[disputeId])]) _reject(disputeId, new address[](0));
        else _scheduleDraw(disputeId);
    }

    function _scheduleDraw(bytes32 disputeId) private {
        Dispute storage dispute = _disputes[disputeId];
        (dispute.status, dispute.deadline) = (Status.Drawing, NO_DEADLINE);
        dispute.pool = SafeCast.toUint32(refereeCount());
        _fixSeedBlock(dispute);
        if (dispute.listedBy == 0) dispute.listedBy = dispute.scheduledAt;
        ++pendingDraws;
        emit DrawScheduled(disputeId, dispute.draw, dispute.seedBlock, dispute.pool);
    }

    /// @dev Expired entries at this moment are known before the seed. Later changes do not affect the draw.
    function _fixSeedBlock(Dispute storage dispute) private {
        dispute.seedBlock = SafeCast.toUint64(block.number + _seedDelay);
        dispute.scheduledAt = SafeCast.toUint40(block.timestamp);
    }

    function _redraw(bytes32 disputeId) private {
        Dispute storage dispute = _disputes[disputeId];
        if (dispute.draw + 1 < _maxDraws) {
            ++dispute.draw;
            _scheduleDraw(disputeId);
            return;
        }
        _units[dispute.unitId].unpaid = true;
        _credit(disputeId, dispute.challenger, _bond);
        _close(disputeId, Status.Undecided, 0);
        escrow.release(dispute.unitId, false);
    }

    /// @dev Upholds the dispute. The dispute share of the penalty covers the challenger first, then the referees; the
    /// rest is burned. The bond returns even if the slashable balance is zero.
    function _uphold(bytes32 disputeId, address[] memory signers) private {
        Dispute storage dispute = _disputes[disputeId];
        Unit storage unit = _units[dispute.unitId];
        (unit.unpaid, unit.convicted) = (true, true);
        (, uint256 share) = staking.slash(dispute.provider, OFFENCE, disputeId);
        uint256 cost = Math.min(share, _cost);
        _credit(disputeId, dispute.challenger, _bond + cost);
        _close(disputeId, Status.ProviderLost, _payReferees(disputeId, signers, share - cost));
        escrow.release(dispute.unitId, false);
    }

    /// @dev Rejects the dispute. The bond covers the provider and the referees; the rest is burned.
    function _reject(bytes32 disputeId, address[] memory signers) private {
        Dispute storage dispute = _disputes[disputeId];
        _credit(disputeId, dispute.provider, _cost);
        _close(disputeId, Status.ChallengerLost, _payReferees(disputeId, signers, _bond - _cost));
        if (_isCleared(dispute.unitId)) escrow.release(dispute.unitId, true);
    }

    /// @dev Credits each signer of the verdict the same fee, limited by the funds divided by all seats. Returns the
    /// rest. A fee divided among the signers only would reward members that submit the verdict without the other
    /// signatures.
    function _payReferees(bytes32 disputeId, address[] memory signers, uint256 funds) private returns (uint256 left) {
        uint256 fee = Math.min(_refereeFee, funds / _seats);
        left = funds;
        for (uint256 i = 0; i < signers.length; ++i) {
            if (signers[i] == address(0)) continue;
            _credit(disputeId, signers[i], fee);
            left -= fee;
        }
    }

    function _close(bytes32 disputeId, Status outcome, uint256 leftOver) private {
        Dispute storage dispute = _disputes[disputeId];
        dispute.status = outcome;
        --_units[dispute.unitId].open;
        emit DisputeEnded(disputeId, dispute.unitId, outcome, leftOver);
        if (leftOver > 0) token.burn(leftOver);
    }

    function _credit(bytes32 disputeId, address account, uint256 amount) private {
        credits[account] += amount;
        emit Credited(disputeId, account, amount);
    }

    function _requireOpen(bytes32 disputeId) private view returns (Dispute storage dispute) {
        dispute = _disputes[disputeId];
        require(
            dispute.status >= Status.Trace && dispute.status <= Status.Judging, WrongStatus(disputeId, dispute.status)
        );
    }

    function _requireDeadlinePassed(Dispute storage dispute) private view {
        _requireNotConvicted(dispute.unitId);
        require(block.timestamp > dispute.deadline, TurnNotOver(dispute.deadline));
    }

    /// @dev Unit and segment number identify a segment with its states, since the unit's root has exactly one trace.
    function _segmentKey(Dispute storage dispute) private view returns (bytes32) {
        return keccak256(abi.encode(dispute.unitId, dispute.step));
    }

    /// @dev Returns whether the unit was disputed, survived, and cannot be disputed any more.
    function _isCleared(bytes32 unitId) private view returns (bool) {
        Unit memory unit = _units[unitId];
        return unit.disputableUntil > 0 && block.timestamp > unit.disputableUntil && unit.open == 0 && !unit.unpaid;
    }
}
