// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IJobEscrow} from "../../src/interfaces/IJobEscrow.sol";
import {JobOrder} from "../../src/Messages.sol";
import {Settlements} from "../base/Settlements.sol";

/// @notice Held payouts: restored to the provider or forfeited to the payer.
contract JobEscrowWithholdTest is Settlements {
    uint256 private constant FEE = UNIT - NET;

    bytes32 private jobId; // 12 units, 1 ZEN

    function setUp() public override {
        super.setUp();
        jobId = _open(_order(12, 1 ether));
    }

    function _posted(uint256 alice, uint256 bob) private returns (Bill memory) {
        return _post(_billFor(_line(jobId, 0, 1, true), alice, bob));
    }

    function test_withhold_takesOneUnitOutOfBatch() public {
        Bill memory bill = _posted(3, 2);
        vm.expectEmit(address(escrow));
        emit IJobEscrow.UnitWithheld(_unitId(bill, 1), 1, ALICE, NET, FEE);
        vm.assertEq(_withhold(bill, 1), _unitId(bill, 1));
        IJobEscrow.Batch memory batch = escrow.batches(_batchRoot(bill));
        vm.assertEq(batch.net, 4 * NET);
        vm.assertEq(batch.fee, 4 * FEE);
        vm.assertEq(batch.id, 1);
        vm.assertEq(batch.claimableAt, block.timestamp + CHALLENGE_PERIOD);
        vm.assertTrue(batch.contested);
        vm.assertEq(escrow.withheldOf(1, ALICE), NET);
        vm.assertEq(escrow.withheldOf(1, BOB), 0);
        _endChallenge(bill);
        _claim(bill, 0);
        _claim(bill, 1);
        vm.assertEq(token.balanceOf(ALICE), 2 * NET);
        vm.assertEq(token.balanceOf(BOB), 2 * NET);
        vm.assertEq(_collect(bill), 4 * FEE);
        vm.assertEq(token.balanceOf(address(escrow)), UNIT);
    }

    function test_heldPayout_isRestored_whenReleasedBeforeClaim() public {
        Bill memory bill = _posted(2, 0);
        bytes32 unitId = _withhold(bill, 0);
        vm.expectEmit(address(escrow));
        emit IJobEscrow.UnitRestored(unitId, 1, NET, FEE, false);
        vm.assertTrue(_release(unitId, true));
        vm.assertEq(escrow.withheldOf(1, ALICE), 0);
        _endChallenge(bill);
        _claim(bill, 0);
        vm.assertEq(token.balanceOf(ALICE), 2 * NET);
        vm.assertEq(_collect(bill), 2 * FEE);
        vm.assertFalse(_release(unitId, true)); // once
        vm.assertFalse(_release(unitId, false));
    }

    function test_heldPayout_isRestored_whenReleasedAfterClaim() public {
        Bill memory bill = _posted(2, 0);
        bytes32 unitId = _withhold(bill, 1);
        _endChallenge(bill);
        _claim(bill, 0);
        _collect(bill);
        vm.expectEmit(address(escrow));
        emit IJobEscrow.UnitRestored(unitId, 1, NET, FEE, true);
        vm.assertTrue(_release(unitId, true));
        vm.assertEq(token.balanceOf(ALICE), 2 * NET);
        vm.assertEq(_collect(bill), FEE);
        vm.assertEq(token.balanceOf(address(escrow)), 0);
    }

    function test_forfeitedPayout_isRefunded_whenChallengePeriodOver() public {
        Bill memory bill = _posted(2, 0);
        uint256 before = token.balanceOf(payer);
        bytes32 unitId = _withhold(bill, 1);
        _endChallenge(bill);
        _claim(bill, 0);
        vm.expectEmit(address(escrow));
        emit IJobEscrow.UnitStruck(unitId, jobId, 1, UNIT);
        vm.assertTrue(_release(unitId, false));
        vm.assertEq(token.balanceOf(payer) - before, UNIT); // with the fee
        vm.assertEq(token.balanceOf(ALICE), NET);
        vm.assertFalse(_release(unitId, false));
        _expectNotStruck(unitId);
        escrow.returnStruck(unitId);
    }

    /// @dev The pay of a batch stays in the escrow while the batch can be vetoed.
    function test_forfeitedPayout_waits_whenChallengePeriodRuns() public {
        Bill memory bill = _posted(2, 0);
        uint256 before = token.balanceOf(payer);
        bytes32 unitId = _withhold(bill, 1);
        _expectNotStruck(unitId);
        escrow.returnStruck(unitId);

        vm.assertTrue(_release(unitId, false));
        uint256 claimableAt = escrow.batches(_batchRoot(bill)).claimableAt;
        vm.warp(claimableAt - 1);
        vm.expectRevert(abi.encodeWithSelector(IJobEscrow.ChallengePeriodRunning.selector, claimableAt));
        escrow.returnStruck(unitId);
        vm.assertFalse(_release(unitId, true)); // a decision is final
        vm.assertEq(token.balanceOf(payer), before);

        vm.warp(claimableAt);
        vm.expectEmit(address(escrow));
        emit IJobEscrow.UnitStruck(unitId, jobId, 1, UNIT);
        vm.prank(thirdParty); // any caller; the payer receives it
        escrow.returnStruck(unitId);
        vm.assertEq(token.balanceOf(payer) - before, UNIT);
        _claim(bill, 0);
        vm.assertEq(token.balanceOf(ALICE), NET);
        _expectNotStruck(unitId);
        escrow.returnStruck(unitId);
    }

    function test_withhold_revertsForHeldUnit() public {
        Bill memory bill = _posted(3, 0);
        bytes32 unitId = _withhold(bill, 0);
        _expectWithholdRefused(bill, 0, abi.encodeWithSelector(IJobEscrow.AlreadyWithheld.selector, unitId));
        _release(unitId, false); // the payer cannot be paid twice either
        _expectWithholdRefused(bill, 0, abi.encodeWithSelector(IJobEscrow.AlreadyWithheld.selector, unitId));
    }

    /// @dev A unit of a vetoed batch that is settled again is still disputed.
    function test_withhold_worksAgain_whenBatchVetoed() public {
        Bill memory bill = _posted(3, 0);
        bytes32 unitId = _withhold(bill, 0);
        _veto(bill);
        _post(bill); // identical data, so the same root
        vm.expectEmit(address(escrow));
        emit IJobEscrow.UnitRestored(unitId, 1, NET, FEE, false);
        vm.expectEmit(address(escrow));
        emit IJobEscrow.UnitWithheld(unitId, 2, ALICE, NET, FEE);
        _withhold(bill, 0);
        vm.assertEq(escrow.withheldOf(2, ALICE), NET);
        vm.assertEq(escrow.batches(_batchRoot(bill)).net, 2 * NET);
        _endChallenge(bill);
        _release(unitId, true);
        _claim(bill, 0);
        _collect(bill);
        vm.assertEq(token.balanceOf(ALICE), 3 * NET);
        vm.assertEq(token.balanceOf(address(escrow)), 0);
    }

    /// @dev A payout held from a vetoed batch is not part of the batch that replaced it.
    function test_release_movesNothing_whenBatchVetoed() public {
        for (uint256 i = 0; i < 2; ++i) {
            JobOrder memory order = _order(12, 1 ether);
            order.nonce = 2 + i;
            jobId = _open(order);
            Bill memory bill = _posted(3, 0);
            bytes32 unitId = _withhold(bill, 0);
            _veto(bill);
            _post(bill);
            if (i == 0) _endChallenge(bill);
            uint256 held = token.balanceOf(address(escrow));
            vm.expectEmit(address(escrow));
            emit IJobEscrow.UnitRestored(unitId, bill.batchId - 1, NET, FEE, false);
            vm.assertTrue(_release(unitId, i == 1));
            vm.assertEq(token.balanceOf(address(escrow)), held);
            vm.assertEq(escrow.batches(_batchRoot(bill)).net, 3 * NET);
            vm.assertEq(escrow.withheldOf(bill.batchId, ALICE), 0);
        }
    }

    function test_claim_reverts_whenAllPayIsHeld() public {
        Bill memory bill = _posted(1, 1);
        bytes32 unitId = _withhold(bill, 0);
        _endChallenge(bill);
        IJobEscrow.Claim[] memory claims = _claimsOf(bill, 0);
        vm.prank(ALICE);
        vm.expectRevert(abi.encodeWithSelector(IJobEscrow.AllWithheld.selector, 1, ALICE));
        escrow.claim(ALICE, claims);
        _claim(bill, 1);
        _release(unitId, true);
        _claim(bill, 0);
        vm.assertEq(token.balanceOf(ALICE), NET);
    }

    function test_withhold_revertsOnInvalidProof() public {
        Bill memory bill = _posted(2, 0);
        bytes32[] memory proof = _unitProof(bill, 0);
        vm.prank(disputes);
        vm.expectPartialRevert(IJobEscrow.UnknownBatch.selector);
        escrow.withhold(1, bill.units[0], PRICE - 1, proof);
        vm.prank(disputes);
        vm.expectPartialRevert(IJobEscrow.UnknownBatch.selector);
        escrow.withhold(1, bill.units[1], PRICE, proof);
        bill.batchId = 2;
        _expectWithholdRefused(bill, 0, abi.encodeWithSelector(IJobEscrow.UnknownBatch.selector, _batchRoot(bill)));
        bill.batchId = 0;
        bill.units[0].round = 7;
        vm.prank(disputes);
        vm.expectPartialRevert(IJobEscrow.UnknownBatch.selector);
        escrow.withhold(0, bill.units[0], PRICE, proof);
    }

    function test_withhold_reverts_whenChallengePeriodOver() public {
        Bill memory bill = _posted(2, 0);
        uint256 claimableAt = escrow.batches(_batchRoot(bill)).claimableAt;
        vm.warp(claimableAt);
        _expectWithholdRefused(bill, 0, abi.encodeWithSelector(IJobEscrow.ChallengePeriodOver.selector, claimableAt));
        vm.warp(claimableAt - 1);
        _withhold(bill, 0);
    }

    /// @dev A tree with a unit priced above its lines takes at most the batch's total.
    function test_withhold_revertsAboveBatchTotals() public {
        vm.prank(admin);
        escrow.setFee(1_000);
        JobOrder memory order = _order(12, 1 ether);
        order.nonce = 2;
        bytes32 costly = _open(order); // a higher fee
        Bill memory bill = _billFor(_line(jobId, 0, 1, false), 2, 0);
        bill.prices[0] = 2 * PRICE + 400_000;
        bill.units[1].jobId = costly;
        bill.prices[1] = PRICE * 2;
        _post(bill);
        _expectWithholdRefused(
            bill, 0, abi.encodeWithSelector(IJobEscrow.BatchOverdrawn.selector, 1, 2 * NET + 9_500, 2 * NET)
        );
        _expectWithholdRefused(
            bill, 1, abi.encodeWithSelector(IJobEscrow.BatchOverdrawn.selector, 1, UNIT / 5, UNIT / 10)
        );
    }

    function test_withhold_canTakeWholeBatch() public {
        Bill memory bill = _posted(1, 0);
        _withhold(bill, 0);
        IJobEscrow.Batch memory batch = escrow.batches(_batchRoot(bill));
        vm.assertEq(batch.net + batch.fee, 0);
        _endChallenge(bill);
        vm.assertEq(_collect(bill), 0);
    }

    function test_release_returnsFalse_whenNothingHeld() public {
        vm.assertFalse(_release(bytes32("unit"), true));
        vm.assertFalse(_release(bytes32("unit"), false));
    }

    function test_withholdAndRelease_revertWithoutDisputesRole() public {
        Bill memory bill = _posted(1, 0);
        bytes32 role = escrow.DISPUTES_ROLE();
        bytes32[] memory proof = _unitProof(bill, 0);
        vm.prank(operator);
        _expectMissingRole(operator, role);
        escrow.withhold(1, bill.units[0], PRICE, proof);
        bytes32 unitId = _withhold(bill, 0);
        vm.prank(guardian);
        _expectMissingRole(guardian, role);
        escrow.release(unitId, true);
    }

    /// @dev For any decisions in any order with claims, every account receives exactly its units' pay.
    function testFuzz_everyUnit_isPaidOnce(uint8 withheld, uint8 restored, uint8 early, uint8 claimed) public {
        Bill memory bill = _posted(5, 3);
        bytes32[] memory ids = new bytes32[](8);
        uint256[2] memory due = [uint256(5), 3];
        for (uint256 i = 0; i < 8; ++i) {
            if (_bit(withheld, i)) ids[i] = _withhold(bill, i);
            if (_bit(withheld, i) && _bit(early, i)) _release(ids[i], _bit(restored, i));
            if (_bit(withheld, i) && !_bit(restored, i)) --due[i < 5 ? 0 : 1];
        }
        _endChallenge(bill);
        for (uint256 i = 0; i < 2; ++i) {
            if (_bit(claimed, i)) _tryClaim(bill, i);
        }
        for (uint256 i = 0; i < 8; ++i) {
            if (_bit(withheld, i) && !_bit(early, i)) _release(ids[i], _bit(restored, i));
            if (_bit(withheld, i) && _bit(early, i) && !_bit(restored, i)) escrow.returnStruck(ids[i]);
        }
        for (uint256 i = 0; i < 2; ++i) {
            if (!escrow.isClaimed(1, bill.providers[i])) _tryClaim(bill, i);
            vm.assertEq(token.balanceOf(bill.providers[i]), due[i] * NET);
        }
        vm.assertEq(_collect(bill), (due[0] + due[1]) * FEE);
        vm.assertEq(token.balanceOf(payer), 1_000_000 ether - (due[0] + due[1]) * UNIT);
        vm.assertEq(token.balanceOf(address(escrow)), 0);
    }

    function _tryClaim(Bill memory bill, uint256 index) private {
        IJobEscrow.Claim[] memory claims = _claimsOf(bill, index);
        bool nothing = bill.amounts[index] == escrow.withheldOf(bill.batchId, bill.providers[index]);
        vm.prank(bill.providers[index]);
        if (nothing) vm.expectPartialRevert(IJobEscrow.AllWithheld.selector);
        escrow.claim(bill.providers[index], claims);
    }

    function _bit(uint8 set, uint256 index) private pure returns (bool) {
        return set >> index & 1 == 1;
    }

    function _expectNotStruck(bytes32 unitId) private {
        vm.expectRevert(abi.encodeWithSelector(IJobEscrow.NotStruck.selector, unitId));
    }

    function _expectWithholdRefused(Bill memory bill, uint256 index, bytes memory reason) private {
        bytes32[] memory proof = _unitProof(bill, index);
        vm.prank(disputes);
        vm.expectRevert(reason);
        escrow.withhold(bill.batchId, bill.units[index], bill.prices[index], proof);
    }
}
