// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IJobEscrow} from "../../src/interfaces/IJobEscrow.sol";
import {JobOrder} from "../../src/Messages.sol";
import {RewardNetwork} from "../base/RewardNetwork.sol";
import {Network} from "../base/Network.sol";
import {Settlements} from "../base/Settlements.sol";
import {Tree} from "../base/Tree.sol";

/// @notice Splitting payments into the smallest amounts gains no wei and strands none.
contract DustTest is RewardNetwork, Settlements {
    function setUp() public override(RewardNetwork, Network) {
        super.setUp();
    }

    /// @dev Batches of single units at prices down to the lowest payable one, each claimed and collected separately.
    function testFuzz_manyTinySettlements_spendExactBudget(uint256 seed, uint16 feeBps) public {
        vm.prank(admin);
        escrow.setFee(uint16(_bound(feeBps, 0, 1_000)));
        JobOrder memory order = _order(24, uint96(_bound(seed, 200_000, 10_000_000)));
        order.waitUntil += 300 days;
        order.maxPrice = 8_000_000; // 200,000 wei a unit; the minimum is 10,000
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

    /// @dev Rewards that grow by one wei. One account claims after each epoch, the other once at the end.
    function test_manyTinyRewardClaims_equalOne() public {
        token.transfer(address(rewards), 600);
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
        vm.assertEq(token.balanceOf(address(rewards)), 600 - 60);
    }

    /// @dev Repeated slashes down to the last wei never take more than the balance and never block the rest.
    function testFuzz_manyTinySlashes_sumCorrectly(uint96 amount) public {
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

    /// @dev Wei lost to rounding of the treasury's shares stay in it and are shared with later arrivals.
    function test_roundedShares_areNotLost() public {
        for (uint256 i = 0; i < 10_000; i += 7) {
            token.transfer(address(treasury), 7);
        }
        uint256 sum = treasury.available(0) + treasury.available(1) + treasury.available(2);
        vm.assertLe(token.balanceOf(address(treasury)) - sum, 2);
    }
}
