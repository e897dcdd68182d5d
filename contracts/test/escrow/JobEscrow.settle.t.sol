// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Hashes} from "@openzeppelin/contracts/utils/cryptography/Hashes.sol";
import {IJobEscrow} from "../../src/interfaces/IJobEscrow.sol";
import {JobOrder, UnitCommitment} from "../../src/Messages.sol";
import {Settlements} from "../base/Settlements.sol";

contract JobEscrowSettleTest is Settlements {
    bytes32 private jobId; // 12 units, 1 ZEN

    function setUp() public override {
        super.setUp();
        jobId = _open(_order(12, 1 ether));
    }

    function test_settle_paysUnitsAndRefundsRest() public {
        uint256 before = token.balanceOf(payer);
        Bill memory bill = _billFor(_line(jobId, 0, 4, true), 5, 3);
        vm.expectEmit(address(escrow));
        emit IJobEscrow.JobSettled(
            jobId, 1, PRICE, 8, 0, 4, 8 * NET, 8 * (UNIT - NET), 1 ether - 8 * UNIT, true, keccak256("record")
        );
        vm.expectEmit(address(escrow));
        emit IJobEscrow.BatchPosted(1, _batchRoot(bill), 8 * NET, 8 * (UNIT - NET), block.timestamp + CHALLENGE_PERIOD);
        _post(bill);

        vm.assertEq(bill.batchId, 1);
        vm.assertEq(escrow.batchCount(), 1);
        IJobEscrow.Batch memory batch = escrow.batches(_batchRoot(bill));
        vm.assertEq(batch.id, 1);
        vm.assertEq(batch.net, 8 * NET);
        vm.assertEq(batch.fee, 8 * (UNIT - NET));
        vm.assertEq(batch.claimableAt, block.timestamp + CHALLENGE_PERIOD);
        vm.assertFalse(batch.contested);
        vm.assertEq(token.balanceOf(payer) - before, 1 ether - 8 * UNIT);
        vm.assertEq(token.balanceOf(address(escrow)), 8 * UNIT);
        _assertJob(0, 4, 4, IJobEscrow.State.Settled);
    }

    function test_settle_worksRoundByRound() public {
        uint256 before = token.balanceOf(payer);
        _post(_billFor(_line(jobId, 0, 1, false), 2, 0));
        vm.assertEq(token.balanceOf(payer), before);
        _assertJob(1 ether - 2 * UNIT, 10, 1, IJobEscrow.State.Open);
        _post(_billFor(_line(jobId, 1, 3, false), 1, 2));
        _assertJob(1 ether - 5 * UNIT, 7, 3, IJobEscrow.State.Open);
        _post(_billFor(_line(jobId, 3, 4, true), 0, 1));
        _assertJob(0, 6, 4, IJobEscrow.State.Settled);
        vm.assertEq(token.balanceOf(payer) - before, 1 ether - 6 * UNIT);
        vm.assertEq(escrow.batchCount(), 3);
    }

    function test_settle_usesEachJobsPriceAndFee() public {
        vm.prank(admin);
        escrow.setFee(1_000);
        bytes32 other = _openAnother(2);
        IJobEscrow.JobLine[] memory lines = new IJobEscrow.JobLine[](3);
        lines[0] = _line(jobId, 0, 1, false);
        lines[1] = _line(other, 0, 1, true);
        lines[2] = _line(jobId, 1, 2, true); // two lines of one job with different prices
        lines[2].price = PRICE / 2;
        UnitCommitment[] memory units = new UnitCommitment[](4);
        units[0] = _unit(jobId, 0, 0, ALICE);
        units[1] = _unit(other, 0, 0, ALICE);
        units[2] = _unit(other, 0, 1, BOB);
        units[3] = _unit(jobId, 1, 0, BOB);
        Bill memory bill = _post(_bill(lines, units));
        IJobEscrow.Batch memory batch = escrow.batches(_batchRoot(bill));
        vm.assertEq(batch.net, NET + 2 * (UNIT * 9 / 10) + NET / 2);
        vm.assertEq(batch.fee, UNIT / 20 + 2 * (UNIT / 10) + UNIT / 40);
        vm.assertEq(bill.amounts[0] + bill.amounts[1], batch.net);
    }

    function test_settle_endsJobWithoutPay() public {
        uint256 before = token.balanceOf(payer);
        Bill memory bill = _billFor(_line(jobId, 0, 0, true), 0, 0);
        bill.lines[0].price = 0;
        vm.expectEmit(address(escrow));
        emit IJobEscrow.JobSettled(jobId, 0, 0, 0, 0, 0, 0, 0, 1 ether, true, keccak256("record"));
        vm.assertEq(_post(bill).batchId, 0); // no batch, since it would have no claims
        vm.assertEq(escrow.batchCount(), 0);
        vm.assertEq(escrow.batches(_batchRoot(bill)).claimableAt, 0);
        vm.assertEq(token.balanceOf(payer) - before, 1 ether);
        _assertJob(0, 12, 0, IJobEscrow.State.Settled);
    }

    function test_settle_paysNothing_whenRoundsHaveNoUnits() public {
        vm.assertEq(_post(_billFor(_line(jobId, 0, 2, false), 0, 0)).batchId, 0);
        _assertJob(1 ether, 12, 2, IJobEscrow.State.Open);
    }

    function test_settle_revertsForRepeatedOrOverlappingRounds() public {
        Bill memory bill = _post(_billFor(_line(jobId, 0, 4, false), 2, 0));
        _expectPostRefused(bill, _roundsNotNext(0, 4));
        _expectPostRefused(_billFor(_line(jobId, 3, 5, false), 1, 0), _roundsNotNext(3, 4)); // overlaps
        _expectPostRefused(_billFor(_line(jobId, 5, 6, false), 1, 0), _roundsNotNext(5, 4)); // leaves a gap
        IJobEscrow.JobLine[] memory twice = new IJobEscrow.JobLine[](2);
        (twice[0], twice[1]) = (_line(jobId, 4, 5, false), _line(jobId, 4, 5, false));
        _expectPostRefused(_bill(twice, new UnitCommitment[](0)), _roundsNotNext(4, 5));
    }

    function test_settle_revertsForLineWithoutRounds() public {
        bytes memory reason = abi.encodeWithSelector(IJobEscrow.NoRounds.selector, jobId);
        Bill memory bill = _billFor(_line(jobId, 0, 1, true), 1, 0);
        bill.lines[0].toRound = 0;
        _expectPostRefused(bill, reason); // the same round could be paid repeatedly
        _expectPostRefused(_billFor(_line(jobId, 0, 0, false), 0, 0), reason);
        _post(_billFor(_line(jobId, 0, 3, false), 1, 0));
        _expectPostRefused(_billFor(_line(jobId, 3, 2, true), 0, 0), reason); // backwards
    }

    function test_settle_revertsForEndedJob() public {
        _openAnother(2); // escrow of another job is available
        _post(_billFor(_line(jobId, 0, 1, true), 1, 0));
        bytes memory reason = abi.encodeWithSelector(IJobEscrow.JobNotOpen.selector, jobId, IJobEscrow.State.Settled);
        _expectPostRefused(_billFor(_line(jobId, 1, 2, true), 1, 0), reason);
        vm.warp(block.timestamp + 30 days);
        vm.expectRevert(reason);
        escrow.refund(jobId);
    }

    function test_settle_revertsForUnknownJob() public {
        _expectPostRefused(
            _billFor(_line(bytes32(0), 0, 1, true), 0, 0),
            abi.encodeWithSelector(IJobEscrow.JobNotOpen.selector, bytes32(0), IJobEscrow.State.None)
        );
    }

    function test_settle_revertsForNonOperator() public {
        Bill memory bill = _billFor(_line(jobId, 0, 1, true), 1, 0);
        bytes32 role = escrow.OPERATOR_ROLE();
        vm.prank(guardian);
        _expectMissingRole(guardian, role);
        escrow.settle(_claimsRoot(bill), _unitsRoot(bill), bill.lines);
    }

    function test_settle_revertsForPriceAboveMaximum() public {
        Bill memory bill = _billFor(_line(jobId, 0, 1, true), 1, 0);
        bill.lines[0].price = PRICE + 1;
        _expectPostRefused(bill, abi.encodeWithSelector(IJobEscrow.PriceAboveMaximum.selector, PRICE + 1, PRICE));
    }

    function test_settle_revertsForExcessUnits() public {
        _post(_billFor(_line(jobId, 0, 1, false), 10, 0));
        _expectPostRefused(
            _billFor(_line(jobId, 1, 2, false), 3, 0), abi.encodeWithSelector(IJobEscrow.TooManyUnits.selector, 3, 2)
        );
        _post(_billFor(_line(jobId, 1, 2, false), 2, 0));
    }

    function test_settle_revertsAboveEscrow() public {
        JobOrder memory order = _order(12, uint96(4 * UNIT - 1));
        bytes32 poor = _open(order); // escrow of the other job is available
        _post(_billFor(_line(poor, 0, 1, false), 1, 0));
        _expectPostRefused(
            _billFor(_line(poor, 1, 2, false), 3, 0),
            abi.encodeWithSelector(IJobEscrow.BudgetExceeded.selector, 3 * UNIT, 3 * UNIT - 1)
        );
        _post(_billFor(_line(poor, 1, 2, false), 2, 0));
        order.budget += 1;
        poor = _open(order);
        _post(_billFor(_line(poor, 0, 1, true), 4, 0)); // the whole escrow
    }

    function test_settle_revertsForZeroUnitPrice() public {
        Bill memory bill = _billFor(_line(jobId, 0, 1, true), 1, 0);
        bill.lines[0].price = 399_999; // 90 s at this price: 9,999 wei
        _expectPostRefused(bill, abi.encodeWithSelector(IJobEscrow.UnitPriceZero.selector, 399_999, WEIGHT));
        bill.lines[0].price = 400_000;
        _post(bill);
        vm.assertEq(escrow.batches(_batchRoot(bill)).net, 9_500);
    }

    function test_settle_revertsForZeroOrExcessLines() public {
        IJobEscrow.JobLine[] memory lines = new IJobEscrow.JobLine[](0);
        _expectPostRefused(
            _bill(lines, new UnitCommitment[](0)), abi.encodeWithSelector(IJobEscrow.EmptyBatch.selector)
        );
        lines = new IJobEscrow.JobLine[](257);
        for (uint32 i = 0; i < 257; ++i) {
            lines[i] = _line(jobId, i, i + 1, false);
        }
        Bill memory bill = _bill(lines, new UnitCommitment[](0));
        _expectPostRefused(bill, abi.encodeWithSelector(IJobEscrow.TooManyLines.selector, 257, 256));
        assembly ("memory-safe") {
            mstore(lines, 256)
        }
        _post(bill);
        _assertJob(1 ether, 12, 256, IJobEscrow.State.Open);
    }

    function test_fee_isFixedAtOpening() public {
        vm.prank(admin);
        vm.expectEmit(address(escrow));
        emit IJobEscrow.FeeChanged(1_000);
        escrow.setFee(1_000);
        Bill memory bill = _post(_billFor(_line(jobId, 0, 1, true), 1, 0));
        vm.assertEq(escrow.batches(_batchRoot(bill)).fee, UNIT / 20);
        bill = _post(_billFor(_line(_openAnother(2), 0, 1, true), 1, 0));
        vm.assertEq(escrow.batches(_batchRoot(bill)).fee, UNIT / 10);
    }

    function test_setFee_isBoundedAndAdminOnly() public {
        bytes32 role = escrow.DEFAULT_ADMIN_ROLE();
        vm.prank(operator);
        _expectMissingRole(operator, role);
        escrow.setFee(0);
        vm.prank(admin);
        vm.expectRevert(abi.encodeWithSelector(IJobEscrow.FeeTooHigh.selector, 1_001));
        escrow.setFee(1_001);
    }

    struct Case {
        uint80 maxPrice;
        uint80 price;
        uint48 weight;
        uint8[3] units;
        uint96 spare;
        uint16 feeBps;
    }

    function testFuzz_settle_accountsForEveryWei(Case memory c) public {
        c.feeBps = uint16(_bound(c.feeBps, 0, 1_000));
        vm.prank(admin);
        escrow.setFee(c.feeBps);
        JobOrder memory order = _order(0, 0);
        order.samplingBps = 10_000;
        order.unitWeight = uint48(_bound(c.weight, 1_000_000, 10_000_000_000)); // 1 s to 2.8 h
        order.maxPrice = uint80(_bound(c.maxPrice, 1e9, 1_000 ether));
        c.price = uint80(_bound(c.price, 1e9, order.maxPrice));
        uint256 first = uint256(c.units[0]) + c.units[1];
        order.units = uint32(first + c.units[2] + 1);
        uint256 unit = escrow.unitPrice(c.price, order.unitWeight);
        uint256 gross = unit * (order.units - 1);
        order.budget = uint96(gross + escrow.unitPrice(order.maxPrice, order.unitWeight) + _bound(c.spare, 0, 1 ether));
        token.transfer(payer, order.budget);
        uint256 before = token.balanceOf(payer);
        jobId = _open(order);

        uint256 paid = _settleAndExit(c.price, 0, c.units[0], c.units[1]);
        paid += _settleAndExit(c.price, 1, c.units[2], 0);
        IJobEscrow.JobLine memory end = _line(jobId, 2, 2, true);
        end.price = c.price;
        _post(_billFor(end, 0, 0));

        uint256 fee = token.balanceOf(address(treasury));
        vm.assertEq(fee * 10_000, gross * c.feeBps, "the fee is exact");
        vm.assertEq(paid + fee, gross, "the payer pays the price");
        vm.assertEq(before - token.balanceOf(payer), gross, "the rest went back");
        vm.assertEq(token.balanceOf(address(escrow)), 1 ether, "nothing stays but the other job's escrow");
        vm.assertEq(token.balanceOf(ALICE) * 10_000, unit * (first - c.units[1] + c.units[2]) * (10_000 - c.feeBps));
    }

    function testFuzz_unitPrice_roundsDownToTenThousandWei(uint80 price, uint48 weight) public view {
        uint256 unit = escrow.unitPrice(price, weight);
        uint256 exact = uint256(price) * weight;
        vm.assertEq(unit % 10_000, 0);
        vm.assertLe(unit * 3_600_000_000, exact);
        vm.assertTrue(exact < (unit + 10_000) * 3_600_000_000);
    }

    function _settleAndExit(uint80 price, uint32 round, uint256 alice, uint256 bob) private returns (uint256 paid) {
        IJobEscrow.JobLine memory line = _line(jobId, round, round + 1, false);
        line.price = price;
        Bill memory bill = _post(_billFor(line, alice, bob));
        if (bill.batchId == 0) return 0;
        _endChallenge(bill);
        for (uint256 i = 0; i < bill.providers.length; ++i) {
            _claim(bill, i);
            paid += bill.amounts[i];
        }
        _collect(bill);
    }

    function _openAnother(uint256 nonce) private returns (bytes32) {
        JobOrder memory order = _order(12, 1 ether);
        order.nonce = nonce;
        return _open(order);
    }

    function _roundsNotNext(uint256 fromRound, uint256 nextRound) private view returns (bytes memory) {
        return abi.encodeWithSelector(IJobEscrow.RoundsNotNext.selector, jobId, fromRound, nextRound);
    }

    function _assertJob(uint256 escrowed, uint256 unitsLeft, uint256 nextRound, IJobEscrow.State state) private view {
        IJobEscrow.Job memory job = escrow.jobs(jobId);
        vm.assertEq(job.escrowed, escrowed);
        vm.assertEq(job.unitsLeft, unitsLeft);
        vm.assertEq(job.nextRound, nextRound);
        vm.assertTrue(job.state == state);
    }
}
