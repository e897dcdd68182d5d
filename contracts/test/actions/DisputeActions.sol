// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Disputes} from "../../src/Disputes.sol";
import {IDisputes} from "../../src/interfaces/IDisputes.sol";
import {JobEscrow} from "../../src/JobEscrow.sol";
import {UnitCommitment} from "../../src/Messages.sol";
import {Omissions} from "../../src/Omissions.sol";
import {ProviderStaking} from "../../src/ProviderStaking.sol";
import {Treasury} from "../../src/Treasury.sol";
import {ZenToken} from "../../src/ZenToken.sol";
import {DisputeRecords} from "./DisputeRecords.sol";
import {OmissionActions} from "./OmissionActions.sol";
import {Traces} from "../base/Traces.sol";

/// @notice Random calls of challengers, workers, referees and others around real disputes. None may revert.
contract DisputeActions is DisputeRecords, OmissionActions {
    using Traces for UnitCommitment;

    mapping(bytes32 occasion => bool) private proven;

    function setUp() public override {
        super.setUp();
        for (uint256 i = 0; i < stakers(); ++i) {
            _stake(staker(i), 5_000 ether);
            stakedBy[staker(i)] = 5_000 ether;
        }
        for (uint256 i = 0; i < REFEREES; ++i) {
            vm.prank(referees[i]);
            disputeContract.registerReferee();
        }
        this.requestUnstake(0, 4_000 ether); // then a slash exceeds the remaining stake
        for (uint32 i = 0; i < 3; ++i) {
            this.openJob(20, 1 ether, 1 days);
            this.settle(i, i);
        }
    }

    /// @dev Commits a unit in a window before its batch is posted, if it ever is.
    function commitUnit(uint256 pick, uint256 workerPick) external {
        if (jobIds.length == 0) return;
        bytes32 jobId = jobIds[pick % jobIds.length];
        UnitCommitment[] memory units = new UnitCommitment[](1);
        units[0] =
            _committedUnit(jobId, escrow.jobs(jobId).nextRound, uint32((workerPick >> 8) % 2), worker(workerPick));
        _commit(units);
    }

    /// @dev Disputes any unit, or the last disputed one again. Often withholds its pay at once.
    function challenge(uint256 pick, uint256 seed) external recorded {
        if (workUnits.length == 0) return;
        seed = uint256(keccak256(abi.encode(pick, seed)));
        uint256 index = pick % workUnits.length;
        if (seed & 3 == 0 && disputeIds.length > 0) index = _workIndexOf(disputeIds.length - 1);
        _challenge(workUnits[index], challenger(seed >> 24));
        if (seed >> 32 & 1 == 0) _withholdUnit(workUnits[index]);
    }

    /// @dev Makes up to four calls of one dispute.
    function actInDispute(uint256 pick, uint256 seed) external recorded {
        if (openIds.length == 0) return;
        bytes32 id = openIds[pick % openIds.length];
        for (uint256 i = 0; i <= seed % 4 && _isOpen(id); ++i) {
            _act(id, uint256(keccak256(abi.encode(seed, i))));
            _recordPendingLogs();
        }
    }

    function withholdUnit(uint256 pick) external recorded {
        if (disputeIds.length > 0) _withholdUnit(workUnits[_workIndexOf(pick % disputeIds.length)]);
    }

    function settleUnits() external recorded {
        _settleUnits();
    }

    function withdrawCredits(uint256 pick) external recorded {
        _withdrawCredits(party(pick));
    }

    /// @dev Registers, evicts or resigns a referee.
    function changeReferees(uint256 pick) external {
        address account = referees[pick % REFEREES];
        bool qualified = staking.qualifies(account, 0);
        if (
            !disputeContract.isReferee(account)
                || (disputeContract.listedUntil(account) < block.timestamp && pick >> 130 & 1 == 0)
        ) {
            if (!qualified) return;
            vm.prank(account);
            disputeContract.registerReferee();
        } else if (disputeContract.pendingDraws() == 0) {
            if (!qualified || disputeContract.listedUntil(account) < block.timestamp) {
                return disputeContract.evict(account);
            }
            if (pick >> 128 & 3 > 0) return;
            vm.prank(account);
            disputeContract.resign();
        }
    }

    /// @dev Proves equivocation or a dissenting verdict of a committee member. A second proof fails, as does a
    /// late proof of a dissenting verdict.
    function proveMisconduct(uint256 pick, uint256 seat, bool correct) external recorded {
        if (disputeIds.length == 0) return;
        bytes32 id = disputeIds[pick % disputeIds.length];
        address[] memory committee = committeeOf[id];
        if (committee.length == 0 || keccak256(abi.encode(committee)) != disputeContract.disputes(id).committee) {
            return;
        }
        seat %= committee.length;
        uint8 draw = disputeContract.disputes(id).draw;
        bytes[] memory signatures = _verdicts(id, correct, committee, committee.length);
        bytes memory opposite = _verdicts(id, !correct, committee, committee.length)[seat];
        bytes memory call;
        if (pick >> 128 & 1 == 0) {
            (bytes memory yes, bytes memory no) = correct ? (signatures[seat], opposite) : (opposite, signatures[seat]);
            call = abi.encodeCall(disputeContract.proveContradiction, (id, draw, yes, no));
        } else {
            signatures[seat] = opposite;
            call = abi.encodeCall(disputeContract.proveWrongVerdict, (id, correct, committee, signatures, seat));
        }
        (bool done,) = address(disputeContract).call(call);
        bytes32 occasion = keccak256(abi.encode(id, draw, committee[seat], pick >> 128 & 1));
        bool late = pick >> 128 & 1 == 1 && _provenTooLate(id);
        require(done == !(late || proven[occasion]), "a proof must succeed once and in time only");
        proven[occasion] = true;
    }

    function _provenTooLate(bytes32 id) private view returns (bool) {
        return block.timestamp > uint256(disputeContract.disputes(id).deadline) + DISPUTE_PERIOD;
    }

    /// @dev Calls less related to disputes.
    function other(uint256 kind, uint256 pick, uint96 amount) external {
        kind %= 9;
        if (kind == 0) this.stake(pick, amount);
        else if (kind == 1) this.requestUnstake(pick, amount);
        else if (kind == 2) this.withdraw(pick);
        else if (kind == 3) this.slash(pick, uint8(amount));
        else if (kind == 4) this.release(pick);
        else if (kind == 5) this.pause(amount & 1 == 0);
        else if (kind == 6) this.collectFees(pick);
        else if (kind == 7) this.cancel(pick);
        else this.refund(pick);
    }

    /// @dev Advances minutes; `wait` advances days.
    function tick(uint256 time) external {
        vm.warp(block.timestamp + _bound(time, 1, 90 minutes));
        vm.roll(block.number + 1 + time % 8);
    }

    /// @dev All accounts withdraw their due amounts. No call may fail, also while intake is paused.
    function exitAll() external recorded {
        _later(60 days);
        for (uint256 i = 0; i < disputeIds.length; ++i) {
            while (_isOpen(disputeIds[i])) {
                _awaitEnd(disputeIds[i]);
                _recordPendingLogs(); // records the committee
            }
        }
        _settleUnits();
        _payAll();
        for (uint256 i = 0; i < parties(); ++i) {
            _withdrawCredits(party(i));
        }
        _later(5 days);
        _endOmissions();
        _unstakeAll();
    }

    function network()
        external
        view
        returns (ZenToken, Treasury, ProviderStaking, JobEscrow, Disputes, Omissions, address)
    {
        return (token, treasury, staking, escrow, disputeContract, omissions, payer);
    }

    function _challenge(WorkUnit memory work, address account) private {
        bytes32 id = disputeContract.disputeIdOf(work.unitId, account);
        bool over = block.timestamp > work.committedAt + DISPUTE_PERIOD;
        if (
            over || disputeContract.units(work.unitId).convicted
                || disputeContract.disputes(id).challenger != address(0)
        ) return;
        token.transfer(account, BOND);
        vm.prank(account);
        token.approve(address(disputeContract), BOND);
        bytes memory signature = _commitmentSignature(work.unit);
        vm.prank(account);
        disputeContract.open(orderOf[work.unit.jobId], work.unit, signature, work.windowRoot, work.windowProof);
        disputeIds.push(id);
        openIds.push(id);
    }

    function _withholdUnit(WorkUnit memory work) private {
        Pay memory pay = payOf[work.unitId];
        if (work.batchId == 0 || vetoed[work.batchId] || isHeld(work.unitId) || pay.forfeited) return;
        (Bill memory bill, bool over) = _billAt(work.batchId);
        IDisputes.Unit memory unit = disputeContract.units(work.unitId);
        if (over || (unit.open == 0 && !unit.unpaid)) return;
        disputeContract.withhold(work.unit, work.batchId, bill.prices[work.index], _unitProof(bill, work.index));
    }

    function _act(bytes32 id, uint256 seed) private {
        IDisputes.Dispute memory d = disputeContract.disputes(id);
        UnitCommitment memory unit = workUnits[workIndex[d.unitId] - 1].unit;
        if (disputeContract.units(d.unitId).convicted) {
            disputeContract.dismiss(id);
        } else if (block.timestamp > d.deadline || seed >> 40 & 3 == 0) {
            _awaitEnd(id);
        } else if (d.status == IDisputes.Status.Trace) {
            if (unit.hasDuplicateBoundary()) _awaitEnd(id); // cannot be revealed
            else disputeContract.showTrace(id, unit, Traces.ENVIRONMENT, unit.states());
        } else if (d.status == IDisputes.Status.Step) {
            vm.prank(d.challenger);
            disputeContract.nameStep(id, uint16((seed >> 8) % Traces.SEGMENTS));
        } else if (d.status == IDisputes.Status.Drawing) {
            if (block.number <= d.seedBlock) vm.roll(d.seedBlock + (seed >> 16 & 7 == 0 ? 257 : 1));
            disputeContract.drawCommittee(id);
        } else {
            bool correct = seed >> 24 & 1 == 0;
            address[] memory committee = committeeOf[id];
            disputeContract.submitVerdict(id, correct, committee, _verdicts(id, correct, committee, (seed >> 32) % 4));
        }
    }

    /// @dev Advances a dispute towards its end without any party's response.
    function _awaitEnd(bytes32 id) private {
        IDisputes.Dispute memory d = disputeContract.disputes(id);
        if (disputeContract.units(d.unitId).convicted) {
            disputeContract.dismiss(id);
        } else if (d.status == IDisputes.Status.Drawing) {
            if (block.number <= d.seedBlock) vm.roll(d.seedBlock + 1);
            disputeContract.drawCommittee(id);
        } else {
            if (block.timestamp <= d.deadline) vm.warp(d.deadline + 1);
            if (d.status == IDisputes.Status.Judging) _replace(id);
            else disputeContract.expire(id);
        }
    }

    /// @dev Members with a signature keep their entries; the others are delisted.
    function _replace(bytes32 id) private {
        address[] memory committee = committeeOf[id];
        uint256 signed = disputeContract.signedSeats(id);
        uint256[] memory until = new uint256[](committee.length);
        for (uint256 i = 0; i < committee.length; ++i) {
            until[i] = disputeContract.listedUntil(committee[i]);
        }
        disputeContract.replaceCommittee(id, committee);
        for (uint256 i = 0; i < committee.length; ++i) {
            uint256 left = disputeContract.listedUntil(committee[i]);
            if (signed >> i & 1 == 1) require(left == until[i], "delisted despite a signature");
            else require(left < block.timestamp, "still listed without a signature");
        }
    }

    /// @dev Pays or refunds all held payouts that are due.
    function _settleUnits() private {
        for (uint256 i = 0; i < disputeIds.length; ++i) {
            bytes32 unitId = disputeContract.disputes(disputeIds[i]).unitId;
            IDisputes.Unit memory unit = disputeContract.units(unitId);
            if (unit.unpaid && isHeld(unitId)) _refundForfeited(unitId);
            bool cleared = !unit.unpaid && unit.open == 0 && block.timestamp > unit.disputableUntil;
            (bool done,) = address(disputeContract).call(abi.encodeCall(disputeContract.restore, (unitId)));
            require(done == cleared, "restored if and only if all disputes were survived");
            _recordPendingLogs();
        }
    }

    function _refundForfeited(bytes32 unitId) private {
        (, bool over) = _billAt(payOf[unitId].batchId);
        if (over) escrow.returnStruck(unitId);
    }

    function _workIndexOf(uint256 index) private view returns (uint256) {
        return workIndex[disputeContract.disputes(disputeIds[index]).unitId] - 1;
    }

    function _withdrawCredits(address account) private {
        uint256 amount = disputeContract.credits(account);
        if (amount == 0) return;
        vm.prank(account);
        disputeContract.withdraw();
        creditsTaken[account] += amount;
    }
}
