// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {ITreasury} from "../../src/interfaces/ITreasury.sol";
import {IZenToken} from "../../src/interfaces/IZenToken.sol";
import {Treasury} from "../../src/Treasury.sol";
import {Network} from "../base/Network.sol";
import {ReentrantToken} from "../attacks/Reentrancy.t.sol";

contract TreasuryTest is Network {
    function test_arrivals_areSplitByShares() public {
        token.transfer(address(treasury), 100 ether);
        vm.assertEq(treasury.received(), 100 ether);
        vm.assertEq(treasury.available(0), 50 ether);
        vm.assertEq(treasury.available(1), 30 ether);
        vm.assertEq(treasury.available(2), 20 ether);
        vm.assertEq(treasury.shareBps(0), 5_000);
        vm.assertEq(treasury.shareBps(2), 2_000);
    }

    function test_spend_isLimitedToDestinationShare() public {
        token.transfer(address(treasury), 100 ether);
        vm.expectEmit(address(treasury));
        emit ITreasury.Spent(1, thirdParty, 25 ether, "audit");
        _spend(1, thirdParty, 25 ether);
        vm.assertEq(token.balanceOf(thirdParty), 25 ether);
        vm.assertEq(treasury.spent(1), 25 ether);
        vm.assertEq(treasury.available(1), 5 ether);
        vm.assertEq(treasury.available(0), 50 ether);
        vm.expectRevert(abi.encodeWithSelector(ITreasury.InsufficientFunds.selector, 5 ether + 1, 5 ether));
        _spend(1, thirdParty, 5 ether + 1);

        token.transfer(address(treasury), 10 ether);
        _spend(1, thirdParty, 8 ether);
        vm.assertEq(treasury.received(), 110 ether);
    }

    function test_spend_revertsForNonTreasurer() public {
        token.transfer(address(treasury), 100 ether);
        bytes32 role = treasury.TREASURER_ROLE();
        vm.prank(admin);
        _expectMissingRole(admin, role);
        treasury.spend(0, admin, 1, "mine");
    }

    function test_grants_areNumberedAndRecorded() public {
        token.transfer(address(treasury), 100 ether);
        vm.expectEmit(address(treasury));
        emit ITreasury.Granted(1, thirdParty, 15 ether, "docs");
        vm.expectEmit(address(treasury));
        emit ITreasury.Spent(2, thirdParty, 15 ether, "docs");
        vm.assertEq(_grant(thirdParty, 15 ether, "docs"), 1);
        vm.assertEq(_grant(payer, 5 ether, "talk"), 2);
        vm.assertEq(treasury.grantCount(), 2);
        vm.assertEq(treasury.grants(1).recipient, thirdParty);
        vm.assertEq(treasury.grants(1).amount, 15 ether);
        vm.assertEq(treasury.grants(1).purpose, "docs");
        vm.assertEq(treasury.grants(2).recipient, payer);
        vm.assertEq(treasury.grants(3).recipient, address(0));
        vm.assertEq(token.balanceOf(thirdParty), 15 ether);
        vm.assertEq(treasury.spent(2), 20 ether);
        vm.assertEq(treasury.available(2), 0);
        vm.assertEq(treasury.available(0), 50 ether);
        vm.assertEq(treasury.available(1), 30 ether);
    }

    function test_grants_followSpendingRules() public {
        token.transfer(address(treasury), 100 ether);
        vm.expectRevert(abi.encodeWithSelector(ITreasury.InsufficientFunds.selector, 20 ether + 1, 20 ether));
        _grant(thirdParty, 20 ether + 1, "docs");
        vm.expectRevert(ITreasury.ZeroAmount.selector);
        _grant(thirdParty, 0, "docs");
        vm.expectRevert(ITreasury.SpendToItself.selector);
        _grant(address(treasury), 1, "docs");
        vm.expectRevert(ITreasury.GrantsOnly.selector);
        _spend(2, thirdParty, 1);
        vm.assertEq(treasury.grantCount(), 0);
        bytes32 role = treasury.TREASURER_ROLE();
        vm.prank(admin);
        _expectMissingRole(admin, role);
        treasury.grant(admin, 1, "mine");
    }

    function test_grant_cannotBeReenteredByToken() public {
        ReentrantToken hostile = new ReentrantToken();
        uint16[3] memory shares = [uint16(5_000), 3_000, 2_000];
        treasury = new Treasury(IZenToken(address(hostile)), shares, 1 days, admin, address(hostile));
        hostile.mint(address(treasury), 100 ether);
        bytes memory grant = abi.encodeCall(treasury.grant, (thirdParty, 1 ether, "docs"));
        hostile.attack(address(treasury), grant, grant);
        vm.assertEq(
            hostile.answer(), abi.encodeWithSelector(ReentrancyGuardTransient.ReentrancyGuardReentrantCall.selector)
        );
        vm.assertEq(hostile.balanceOf(thirdParty), 1 ether);
    }

    function test_spend_revertsOnInvalidArguments() public {
        token.transfer(address(treasury), 100 ether);
        vm.expectRevert(abi.encodeWithSelector(ITreasury.UnknownDestination.selector, 3));
        _spend(3, thirdParty, 1);
        vm.expectRevert(abi.encodeWithSelector(ITreasury.UnknownDestination.selector, 3));
        treasury.spent(3);
        vm.expectRevert(ITreasury.ZeroAmount.selector);
        _spend(0, thirdParty, 0);
        vm.expectRevert(ITreasury.SpendToItself.selector);
        _spend(0, address(treasury), 1);
    }

    function test_constructor_revertsOnInvalidParameters() public {
        uint16[3] memory shares = [uint16(5_000), 3_000, 2_001];
        vm.expectRevert(abi.encodeWithSelector(ITreasury.InvalidParameter.selector, "shares"));
        new Treasury(IZenToken(address(token)), shares, 1 days, admin, treasurer);
        shares[2] = 2_000;
        vm.expectRevert(abi.encodeWithSelector(ITreasury.InvalidParameter.selector, "token"));
        new Treasury(IZenToken(address(0)), shares, 1 days, admin, treasurer);
    }

    function testFuzz_shares_neverExceedArrivals(uint96[4] memory arrivals, uint96[4] memory wishes) public {
        for (uint256 i = 0; i < 4; ++i) {
            token.transfer(address(treasury), _bound(arrivals[i], 0, 1_000_000 ether));
            uint8 destination = uint8(i % 3);
            uint256 amount = _bound(wishes[i], 0, treasury.available(destination));
            if (amount > 0 && destination == 2) _grant(thirdParty, amount, "docs");
            else if (amount > 0) _spend(destination, thirdParty, amount);
            uint256 allocated = treasury.available(0) + treasury.available(1) + treasury.available(2);
            uint256 held = token.balanceOf(address(treasury));
            vm.assertLe(allocated, held);
            vm.assertLe(held - allocated, 2);
        }
    }

    function _spend(uint8 destination, address to, uint256 amount) private {
        vm.prank(treasurer);
        treasury.spend(destination, to, amount, "audit");
    }

    function _grant(address recipient, uint256 amount, bytes32 purpose) private returns (uint256) {
        vm.prank(treasurer);
        return treasury.grant(recipient, amount, purpose);
    }
}
