// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Emission} from "../../src/Emission.sol";
import {IRewards} from "../../src/interfaces/IRewards.sol";
import {Rewards} from "../../src/Rewards.sol";
import {ZenToken} from "../../src/ZenToken.sol";
import {RewardActions} from "../actions/RewardActions.sol";
import {Vm} from "../base/Vm.sol";

/// @notice Invariants of rewards and emission after any call sequence.
contract InvariantsRewardsTest {
    Vm private constant vm = Vm(address(uint160(uint256(keccak256("hevm cheat code")))));
    uint256 private constant INITIAL_SUPPLY = 100_000_000 ether;

    RewardActions private actions;
    ZenToken private token;
    Rewards private rewards;
    Emission private emission;
    address private thirdParty;

    struct Selectors {
        address target;
        bytes4[] selectors;
    }

    function setUp() public {
        actions = new RewardActions();
        actions.setUp();
        (token, rewards, emission, thirdParty) = actions.economy();
    }

    /// @dev forge requires these function names.
    function targetContracts() external view returns (address[] memory targets) {
        targets = new address[](1);
        targets[0] = address(actions);
    }

    function targetSelectors() external view returns (Selectors[] memory targets) {
        targets = new Selectors[](1);
        targets[0].target = address(actions);
        bytes4[12] memory all = [
            actions.give.selector,
            actions.giveFromTreasury.selector,
            actions.mint.selector,
            actions.earn.selector,
            actions.earn.selector,
            actions.post.selector,
            actions.veto.selector,
            actions.claim.selector,
            actions.claim.selector,
            actions.steal.selector,
            actions.wait.selector,
            actions.waitLong.selector
        ];
        targets[0].selectors = new bytes4[](all.length);
        for (uint256 i = 0; i < all.length; ++i) {
            targets[0].selectors[i] = all[i];
        }
    }

    /// @dev Every account with covered rewards is paid.
    function afterInvariant() external {
        actions.claimAll();
        for (uint256 i = 0; i < actions.ACCOUNTS(); ++i) {
            vm.assertFalse(actions.isOwed(i));
        }
    }

    function invariant_supply_staysWithinSchedule() public view {
        vm.assertEq(token.totalSupply(), INITIAL_SUPPLY + emission.released());
        vm.assertLe(emission.released(), _scheduled(block.timestamp - emission.start()));
    }

    function invariant_payouts_neverExceedPostedNorArrived() public view {
        IRewards.Epoch memory current = rewards.currentEpoch();
        (IRewards.Epoch memory pending,) = rewards.pendingEpoch();
        uint256 arrived = actions.given() + emission.released();
        vm.assertLe(rewards.paidOut(), current.total);
        vm.assertLe(current.total, arrived);
        vm.assertLe(pending.total, arrived);
        vm.assertEq(token.balanceOf(address(rewards)) + rewards.paidOut(), arrived);
    }

    function invariant_everyAccount_getsExactlyItsRewards() public view {
        uint256 sum;
        for (uint256 i = 0; i < actions.ACCOUNTS(); ++i) {
            uint256 got = token.balanceOf(actions.account(i)) + token.balanceOf(actions.payoutOf(i));
            vm.assertEq(got, rewards.claimed(actions.account(i)));
            sum += got;
        }
        vm.assertEq(rewards.paidOut(), sum);
        vm.assertEq(token.balanceOf(thirdParty), 0);
    }

    /// @dev The published yearly amounts, each linear over its year.
    function _scheduled(uint256 elapsed) private view returns (uint256 total) {
        uint256[] memory yearly = emission.schedule();
        for (uint256 i = 0; i < yearly.length && elapsed > 0; ++i) {
            uint256 time = elapsed < 365 days ? elapsed : 365 days;
            total += yearly[i] * time / 365 days;
            elapsed -= time;
        }
    }
}
