// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IProviderStaking} from "../../src/interfaces/IProviderStaking.sol";
import {StakeFixture} from "../base/StakeFixture.sol";

/// @notice Penalties, jailing and the remaining stake.
contract ProviderStakingSlashTest is StakeFixture {
    function test_operatorSlash_isBurnedInFull() public {
        uint256 supply = token.totalSupply();
        uint16[7] memory bps = [uint16(500), 5_000, 500, 5_000, 2_000, 10_000, 5_000];
        for (uint8 offence = 1; offence <= 7; ++offence) {
            address culprit = address(uint160(0x5000) + offence);
            _stake(culprit, 100 ether);
            _commit(culprit, 1 days);
            uint256 expected = 100 ether * uint256(bps[offence - 1]) / 10_000;
            bytes32 evidence = bytes32(uint256(offence));
            vm.expectEmit(address(staking));
            emit IProviderStaking.Jailed(culprit);
            vm.expectEmit(address(staking));
            emit IProviderStaking.Slashed(culprit, offence, expected, 0, evidence);
            vm.prank(operator);
            (uint256 amount, uint256 share) = staking.slash(culprit, offence, evidence);
            vm.assertEq(amount, expected);
            vm.assertEq(share, 0);
            vm.assertEq(staking.atRisk(culprit), 100 ether - expected);
            supply -= expected;
            vm.assertEq(token.totalSupply(), supply);
        }
        vm.assertEq(token.balanceOf(operator), 0);
    }

    function test_disputeSlash_sendsShareAndBurnsRest() public {
        uint256 supply = token.totalSupply();
        uint256 received;
        uint16[7] memory bps = [uint16(500), 5_000, 500, 5_000, 2_000, 10_000, 5_000];
        uint16[7] memory shareBps = [uint16(0), 2_000, 0, 2_000, 0, 0, 2_000];
        for (uint8 offence = 1; offence <= 7; ++offence) {
            address culprit = address(uint160(0x5000) + offence);
            _stake(culprit, 100 ether);
            _commit(culprit, 1 days);
            uint256 expected = 100 ether * uint256(bps[offence - 1]) / 10_000;
            uint256 expectedShare = expected * shareBps[offence - 1] / 10_000;
            vm.expectEmit(address(staking));
            emit IProviderStaking.Slashed(culprit, offence, expected, expectedShare, bytes32(uint256(offence)));
            vm.prank(disputes);
            (uint256 amount, uint256 share) = staking.slash(culprit, offence, bytes32(uint256(offence)));
            vm.assertEq(amount, expected);
            vm.assertEq(share, expectedShare);
            received += share;
            supply -= expected - share;
            vm.assertEq(token.balanceOf(disputes), received);
            vm.assertEq(token.totalSupply(), supply);
        }
    }

    function test_holderOfBothRoles_actsForDisputes() public {
        bytes32 role = staking.SLASHER_ROLE();
        vm.prank(admin);
        staking.grantRole(role, disputes);
        _stake(provider, 100 ether);
        vm.prank(disputes);
        (, uint256 share) = staking.slash(provider, INCORRECT, "a");
        vm.assertEq(share, 10 ether);
        vm.assertTrue(staking.evidenceUsed(staking.DISPUTES_ROLE(), "a"));
        vm.assertFalse(staking.evidenceUsed(role, "a"));
    }

    function test_slash_revertsForUnknownOffence() public {
        _stake(provider, 100 ether);
        vm.expectRevert(abi.encodeWithSelector(IProviderStaking.UnknownOffence.selector, 0));
        _slash(0, "a");
        vm.expectRevert(abi.encodeWithSelector(IProviderStaking.UnknownOffence.selector, 8));
        _slash(8, "a");
    }

    function test_slash_usesEvidenceOncePerRole() public {
        _stake(provider, 100 ether);
        _slash(BANDWIDTH, "a");
        vm.expectRevert(abi.encodeWithSelector(IProviderStaking.EvidenceUsed.selector, bytes32("a")));
        _slash(INCORRECT, "a");

        vm.prank(disputes); // SLASHER_ROLE cannot use up the id of a dispute
        staking.slash(provider, INCORRECT, "a");
        vm.assertEq(staking.atRisk(provider), 47.5 ether);
        vm.expectRevert(abi.encodeWithSelector(IProviderStaking.EvidenceUsed.selector, bytes32("a")));
        vm.prank(disputes);
        staking.slash(provider, INCORRECT, "a");
    }

    function test_slash_revertsWithoutRole() public {
        _stake(provider, 100 ether);
        bytes32 role = staking.SLASHER_ROLE();
        vm.prank(admin);
        _expectMissingRole(admin, role);
        staking.slash(provider, INCORRECT, "a");
        vm.prank(provider);
        _expectMissingRole(provider, role);
        staking.slash(thirdParty, INCORRECT, "a");
    }

    function test_downtimeSlash_requiresCommitment() public {
        _stake(provider, 100 ether);
        vm.expectRevert(abi.encodeWithSelector(IProviderStaking.NotCommitted.selector, provider, 0));
        _slash(DOWNTIME, "a");
        _commit(provider, 1 days);
        _slash(DOWNTIME, "a");

        uint256 until = staking.committedUntil(provider);
        vm.warp(until + UNBONDING_DELAY);
        _slash(DOWNTIME, "b");
        vm.warp(until + UNBONDING_DELAY + 1);
        vm.expectRevert(abi.encodeWithSelector(IProviderStaking.NotCommitted.selector, provider, until));
        _slash(DOWNTIME, "c");
        _slash(BANDWIDTH, "c"); // other offences need no commitment
    }

    function test_slash_includesUnbondingAndLeavesRestWithdrawable() public {
        _stake(provider, 100 ether);
        _requestUnstake(90 ether);
        vm.warp(block.timestamp + UNBONDING_DELAY); // withdrawable but not withdrawn: still slashable
        _slash(INCORRECT, "a");
        _assertAccount(0, 50 ether, true);
        _withdraw();
        vm.assertEq(token.balanceOf(provider), 50 ether);
        vm.assertEq(token.balanceOf(address(staking)), 0);
    }

    function test_slash_takesStakeFirst() public {
        _stake(provider, 100 ether);
        _requestUnstake(40 ether);
        _slash(WRONG_REPLAY, "a");
        _assertAccount(40 ether, 40 ether, true);
    }

    function test_slash_doesNotAffectOtherAccounts() public {
        _stake(provider, 100 ether);
        _stake(thirdParty, 100 ether);
        _slash(INCORRECT, "a");
        vm.assertEq(staking.stakeOf(thirdParty), 100 ether);
        vm.assertFalse(staking.isJailed(thirdParty));
    }

    function test_slash_jails_whenBalanceIsZero() public {
        _slash(INCORRECT, "a");
        _assertAccount(0, 0, true);
    }

    function test_jailedAccount_canStakeAndLeave() public {
        _stake(provider, 100 ether);
        _slash(INCORRECT, "a");
        _stake(provider, 100 ether);
        vm.assertTrue(staking.isJailed(provider));
        _requestUnstake(150 ether);
        vm.warp(block.timestamp + UNBONDING_DELAY);
        _withdraw();
        vm.assertEq(token.balanceOf(provider), 150 ether);
    }

    function test_release_revertsForNonAdmin() public {
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

    function test_setPenalty_revertsForNonAdmin() public {
        bytes32 role = staking.DEFAULT_ADMIN_ROLE();
        vm.prank(operator);
        _expectMissingRole(operator, role);
        staking.setPenalty(INCORRECT, 1, 1);

        vm.expectEmit(address(staking));
        emit IProviderStaking.PenaltySet(WITHHELD, 10_000, 5_000);
        vm.prank(admin);
        staking.setPenalty(WITHHELD, 10_000, 5_000);
        vm.assertEq(staking.penalty(WITHHELD).bps, 10_000);
        vm.assertEq(staking.penalty(WITHHELD).disputeShareBps, 5_000);
        vm.assertEq(staking.penalty(BANDWIDTH).bps, 500);

        _stake(provider, 100 ether);
        vm.prank(disputes);
        (uint256 amount, uint256 share) = staking.slash(provider, WITHHELD, "a");
        vm.assertEq(amount, 100 ether);
        vm.assertEq(share, 50 ether);
        _assertAccount(0, 0, true);
    }

    function test_setPenalty_isBounded() public {
        vm.prank(admin);
        vm.expectRevert(abi.encodeWithSelector(IProviderStaking.PenaltyTooHigh.selector, 10_001, 0));
        staking.setPenalty(INCORRECT, 10_001, 0);
        vm.prank(admin);
        vm.expectRevert(abi.encodeWithSelector(IProviderStaking.PenaltyTooHigh.selector, 5_000, 5_001));
        staking.setPenalty(INCORRECT, 5_000, 5_001);
        for (uint256 i = 0; i < 2; ++i) {
            uint8 unknown = i == 0 ? 0 : 8;
            vm.prank(admin);
            vm.expectRevert(abi.encodeWithSelector(IProviderStaking.UnknownOffence.selector, unknown));
            staking.setPenalty(unknown, 1, 1);
            vm.expectRevert(abi.encodeWithSelector(IProviderStaking.UnknownOffence.selector, unknown));
            staking.penalty(unknown);
        }
    }

    /// The price bound of orders relies on it: with a lower penalty fraud could pay.
    function test_fraudPenalty_hasMinimum() public {
        uint8[3] memory frauds = [INCORRECT, WITHHELD, REFUSED];
        for (uint256 i = 0; i < frauds.length; ++i) {
            uint8 offence = frauds[i];
            vm.prank(admin);
            vm.expectRevert(abi.encodeWithSelector(IProviderStaking.PenaltyTooLow.selector, 4_999, 5_000));
            staking.setPenalty(offence, 4_999, 0);
            vm.assertEq(staking.penalty(offence).bps, 5_000); // timeout and refusal cost the same
            vm.prank(admin);
            staking.setPenalty(offence, 5_000, 0);
        }
        uint8[3] memory others = [DOWNTIME, BANDWIDTH, WRONG_REPLAY];
        for (uint256 i = 0; i < others.length; ++i) {
            vm.prank(admin);
            staking.setPenalty(others[i], 0, 0);
        }
        for (uint8 tier = 0; tier < 5; ++tier) {
            vm.assertEq(staking.leastCheatPenalty(tier), staking.minimumStake(tier) / 2);
        }
        vm.expectRevert(abi.encodeWithSelector(IProviderStaking.UnknownTier.selector, 5));
        staking.leastCheatPenalty(5);
    }

    /// Known defect of a similar network: a slash did not reach matured unbonding entries.
    function test_maturedUnbonding_isSlashed() public {
        _stake(provider, 100 ether);
        _requestUnstake(100 ether);
        vm.warp(block.timestamp + 10 * UNBONDING_DELAY);
        _slash(INCORRECT, "a");
        _assertAccount(0, 50 ether, true);
    }

    /// Known defect of a similar network: the eleventh request reset the delay of the tenth; matured entries stayed.
    function test_manyRequests_formOneEntry() public {
        _stake(provider, 100 ether);
        for (uint256 i = 0; i < 11; ++i) {
            _requestUnstake(2 ether);
        }
        vm.warp(block.timestamp + UNBONDING_DELAY);
        _withdraw();
        vm.assertEq(token.balanceOf(provider), 22 ether);
        _assertAccount(78 ether, 0, false);
        _requestUnstake(1 ether);
        vm.assertEq(staking.accountOf(provider).releaseAt, block.timestamp + UNBONDING_DELAY);
    }

    /// Known defect of a similar network: a slash during a pending withdrawal blocked the rest until a further deposit.
    function test_slashDuringUnbonding_leavesRestWithdrawable() public {
        _stake(provider, 10 ether);
        _requestUnstake(10 ether);
        uint256 releaseAt = staking.accountOf(provider).releaseAt;
        vm.warp(block.timestamp + 1 days);
        _slash(WRONG_REPLAY, "a");
        vm.assertEq(staking.accountOf(provider).releaseAt, releaseAt);
        vm.warp(releaseAt - 1);
        vm.expectRevert(abi.encodeWithSelector(IProviderStaking.StillUnbonding.selector, releaseAt));
        _withdraw();
        vm.warp(releaseAt);
        _withdraw();
        vm.assertEq(token.balanceOf(provider), 8 ether);
    }

    /// Known defect of a similar network: the slash total was capped by the remaining stake, so it was not monotone.
    function test_slashTotal_neverDecreases() public {
        vm.prank(admin);
        staking.setPenalty(BANDWIDTH, 3_000, 0);
        _stake(provider, 100 ether);
        uint256 left = 100 ether;
        for (uint256 i = 0; i < 20; ++i) {
            _slash(BANDWIDTH, bytes32(i));
            left -= left * 3_000 / 10_000;
            vm.assertEq(staking.atRisk(provider), left);
        }
        vm.assertTrue(left > 0 && left < 0.1 ether);
    }

    /// Known defect of a similar network: another account could move a lock by a dust deposit. Here only the owner can.
    function test_lock_isUnaffectedByOtherAccounts() public {
        _stake(provider, 100 ether);
        _requestUnstake(60 ether);
        _commit(provider, 30 days);
        IProviderStaking.Account memory before = staking.accountOf(provider);
        token.transfer(thirdParty, 10 ether);
        vm.prank(thirdParty);
        token.transfer(address(staking), 1); // recorded for no account
        _stake(thirdParty, 5 ether);
        vm.prank(thirdParty);
        staking.requestUnstake(1 ether);
        _commit(thirdParty, 90 days);
        IProviderStaking.Account memory now_ = staking.accountOf(provider);
        vm.assertEq(keccak256(abi.encode(now_)), keccak256(abi.encode(before)));
        vm.assertEq(staking.committedUntil(provider), block.timestamp + 30 days);
    }

    function testFuzz_slashes_areBoundedAndMonotone(
        uint96 stake,
        uint96 leaving,
        uint8[7] memory offences,
        bool[7] memory disputed,
        uint16[14] memory table
    ) public {
        stake = uint96(_bound(stake, 1, 1_000_000 ether));
        leaving = uint96(_bound(leaving, 0, stake));
        _stake(provider, stake);
        if (leaving > 0) _requestUnstake(leaving);
        _commit(provider, 1 days);
        for (uint8 offence = 1; offence <= 7; ++offence) {
            bool endsACheat = offence == INCORRECT || offence == WITHHELD || offence == REFUSED;
            uint256 least = endsACheat ? staking.LEAST_CHEAT_PENALTY_BPS() : 0;
            uint16 bps = uint16(_bound(table[offence - 1], least, 10_000));
            vm.prank(admin);
            staking.setPenalty(offence, bps, uint16(_bound(table[offence + 6], 0, 5_000)));
        }
        uint256 taken;
        for (uint256 i = 0; i < offences.length; ++i) {
            taken += _slashAndCheck(uint8(_bound(offences[i], 1, 7)), disputed[i], bytes32(i));
            vm.assertEq(staking.atRisk(provider) + taken, stake);
            vm.assertEq(token.balanceOf(address(staking)), stake - taken);
        }
        // the rest is withdrawable
        uint96 left = uint96(staking.stakeOf(provider));
        if (left > 0) _requestUnstake(left);
        vm.warp(block.timestamp + UNBONDING_DELAY);
        if (staking.atRisk(provider) > 0) _withdraw();
        vm.assertEq(token.balanceOf(provider), stake - taken);
    }

    function _slashAndCheck(uint8 offence, bool disputed, bytes32 evidence) private returns (uint256 amount) {
        uint256 expected = staking.atRisk(provider) * staking.penalty(offence).bps / 10_000;
        uint256 expectedShare = disputed ? expected * staking.penalty(offence).disputeShareBps / 10_000 : 0;
        uint256 supply = token.totalSupply();
        uint256 balance = token.balanceOf(disputes);
        uint256 share;
        vm.prank(disputed ? disputes : operator);
        (amount, share) = staking.slash(provider, offence, evidence);
        vm.assertEq(amount, expected);
        vm.assertEq(share, expectedShare);
        vm.assertEq(token.totalSupply(), supply - expected + expectedShare);
        vm.assertEq(token.balanceOf(disputes), balance + expectedShare);
    }
}
