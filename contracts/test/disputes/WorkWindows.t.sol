// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IWorkWindows} from "../../src/interfaces/IWorkWindows.sol";
import {UnitCommitment} from "../../src/Messages.sol";
import {WorkWindows} from "../../src/WorkWindows.sol";
import {BlockHistory} from "../base/BlockHistory.sol";
import {Network} from "../base/Network.sol";

contract WorkWindowsTest is Network {
    function test_commitWindow_countsFromZeroFixingSeedBlock() public {
        vm.expectEmit(address(windows));
        emit IWorkWindows.WindowCommitted(0, "root a", 3, block.number + SEED_DELAY);
        vm.assertEq(_commit("root a", 3), 0);
        vm.roll(block.number + 10);
        vm.warp(block.timestamp + 20);
        vm.expectEmit(address(windows));
        emit IWorkWindows.WindowCommitted(1, "root b", 4, block.number + SEED_DELAY);
        vm.assertEq(_commit("root b", 4), 1);

        vm.assertEq(windows.windowCount(), 2);
        IWorkWindows.Window memory window = windows.windows("root b");
        vm.assertEq(window.id, 1);
        vm.assertEq(window.committedAt, block.timestamp);
        vm.assertEq(window.leafCount, 4);
        vm.assertEq(window.seedBlock, block.number + SEED_DELAY);
        vm.assertEq(window.seed, 0);
    }

    function test_commitWindow_revertsForUsedRoot() public {
        _commit("root", 3);
        vm.expectRevert(abi.encodeWithSelector(IWorkWindows.RootUsed.selector, bytes32("root")));
        _commit("root", 3);
        vm.roll(block.number + 10);
        windows.latchSeed("root");
        vm.expectRevert(abi.encodeWithSelector(IWorkWindows.RootUsed.selector, bytes32("root")));
        _commit("root", 4);
    }

    function test_commitWindow_revertsForEmptyWindow() public {
        vm.expectRevert(IWorkWindows.EmptyWindow.selector);
        _commit(0, 1);
        vm.expectRevert(IWorkWindows.EmptyWindow.selector);
        _commit("root", 0);
    }

    function test_commitWindow_revertsForNonOperator() public {
        bytes32 role = windows.OPERATOR_ROLE();
        vm.prank(admin);
        _expectMissingRole(admin, role);
        windows.commitWindow("root", 1);
    }

    function test_latchSeed_recordsOnceForAnyCaller() public {
        _commit("root", 1);
        uint256 seedBlock = windows.windows("root").seedBlock;
        vm.roll(seedBlock);
        vm.expectRevert(abi.encodeWithSelector(IWorkWindows.SeedNotReady.selector, seedBlock));
        windows.latchSeed("root");

        vm.roll(seedBlock + 1);
        vm.setBlockhash(seedBlock, keccak256("later block"));
        bytes32 seed = keccak256(abi.encode(keccak256("later block"), uint256(0), bytes32("root")));
        vm.expectEmit(address(windows));
        emit IWorkWindows.SeedLatched(0, "root", seed);
        vm.prank(thirdParty);
        windows.latchSeed("root");
        vm.assertEq(windows.windows("root").seed, seed);

        vm.roll(seedBlock + 1_000);
        vm.expectRevert(abi.encodeWithSelector(IWorkWindows.SeedKnown.selector, bytes32("root")));
        windows.latchSeed("root");
    }

    /// @dev After 256 blocks the seed is still the one of the block that was announced.
    function test_latchSeed_keepsSeed_whenLatchedLate() public {
        _commit("root", 1);
        uint256 seedBlock = windows.windows("root").seedBlock;
        BlockHistory.store(seedBlock, keccak256("seed block"));
        vm.roll(seedBlock + BlockHistory.REACH);
        windows.latchSeed("root");
        bytes32 seed = keccak256(abi.encode(keccak256("seed block"), uint256(0), bytes32("root")));
        vm.assertEq(windows.windows("root").seed, seed);
        vm.assertEq(windows.windows("root").seedBlock, seedBlock);
    }

    function test_latchSeed_reschedules_whenHashUnavailable() public {
        _commit("root", 1);
        BlockHistory.store(windows.windows("root").seedBlock, keccak256("seed block"));
        vm.roll(windows.windows("root").seedBlock + BlockHistory.REACH + 1);
        uint256 later = block.number + SEED_DELAY;
        vm.expectEmit(address(windows));
        emit IWorkWindows.SeedRescheduled(0, "root", later);
        windows.latchSeed("root");
        vm.assertEq(windows.windows("root").seed, 0);
        vm.assertEq(windows.windows("root").seedBlock, later);

        vm.expectRevert(abi.encodeWithSelector(IWorkWindows.SeedNotReady.selector, later));
        windows.latchSeed("root");
        vm.roll(later + 1);
        windows.latchSeed("root");
        vm.assertTrue(windows.windows("root").seed != 0);
    }

    function test_calls_revertForUnknownWindow() public {
        vm.expectRevert(abi.encodeWithSelector(IWorkWindows.UnknownWindow.selector, bytes32("none")));
        windows.latchSeed("none");
        vm.expectRevert(abi.encodeWithSelector(IWorkWindows.UnknownWindow.selector, bytes32("none")));
        windows.windows("none");
        UnitCommitment memory unit;
        vm.expectRevert(abi.encodeWithSelector(IWorkWindows.UnknownWindow.selector, bytes32("none")));
        windows.includes("none", unit, new bytes32[](0));
    }

    function test_constructor_revertsOnInvalidDelay() public {
        vm.expectRevert(abi.encodeWithSelector(WorkWindows.InvalidParameter.selector, "delay"));
        new WorkWindows(0, 1 days, admin, operator);
        vm.expectRevert(abi.encodeWithSelector(WorkWindows.InvalidParameter.selector, "delay"));
        new WorkWindows(201, 1 days, admin, operator);
        vm.assertEq(new WorkWindows(200, 1 days, admin, operator).seedDelay(), 200);
    }

    function _commit(bytes32 root, uint32 leafCount) private returns (uint256) {
        vm.prank(operator);
        return windows.commitWindow(root, leafCount);
    }
}
