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
import {CourtBooks} from "./CourtBooks.sol";
import {OmissionActions} from "./OmissionActions.sol";
import {Traces} from "./Traces.sol";

/// @notice Random moves of challengers, workers, referees and everybody else around real disputes. None may revert.
contract CourtActions is CourtBooks, OmissionActions {
    using Traces for UnitCommitment;

    mapping(bytes32 occasion => bool) private betrayed;

    function setUp() public override {
        super.setUp();
        for (uint256 i = 0; i < stakers(); ++i) {
            _stake(staker(i), 5_000 ether);
            stakedBy[staker(i)] = 5_000 ether;
        }
        for (uint256 i = 0; i < REFEREES; ++i) {
            vm.prank(referees[i]);
            court.registerReferee();
        }
        this.requestUnstake(0, 4_000 ether); // so that a slash takes more than the stake that is left
        for (uint32 i = 0; i < 3; ++i) {
            this.openJob(20, 1 ether, 1 days);
            this.settle(i, i);
        }
    }

    /// @dev A result that is in a window before its batch is posted, if it ever is.
    function finish(uint256 pick, uint256 who) external {
        if (jobIds.length == 0) return;
        bytes32 jobId = jobIds[pick % jobIds.length];
        UnitCommitment[] memory units = new UnitCommitment[](1);
        units[0] = _done(jobId, escrow.jobs(jobId).nextRound, uint32((who >> 8) % 2), worker(who));
        _commit(units);
    }

    /// @dev Of any unit, or again of the one disputed last; often with its pay withheld at once.
    function challenge(uint256 pick, uint256 seed) external booked {
        if (works.length == 0) return;
        seed = uint256(keccak256(abi.encode(pick, seed)));
        uint256 index = pick % works.length;
        if (seed & 3 == 0 && disputeIds.length > 0) index = _workOfDispute(disputeIds.length - 1);
        _challenge(works[index], challenger(seed >> 24));
        if (seed >> 32 & 1 == 0) _withholdUnit(works[index]);
    }

    /// @dev Some moves of one dispute: by whose turn it is, or by whom it bores.
    function play(uint256 pick, uint256 seed) external booked {
        if (openIds.length == 0) return;
        bytes32 id = openIds[pick % openIds.length];
        for (uint256 i = 0; i <= seed % 4 && _isOpen(id); ++i) {
            _play(id, uint256(keccak256(abi.encode(seed, i))));
            _bookSoFar();
        }
    }

    function withholdUnit(uint256 pick) external booked {
        if (disputeIds.length > 0) _withholdUnit(works[_workOfDispute(pick % disputeIds.length)]);
    }

    function settleUnits() external booked {
        _settleUnits();
    }

    function withdrawCredits(uint256 pick) external booked {
        _withdrawCredits(party(pick));
    }

    /// @dev Referees come, go and are shown the door.
    function changeReferees(uint256 pick) external {
        address account = referees[pick % REFEREES];
        bool qualified = staking.qualifies(account, 0);
        if (!court.isReferee(account) || (court.listedUntil(account) < block.timestamp && pick >> 130 & 1 == 0)) {
            if (!qualified) return;
            vm.prank(account);
            court.registerReferee();
        } else if (court.pendingDraws() == 0) {
            if (!qualified || court.listedUntil(account) < block.timestamp) return court.evict(account);
            if (pick >> 128 & 3 > 0) return;
            vm.prank(account);
            court.resign();
        }
    }

    /// @dev A referee of the newest committee signs both ways, or against all others, and is shown to have; the same cannot be
    /// shown again, nor the latter for ever.
    function betray(uint256 pick, uint256 seat, bool correct) external booked {
        if (disputeIds.length == 0) return;
        bytes32 id = disputeIds[pick % disputeIds.length];
        address[] memory committee = committeeOf[id];
        if (committee.length == 0 || keccak256(abi.encode(committee)) != court.disputes(id).committee) return;
        seat %= committee.length;
        uint8 draw = court.disputes(id).draw;
        bytes[] memory signatures = _verdicts(id, correct, committee, committee.length);
        bytes memory opposite = _verdicts(id, !correct, committee, committee.length)[seat];
        bytes memory call;
        if (pick >> 128 & 1 == 0) {
            (bytes memory yes, bytes memory no) = correct ? (signatures[seat], opposite) : (opposite, signatures[seat]);
            call = abi.encodeCall(court.proveContradiction, (id, draw, yes, no));
        } else {
            signatures[seat] = opposite;
            call = abi.encodeCall(court.proveWrongVerdict, (id, correct, committee, signatures, seat));
        }
        (bool done,) = address(court).call(call);
        bytes32 occasion = keccak256(abi.encode(id, draw, committee[seat], pick >> 128 & 1));
        bool late = pick >> 128 & 1 == 1 && _provenTooLate(id);
        require(done == !(late || betrayed[occasion]), "a referee is punished once, and in time, for what it signed");
        betrayed[occasion] = true;
    }

    function _provenTooLate(bytes32 id) private view returns (bool) {
        return block.timestamp > uint256(court.disputes(id).deadline) + DISPUTE_PERIOD;
    }

    /// @dev Moves that disputes have less to do with.
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

    /// @dev Minutes, where `wait` takes days.
    function tick(uint256 time) external {
        vm.warp(block.timestamp + _bound(time, 1, 90 minutes));
        vm.roll(block.number + 1 + time % 8);
    }

    /// @dev Everybody takes what they are due; nothing here may fail, though intake is stopped.
    function everybodyLeaves() external booked {
        _later(60 days);
        for (uint256 i = 0; i < disputeIds.length; ++i) {
            while (_isOpen(disputeIds[i])) {
                _let(disputeIds[i]);
                _bookSoFar(); // who was drawn
            }
        }
        _settleUnits();
        _everybodyIsPaid();
        for (uint256 i = 0; i < parties(); ++i) {
            _withdrawCredits(party(i));
        }
        _later(5 days);
        _endOmissions();
        _everybodyUnstakes();
    }

    function network()
        external
        view
        returns (ZenToken, Treasury, ProviderStaking, JobEscrow, Disputes, Omissions, address)
    {
        return (token, treasury, staking, escrow, court, omissions, payer);
    }

    function _challenge(Work memory work, address account) private {
        bytes32 id = court.disputeIdOf(work.unitId, account);
        bool over = block.timestamp > work.committedAt + DISPUTE_PERIOD;
        if (over || court.units(work.unitId).convicted || court.disputes(id).challenger != address(0)) return;
        token.transfer(account, BOND);
        vm.prank(account);
        token.approve(address(court), BOND);
        bytes memory signature = _commitmentSignature(work.unit);
        vm.prank(account);
        court.open(orderOf[work.unit.jobId], work.unit, signature, work.windowRoot, work.windowProof);
        disputeIds.push(id);
        openIds.push(id);
    }

    function _withholdUnit(Work memory work) private {
        Pay memory pay = payOf[work.unitId];
        if (work.batchId == 0 || vetoed[work.batchId] || isHeld(work.unitId) || pay.struck) return;
        (Bill memory bill, bool over) = _at(work.batchId);
        IDisputes.Unit memory unit = court.units(work.unitId);
        if (over || (unit.open == 0 && !unit.unpaid)) return;
        court.withhold(work.unit, work.batchId, bill.prices[work.index], _unitProof(bill, work.index));
    }

    function _play(bytes32 id, uint256 seed) private {
        IDisputes.Dispute memory d = court.disputes(id);
        UnitCommitment memory unit = works[workOf[d.unitId] - 1].unit;
        if (court.units(d.unitId).convicted) {
            court.dismiss(id);
        } else if (block.timestamp > d.deadline || seed >> 40 & 3 == 0) {
            _let(id);
        } else if (d.status == IDisputes.Status.Trace) {
            if (unit.isDoubled()) _let(id); // cannot be shown
            else court.showTrace(id, unit, Traces.ENVIRONMENT, unit.states());
        } else if (d.status == IDisputes.Status.Step) {
            vm.prank(d.challenger);
            court.nameStep(id, uint16((seed >> 8) % Traces.SEGMENTS));
        } else if (d.status == IDisputes.Status.Drawing) {
            if (block.number <= d.seedBlock) vm.roll(d.seedBlock + (seed >> 16 & 7 == 0 ? 257 : 1));
            court.drawCommittee(id);
        } else {
            bool correct = seed >> 24 & 1 == 0;
            address[] memory committee = committeeOf[id];
            court.submitVerdict(id, correct, committee, _verdicts(id, correct, committee, (seed >> 32) % 4));
        }
    }

    /// @dev Does nothing but wait for the end of a dispute.
    function _let(bytes32 id) private {
        IDisputes.Dispute memory d = court.disputes(id);
        if (court.units(d.unitId).convicted) {
            court.dismiss(id);
        } else if (d.status == IDisputes.Status.Drawing) {
            if (block.number <= d.seedBlock) vm.roll(d.seedBlock + 1);
            court.drawCommittee(id);
        } else {
            if (block.timestamp <= d.deadline) vm.warp(d.deadline + 1);
            if (d.status == IDisputes.Status.Judging) _replace(id);
            else court.expire(id);
        }
    }

    /// @dev Who has signed keeps its entry to the second, who has not has none any more.
    function _replace(bytes32 id) private {
        address[] memory committee = committeeOf[id];
        uint256 signed = court.signedSeats(id);
        uint256[] memory until = new uint256[](committee.length);
        for (uint256 i = 0; i < committee.length; ++i) {
            until[i] = court.listedUntil(committee[i]);
        }
        court.replaceCommittee(id, committee);
        for (uint256 i = 0; i < committee.length; ++i) {
            uint256 left = court.listedUntil(committee[i]);
            if (signed >> i & 1 == 1) require(left == until[i], "struck though it signed");
            else require(left < block.timestamp, "still listed though it was silent");
        }
    }

    /// @dev Pays or returns what can be of the withheld.
    function _settleUnits() private {
        for (uint256 i = 0; i < disputeIds.length; ++i) {
            bytes32 unitId = court.disputes(disputeIds[i]).unitId;
            IDisputes.Unit memory unit = court.units(unitId);
            if (unit.unpaid && isHeld(unitId)) _returnStruck(unitId);
            bool cleared = !unit.unpaid && unit.open == 0 && block.timestamp > unit.disputableUntil;
            (bool done,) = address(court).call(abi.encodeCall(court.restore, (unitId)));
            require(done == cleared, "restored if and only if it survived its disputes");
            _bookSoFar();
        }
    }

    function _returnStruck(bytes32 unitId) private {
        (, bool over) = _at(payOf[unitId].batchId);
        if (over) escrow.returnStruck(unitId);
    }

    function _workOfDispute(uint256 index) private view returns (uint256) {
        return workOf[court.disputes(disputeIds[index]).unitId] - 1;
    }

    function _withdrawCredits(address account) private {
        uint256 amount = court.credits(account);
        if (amount == 0) return;
        vm.prank(account);
        court.withdraw();
        creditsTaken[account] += amount;
    }
}
