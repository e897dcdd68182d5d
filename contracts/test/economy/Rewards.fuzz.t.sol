// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {RewardNetwork} from "../base/RewardNetwork.sol";
import {Tree} from "../base/Tree.sol";

/// @notice Fuzz tests of the rewards' arithmetic.
contract RewardsFuzzTest is RewardNetwork {
    uint256 private constant YEAR = 365 days;
    uint256 private constant STAKE = 10_000_000 ether;

    function setUp() public override {
        super.setUp();
        _stake(thirdParty, uint96(STAKE));
        token.transfer(address(rewards), 1_000_000 ether);
    }

    function testFuzz_baseBound_isFlooredOnce(uint96 staked, uint16 apy, uint32 elapsed) public {
        staked = uint96(_bound(staked, 0, 80_000_000 ether));
        token.transfer(address(staking), staked);
        apy = uint16(_bound(apy, 1_500, 2_500));
        vm.prank(admin);
        rewards.setApy(apy);
        vm.warp(block.timestamp + elapsed);
        uint256 bound = rewards.baseBound();
        uint256 exact = (STAKE + staked) * apy * elapsed; // in units of 1 / (YEAR * 10,000)
        vm.assertLe(bound * YEAR * 10_000, exact);
        vm.assertTrue((bound + 1) * YEAR * 10_000 > exact);
    }

    /// Random epochs, vetoes and claims: balance plus payouts equal arrivals; payouts never exceed the posted total.
    function testFuzz_payouts_neverExceedPostedNorArrived(uint96[8] memory parts, uint8[8] memory moves) public {
        uint256[5] memory earned; // of each account, in the root in force
        uint256 posted;
        for (uint256 i = 0; i < moves.length; ++i) {
            uint256[5] memory next;
            uint256 total;
            uint256 most = rewards.postBound() / 5;
            for (uint256 j = 0; j < 5; ++j) {
                uint256 part = _bound(uint256(keccak256(abi.encode(parts[i], j))), 0, most);
                next[j] = earned[j] + part;
                total += part;
            }
            vm.warp(block.timestamp + MIN_EPOCH);
            _post(Tree.root(_leaves(next)), 0, uint96(total), 0);
            if (moves[i] % 4 == 0) {
                vm.prank(guardian);
                rewards.veto();
            } else {
                vm.warp(block.timestamp + CLAIM_DELAY);
                (earned, posted) = (next, posted + total);
            }
            if (posted > 0) _claimIfDue(earned, moves[i] % 5);
            vm.assertEq(rewards.currentEpoch().total, posted);
            vm.assertEq(token.balanceOf(address(rewards)) + rewards.paidOut(), 1_000_000 ether);
            vm.assertLe(rewards.paidOut(), posted);
        }
        for (uint256 j = 0; j < 5; ++j) {
            if (posted > 0) _claimIfDue(earned, j);
        }
        vm.assertEq(rewards.paidOut(), posted); // all accounts are fully paid
    }

    function _claimIfDue(uint256[5] memory earned, uint256 index) private {
        address account = address(uint160(0x9000 + index));
        if (earned[index] == rewards.claimed(account)) return;
        rewards.claim(account, earned[index], Tree.proof(_leaves(earned), index));
        vm.assertEq(token.balanceOf(account), earned[index]);
    }

    function _leaves(uint256[5] memory earned) private pure returns (bytes32[] memory leaves) {
        leaves = new bytes32[](5);
        for (uint256 j = 0; j < 5; ++j) {
            leaves[j] = _leaf(address(uint160(0x9000 + j)), earned[j]);
        }
    }
}
