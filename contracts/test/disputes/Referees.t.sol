// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IReferees} from "../../src/interfaces/IReferees.sol";
import {DisputeFixture} from "../base/DisputeFixture.sol";

contract RefereesTest is DisputeFixture {
    function test_stakedVerifiers_registerAndRenew() public {
        vm.expectRevert(abi.encodeWithSelector(IReferees.NotQualified.selector, thirdParty));
        vm.prank(thirdParty);
        disputes.registerReferee();
        staking.setStake(thirdParty, 1_000 ether);
        vm.expectEmit(address(disputes));
        emit IReferees.RefereeRegistered(thirdParty, block.timestamp + 30 days);
        vm.prank(thirdParty);
        disputes.registerReferee();
        vm.assertEq(disputes.refereeCount(), REFEREES + 1);
        vm.assertTrue(disputes.isReferee(thirdParty));
        vm.assertEq(disputes.listedUntil(thirdParty), block.timestamp + 30 days);
        vm.assertEq(disputes.listedUntil(provider), 0);

        vm.warp(block.timestamp + 20 days);
        vm.expectEmit(address(disputes));
        emit IReferees.RefereeRegistered(thirdParty, block.timestamp + 30 days);
        vm.prank(thirdParty);
        disputes.registerReferee();
        vm.assertEq(disputes.refereeCount(), REFEREES + 1);
        vm.assertEq(disputes.listedUntil(thirdParty), block.timestamp + 30 days);
        staking.setStake(thirdParty, 1_000 ether - 1);
        vm.expectRevert(abi.encodeWithSelector(IReferees.NotQualified.selector, thirdParty));
        vm.prank(thirdParty);
        disputes.registerReferee();
    }

    function test_expiredReferee_isEvictedByAnyAccount() public {
        uint256 until = disputes.listedUntil(referees[0]);
        vm.warp(until);
        vm.expectRevert(abi.encodeWithSelector(IReferees.StillQualified.selector, referees[0]));
        disputes.evict(referees[0]);
        _register(referees[1]);
        vm.warp(until + 1);
        vm.prank(thirdParty);
        disputes.evict(referees[0]);
        vm.assertFalse(disputes.isReferee(referees[0]));
        vm.assertEq(disputes.listedUntil(referees[0]), 0);
        vm.expectRevert(abi.encodeWithSelector(IReferees.StillQualified.selector, referees[1]));
        disputes.evict(referees[1]);
        vm.assertEq(staking.atRisk(referees[0]), 1_000 ether);
    }

    function testFuzz_list_matchesRegistrations(uint256 order_) public {
        uint256 left = REFEREES;
        for (uint256 i = 0; i < 6; ++i) {
            address referee = referees[(order_ >> (8 * i)) % REFEREES];
            bool listed = disputes.isReferee(referee);
            if (listed) {
                vm.expectEmit(address(disputes));
                emit IReferees.RefereeRemoved(referee);
            }
            vm.prank(referee);
            if (listed) disputes.resign();
            else disputes.registerReferee();
            left = listed ? left - 1 : left + 1;
            vm.assertEq(disputes.refereeCount(), left);
        }
        uint256 found = 0;
        for (uint256 i = 0; i < REFEREES; ++i) {
            if (disputes.isReferee(referees[i])) ++found;
        }
        vm.assertEq(found, left);
    }

    function test_resign_revertsForUnregisteredAccount() public {
        vm.expectRevert(abi.encodeWithSelector(IReferees.NotReferee.selector, thirdParty));
        vm.prank(thirdParty);
        disputes.resign();
        vm.expectRevert(abi.encodeWithSelector(IReferees.NotReferee.selector, thirdParty));
        disputes.evict(thirdParty);
    }

    function test_unqualifiedReferee_isEvictedByAnyAccount() public {
        address referee = referees[0];
        vm.expectRevert(abi.encodeWithSelector(IReferees.StillQualified.selector, referee));
        vm.prank(thirdParty);
        disputes.evict(referee);
        staking.setStake(referee, 1_000 ether - 1);
        vm.prank(thirdParty);
        disputes.evict(referee);
        vm.assertFalse(disputes.isReferee(referee));
    }

    /// @dev Knowledge of the seed must not allow the list to be rearranged before the draw.
    function test_list_cannotShrinkWhileDrawIsPending() public {
        bytes32 id = _openAndSelect(2);
        address referee = referees[0];
        vm.expectRevert(abi.encodeWithSelector(IReferees.DrawsPending.selector, 1));
        vm.prank(referee);
        disputes.resign();
        staking.setStake(referee, 0);
        vm.expectRevert(abi.encodeWithSelector(IReferees.DrawsPending.selector, 1));
        disputes.evict(referee);
        _draw(id);
        disputes.evict(referee);
    }
}
