// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IJobEscrow} from "../../src/interfaces/IJobEscrow.sol";
import {JobOrder} from "../../src/Messages.sol";
import {Settlements} from "../base/Settlements.sol";

/// @notice Exits of payers: refunds and cancellations.
contract JobEscrowRefundTest is Settlements {
    bytes32 private jobId; // 12 units, 1 ZEN
    uint40 private end; // end of the settlement period

    function setUp() public override {
        super.setUp();
        JobOrder memory order = _order(12, 1 ether);
        jobId = _open(order);
        end = order.waitUntil + REFUND_DELAY;
    }

    function test_refundAndSettlement_neverOverlap() public {
        vm.warp(end);
        _expectTooEarly(end);
        escrow.refund(jobId);
        vm.warp(end + 1);
        _expectPostRefused(
            _billFor(_line(jobId, 0, 1, true), 1, 0), abi.encodeWithSelector(IJobEscrow.SettlementEnded.selector, end)
        );

        vm.expectEmit(address(escrow));
        emit IJobEscrow.JobRefunded(jobId, payer, 1 ether);
        vm.prank(thirdParty); // any caller; the payer receives it
        escrow.refund(jobId);
        vm.assertEq(token.balanceOf(payer), 1_000_000 ether);
        vm.assertEq(escrow.jobs(jobId).escrowed, 0);
        _expectNotOpen(jobId, IJobEscrow.State.Refunded);
        escrow.refund(jobId);
    }

    function test_settlement_worksUntilLastSecond() public {
        vm.warp(end);
        _post(_billFor(_line(jobId, 0, 1, true), 1, 0));
    }

    function test_refund_returnsUnsettledEscrow() public {
        Bill memory bill = _post(_billFor(_line(jobId, 0, 1, false), 2, 1));
        vm.warp(end + 1);
        escrow.refund(jobId);
        vm.assertEq(token.balanceOf(payer), 1_000_000 ether - 3 * UNIT);
        _claim(bill, 0); // settled pay stays settled
        _claim(bill, 1);
        _collect(bill);
        vm.assertEq(token.balanceOf(ALICE), 2 * NET);
        vm.assertEq(token.balanceOf(address(escrow)), 0);
    }

    function test_refund_revertsForUnknownJob() public {
        _expectNotOpen(bytes32(0), IJobEscrow.State.None);
        escrow.refund(bytes32(0));
    }

    function test_cancelledJob_endsEarly() public {
        uint40 settleBy = uint40(block.timestamp) + CANCEL_DELAY;
        vm.expectEmit(address(escrow));
        emit IJobEscrow.JobCancelled(jobId, settleBy);
        vm.prank(payer);
        escrow.cancel(jobId);
        vm.assertEq(escrow.jobs(jobId).settleBy, settleBy);

        vm.warp(settleBy); // completed units can still be settled
        _expectTooEarly(settleBy);
        escrow.refund(jobId);
        _post(_billFor(_line(jobId, 0, 1, false), 1, 0));
        vm.warp(settleBy + 1);
        escrow.refund(jobId);
        vm.assertEq(token.balanceOf(payer), 1_000_000 ether - UNIT);
    }

    function test_cancel_revertsForNonPayer() public {
        vm.prank(operator);
        vm.expectRevert(abi.encodeWithSelector(IJobEscrow.NotPayer.selector, operator));
        escrow.cancel(jobId);
    }

    /// @dev A second cancellation must not move the deadline. Otherwise a payer could keep a job open indefinitely.
    function test_cancel_worksOnceAndOnlyShortens() public {
        vm.prank(payer);
        escrow.cancel(jobId);
        uint40 settleBy = escrow.jobs(jobId).settleBy;
        vm.warp(block.timestamp + 1);
        _expectAlreadyCancelled(settleBy);
        escrow.cancel(jobId);

        JobOrder memory order = _order(1, 1 ether);
        bytes32 late = _open(order);
        uint40 itsEnd = order.waitUntil + REFUND_DELAY;
        vm.warp(itsEnd - CANCEL_DELAY);
        _expectAlreadyCancelled(itsEnd);
        escrow.cancel(late);
        vm.warp(itsEnd - CANCEL_DELAY - 1);
        vm.prank(payer);
        escrow.cancel(late);
    }

    function test_cancel_revertsForEndedJob() public {
        _post(_billFor(_line(jobId, 0, 0, true), 0, 0));
        vm.prank(payer);
        _expectNotOpen(jobId, IJobEscrow.State.Settled);
        escrow.cancel(jobId);
    }

    /// @dev A cancellation before a settlement does not change it.
    function test_cancel_allowsSettlementUntilDeadline() public {
        Bill memory bill = _billFor(_line(jobId, 0, 1, true), 3, 0);
        vm.prank(payer);
        escrow.cancel(jobId);
        vm.assertEq(_post(bill).batchId, 1);
    }

    function test_exits_stayOpenDuringPause() public {
        JobOrder memory order = _order(2, 1 ether);
        bytes32 abandoned = _open(order);
        Bill memory bill = _billFor(_line(jobId, 0, 1, true), 2, 1);
        vm.prank(guardian);
        escrow.pause();
        _post(bill);
        bytes32 unitId = _withhold(bill, 0);
        vm.prank(payer);
        escrow.cancel(abandoned);
        vm.warp(escrow.jobs(abandoned).settleBy + 2 days);
        vm.prank(guardian);
        escrow.pause();
        escrow.refund(abandoned);
        _claim(bill, 0);
        _claim(bill, 1);
        _collect(bill);
        _release(unitId, true);
        _collect(bill);
        vm.assertEq(token.balanceOf(address(escrow)), 0);
    }

    function _expectTooEarly(uint256 settleBy) private {
        vm.expectRevert(abi.encodeWithSelector(IJobEscrow.RefundTooEarly.selector, settleBy));
    }

    function _expectNotOpen(bytes32 job, IJobEscrow.State state) private {
        vm.expectRevert(abi.encodeWithSelector(IJobEscrow.JobNotOpen.selector, job, state));
    }

    function _expectAlreadyCancelled(uint256 settleBy) private {
        vm.prank(payer);
        vm.expectRevert(abi.encodeWithSelector(IJobEscrow.AlreadyCancelled.selector, settleBy));
    }
}
