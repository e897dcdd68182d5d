// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Pausable} from "@openzeppelin/contracts/utils/Pausable.sol";
import {ZenIntake} from "../src/base/ZenIntake.sol";
import {IProviderStaking} from "../src/interfaces/IProviderStaking.sol";
import {IZenToken} from "../src/interfaces/IZenToken.sol";
import {ProviderStaking} from "../src/ProviderStaking.sol";
import {Network} from "./base/Network.sol";

contract ProviderStakingTest is Network {
    address private immutable provider = address(0x1111);
    uint8 private constant DOWNTIME = 1;
    uint8 private constant INCORRECT = 2;
    uint8 private constant WITHHELD = 4;

    function test_stakeAddsUp() public {
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

    function test_stakeWithPermit() public {
        (uint8 v, bytes32 r, bytes32 s) = _signPermit(PAYER_KEY, address(staking), 2 ether, block.timestamp);
        vm.prank(payer);
        staking.stakeWithPermit(2 ether, block.timestamp, v, r, s);
        vm.assertEq(staking.stakeOf(payer), 2 ether);

        (v, r, s) = _signPermit(PAYER_KEY, address(staking), 3 ether, block.timestamp);
        vm.prank(stranger); // gets in first to block the stake
        token.permit(payer, address(staking), 3 ether, block.timestamp, v, r, s);
        vm.prank(payer);
        staking.stakeWithPermit(3 ether, block.timestamp, v, r, s);
        vm.assertEq(staking.stakeOf(payer), 5 ether);
    }

    function test_refusesZero() public {
        vm.expectRevert(IProviderStaking.ZeroAmount.selector);
        staking.stake(0);
        vm.expectRevert(IProviderStaking.ZeroAmount.selector);
        staking.requestUnstake(0);
    }

    function test_unstakesAfterTheDelay() public {
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

    function test_refusesToUnstakeMoreThanTheStake() public {
        _stake(provider, 100 ether);
        _requestUnstake(60 ether);
        vm.expectRevert(abi.encodeWithSelector(IProviderStaking.InsufficientStake.selector, 41 ether, 40 ether));
        _requestUnstake(41 ether);
    }

    function test_aSecondRequestFreesNothingSooner() public {
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

    function test_slashBurnsTheSharePerOffence() public {
        uint256 supply = token.totalSupply();
        uint16[4] memory bps = [uint16(500), 5_000, 500, 2_000];
        for (uint8 offence = 1; offence <= 4; ++offence) {
            address culprit = address(uint160(0x5000) + offence);
            _stake(culprit, 100 ether);
            uint256 expected = 100 ether * uint256(bps[offence - 1]) / 10_000;
            bytes32 evidence = bytes32(uint256(offence));
            vm.expectEmit(address(staking));
            emit IProviderStaking.Jailed(culprit);
            vm.expectEmit(address(staking));
            emit IProviderStaking.Slashed(culprit, offence, expected, evidence);
            vm.prank(operator);
            vm.assertEq(staking.slash(culprit, offence, evidence), expected);
            vm.assertEq(staking.atRisk(culprit), 100 ether - expected);
            vm.assertTrue(staking.evidenceUsed(evidence));
            supply -= expected;
            vm.assertEq(token.totalSupply(), supply);
        }
    }

    function test_slashRefusesAnUnknownOffence() public {
        _stake(provider, 100 ether);
        vm.expectRevert(abi.encodeWithSelector(IProviderStaking.UnknownOffence.selector, 0));
        _slash(0, "a");
        vm.expectRevert(abi.encodeWithSelector(IProviderStaking.UnknownOffence.selector, 5));
        _slash(5, "a");
    }

    function test_slashPunishesEvidenceOnce() public {
        _stake(provider, 100 ether);
        _slash(DOWNTIME, "a");
        vm.expectRevert(abi.encodeWithSelector(IProviderStaking.EvidenceUsed.selector, bytes32("a")));
        _slash(INCORRECT, "a");
    }

    function test_onlyTheSlasherSlashes() public {
        _stake(provider, 100 ether);
        bytes32 role = staking.SLASHER_ROLE();
        vm.prank(admin);
        _expectMissingRole(admin, role);
        staking.slash(provider, INCORRECT, "a");
    }

    function test_slashReachesUnbondingStakeAndStrandsNothing() public {
        _stake(provider, 100 ether);
        _requestUnstake(90 ether);
        vm.warp(block.timestamp + UNBONDING_DELAY); // could leave, has not: still at risk
        _slash(INCORRECT, "a");
        _assertAccount(0, 50 ether, true);
        _withdraw();
        vm.assertEq(token.balanceOf(provider), 50 ether);
        vm.assertEq(token.balanceOf(address(staking)), 0);
    }

    function test_slashTakesStakeFirst() public {
        _stake(provider, 100 ether);
        _requestUnstake(40 ether);
        _slash(WITHHELD, "a");
        _assertAccount(40 ether, 40 ether, true);
    }

    function test_slashLeavesOthersAlone() public {
        _stake(provider, 100 ether);
        _stake(stranger, 100 ether);
        _slash(INCORRECT, "a");
        vm.assertEq(staking.stakeOf(stranger), 100 ether);
        vm.assertFalse(staking.isJailed(stranger));
    }

    function test_slashOfNothingStillJails() public {
        _slash(INCORRECT, "a");
        _assertAccount(0, 0, true);
    }

    function test_theJailedMayTopUpAndLeave() public {
        _stake(provider, 100 ether);
        _slash(INCORRECT, "a");
        _stake(provider, 100 ether);
        vm.assertTrue(staking.isJailed(provider));
        _requestUnstake(150 ether);
        vm.warp(block.timestamp + UNBONDING_DELAY);
        _withdraw();
        vm.assertEq(token.balanceOf(provider), 150 ether);
    }

    function test_onlyTheAdminReleases() public {
        _stake(provider, 20_000 ether);
        _slash(INCORRECT, "a");
        bytes32 role = staking.DEFAULT_ADMIN_ROLE();
        vm.prank(operator);
        _expectMissingRole(operator, role);
        staking.release(provider);

        vm.assertFalse(staking.qualifies(provider, 1));
        vm.expectEmit(address(staking));
        emit IProviderStaking.Released(provider);
        vm.prank(admin);
        staking.release(provider);
        vm.assertTrue(staking.qualifies(provider, 1));

        vm.prank(admin);
        vm.expectRevert(abi.encodeWithSelector(IProviderStaking.NotJailed.selector, provider));
        staking.release(provider);
    }

    function test_qualifiesByStakeThatIsNotLeaving() public {
        uint96[4] memory minimum = [uint96(1_000 ether), 10_000 ether, 20_000 ether, 40_000 ether];
        _stake(provider, 40_000 ether);
        for (uint8 below = 1; below <= 4; ++below) {
            uint8 tier = 4 - below;
            vm.assertEq(staking.minimumStake(tier), minimum[tier]);
            _requestUnstake(uint96(staking.stakeOf(provider) - minimum[tier]) + 1);
            vm.assertFalse(staking.qualifies(provider, tier));
            _stake(provider, 1);
            vm.assertTrue(staking.qualifies(provider, tier));
        }
        vm.assertEq(staking.atRisk(provider), 40_000 ether + 4);
        vm.expectRevert(abi.encodeWithSelector(IProviderStaking.UnknownTier.selector, 4));
        staking.qualifies(provider, 4);
    }

    function test_pauseStopsIntakeOnly() public {
        _stake(provider, 100 ether);
        vm.prank(admin);
        staking.pause();
        vm.expectRevert(Pausable.EnforcedPause.selector);
        staking.stake(1);
        vm.expectRevert(Pausable.EnforcedPause.selector);
        staking.stakeWithPermit(1, 0, 0, 0, 0);

        _requestUnstake(100 ether);
        vm.warp(block.timestamp + UNBONDING_DELAY);
        vm.prank(admin);
        staking.pause();
        _withdraw();
        vm.assertEq(token.balanceOf(provider), 100 ether);
    }

    function test_constructorRefusesAnEndlessDelay() public {
        uint96[4] memory minimumStakes;
        vm.expectRevert(abi.encodeWithSelector(ZenIntake.InvalidParameter.selector, "delay"));
        new ProviderStaking(IZenToken(address(token)), 365 days + 1, minimumStakes, 1 days, admin, operator);
    }

    function testFuzz_slashesAreBoundedAndMonotone(uint96 stake, uint96 leaving, uint8[6] memory offences) public {
        stake = uint96(_bound(stake, 1, 1_000_000 ether));
        leaving = uint96(_bound(leaving, 0, stake));
        _stake(provider, stake);
        if (leaving > 0) _requestUnstake(leaving);
        uint256 burned;
        for (uint256 i = 0; i < offences.length; ++i) {
            uint8 offence = uint8(_bound(offences[i], 1, 4));
            uint256 before = staking.atRisk(provider);
            vm.prank(operator);
            uint256 amount = staking.slash(provider, offence, bytes32(i));
            vm.assertEq(amount, before * staking.penaltyBps(offence) / 10_000);
            burned += amount;
            vm.assertEq(staking.atRisk(provider) + burned, stake);
            vm.assertEq(token.balanceOf(address(staking)), stake - burned);
        }
        // whatever is left can leave
        uint96 left = uint96(staking.stakeOf(provider));
        if (left > 0) _requestUnstake(left);
        vm.warp(block.timestamp + UNBONDING_DELAY);
        if (staking.atRisk(provider) > 0) _withdraw();
        vm.assertEq(token.balanceOf(provider), stake - burned);
    }

    function _requestUnstake(uint96 amount) private {
        vm.prank(provider);
        staking.requestUnstake(amount);
    }

    function _withdraw() private {
        vm.prank(provider);
        staking.withdraw();
    }

    function _slash(uint8 offence, bytes32 evidence) private {
        vm.prank(operator);
        staking.slash(provider, offence, evidence);
    }

    function _assertAccount(uint256 stake, uint256 unbonding, bool jailed) private view {
        IProviderStaking.Account memory account = staking.accountOf(provider);
        vm.assertEq(account.stake, stake);
        vm.assertEq(account.unbonding, unbonding);
        vm.assertTrue(account.jailed == jailed);
        vm.assertEq(staking.stakeOf(provider), stake);
        vm.assertEq(staking.atRisk(provider), stake + unbonding);
        vm.assertTrue(staking.isJailed(provider) == jailed);
    }
}
