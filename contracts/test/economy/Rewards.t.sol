// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {IRewards} from "../../src/interfaces/IRewards.sol";
import {IZenToken} from "../../src/interfaces/IZenToken.sol";
import {Rewards} from "../../src/Rewards.sol";
import {RewardNetwork} from "../base/RewardNetwork.sol";
import {Tree} from "../base/Tree.sol";
import {ReentrantToken} from "../attacks/Reentrancy.t.sol";

contract RewardsTest is RewardNetwork {
    address private immutable alice = _account("alice");
    address private immutable bob = _account("bob");
    uint256 private constant YEAR = 365 days;
    uint256 private constant STAKE = 10_000_000 ether;

    function setUp() public override {
        super.setUp();
        _stake(thirdParty, uint96(STAKE));
        token.transfer(address(rewards), 1_000_000 ether);
    }

    // --- posting

    function test_postEpoch_recordsAllParts() public {
        vm.warp(block.timestamp + MIN_EPOCH);
        uint256 claimableAt = block.timestamp + CLAIM_DELAY;
        vm.expectEmit(address(rewards));
        emit IRewards.EpochPosted(1, "root", 1 ether, 2 ether, 3 ether, claimableAt);
        _post("root", 1 ether, 2 ether, 3 ether);

        (IRewards.Epoch memory pending, uint256 opens) = rewards.pendingEpoch();
        _assertEpoch(pending, 1, "root", 6 ether, block.timestamp);
        vm.assertEq(opens, claimableAt);
        _assertEpoch(rewards.currentEpoch(), 0, 0, 0, block.timestamp - MIN_EPOCH);

        vm.warp(claimableAt);
        (pending, opens) = rewards.pendingEpoch();
        _assertEpoch(pending, 0, 0, 0, 0);
        vm.assertEq(opens, 0);
        _assertEpoch(rewards.currentEpoch(), 1, "root", 6 ether, claimableAt - CLAIM_DELAY);

        _post("next", 0, 4 ether, 0);
        (pending,) = rewards.pendingEpoch();
        _assertEpoch(pending, 2, "next", 10 ether, block.timestamp);
        _assertEpoch(rewards.currentEpoch(), 1, "root", 6 ether, claimableAt - CLAIM_DELAY);
    }

    function test_postEpoch_revertsBeforeMinimumInterval() public {
        uint256 first = block.timestamp + MIN_EPOCH;
        vm.warp(first - 1);
        vm.expectRevert(abi.encodeWithSelector(IRewards.TooEarly.selector, first));
        _post("root", 0, 0, 0);
        vm.warp(first);
        _post("root", 0, 0, 0);

        vm.warp(first + CLAIM_DELAY - 1); // longer than an epoch: a pending root is never replaced
        vm.expectRevert(abi.encodeWithSelector(IRewards.TooEarly.selector, first + CLAIM_DELAY));
        _post("other", 0, 0, 0);
        vm.warp(first + CLAIM_DELAY);
        _post("other", 0, 0, 0);
    }

    function test_postEpoch_revertsForZeroRoot() public {
        vm.warp(block.timestamp + MIN_EPOCH);
        vm.expectRevert(IRewards.ZeroRoot.selector);
        _post(0, 0, 0, 0);
    }

    function test_baseReward_isBoundedByStakeRateTime() public {
        vm.warp(block.timestamp + MIN_EPOCH + 12 hours);
        uint256 bound = STAKE * APY_BPS * 36 hours / (YEAR * 10_000);
        vm.assertEq(rewards.baseBound(), bound);
        vm.expectRevert(abi.encodeWithSelector(IRewards.BaseAboveBound.selector, bound + 1, bound));
        _post("root", uint96(bound + 1), 0, 0);
        _post("root", uint96(bound), 0, 0);

        // the next epoch is measured from the post, not from the opening of claims
        vm.warp(block.timestamp + CLAIM_DELAY);
        vm.assertEq(rewards.baseBound(), STAKE * APY_BPS * uint256(CLAIM_DELAY) / (YEAR * 10_000));
    }

    /// @dev The label of a reward does not matter: one bound holds for the sum.
    function test_postEpoch_boundsAllPartsTogether() public {
        vm.warp(block.timestamp + MIN_EPOCH);
        vm.assertEq(rewards.postBound(), 100_000 ether);
        bytes memory refusal =
            abi.encodeWithSelector(IRewards.PostAboveBound.selector, 100_000 ether + 1, 100_000 ether);
        vm.expectRevert(refusal);
        _post("root", 0, 0, 100_000 ether + 1);
        vm.expectRevert(refusal);
        _post("root", 0, 100_000 ether + 1, 0);
        vm.expectRevert(refusal);
        _post("root", 1, 60_000 ether, 40_000 ether);
        bytes32 root = _leaf(alice, 100_000 ether);
        _post(root, 0, 60_000 ether, 40_000 ether);

        vm.warp(block.timestamp + CLAIM_DELAY);
        rewards.claim(alice, 100_000 ether, new bytes32[](0)); // paid rewards still count as arrived
        vm.assertEq(rewards.funded(), 1_000_000 ether);
        vm.assertEq(rewards.postBound(), 90_000 ether);
        token.transfer(address(rewards), 10);
        vm.assertEq(rewards.postBound(), 90_000 ether + 1);
    }

    /// @dev The part of the funds that an epoch may not post stays postable. So nothing is lost.
    function test_unpostedFunds_stayForLaterEpochs() public {
        uint256 posted;
        for (uint256 i = 0; i < 100; ++i) {
            vm.warp(block.timestamp + CLAIM_DELAY);
            if (i % 10 == 0) continue; // an epoch without a post
            uint256 bound = rewards.postBound();
            posted += bound;
            _post("root", 0, uint96(bound), 0);
        }
        vm.warp(block.timestamp + CLAIM_DELAY);
        vm.assertEq(rewards.currentEpoch().total, posted);
        vm.assertLe(1_000_000 ether - posted, 100 ether); // 0.9 to the power of 90 of a million
        vm.assertEq(rewards.postBound(), (1_000_000 ether - posted) / 10);
    }

    function test_emission_fundsRewards() public {
        vm.warp(block.timestamp + MIN_EPOCH);
        uint256 minted = emission.release();
        vm.assertEq(rewards.funded(), 1_000_000 ether + minted);
    }

    // --- claiming

    function test_claim_paysDifferenceToEarlierPayouts() public {
        bytes32[] memory leaves = _threeLeaves(10 ether, 20 ether);
        _postAndWait(Tree.root(leaves), 30 ether);
        vm.expectEmit(address(rewards));
        emit IRewards.Claimed(alice, alice, 10 ether, 10 ether);
        vm.prank(thirdParty);
        rewards.claim(alice, 10 ether, Tree.proof(leaves, 0));
        vm.assertEq(token.balanceOf(alice), 10 ether);
        vm.assertEq(rewards.claimed(alice), 10 ether);
        bytes32[] memory proof = Tree.proof(leaves, 0);
        vm.expectRevert(IRewards.NothingToClaim.selector);
        rewards.claim(alice, 10 ether, proof);

        leaves = _threeLeaves(15 ether, 50 ether); // Bob has not claimed: he gets both epochs together
        _postAndWait(Tree.root(leaves), 35 ether);
        vm.expectEmit(address(rewards));
        emit IRewards.Claimed(alice, alice, 5 ether, 15 ether);
        rewards.claim(alice, 15 ether, Tree.proof(leaves, 0));
        rewards.claim(bob, 50 ether, Tree.proof(leaves, 1));
        vm.assertEq(token.balanceOf(alice), 15 ether);
        vm.assertEq(token.balanceOf(bob), 50 ether);
        vm.assertEq(rewards.paidOut(), 65 ether);
    }

    function test_recipient_isChosenOnlyByAccount() public {
        bytes32[] memory leaves = _threeLeaves(10 ether, 20 ether);
        _postAndWait(Tree.root(leaves), 30 ether);
        bytes32[] memory proof = Tree.proof(leaves, 0);
        vm.expectRevert(IRewards.InvalidProof.selector);
        vm.prank(thirdParty);
        rewards.claimTo(thirdParty, 10 ether, proof);
        vm.expectEmit(address(rewards));
        emit IRewards.Claimed(alice, thirdParty, 10 ether, 10 ether);
        vm.prank(alice);
        rewards.claimTo(thirdParty, 10 ether, proof);
        vm.assertEq(token.balanceOf(thirdParty), 10 ether);
        vm.expectRevert(IRewards.NothingToClaim.selector);
        rewards.claim(alice, 10 ether, proof);
    }

    function test_claim_revertsOnInvalidProof() public {
        bytes32[] memory leaves = _threeLeaves(10 ether, 20 ether);
        bytes32[] memory proof = Tree.proof(leaves, 0);
        vm.expectRevert(IRewards.InvalidProof.selector);
        rewards.claim(alice, 10 ether, proof); // before the first epoch
        _postAndWait(Tree.root(leaves), 30 ether);
        vm.expectRevert(IRewards.InvalidProof.selector);
        rewards.claim(alice, 11 ether, proof);
        vm.expectRevert(IRewards.InvalidProof.selector);
        rewards.claim(bob, 10 ether, proof);
        proof = Tree.proof(leaves, 1);
        vm.expectRevert(IRewards.InvalidProof.selector);
        rewards.claim(alice, 10 ether, proof);
    }

    /// An inner node is 64 bytes hashed once, a leaf 64 bytes hashed twice, so neither passes as the other.
    function test_innerNode_isNotAcceptedAsLeaf() public {
        bytes32[] memory leaves = _threeLeaves(10 ether, 20 ether);
        (bytes32 low, bytes32 high) = leaves[0] < leaves[1] ? (leaves[0], leaves[1]) : (leaves[1], leaves[0]);
        address account = address(uint160(uint256(low)));
        bytes32[] memory proof = new bytes32[](1);
        proof[0] = leaves[2];
        _postAndWait(Tree.root(leaves), 30 ether);
        vm.expectRevert(IRewards.InvalidProof.selector);
        rewards.claim(account, uint256(high), proof);
        // would pass with leaves hashed once
        bytes32 once = keccak256(abi.encode(alice, 10 ether));
        _postAndWait(once, 0);
        vm.expectRevert(IRewards.InvalidProof.selector);
        rewards.claim(alice, 10 ether, new bytes32[](0));
    }

    function test_previousRoot_isInForceUntilDelayEnds() public {
        bytes32[] memory old = _threeLeaves(10 ether, 20 ether);
        _postAndWait(Tree.root(old), 30 ether);
        bytes32[] memory leaves = _threeLeaves(11 ether, 22 ether);
        _post(Tree.root(leaves), 0, 3 ether, 0);
        bytes32[] memory proof = Tree.proof(leaves, 0);
        vm.warp(block.timestamp + CLAIM_DELAY - 1);
        vm.expectRevert(IRewards.InvalidProof.selector);
        rewards.claim(alice, 11 ether, proof);
        rewards.claim(alice, 10 ether, Tree.proof(old, 0));
        vm.warp(block.timestamp + 1);
        rewards.claim(alice, 11 ether, proof);
        proof = Tree.proof(old, 1);
        vm.expectRevert(IRewards.InvalidProof.selector);
        rewards.claim(bob, 20 ether, proof);
    }

    function test_claim_neverPaysAbovePostedTotal() public {
        bytes32[] memory leaves = _threeLeaves(10 ether, 20 ether);
        _postAndWait(Tree.root(leaves), 30 ether - 1); // the leaves add up to more
        rewards.claim(alice, 10 ether, Tree.proof(leaves, 0));
        bytes32[] memory proof = Tree.proof(leaves, 1);
        vm.expectRevert(abi.encodeWithSelector(IRewards.ClaimsAbovePosted.selector, 30 ether, 30 ether - 1));
        rewards.claim(bob, 20 ether, proof);
        vm.assertEq(rewards.claimed(bob), 0);
        vm.assertEq(rewards.paidOut(), 10 ether);
        _postAndWait(Tree.root(leaves), 1);
        rewards.claim(bob, 20 ether, proof);
    }

    function test_smallerLeaf_takesNothingBack() public {
        bytes32[] memory leaves = _threeLeaves(10 ether, 20 ether);
        _postAndWait(Tree.root(leaves), 30 ether);
        rewards.claim(alice, 10 ether, Tree.proof(leaves, 0));
        leaves = _threeLeaves(9 ether, 20 ether);
        _postAndWait(Tree.root(leaves), 0);
        bytes32[] memory proof = Tree.proof(leaves, 0);
        vm.expectRevert(IRewards.NothingToClaim.selector);
        rewards.claim(alice, 9 ether, proof);
        rewards.claim(bob, 20 ether, Tree.proof(leaves, 1));
    }

    function test_claim_cannotBeReenteredByToken() public {
        ReentrantToken hostile = new ReentrantToken();
        rewards = _deploy(address(hostile), address(staking), MIN_EPOCH, CLAIM_DELAY);
        hostile.mint(address(rewards), 300 ether);
        bytes32[] memory leaves = new bytes32[](2);
        (leaves[0], leaves[1]) = (_leaf(alice, 10 ether), _leaf(address(hostile), 20 ether));
        _postAndWait(Tree.root(leaves), 30 ether);
        bytes memory claim = abi.encodeCall(rewards.claim, (alice, 10 ether, Tree.proof(leaves, 0)));
        bytes memory claimTo = abi.encodeCall(rewards.claimTo, (bob, 20 ether, Tree.proof(leaves, 1)));
        bytes4 refusal = ReentrancyGuardTransient.ReentrancyGuardReentrantCall.selector;
        hostile.attack(address(rewards), claim, claimTo);
        vm.assertEq(hostile.answer(), abi.encodeWithSelector(refusal));
        hostile.attack(address(rewards), claimTo, claim);
        vm.assertEq(hostile.answer(), abi.encodeWithSelector(refusal));
        vm.assertEq(hostile.balanceOf(alice), 10 ether);
        vm.assertEq(hostile.balanceOf(bob), 20 ether);
    }

    // --- vetoing

    function test_veto_removesPendingEpoch() public {
        _postAndWait("root", 30 ether);
        IRewards.Epoch memory before = rewards.currentEpoch();
        _post("wrong", 0, 90_000 ether, 0);
        vm.warp(block.timestamp + CLAIM_DELAY - 1);
        vm.expectEmit(address(rewards));
        emit IRewards.EpochVetoed(2, "wrong");
        vm.prank(guardian);
        rewards.veto();
        _assertEpoch(rewards.currentEpoch(), 1, "root", 30 ether, before.postedAt);
        (IRewards.Epoch memory pending,) = rewards.pendingEpoch();
        vm.assertEq(pending.number, 0);
        vm.warp(block.timestamp + CLAIM_DELAY);
        _assertEpoch(rewards.currentEpoch(), 1, "root", 30 ether, before.postedAt);

        uint256 elapsed = block.timestamp - before.postedAt; // stakers lose no time by the veto
        vm.assertEq(rewards.baseBound(), STAKE * APY_BPS * elapsed / (YEAR * 10_000));
        _post("right", 0, 90_000 ether, 0);
        (pending,) = rewards.pendingEpoch();
        _assertEpoch(pending, 3, "right", 90_030 ether, block.timestamp);
    }

    function test_firstEpoch_canBeVetoed() public {
        vm.warp(block.timestamp + MIN_EPOCH);
        _post("wrong", 0, 1, 0);
        vm.prank(guardian);
        rewards.veto();
        _assertEpoch(rewards.currentEpoch(), 0, 0, 0, block.timestamp - MIN_EPOCH);
        _post("right", 0, 1, 0);
    }

    function test_veto_revertsAfterDelay() public {
        vm.expectRevert(IRewards.NothingPending.selector);
        vm.prank(guardian);
        rewards.veto();
        _postAndWait("root", 1);
        vm.expectRevert(IRewards.NothingPending.selector);
        vm.prank(guardian);
        rewards.veto();
    }

    // --- settings

    function test_calls_revertWithoutRole() public {
        bytes32 rewarderRole = rewards.REWARDER_ROLE();
        bytes32 guardianRole = rewards.GUARDIAN_ROLE();
        bytes32 adminRole = rewards.DEFAULT_ADMIN_ROLE();
        vm.prank(admin);
        _expectMissingRole(admin, rewarderRole);
        rewards.postEpoch("root", 0, 0, 0);
        vm.prank(rewarder);
        _expectMissingRole(rewarder, guardianRole);
        rewards.veto();
        vm.prank(guardian);
        _expectMissingRole(guardian, adminRole);
        rewards.setApy(2_000);
    }

    function test_setApy_isBounded() public {
        vm.assertEq(rewards.apyBps(), APY_BPS);
        vm.prank(admin);
        vm.expectRevert(abi.encodeWithSelector(IRewards.InvalidApy.selector, 1_499));
        rewards.setApy(1_499);
        vm.prank(admin);
        vm.expectRevert(abi.encodeWithSelector(IRewards.InvalidApy.selector, 2_501));
        rewards.setApy(2_501);
        vm.prank(admin);
        rewards.setApy(1_500);
        vm.expectEmit(address(rewards));
        emit IRewards.ApySet(2_500);
        vm.prank(admin);
        rewards.setApy(2_500);
        vm.warp(block.timestamp + 73 days);
        vm.assertEq(rewards.baseBound(), STAKE / 20); // 25 % a year for a fifth of a year
    }

    function test_constructor_revertsOnInvalidParameters() public {
        _expectRefused("token", address(0), address(staking), MIN_EPOCH, CLAIM_DELAY);
        _expectRefused("staking", address(token), address(0), MIN_EPOCH, CLAIM_DELAY);
        _expectRefused("minEpoch", address(token), address(staking), 30 days + 1, CLAIM_DELAY);
        _expectRefused("claimDelay", address(token), address(staking), MIN_EPOCH, 30 days + 1);
        rewards = _deploy(address(token), address(staking), 30 days, 30 days);
        vm.assertEq(rewards.minEpoch(), 30 days);
        vm.assertEq(rewards.claimDelay(), 30 days);
        vm.expectRevert(abi.encodeWithSelector(IRewards.InvalidApy.selector, 0));
        new Rewards(
            IZenToken(address(token)), address(staking), 0, MIN_EPOCH, CLAIM_DELAY, 1 days, admin, rewarder, guardian
        );
    }

    function _threeLeaves(uint256 ofAlice, uint256 ofBob) private view returns (bytes32[] memory leaves) {
        leaves = new bytes32[](3);
        leaves[0] = _leaf(alice, ofAlice);
        leaves[1] = _leaf(bob, ofBob);
        leaves[2] = _leaf(payer, 0);
    }

    function _postAndWait(bytes32 root, uint96 bandwidth) private {
        vm.warp(block.timestamp + MIN_EPOCH);
        _post(root, 0, bandwidth, 0);
        vm.warp(block.timestamp + CLAIM_DELAY);
    }

    function _deploy(address zen, address staking_, uint40 minEpoch, uint40 claimDelay) private returns (Rewards) {
        return new Rewards(IZenToken(zen), staking_, APY_BPS, minEpoch, claimDelay, 1 days, admin, rewarder, guardian);
    }

    function _expectRefused(string memory parameter, address zen, address staking_, uint40 minEpoch, uint40 claimDelay)
        private
    {
        vm.expectRevert(abi.encodeWithSelector(IRewards.InvalidParameter.selector, parameter));
        _deploy(zen, staking_, minEpoch, claimDelay);
    }

    function _assertEpoch(IRewards.Epoch memory epoch, uint256 number, bytes32 root, uint256 total, uint256 postedAt)
        private
        pure
    {
        vm.assertEq(epoch.number, number);
        vm.assertEq(epoch.root, root);
        vm.assertEq(epoch.total, total);
        vm.assertEq(epoch.postedAt, postedAt);
    }
}
