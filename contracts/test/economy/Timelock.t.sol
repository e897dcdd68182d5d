// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {TimelockController} from "@openzeppelin/contracts/governance/TimelockController.sol";
import {IZenToken} from "../../src/interfaces/IZenToken.sol";
import {ProviderStaking} from "../../src/ProviderStaking.sol";
import {Timelock} from "../../src/Timelock.sol";
import {Treasury} from "../../src/Treasury.sol";
import {Network} from "../base/Network.sol";

/// @notice Deployed setup: the timelock is admin of the contracts and the only treasurer.
contract TimelockTest is Network {
    uint256 private constant DELAY = 2 days;
    address private immutable council = _account("council");
    Timelock private timelock;

    function setUp() public override {
        super.setUp();
        timelock = new Timelock(DELAY, _one(council), _one(address(0)));
        IZenToken zen = IZenToken(address(token));
        uint96[5] memory minimumStakes;
        staking =
            new ProviderStaking(zen, 14 days, minimumStakes, 1 days, address(timelock), operator, operator, operator);
        uint16[3] memory shares = [uint16(5_000), 3_000, 2_000];
        treasury = new Treasury(zen, shares, 1 days, address(timelock), address(timelock));
        token.transfer(address(treasury), 100 ether);
    }

    function test_penalty_changesOnlyAfterDelay() public {
        bytes memory call = abi.encodeCall(staking.setPenalty, (2, 6_000, 1_000));
        bytes32 role = staking.DEFAULT_ADMIN_ROLE();
        vm.prank(council);
        _expectMissingRole(council, role);
        staking.setPenalty(2, 6_000, 1_000);

        _schedule(address(staking), call);
        vm.warp(block.timestamp + DELAY - 1);
        vm.expectPartialRevert(TimelockController.TimelockUnexpectedOperationState.selector);
        _execute(address(staking), call);
        vm.warp(block.timestamp + 1);
        _execute(address(staking), call);
        vm.assertEq(staking.penalty(2).bps, 6_000);
        vm.expectPartialRevert(TimelockController.TimelockUnexpectedOperationState.selector);
        _execute(address(staking), call);
    }

    function test_grant_isPaidAfterDelay() public {
        bytes memory call = abi.encodeCall(treasury.grant, (thirdParty, 20 ether, "docs"));
        _schedule(address(treasury), call);
        vm.warp(block.timestamp + DELAY);
        _execute(address(treasury), call);
        vm.assertEq(token.balanceOf(thirdParty), 20 ether);
        vm.assertEq(treasury.grantCount(), 1);
    }

    function test_council_canCancel() public {
        bytes memory call = abi.encodeCall(treasury.spend, (0, thirdParty, 1 ether, "x"));
        _schedule(address(treasury), call);
        bytes32 id = timelock.hashOperation(address(treasury), 0, call, 0, 0);
        vm.prank(council);
        timelock.cancel(id);
        vm.warp(block.timestamp + DELAY);
        vm.expectPartialRevert(TimelockController.TimelockUnexpectedOperationState.selector);
        _execute(address(treasury), call);
    }

    function test_proposal_revertsForOthersOrShortDelay() public {
        bytes memory call = abi.encodeCall(treasury.spend, (0, thirdParty, 1 ether, "x"));
        bytes32 role = timelock.PROPOSER_ROLE();
        vm.prank(thirdParty);
        _expectMissingRole(thirdParty, role);
        timelock.schedule(address(treasury), 0, call, 0, 0, DELAY);
        vm.expectRevert(abi.encodeWithSelector(TimelockController.TimelockInsufficientDelay.selector, DELAY - 1, DELAY));
        vm.prank(council);
        timelock.schedule(address(treasury), 0, call, 0, 0, DELAY - 1);
    }

    function test_roles_areOnlyHeldByTimelock() public {
        bytes32 role = timelock.DEFAULT_ADMIN_ROLE();
        vm.assertTrue(timelock.hasRole(role, address(timelock)));
        vm.assertFalse(timelock.hasRole(role, address(this))); // the deployer
        vm.assertFalse(timelock.hasRole(role, council));
        vm.assertFalse(timelock.hasRole(role, address(0)));
        vm.expectRevert(abi.encodeWithSelector(TimelockController.TimelockUnauthorizedCaller.selector, council));
        vm.prank(council);
        timelock.updateDelay(0);

        bytes memory call = abi.encodeCall(timelock.updateDelay, (3 days));
        _schedule(address(timelock), call);
        vm.warp(block.timestamp + DELAY);
        _execute(address(timelock), call);
        vm.assertEq(timelock.getMinDelay(), 3 days);
    }

    function test_executors_canBeListed() public {
        timelock = new Timelock(DELAY, _one(council), _one(operator));
        bytes memory call = abi.encodeCall(timelock.updateDelay, (3 days));
        _schedule(address(timelock), call);
        vm.warp(block.timestamp + DELAY);
        bytes32 role = timelock.EXECUTOR_ROLE();
        vm.prank(thirdParty);
        _expectMissingRole(thirdParty, role);
        timelock.execute(address(timelock), 0, call, 0, 0);
        vm.prank(operator);
        timelock.execute(address(timelock), 0, call, 0, 0);
    }

    function test_constructor_revertsWithoutProposerOrExecutor() public {
        vm.expectRevert(Timelock.NobodyInCharge.selector);
        new Timelock(DELAY, new address[](0), _one(address(0)));
        vm.expectRevert(Timelock.NobodyInCharge.selector);
        new Timelock(DELAY, _one(council), new address[](0));
    }

    function _schedule(address target, bytes memory call) private {
        vm.prank(council);
        timelock.schedule(target, 0, call, 0, 0, DELAY);
    }

    function _execute(address target, bytes memory call) private {
        vm.prank(thirdParty);
        timelock.execute(target, 0, call, 0, 0);
    }

    function _one(address account) private pure returns (address[] memory list) {
        list = new address[](1);
        list[0] = account;
    }
}
