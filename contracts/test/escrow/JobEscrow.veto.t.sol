// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Hashes} from "@openzeppelin/contracts/utils/cryptography/Hashes.sol";
import {IJobEscrow} from "../../src/interfaces/IJobEscrow.sol";
import {JobOrder, UnitCommitment} from "../../src/Messages.sol";
import {Settlements} from "../base/Settlements.sol";

contract JobEscrowVetoTest is Settlements {
    bytes32 private jobId; // 12 units, 1 ZEN

    function setUp() public override {
        super.setUp();
        jobId = _open(_order(12, 1 ether));
    }

    function test_veto_returnsEverythingToJob() public {
        Bill memory bill = _post(_billFor(_line(jobId, 0, 4, false), 5, 3));
        vm.expectEmit(address(escrow));
        emit IJobEscrow.BatchVetoed(1);
        vm.expectEmit(address(escrow));
        emit IJobEscrow.SettlementReverted(jobId, 1, 8 * NET, 8 * (UNIT - NET), false);
        _veto(bill);
        _assertJob(1 ether, 12, 0, IJobEscrow.State.Open);
        vm.assertEq(escrow.batches(_batchRoot(bill)).claimableAt, 0);

        vm.warp(block.timestamp + CHALLENGE_PERIOD); // the batch cannot be claimed
        IJobEscrow.Claim[] memory claims = _claimsOf(bill, 0);
        vm.prank(ALICE);
        _expectUnknown(bill);
        escrow.claim(ALICE, claims);
        _expectUnknown(bill);
        _collect(bill);
    }

    function test_vetoedBatch_canBePostedAgain() public {
        Bill memory bill = _post(_billFor(_line(jobId, 0, 4, true), 5, 3));
        _veto(bill);
        _assertJob(8 * UNIT, 12, 0, IJobEscrow.State.Open); // the refund stays
        vm.warp(block.timestamp + 1 days);
        _post(bill);
        vm.assertEq(bill.batchId, 2);
        bill.batchId = 1; // a late veto does not affect the new batch
        vm.prank(guardian);
        _expectUnknown(bill);
        escrow.veto(1, _claimsRoot(bill), _unitsRoot(bill), bill.lines);
        _endChallenge(bill);
        _claim(bill, 0);
        _claim(bill, 1);
        _collect(bill);
        vm.assertEq(token.balanceOf(address(escrow)), 0);
        vm.assertTrue(escrow.isClaimed(2, ALICE));
        vm.assertFalse(escrow.isClaimed(1, ALICE));
    }

    function test_veto_paysPayer_whenJobWasRefunded() public {
        vm.warp(escrow.jobs(jobId).settleBy);
        Bill memory bill = _post(_billFor(_line(jobId, 0, 1, false), 3, 1));
        vm.warp(block.timestamp + 1);
        escrow.refund(jobId);
        vm.assertEq(token.balanceOf(payer), 1_000_000 ether - 4 * UNIT);
        vm.expectEmit(address(escrow));
        emit IJobEscrow.SettlementReverted(jobId, 1, 4 * NET, 4 * (UNIT - NET), true);
        _veto(bill);
        vm.assertEq(token.balanceOf(payer), 1_000_000 ether);
        _assertJob(0, 12, 0, IJobEscrow.State.Refunded);
        vm.expectRevert(abi.encodeWithSelector(IJobEscrow.JobNotOpen.selector, jobId, IJobEscrow.State.Refunded));
        escrow.refund(jobId);
    }

    /// @dev A veto after `settleBy` leaves time to pay verified units before a refund can take their pay.
    function test_veto_leavesTimeToSettleAgain_beforeRefund() public {
        vm.prank(payer);
        escrow.cancel(jobId);
        vm.warp(escrow.jobs(jobId).settleBy);
        Bill memory bill = _post(_billFor(_line(jobId, 0, 1, true), 3, 1));
        vm.warp(block.timestamp + 1);
        _veto(bill);
        uint256 settleBy = block.timestamp + escrow.cancelDelay();
        vm.assertEq(escrow.jobs(jobId).settleBy, settleBy);
        vm.warp(settleBy);
        vm.expectRevert(abi.encodeWithSelector(IJobEscrow.RefundTooEarly.selector, settleBy));
        escrow.refund(jobId);
        _veto(_post(_billFor(_line(jobId, 0, 1, true), 3, 1)));
        vm.warp(escrow.jobs(jobId).settleBy + 1);
        escrow.refund(jobId);
        vm.assertEq(token.balanceOf(payer), 1_000_000 ether);
    }

    function test_veto_neverShortensTimeToSettle() public {
        uint256 settleBy = escrow.jobs(jobId).settleBy;
        _veto(_post(_billFor(_line(jobId, 0, 1, true), 3, 1)));
        vm.assertEq(escrow.jobs(jobId).settleBy, settleBy);
    }

    function test_veto_revertsAllLinesOfBatch() public {
        bytes32 other = _openAnother(2);
        IJobEscrow.JobLine[] memory lines = new IJobEscrow.JobLine[](3);
        (lines[0], lines[1]) = (_line(jobId, 0, 2, false), _line(other, 0, 1, true));
        lines[2] = _line(jobId, 2, 3, true);
        UnitCommitment[] memory units = new UnitCommitment[](3);
        (units[0], units[1]) = (_unit(jobId, 0, 0, ALICE), _unit(other, 0, 0, ALICE));
        units[2] = _unit(jobId, 2, 0, BOB);
        Bill memory bill = _post(_bill(lines, units));
        _veto(bill);
        _assertJob(2 * UNIT, 12, 0, IJobEscrow.State.Open);
        vm.assertEq(escrow.jobs(other).escrowed, UNIT);
        vm.assertEq(escrow.jobs(other).nextRound, 0);
        vm.assertEq(token.balanceOf(address(escrow)), 3 * UNIT);
    }

    /// @dev With the newest vetoed first, the job is restored completely.
    function test_veto_restoresRounds_whenLaterBatchesVetoedFirst() public {
        Bill memory first = _post(_billFor(_line(jobId, 0, 2, false), 2, 1));
        Bill memory second = _post(_billFor(_line(jobId, 2, 3, true), 1, 1));
        _veto(second);
        _assertJob(2 * UNIT, 9, 2, IJobEscrow.State.Open);
        _veto(first);
        _assertJob(5 * UNIT, 12, 0, IJobEscrow.State.Open);
    }

    /// @dev A later settlement cannot prevent a veto, with a batch or with an empty round. Rounds of a batch
    /// that remains in force are never settled again.
    function test_laterSettlement_doesNotPreventVeto() public {
        Bill memory bad = _post(_billFor(_line(jobId, 0, 2, false), 2, 1));
        Bill memory good = _post(_billFor(_line(jobId, 2, 3, false), 1, 1));
        _post(_billFor(_line(jobId, 3, 4, false), 0, 0));
        _veto(bad);
        _assertJob(1 ether - 2 * UNIT, 10, 4, IJobEscrow.State.Open);
        _expectPostRefused(
            _billFor(_line(jobId, 0, 2, false), 1, 0),
            abi.encodeWithSelector(IJobEscrow.RoundsNotNext.selector, jobId, 0, 4)
        );
        _post(_billFor(_line(jobId, 4, 5, true), 2, 1)); // the units of the rounds that cannot be settled again
        _endChallenge(good);
        _claim(good, 0);
        _claim(good, 1);
    }

    /// @dev The operator could forfeit a unit of its own to protect the rest of the batch.
    function test_forfeitedUnit_doesNotPreventVeto() public {
        Bill memory bill = _post(_billFor(_line(jobId, 0, 1, false), 3, 1));
        bytes32 forfeited = _withhold(bill, 0);
        bytes32 open = _withhold(bill, 1);
        _release(_withhold(bill, 2), true);
        _release(forfeited, false);
        _veto(bill);
        _assertJob(1 ether, 12, 0, IJobEscrow.State.Open);
        vm.assertEq(token.balanceOf(address(escrow)), 1 ether);
        escrow.returnStruck(forfeited); // the veto returned it with the batch
        vm.assertTrue(_release(open, false));
        vm.assertFalse(_release(open, false));
        vm.assertEq(token.balanceOf(address(escrow)), 1 ether);
        vm.assertEq(token.balanceOf(payer), 1_000_000 ether - 1 ether);
    }

    function test_veto_reverts_whenChallengePeriodOver() public {
        Bill memory bill = _post(_billFor(_line(jobId, 0, 1, false), 1, 0));
        uint256 claimableAt = escrow.batches(_batchRoot(bill)).claimableAt;
        vm.warp(claimableAt);
        vm.prank(guardian);
        vm.expectRevert(abi.encodeWithSelector(IJobEscrow.ChallengePeriodOver.selector, claimableAt));
        escrow.veto(1, _claimsRoot(bill), _unitsRoot(bill), bill.lines);
        vm.warp(claimableAt - 1);
        _veto(bill);
    }

    function test_veto_revertsForOtherLines() public {
        Bill memory bill = _post(_billFor(_line(jobId, 0, 1, false), 1, 0));
        bill.lines[0].units += 1;
        vm.prank(guardian);
        _expectUnknown(bill);
        escrow.veto(1, _claimsRoot(bill), _unitsRoot(bill), bill.lines);
        vm.prank(guardian); // an unknown batch has no number
        _expectUnknown(bill);
        escrow.veto(0, _claimsRoot(bill), _unitsRoot(bill), bill.lines);
    }

    /// @dev The operator posts lines of an honest job, the guardian vetoes others: all funds would go to the payer.
    function test_veto_revertsForSecondSplitOfRoot() public {
        (IJobEscrow.JobLine[] memory paid, IJobEscrow.JobLine[] memory forged) = _paidAndForgedLines();
        bytes32 claims = keccak256("claims");
        vm.prank(operator);
        escrow.settle(claims, keccak256(abi.encode(forged)), paid);
        vm.prank(guardian);
        vm.expectPartialRevert(IJobEscrow.UnknownBatch.selector);
        escrow.veto(1, claims, keccak256(abi.encode(paid)), forged);
    }

    /// @dev The operator and the guardian choose their roots from random bytes, hashes of lines and nodes above them.
    function testFuzz_veto_takesOnlySettledArguments(bytes32 x, bytes32 y, uint256 claims, uint256 units) public {
        (IJobEscrow.JobLine[] memory paid, IJobEscrow.JobLine[] memory forged) = _paidAndForgedLines();
        bytes32[] memory nodes = _nodes(x, y, paid, forged);
        (claims, units) = (claims % nodes.length, units % nodes.length);
        vm.prank(operator);
        escrow.settle(nodes[claims], nodes[units], paid);
        for (uint256 i = 0; i < nodes.length * nodes.length; ++i) {
            (bytes32 left, bytes32 right) = (nodes[i / nodes.length], nodes[i % nodes.length]);
            vm.prank(guardian);
            vm.expectPartialRevert(IJobEscrow.UnknownBatch.selector);
            escrow.veto(1, left, right, forged);
            if (left == nodes[claims] && right == nodes[units]) continue;
            vm.prank(guardian);
            vm.expectPartialRevert(IJobEscrow.UnknownBatch.selector);
            escrow.veto(1, left, right, paid);
        }
        vm.prank(guardian);
        escrow.veto(1, nodes[claims], nodes[units], paid);
    }

    function test_veto_worksOnce() public {
        Bill memory bill = _post(_billFor(_line(jobId, 0, 1, false), 1, 0));
        _post(_billFor(_line(jobId, 1, 2, false), 1, 0));
        _veto(bill);
        vm.prank(guardian);
        _expectUnknown(bill);
        escrow.veto(1, _claimsRoot(bill), _unitsRoot(bill), bill.lines);
    }

    function test_veto_revertsForNonGuardian() public {
        Bill memory bill = _post(_billFor(_line(jobId, 0, 1, false), 1, 0));
        bytes32 role = escrow.GUARDIAN_ROLE();
        vm.prank(operator);
        _expectMissingRole(operator, role);
        escrow.veto(1, _claimsRoot(bill), _unitsRoot(bill), bill.lines);
    }

    function _paidAndForgedLines()
        private
        returns (IJobEscrow.JobLine[] memory paid, IJobEscrow.JobLine[] memory forged)
    {
        (paid, forged) = (new IJobEscrow.JobLine[](1), new IJobEscrow.JobLine[](1));
        paid[0] = _line(_openAnother(2), 0, 1, false);
        paid[0].units = 1;
        forged[0] = _line(jobId, 0, 1, false);
        forged[0].units = 12;
    }

    function _nodes(
        bytes32 x,
        bytes32 y,
        IJobEscrow.JobLine[] memory paid,
        IJobEscrow.JobLine[] memory forged
    ) private pure returns (bytes32[] memory nodes) {
        nodes = new bytes32[](10);
        (nodes[0], nodes[1]) = (x, y);
        (nodes[2], nodes[3]) = (keccak256(abi.encode(paid)), keccak256(abi.encode(forged)));
        (nodes[4], nodes[5]) = (keccak256(abi.encode(x, y, paid)), keccak256(abi.encode(x, y, forged)));
        for (uint256 i = 0; i < 4; ++i) {
            nodes[6 + i] = Hashes.commutativeKeccak256(y, nodes[2 + i]);
        }
    }

    function _openAnother(uint256 nonce) private returns (bytes32) {
        JobOrder memory order = _order(12, 1 ether);
        order.nonce = nonce;
        return _open(order);
    }

    function _expectUnknown(Bill memory bill) private {
        vm.expectRevert(abi.encodeWithSelector(IJobEscrow.UnknownBatch.selector, _batchRoot(bill)));
    }

    function _assertJob(uint256 escrowed, uint256 unitsLeft, uint256 nextRound, IJobEscrow.State state) private view {
        IJobEscrow.Job memory job = escrow.jobs(jobId);
        vm.assertEq(job.escrowed, escrowed);
        vm.assertEq(job.unitsLeft, unitsLeft);
        vm.assertEq(job.nextRound, nextRound);
        vm.assertTrue(job.state == state);
    }
}
