// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IERC20Errors} from "@openzeppelin/contracts/interfaces/draft-IERC6093.sol";
import {Pausable} from "@openzeppelin/contracts/utils/Pausable.sol";
import {ExactTransfers} from "../../src/base/ExactTransfers.sol";
import {IJobEscrow} from "../../src/interfaces/IJobEscrow.sol";
import {IZenToken} from "../../src/interfaces/IZenToken.sol";
import {JobEscrow} from "../../src/JobEscrow.sol";
import {JobOrder} from "../../src/Messages.sol";
import {FeeToken} from "../base/BadTokens.sol";
import {Settlements} from "../base/Settlements.sol";

/// @notice Deposits into a payer's balance and withdrawals from it.
contract JobEscrowBalanceTest is Settlements {
    function test_deposit_addsToOwnersBalance() public {
        uint256 before = token.balanceOf(payer);
        (uint8 v, bytes32 r, bytes32 s) = _signPermit(PAYER_KEY, address(escrow), 2 ether, block.timestamp);
        vm.expectEmit(address(escrow));
        emit IJobEscrow.Deposited(payer, 2 ether);
        vm.prank(thirdParty);
        escrow.deposit(payer, 2 ether, block.timestamp, v, r, s);
        _prepay(1 ether);

        _assertBalance(3 ether, 0);
        vm.assertEq(before - token.balanceOf(payer), 3 ether);
        vm.assertEq(token.balanceOf(address(escrow)), 3 ether);
        vm.assertEq(token.allowance(payer, address(escrow)), 0);
        vm.assertEq(escrow.balances(thirdParty).free, 0);
    }

    function test_deposit_works_whenPermitWasUsed() public {
        (uint8 v, bytes32 r, bytes32 s) = _signPermit(PAYER_KEY, address(escrow), 1 ether, block.timestamp);
        vm.prank(thirdParty);
        token.permit(payer, address(escrow), 1 ether, block.timestamp, v, r, s);
        escrow.deposit(payer, 1 ether, block.timestamp, v, r, s);
        _assertBalance(1 ether, 0);
        _expectNoAllowance(1 ether);
        escrow.deposit(payer, 1 ether, block.timestamp, v, r, s);
    }

    /// @dev An allowance allows only a deposit for its owner, which the owner can withdraw.
    function test_deposit_creditsOwnerForRelayedAllowance() public {
        vm.prank(payer);
        token.approve(address(escrow), 1 ether);
        vm.prank(thirdParty);
        escrow.deposit(payer, 1 ether, 0, 0, 0, 0);
        vm.assertEq(escrow.balances(thirdParty).free, 0);
        _withdraw(1 ether, payer);
        vm.assertEq(token.balanceOf(payer), 1_000_000 ether);
    }

    function test_deposit_revertsForZeroAllowanceOrPause() public {
        vm.expectRevert(IJobEscrow.NoAmount.selector);
        escrow.deposit(payer, 0, 0, 0, 0, 0);
        _expectNoAllowance(1);
        escrow.deposit(payer, 1, 0, 0, 0, 0);
        vm.prank(guardian);
        escrow.pause();
        vm.expectRevert(Pausable.EnforcedPause.selector);
        escrow.deposit(payer, 1, 0, 0, 0, 0);
    }

    function test_deposit_revertsForFeeToken() public {
        FeeToken taking = new FeeToken();
        JobEscrow other = _deployEscrow(IZenToken(address(taking)), address(treasury), operator, disputes);
        taking.mint(payer, 2 ether);
        vm.prank(payer);
        taking.approve(address(other), 2 ether);
        taking.setFee(1);
        vm.expectRevert(abi.encodeWithSelector(ExactTransfers.TransferShort.selector, 1 ether, 1 ether - 1));
        other.deposit(payer, 1 ether, 0, 0, 0, 0);
        taking.setFee(0);
        other.deposit(payer, 1 ether, 0, 0, 0, 0);
    }

    function test_withdraw_paysOwnFreeBalanceOnly() public {
        _prepay(3 ether);
        _open(_order(1, 1 ether)); // draws its own deposit
        _expectShort(payer, 3 ether + 1, 3 ether);
        _withdraw(3 ether + 1, payer);
        _expectShort(thirdParty, 1, 0);
        vm.prank(thirdParty);
        escrow.withdraw(1, thirdParty);

        vm.expectEmit(address(escrow));
        emit IJobEscrow.Withdrawn(payer, thirdParty, 2 ether);
        _withdraw(2 ether, thirdParty);
        _assertBalance(1 ether, 1 ether);
        vm.assertEq(token.balanceOf(thirdParty), 2 ether);
        vm.assertEq(token.balanceOf(address(escrow)), 2 ether);
    }

    function test_withdraw_revertsForInvalidArguments() public {
        _prepay(1 ether);
        vm.expectRevert(IJobEscrow.NoAmount.selector);
        _withdraw(0, payer);
        vm.expectRevert(abi.encodeWithSelector(IJobEscrow.InvalidRecipient.selector, address(0)));
        _withdraw(1, address(0));
        vm.expectRevert(abi.encodeWithSelector(IJobEscrow.InvalidRecipient.selector, address(escrow)));
        _withdraw(1, address(escrow));
    }

    function test_withdraw_staysOpenDuringPause() public {
        _prepay(1 ether);
        vm.prank(guardian);
        escrow.pause();
        _withdraw(1 ether, payer);
        _assertBalance(0, 0);
    }

    /// @dev A refund and a veto pay as before, next to a balance that they do not touch.
    function test_balance_isUntouchedByRefundAndVeto() public {
        _prepay(5 ether);
        bytes32 jobId = _open(_order(4, 1 ether));
        Bill memory bill = _post(_billFor(_line(jobId, 0, 1, true), 2, 1));
        _veto(bill);
        vm.warp(escrow.jobs(jobId).settleBy + 1);
        escrow.refund(jobId);
        _assertBalance(5 ether, 1 ether);
        vm.assertEq(token.balanceOf(address(escrow)), 5 ether);
        vm.assertEq(token.balanceOf(payer), 1_000_000 ether - 5 ether);
    }

    /// @dev Free balance and open escrow always sum to the deposits minus the withdrawals.
    function testFuzz_balance_addsUp(uint96 first, uint96 second, uint96 budget, uint96 out) public {
        first = uint96(_bound(first, 1, 1_000 ether));
        second = uint96(_bound(second, 1, 1_000 ether));
        budget = uint96(_bound(budget, UNIT, 2_500 ether));
        out = uint96(_bound(out, 1, 2_500 ether));
        _prepay(first);
        _prepay(second);
        uint256 free = uint256(first) + second;
        JobOrder memory order = _order(1, budget);
        bytes memory signature = _signature(PAYER_KEY, escrow.orderDigest(order));
        bool affordable = budget <= free;
        if (!affordable) _expectShort(payer, budget, free);
        escrow.openJob(order, signature);
        if (affordable) free -= budget;
        bool withdrawable = out <= free;
        if (!withdrawable) _expectShort(payer, out, free);
        _withdraw(out, payer);
        if (withdrawable) free -= out;
        _assertBalance(free, affordable ? budget : 0);
        vm.assertEq(token.balanceOf(address(escrow)), free + (affordable ? budget : 0));
    }

    function _assertBalance(uint256 free, uint256 drawn) private view {
        IJobEscrow.Balance memory found = escrow.balances(payer);
        vm.assertEq(found.free, free);
        vm.assertEq(found.drawn, drawn);
    }

    function _withdraw(uint256 amount, address to) private {
        vm.prank(payer);
        escrow.withdraw(amount, to);
    }

    function _expectShort(address account, uint256 needed, uint256 available) private {
        vm.expectRevert(abi.encodeWithSelector(IJobEscrow.InsufficientBalance.selector, account, needed, available));
    }

    function _expectNoAllowance(uint256 amount) private {
        vm.expectRevert(
            abi.encodeWithSelector(IERC20Errors.ERC20InsufficientAllowance.selector, address(escrow), 0, amount)
        );
    }
}
