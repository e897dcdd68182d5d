// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IJobEscrow} from "../src/interfaces/IJobEscrow.sol";
import {JobOrder} from "../src/Messages.sol";
import {Network} from "./base/Network.sol";

contract JobEscrowSettleTest is Network {
    address private immutable first = address(0x1111);
    address private immutable second = address(0x2222);

    function test_paysUnitsFeeAndRefund() public {
        bytes32 jobId = _open(_order(12, 1 ether));
        uint256 before = token.balanceOf(payer);
        uint256 net = UNIT - UNIT / 20;

        vm.expectEmit(address(escrow));
        emit IJobEscrow.JobSettled(
            jobId, PRICE, 8 * net, 8 * UNIT / 20, 1 ether - 8 * UNIT, keccak256("units"), keccak256("record")
        );
        vm.expectEmit(address(escrow));
        emit IJobEscrow.ProviderPaid(jobId, first, 5, 5 * net);
        vm.expectEmit(address(escrow));
        emit IJobEscrow.ProviderPaid(jobId, second, 3, 3 * net);
        _settle(jobId, PRICE, _payments(first, 5, second, 3));

        vm.assertEq(token.balanceOf(first), 5 * net);
        vm.assertEq(token.balanceOf(second), 3 * net);
        vm.assertEq(token.balanceOf(address(treasury)), 8 * UNIT / 20);
        vm.assertEq(token.balanceOf(payer) - before, 1 ether - 8 * UNIT);
        vm.assertEq(token.balanceOf(address(escrow)), 0);
        vm.assertTrue(escrow.jobs(jobId).state == IJobEscrow.State.Settled);
    }

    function test_noPaymentsRefundEverything() public {
        bytes32 jobId = _open(_order(12, 1 ether));
        _settle(jobId, 0, _noPayments());
        vm.assertEq(token.balanceOf(payer), 1_000_000 ether);
    }

    function test_settlesOnce() public {
        bytes32 jobId = _open(_order(2, 1 ether));
        JobOrder memory another = _order(2, 1 ether);
        another.nonce = 2;
        _open(another); // money of another job is there to be taken
        _settle(jobId, PRICE, _payments(first, 1));

        bytes memory reason = abi.encodeWithSelector(IJobEscrow.JobNotOpen.selector, jobId, IJobEscrow.State.Settled);
        vm.expectRevert(reason);
        _settle(jobId, PRICE, _payments(first, 1));
        vm.warp(block.timestamp + 30 days);
        vm.expectRevert(reason);
        escrow.refund(jobId);
    }

    function test_refusesAnUnknownJob() public {
        vm.expectRevert(abi.encodeWithSelector(IJobEscrow.JobNotOpen.selector, bytes32(0), IJobEscrow.State.None));
        _settle(0, 0, _noPayments());
    }

    function test_onlyTheOperatorSettles() public {
        bytes32 jobId = _open(_order(2, 1 ether));
        _expectMissingRole(address(this), escrow.OPERATOR_ROLE());
        escrow.settle(jobId, PRICE, _payments(address(this), 2), 0, 0);
    }

    function test_refusesAPriceAboveThePayersMaximum() public {
        bytes32 jobId = _open(_order(2, 1 ether));
        vm.expectRevert(abi.encodeWithSelector(IJobEscrow.PriceAboveMaximum.selector, PRICE + 1, PRICE));
        _settle(jobId, PRICE + 1, _payments(first, 1));
    }

    function test_refusesMoreUnitsThanOrdered() public {
        bytes32 jobId = _open(_order(2, 1 ether));
        vm.expectRevert(abi.encodeWithSelector(IJobEscrow.TooManyUnits.selector, 3, 2));
        _settle(jobId, PRICE, _payments(first, 2, second, 1));
    }

    function test_refusesMoreThanTheBudget() public {
        bytes32 jobId = _open(_order(12, uint96(3 * UNIT - 1)));
        JobOrder memory another = _order(12, 1 ether);
        another.nonce = 2;
        _open(another); // money of another job is there to be taken
        vm.expectRevert(abi.encodeWithSelector(IJobEscrow.BudgetExceeded.selector, 3 * UNIT, 3 * UNIT - 1));
        _settle(jobId, PRICE, _payments(first, 3));
        _settle(jobId, PRICE, _payments(first, 2));
    }

    function test_refusesAProviderTwiceOrOutOfOrder() public {
        bytes32 jobId = _open(_order(12, 1 ether));
        vm.expectRevert(abi.encodeWithSelector(IJobEscrow.ProvidersNotAscending.selector, first));
        _settle(jobId, PRICE, _payments(first, 1, first, 1));
        vm.expectRevert(abi.encodeWithSelector(IJobEscrow.ProvidersNotAscending.selector, first));
        _settle(jobId, PRICE, _payments(second, 1, first, 1));
        vm.expectRevert(abi.encodeWithSelector(IJobEscrow.ProvidersNotAscending.selector, address(0)));
        _settle(jobId, PRICE, _payments(address(0), 1));
    }

    function test_refusesAPaymentForNothing() public {
        bytes32 jobId = _open(_order(12, 1 ether));
        vm.expectRevert(abi.encodeWithSelector(IJobEscrow.NoUnitsFor.selector, second));
        _settle(jobId, PRICE, _payments(first, 1, second, 0));
        vm.expectRevert(abi.encodeWithSelector(IJobEscrow.UnitPriceZero.selector, 0, WEIGHT));
        _settle(jobId, 0, _payments(first, 1));
    }

    function test_theFeeIsTheOneOfTheOpening() public {
        bytes32 jobId = _open(_order(1, 1 ether));
        vm.prank(admin);
        vm.expectEmit(address(escrow));
        emit IJobEscrow.FeeChanged(1_000);
        escrow.setFee(1_000);
        _settle(jobId, PRICE, _payments(first, 1));
        vm.assertEq(token.balanceOf(address(treasury)), UNIT / 20);

        JobOrder memory another = _order(1, 1 ether);
        another.nonce = 2;
        _settle(_open(another), PRICE, _payments(first, 1));
        vm.assertEq(token.balanceOf(address(treasury)), UNIT / 20 + UNIT / 10);
    }

    function test_onlyTheAdminSetsABoundedFee() public {
        bytes32 role = escrow.DEFAULT_ADMIN_ROLE();
        vm.prank(operator);
        _expectMissingRole(operator, role);
        escrow.setFee(0);
        vm.prank(admin);
        vm.expectRevert(abi.encodeWithSelector(IJobEscrow.FeeTooHigh.selector, 1_001));
        escrow.setFee(1_001);
    }

    function test_refundAndSettlementNeverOverlap() public {
        JobOrder memory order = _order(2, 1 ether);
        bytes32 jobId = _open(order);
        uint256 end = order.waitUntil + REFUND_DELAY;

        vm.warp(end);
        vm.expectRevert(abi.encodeWithSelector(IJobEscrow.RefundTooEarly.selector, end));
        escrow.refund(jobId);
        vm.warp(end + 1);
        vm.expectRevert(abi.encodeWithSelector(IJobEscrow.SettlementEnded.selector, end));
        _settle(jobId, PRICE, _payments(first, 1));

        vm.expectEmit(address(escrow));
        emit IJobEscrow.JobRefunded(jobId, payer, 1 ether);
        vm.prank(stranger); // anybody may call, the payer gets it
        escrow.refund(jobId);
        vm.assertEq(token.balanceOf(payer), 1_000_000 ether);
        vm.expectRevert(abi.encodeWithSelector(IJobEscrow.JobNotOpen.selector, jobId, IJobEscrow.State.Refunded));
        escrow.refund(jobId);
    }

    function test_settlesUntilTheLastMoment() public {
        JobOrder memory order = _order(2, 1 ether);
        bytes32 jobId = _open(order);
        vm.warp(order.waitUntil + REFUND_DELAY);
        _settle(jobId, PRICE, _payments(first, 1));
    }

    function test_exitsAreOpenDuringAPause() public {
        bytes32 settled = _open(_order(2, 1 ether));
        JobOrder memory order = _order(2, 1 ether);
        order.nonce = 2;
        bytes32 abandoned = _open(order);
        vm.prank(admin);
        escrow.pause();
        _settle(settled, PRICE, _payments(first, 1));
        vm.warp(order.waitUntil + REFUND_DELAY + 1);
        vm.prank(admin);
        escrow.pause();
        escrow.refund(abandoned);
        vm.assertEq(token.balanceOf(address(escrow)), 0);
    }

    struct Case {
        uint96 maxPrice;
        uint96 price;
        uint64 weight;
        uint32[3] units;
        uint96 spare;
        uint16 feeBps;
    }

    function testFuzz_everyWeiIsAccountedFor(Case memory c) public {
        c.feeBps = uint16(_bound(c.feeBps, 0, 1_000));
        vm.prank(admin);
        escrow.setFee(c.feeBps);
        JobOrder memory order = _order(0, 0);
        order.unitWeight = uint64(_bound(c.weight, 1_000_000, 10_000_000_000)); // 1 s to 2.8 h
        order.maxPrice = uint96(_bound(c.maxPrice, 1e9, 1_000 ether));
        c.price = uint96(_bound(c.price, 1e9, order.maxPrice));
        IJobEscrow.ProviderUnits[] memory payments = new IJobEscrow.ProviderUnits[](3);
        for (uint160 i = 0; i < 3; ++i) {
            payments[i] = IJobEscrow.ProviderUnits(address(i + 1), uint32(_bound(c.units[i], 1, 10_000)));
            order.units += payments[i].units;
        }
        uint256 unit = escrow.unitPrice(c.price, order.unitWeight);
        uint256 gross = unit * order.units;
        uint256 least = escrow.unitPrice(order.maxPrice, order.unitWeight);
        order.budget = uint96((gross > least ? gross : least) + _bound(c.spare, 0, 1 ether));
        token.transfer(payer, order.budget);
        uint256 before = token.balanceOf(payer);

        _settle(_open(order), c.price, payments);

        uint256 fee = token.balanceOf(address(treasury));
        vm.assertEq(fee * 10_000, gross * c.feeBps, "the fee is exact");
        vm.assertEq(_assertPaid(payments, unit, c.feeBps) + fee, gross, "the payer pays the clearing price");
        vm.assertEq(before - token.balanceOf(payer), gross, "the rest went back");
        vm.assertEq(token.balanceOf(address(escrow)), 0, "nothing stays behind");
    }

    function _assertPaid(IJobEscrow.ProviderUnits[] memory payments, uint256 unit, uint256 feeBps)
        private
        view
        returns (uint256 paid)
    {
        for (uint256 i = 0; i < payments.length; ++i) {
            uint256 amount = token.balanceOf(payments[i].provider);
            vm.assertEq(amount * 10_000, unit * payments[i].units * (10_000 - feeBps), "a unit pays the same anywhere");
            paid += amount;
        }
    }

    function testFuzz_aUnitPriceRoundsDownToTenThousandWei(uint96 price, uint64 weight) public view {
        uint256 unit = escrow.unitPrice(price, weight);
        uint256 exact = uint256(price) * weight;
        vm.assertEq(unit % 10_000, 0);
        vm.assertLe(unit * 3_600_000_000, exact);
        vm.assertTrue(exact < (unit + 10_000) * 3_600_000_000);
    }
}
