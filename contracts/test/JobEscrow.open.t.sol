// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IERC1271} from "@openzeppelin/contracts/interfaces/IERC1271.sol";
import {IERC20Errors} from "@openzeppelin/contracts/interfaces/draft-IERC6093.sol";
import {Pausable} from "@openzeppelin/contracts/utils/Pausable.sol";
import {ZenIntake} from "../src/base/ZenIntake.sol";
import {IJobEscrow} from "../src/interfaces/IJobEscrow.sol";
import {IZenToken} from "../src/interfaces/IZenToken.sol";
import {JobEscrow} from "../src/JobEscrow.sol";
import {JobOrder} from "../src/Messages.sol";
import {Network} from "./base/Network.sol";

/// @dev A contract that pays for jobs and accepts the signatures of one key.
contract ContractPayer is IERC1271 {
    bytes32 private immutable accepted;

    constructor(bytes memory signature) {
        accepted = keccak256(signature);
    }

    function approve(IZenToken token, address spender, uint256 amount) external {
        token.approve(spender, amount);
    }

    function isValidSignature(bytes32, bytes memory signature) external view returns (bytes4) {
        return keccak256(signature) == accepted ? IERC1271.isValidSignature.selector : bytes4(0);
    }
}

contract JobEscrowOpenTest is Network {
    function test_escrowsTheBudgetAndRecordsTheOrder() public {
        JobOrder memory order = _order(12, 1 ether);
        uint256 before = token.balanceOf(payer);
        bytes32 expected = escrow.jobIdOf(order);

        bytes memory signature = _signature(PAYER_KEY, escrow.orderDigest(order));
        (uint8 v, bytes32 r, bytes32 s) = _signPermit(PAYER_KEY, address(escrow), 1 ether, block.timestamp);
        _expectOpened(expected, order);
        bytes32 jobId = escrow.openJob(order, signature, block.timestamp, v, r, s);

        vm.assertEq(jobId, expected);
        vm.assertEq(before - token.balanceOf(payer), 1 ether);
        vm.assertEq(token.balanceOf(address(escrow)), 1 ether);
        vm.assertEq(token.allowance(payer, address(escrow)), 0);
        _assertRecorded(escrow.jobs(jobId), order);
    }

    function test_refusesTheSameOrderTwice() public {
        JobOrder memory order = _order(1, 1 ether);
        bytes32 jobId = _open(order);
        bytes memory signature = _signature(PAYER_KEY, escrow.orderDigest(order));
        vm.expectRevert(abi.encodeWithSelector(IJobEscrow.JobExists.selector, jobId));
        escrow.openJob(order, signature, 0, 0, 0, 0);

        _settle(jobId, 0, _noPayments()); // nor once it is over
        vm.expectRevert(abi.encodeWithSelector(IJobEscrow.JobExists.selector, jobId));
        escrow.openJob(order, signature, 0, 0, 0, 0);
    }

    function test_refusesAnotherSigner() public {
        JobOrder memory order = _order(1, 1 ether);
        bytes memory signature = _signature(0xBAD, escrow.orderDigest(order));
        _approve(1 ether);
        vm.expectRevert(IJobEscrow.InvalidOrderSignature.selector);
        escrow.openJob(order, signature, 0, 0, 0, 0);
    }

    function test_refusesAnyChangeOfASignedOrder() public {
        bytes memory signature = _signature(PAYER_KEY, escrow.orderDigest(_order(2, 1 ether)));
        _approve(type(uint256).max);
        for (uint256 field = 0; field < 8; ++field) {
            JobOrder memory order = _order(2, 1 ether);
            if (field == 0) order.specHash = keccak256("other");
            if (field == 1) order.tier = 2;
            if (field == 2) order.units += 1;
            if (field == 3) order.unitWeight += 1;
            if (field == 4) order.budget += 1;
            if (field == 5) order.maxPrice += 1;
            if (field == 6) order.waitUntil += 1;
            if (field == 7) order.nonce += 1;
            vm.expectRevert(IJobEscrow.InvalidOrderSignature.selector);
            escrow.openJob(order, signature, 0, 0, 0, 0);
        }
    }

    function test_refusesASignatureForAnotherDeploymentOrChain() public {
        JobOrder memory order = _order(1, 1 ether);
        JobEscrow other =
            new JobEscrow(IZenToken(address(token)), address(treasury), 500, REFUND_DELAY, 1 days, admin, operator);
        bytes memory signature = _signature(PAYER_KEY, other.orderDigest(order));
        _approve(1 ether);
        vm.expectRevert(IJobEscrow.InvalidOrderSignature.selector);
        escrow.openJob(order, signature, 0, 0, 0, 0);

        signature = _signature(PAYER_KEY, escrow.orderDigest(order));
        vm.chainId(4242);
        vm.expectRevert(IJobEscrow.InvalidOrderSignature.selector);
        escrow.openJob(order, signature, 0, 0, 0, 0);
    }

    function test_acceptsAContractAsPayer() public {
        bytes memory signature = "the owners agreed";
        ContractPayer wallet = new ContractPayer(signature);
        token.transfer(address(wallet), 1 ether);
        wallet.approve(IZenToken(address(token)), address(escrow), 1 ether);
        JobOrder memory order = _order(1, 1 ether);
        order.payer = address(wallet);

        vm.expectRevert(IJobEscrow.InvalidOrderSignature.selector);
        escrow.openJob(order, "they did not", 0, 0, 0, 0);
        bytes32 jobId = escrow.openJob(order, signature, 0, 0, 0, 0);
        _settle(jobId, 0, _noPayments());
        vm.assertEq(token.balanceOf(address(wallet)), 1 ether);
    }

    function test_opensThoughSomebodyUsedThePermitFirst() public {
        JobOrder memory order = _order(1, 1 ether);
        bytes memory signature = _signature(PAYER_KEY, escrow.orderDigest(order));
        (uint8 v, bytes32 r, bytes32 s) = _signPermit(PAYER_KEY, address(escrow), 1 ether, block.timestamp);
        vm.prank(stranger);
        token.permit(payer, address(escrow), 1 ether, block.timestamp, v, r, s);
        escrow.openJob(order, signature, block.timestamp, v, r, s);
        vm.assertEq(token.balanceOf(address(escrow)), 1 ether);
    }

    function test_refusesWithoutAllowance() public {
        JobOrder memory order = _order(1, 1 ether);
        bytes memory signature = _signature(PAYER_KEY, escrow.orderDigest(order));
        vm.expectRevert(
            abi.encodeWithSelector(IERC20Errors.ERC20InsufficientAllowance.selector, address(escrow), 0, 1 ether)
        );
        escrow.openJob(order, signature, 0, 0, 0, 0);
    }

    function test_refusesAnExpiredOrder() public {
        JobOrder memory order = _order(1, 1 ether);
        vm.warp(order.waitUntil + 1);
        _expectRefusal(order, abi.encodeWithSelector(IJobEscrow.OrderExpired.selector, order.waitUntil));
        vm.warp(order.waitUntil); // the last moment is good
        _open(order);
    }

    function test_refusesAnUnknownTier() public {
        JobOrder memory order = _order(1, 1 ether);
        order.tier = 0;
        _expectRefusal(order, abi.encodeWithSelector(IJobEscrow.UnknownTier.selector, 0));
        order.tier = 4;
        _expectRefusal(order, abi.encodeWithSelector(IJobEscrow.UnknownTier.selector, 4));
        order.tier = 3;
        _open(order);
    }

    function test_refusesNoUnits() public {
        _expectRefusal(_order(0, 1 ether), abi.encodeWithSelector(IJobEscrow.NoUnits.selector));
    }

    function test_refusesABudgetBelowOneUnit() public {
        _expectRefusal(
            _order(1, uint96(UNIT - 1)), abi.encodeWithSelector(IJobEscrow.BudgetBelowOneUnit.selector, UNIT - 1, UNIT)
        );
        _open(_order(1, uint96(UNIT)));
    }

    function test_refusesUnitsThatCostNothing() public {
        JobOrder memory order = _order(1, 1 ether);
        order.maxPrice = 399_999; // 90 s at this price: 9,999 wei
        _expectRefusal(order, abi.encodeWithSelector(IJobEscrow.UnitPriceZero.selector, 399_999, WEIGHT));
        order.maxPrice = 400_000;
        _open(order);
    }

    function test_pauseStopsIntakeAndEndsByItself() public {
        JobOrder memory order = _order(1, 1 ether);
        order.waitUntil += 30 days;
        vm.prank(admin);
        escrow.pause();
        _expectRefusal(order, abi.encodeWithSelector(Pausable.EnforcedPause.selector));

        vm.warp(block.timestamp + 1 hours);
        vm.prank(admin); // a running pause cannot be stretched
        vm.expectRevert(Pausable.EnforcedPause.selector);
        escrow.pause();

        vm.warp(escrow.pausedUntil() - 1);
        vm.assertTrue(escrow.paused());
        vm.warp(escrow.pausedUntil());
        vm.assertFalse(escrow.paused());
        _open(order);
    }

    function test_pauseCanBeEndedEarly() public {
        vm.prank(admin);
        escrow.pause();
        vm.prank(admin);
        escrow.unpause();
        _open(_order(1, 1 ether));
        vm.prank(admin);
        vm.expectRevert(Pausable.ExpectedPause.selector);
        escrow.unpause();
    }

    function test_onlyThePauserPauses() public {
        bytes32 role = escrow.PAUSER_ROLE();
        vm.prank(operator);
        _expectMissingRole(operator, role);
        escrow.pause();
        vm.prank(admin);
        escrow.pause();
        vm.prank(operator);
        _expectMissingRole(operator, role);
        escrow.unpause();
    }

    function test_constructorRefusesNonsense() public {
        IZenToken zen = IZenToken(address(token));
        vm.expectRevert(abi.encodeWithSelector(ZenIntake.InvalidParameter.selector, "token"));
        new JobEscrow(IZenToken(address(0)), address(treasury), 500, REFUND_DELAY, 1 days, admin, operator);
        vm.expectRevert(abi.encodeWithSelector(ZenIntake.InvalidParameter.selector, "treasury"));
        new JobEscrow(zen, address(0), 500, REFUND_DELAY, 1 days, admin, operator);
        vm.expectRevert(abi.encodeWithSelector(IJobEscrow.FeeTooHigh.selector, 1_001));
        new JobEscrow(zen, address(treasury), 1_001, REFUND_DELAY, 1 days, admin, operator);
    }

    function _expectOpened(bytes32 jobId, JobOrder memory order) private {
        vm.expectEmit(address(escrow));
        emit IJobEscrow.JobOpened(jobId, payer, 1, 12, WEIGHT, 1 ether, PRICE, 500, order.specHash);
    }

    function _assertRecorded(IJobEscrow.Job memory job, JobOrder memory order) private view {
        vm.assertEq(job.payer, payer);
        vm.assertEq(job.escrowed, 1 ether);
        vm.assertEq(job.maxPrice, PRICE);
        vm.assertEq(job.unitWeight, WEIGHT);
        vm.assertEq(job.units, 12);
        vm.assertEq(job.waitUntil, order.waitUntil);
        vm.assertEq(job.feeBps, 500);
        vm.assertTrue(job.state == IJobEscrow.State.Open);
    }

    function _approve(uint256 amount) private {
        vm.prank(payer);
        token.approve(address(escrow), amount);
    }

    /// @dev All in order but for what `reason` says.
    function _expectRefusal(JobOrder memory order, bytes memory reason) private {
        _approve(order.budget);
        bytes memory signature = _signature(PAYER_KEY, escrow.orderDigest(order));
        vm.expectRevert(reason);
        escrow.openJob(order, signature, 0, 0, 0, 0);
    }
}
