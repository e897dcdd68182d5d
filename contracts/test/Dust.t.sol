// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IJobEscrow} from "../src/interfaces/IJobEscrow.sol";
import {JobOrder} from "../src/Messages.sol";
import {Economy} from "./base/Economy.sol";
import {Network} from "./base/Network.sol";
import {Settlements} from "./base/Settlements.sol";
import {Tree} from "./base/Tree.sol";

/// @notice Whoever cuts payments into the smallest pieces gets no wei more for it, and leaves none behind.
contract DustTest is Economy, Settlements {
    function setUp() public override(Economy, Network) {
        super.setUp();
    }

    /// @dev Batches of single units at prices down to the least that is payable, each claimed and collected by itself.
    function testFuzz_manyTinySettlementsSpendExactlyTheBudget(uint256 seed, uint16 feeBps) public {
        vm.prank(admin);
        escrow.setFee(uint16(_bound(feeBps, 0, 1_000)));
        JobOrder memory order = _order(24, uint96(_bound(seed, 200_000, 10_000_000)));
        order.waitUntil += 300 days;
        order.maxPrice = 8_000_000; // 200,000 wei a unit; 10,000 is the least
        uint256 before = token.balanceOf(payer);
        bytes32 jobId = _open(order);
        uint256 gross;
        for (uint32 i = 0; i < 24; ++i) {
            seed = uint256(keccak256(abi.encode(seed)));
            IJobEscrow.JobLine memory line = _line(jobId, i, i + 1, i == 23);
            line.price = uint80(400_000 + seed % 7_600_001);
            bool affordable = escrow.unitPrice(line.price, WEIGHT) <= escrow.jobs(jobId).escrowed;
            uint256 alice = affordable ? seed >> 128 & 1 : 0;
            Bill memory bill = _post(_billFor(line, alice, affordable ? 1 - alice : 0));
            if (bill.batchId == 0) continue;
            gross += escrow.unitPrice(line.price, WEIGHT);
            _endChallenge(bill);
            for (uint256 j = 0; j < bill.providers.length; ++j) {
                _claim(bill, j);
            }
            _collect(bill);
        }
        uint256 paid = token.balanceOf(ALICE) + token.balanceOf(BOB) + token.balanceOf(address(treasury));
        vm.assertEq(paid, gross);
        vm.assertEq(before - token.balanceOf(payer), gross);
        vm.assertEq(token.balanceOf(address(escrow)), 0);
    }

    /// @dev Rewards that grow by single weis, claimed after each epoch by one and once at the end by the other.
    function test_manyTinyRewardClaimsAreWorthOne() public {
        token.transfer(address(rewards), 60);
        bytes32[] memory leaves = new bytes32[](2);
        for (uint256 i = 1; i <= 30; ++i) {
            (leaves[0], leaves[1]) = (_leaf(ALICE, i), _leaf(BOB, i));
            vm.warp(block.timestamp + CLAIM_DELAY);
            _post(Tree.root(leaves), 0, 2, 0);
            vm.warp(block.timestamp + CLAIM_DELAY);
            rewards.claim(ALICE, i, Tree.proof(leaves, 0));
        }
        rewards.claim(BOB, 30, Tree.proof(leaves, 1));
        vm.assertEq(token.balanceOf(ALICE), token.balanceOf(BOB));
        vm.assertEq(token.balanceOf(address(rewards)), 0);
    }

    /// @dev Slashing to the last wei, over and over, never takes more than there is and never keeps the rest.
    function testFuzz_manySlashesOfDust(uint96 amount) public {
        amount = uint96(_bound(amount, 1, 1_000));
        _stake(ALICE, amount);
        uint256 slashed;
        for (uint256 i = 0; i < 20; ++i) {
            vm.prank(operator);
            (uint256 part,) = staking.slash(ALICE, 2, bytes32(i));
            slashed += part;
        }
        uint256 rest = staking.stakeOf(ALICE);
        vm.assertEq(slashed + rest, amount);
        vm.prank(ALICE);
        staking.requestUnstake(uint96(rest));
        vm.warp(block.timestamp + UNBONDING_DELAY);
        vm.prank(ALICE);
        staking.withdraw();
        vm.assertEq(token.balanceOf(ALICE), rest);
        vm.assertEq(token.balanceOf(address(staking)), 0);
    }

    /// @dev What the shares of the treasury's destinations round away stays in it and is shared out with what comes next.
    function test_whatSharesRoundAwayIsNotLost() public {
        for (uint256 i = 0; i < 10_000; i += 7) {
            token.transfer(address(treasury), 7);
        }
        uint256 sum = treasury.available(0) + treasury.available(1) + treasury.available(2);
        vm.assertLe(token.balanceOf(address(treasury)) - sum, 2);
    }
}
