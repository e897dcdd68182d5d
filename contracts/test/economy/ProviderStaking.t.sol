// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Pausable} from "@openzeppelin/contracts/utils/Pausable.sol";
import {ZenIntake} from "../../src/base/ZenIntake.sol";
import {IProviderStaking} from "../../src/interfaces/IProviderStaking.sol";
import {IZenToken} from "../../src/interfaces/IZenToken.sol";
import {ProviderStaking} from "../../src/ProviderStaking.sol";
import {StakeFixture} from "../base/StakeFixture.sol";

/// @notice StakeFixture, commitments and withdrawals.
contract ProviderStakingTest is StakeFixture {
    function test_stake_addsUp() public {
        _stake(provider, 100 ether);
        token.transfer(provider, 50 ether);
        vm.prank(provider);
        token.approve(address(staking), 50 ether);
        vm.expectEmit(address(staking));
        emit IProviderStaking.Staked(provider, 50 ether, 150 ether);
        vm.prank(provider);
        staking.stake(50 ether);
        _assertAccount(150 ether, 0, false);
        vm.assertEq(token.balanceOf(address(staking)), 150 ether);
        vm.assertEq(token.balanceOf(provider), 0);
    }

    function test_stakeWithPermit_usesPermit() public {
        (uint8 v, bytes32 r, bytes32 s) = _signPermit(PAYER_KEY, address(staking), 2 ether, block.timestamp);
        vm.prank(payer);
        staking.stakeWithPermit(2 ether, block.timestamp, v, r, s);
        vm.assertEq(staking.stakeOf(payer), 2 ether);

        (v, r, s) = _signPermit(PAYER_KEY, address(staking), 3 ether, block.timestamp);
        vm.prank(thirdParty); // front-runs the permit to block the stake
        token.permit(payer, address(staking), 3 ether, block.timestamp, v, r, s);
        vm.prank(payer);
        staking.stakeWithPermit(3 ether, block.timestamp, v, r, s);
        vm.assertEq(staking.stakeOf(payer), 5 ether);
    }

    function test_zeroAmounts_revert() public {
        vm.expectRevert(IProviderStaking.ZeroAmount.selector);
        staking.stake(0);
        vm.expectRevert(IProviderStaking.ZeroAmount.selector);
        staking.requestUnstake(0);
    }

    function test_unstake_paysAfterDelay() public {
        _stake(provider, 100 ether);
        uint256 releaseAt = block.timestamp + UNBONDING_DELAY;
        vm.expectEmit(address(staking));
        emit IProviderStaking.UnstakeRequested(provider, 60 ether, 60 ether, releaseAt);
        _requestUnstake(60 ether);
        _assertAccount(40 ether, 60 ether, false);

        vm.warp(releaseAt - 1);
        vm.expectRevert(abi.encodeWithSelector(IProviderStaking.StillUnbonding.selector, releaseAt));
        _withdraw();
        vm.warp(releaseAt);
        vm.expectEmit(address(staking));
        emit IProviderStaking.Withdrawn(provider, 60 ether);
        _withdraw();
        vm.assertEq(token.balanceOf(provider), 60 ether);
        _assertAccount(40 ether, 0, false);
        vm.expectRevert(IProviderStaking.NothingToWithdraw.selector);
        _withdraw();
    }

    function test_unstake_revertsAboveStake() public {
        _stake(provider, 100 ether);
        _requestUnstake(60 ether);
        vm.expectRevert(abi.encodeWithSelector(IProviderStaking.InsufficientStake.selector, 41 ether, 40 ether));
        _requestUnstake(41 ether);
    }

    function test_secondRequest_restartsDelayOfWholeEntry() public {
        _stake(provider, 100 ether);
        _requestUnstake(60 ether);
        vm.warp(block.timestamp + UNBONDING_DELAY - 1);
        _requestUnstake(40 ether);
        uint256 releaseAt = block.timestamp + UNBONDING_DELAY;
        vm.warp(releaseAt - 1);
        vm.expectRevert(abi.encodeWithSelector(IProviderStaking.StillUnbonding.selector, releaseAt));
        _withdraw();
        vm.warp(releaseAt);
        _withdraw();
        vm.assertEq(token.balanceOf(provider), 100 ether);
    }

    function test_commitment_canOnlyBeExtended() public {
        uint40 until = uint40(block.timestamp + 30 days);
        vm.assertEq(staking.committedUntil(provider), 0);
        vm.expectEmit(address(staking));
        emit IProviderStaking.Committed(provider, until);
        _commit(provider, 30 days);
        vm.assertEq(staking.committedUntil(provider), until);
        _expectInvalidCommitment(until);
        _expectInvalidCommitment(until - 1);
        _commit(provider, 30 days + 1);
        vm.assertEq(staking.committedUntil(provider), until + 1);
    }

    function test_commitment_revertsBeyondOneYear() public {
        _expectInvalidCommitment(uint40(block.timestamp));
        _expectInvalidCommitment(uint40(block.timestamp + 365 days + 1));
        _commit(provider, 365 days);
        vm.warp(block.timestamp + 366 days);
        _expectInvalidCommitment(uint40(block.timestamp)); // later than the last commitment, but in the past
        _commit(provider, 1);
        vm.assertEq(staking.committedUntil(provider), block.timestamp + 1);
    }

    function test_committedStake_isSlashableUntilEnd() public {
        _stake(provider, 100 ether);
        _commit(provider, 100 days);
        uint256 until = staking.committedUntil(provider);
        vm.expectEmit(address(staking));
        emit IProviderStaking.UnstakeRequested(provider, 60 ether, 60 ether, until);
        _requestUnstake(60 ether);
        vm.warp(until - 1);
        vm.expectRevert(abi.encodeWithSelector(IProviderStaking.StillUnbonding.selector, until));
        _withdraw();
        vm.warp(until);
        _withdraw();
        vm.assertEq(token.balanceOf(provider), 60 ether);
    }

    function test_endingCommitment_doesNotShortenDelay() public {
        _stake(provider, 100 ether);
        _commit(provider, UNBONDING_DELAY - 1);
        _requestUnstake(60 ether);
        vm.assertEq(staking.accountOf(provider).releaseAt, block.timestamp + UNBONDING_DELAY);
    }

    function test_commitment_doesNotDelayEarlierUnbonding() public {
        _stake(provider, 100 ether);
        _requestUnstake(60 ether);
        uint256 releaseAt = block.timestamp + UNBONDING_DELAY;
        _commit(provider, 100 days);
        vm.warp(releaseAt);
        _withdraw();
        vm.assertEq(token.balanceOf(provider), 60 ether);
    }

    function test_setMinimumStake_revertsForNonAdmin() public {
        bytes32 role = staking.DEFAULT_ADMIN_ROLE();
        vm.prank(operator);
        _expectMissingRole(operator, role);
        staking.setMinimumStake(1, 1);

        _stake(provider, 10_000 ether);
        vm.expectEmit(address(staking));
        emit IProviderStaking.MinimumStakeSet(1, 10_000 ether + 1);
        vm.prank(admin);
        staking.setMinimumStake(1, 10_000 ether + 1);
        vm.assertEq(staking.minimumStake(1), 10_000 ether + 1);
        vm.assertFalse(staking.qualifies(provider, 1));
        vm.assertEq(staking.minimumStake(0), 1_000 ether);

        vm.prank(admin);
        vm.expectRevert(abi.encodeWithSelector(IProviderStaking.UnknownTier.selector, 5));
        staking.setMinimumStake(5, 1);
    }

    function test_qualification_countsOnlyStakeNotUnbonding() public {
        uint96[5] memory minimum = [uint96(1_000 ether), 10_000 ether, 20_000 ether, 40_000 ether, 10_000 ether];
        _stake(provider, 40_000 ether);
        uint8[5] memory falling = [3, 2, 1, 4, 0];
        for (uint256 i = 0; i < falling.length; ++i) {
            uint8 tier = falling[i];
            vm.assertEq(staking.minimumStake(tier), minimum[tier]);
            _requestUnstake(uint96(staking.stakeOf(provider) - minimum[tier]) + 1);
            vm.assertFalse(staking.qualifies(provider, tier));
            _stake(provider, 1);
            vm.assertTrue(staking.qualifies(provider, tier));
        }
        vm.assertEq(staking.atRisk(provider), 40_000 ether + 5);
        vm.expectRevert(abi.encodeWithSelector(IProviderStaking.UnknownTier.selector, 5));
        staking.qualifies(provider, 5);
    }

    function test_pause_stopsOnlyIntake() public {
        _stake(provider, 100 ether);
        vm.prank(guardian);
        staking.pause();
        vm.expectRevert(Pausable.EnforcedPause.selector);
        staking.stake(1);
        vm.expectRevert(Pausable.EnforcedPause.selector);
        staking.stakeWithPermit(1, 0, 0, 0, 0);

        _requestUnstake(100 ether);
        vm.warp(block.timestamp + UNBONDING_DELAY);
        vm.prank(guardian);
        staking.pause();
        _withdraw();
        vm.assertEq(token.balanceOf(provider), 100 ether);
    }

    function test_constructor_revertsOnExcessiveDelay() public {
        uint96[5] memory minimumStakes;
        vm.expectRevert(abi.encodeWithSelector(ZenIntake.InvalidParameter.selector, "delay"));
        new ProviderStaking(
            IZenToken(address(token)), 365 days + 1, minimumStakes, 1 days, admin, admin, operator, disputes
        );
        staking = new ProviderStaking(
            IZenToken(address(token)), 365 days, minimumStakes, 1 days, admin, admin, operator, disputes
        );
        vm.assertEq(staking.unbondingDelay(), 365 days);
        vm.assertTrue(staking.hasRole(staking.SLASHER_ROLE(), operator));
        vm.assertTrue(staking.hasRole(staking.DISPUTES_ROLE(), disputes));
    }

    /// The lock never moves back, for any order of requests, commitments and time.
    function testFuzz_lock_neverGetsShorter(uint40[8] memory waits, uint40[8] memory commitments) public {
        _stake(provider, 100 ether);
        uint256 releaseAt;
        for (uint256 i = 0; i < waits.length; ++i) {
            vm.warp(block.timestamp + _bound(waits[i], 0, 60 days));
            uint256 ahead = _bound(commitments[i], 1, 365 days);
            if (block.timestamp + ahead > staking.committedUntil(provider)) _commit(provider, ahead);
            _requestUnstake(1 ether);
            uint256 next = staking.accountOf(provider).releaseAt;
            vm.assertLe(releaseAt, next);
            vm.assertLe(staking.committedUntil(provider), next);
            vm.assertLe(block.timestamp + UNBONDING_DELAY, next);
            vm.assertLe(next, block.timestamp + 365 days);
            releaseAt = next;
        }
    }

    function _expectInvalidCommitment(uint40 until) private {
        bytes4 selector = IProviderStaking.InvalidCommitment.selector;
        vm.expectRevert(abi.encodeWithSelector(selector, until, block.timestamp + 365 days));
        vm.prank(provider);
        staking.commit(until);
    }
}
