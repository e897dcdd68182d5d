// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IDisputes} from "../src/interfaces/IDisputes.sol";
import {Game} from "./base/Game.sol";
import {Tree} from "./base/Tree.sol";

/// @notice Turns, who lets one pass, several disputes of one unit, and what strategies lead to.
contract DisputesBisectionTest is Game {
    // --- answers

    function test_onlyTheChallengerAnswers() public {
        bytes32 id = _open(0, 8);
        _revealEnds(id);
        _revealMiddle(id);
        vm.prank(provider);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.NotChallenger.selector, provider));
        disputes.answer(id, true);
    }

    function test_agreementMovesTheLowerEndAndRejectionTheUpper() public {
        bytes32 id = _open(0, 8);
        _revealEnds(id);
        _revealMiddle(id);
        vm.expectEmit(address(disputes));
        emit IDisputes.Narrowed(id, 4, 8);
        _answer(id, true);
        vm.assertEq(disputes.disputes(id).loState, states[4]);
        vm.assertEq(disputes.middleOf(id), 6);
        _revealMiddle(id);
        vm.expectEmit(address(disputes));
        emit IDisputes.Narrowed(id, 4, 6);
        _answer(id, false);
        vm.assertEq(disputes.disputes(id).hiState, states[6]);
        _revealMiddle(id);
        _answer(id, true);
        IDisputes.Dispute memory d = disputes.disputes(id);
        vm.assertEq(d.lo, 5);
        vm.assertEq(d.hi, 6);
        vm.assertEq(d.loState, states[5]);
        vm.assertEq(d.hiState, states[6]);
        _assertStatus(id, IDisputes.Status.Drawing);
    }

    function test_oneStepNeedsNoAnswer() public {
        bytes32 id = _open(7, 8);
        vm.expectEmit(address(disputes));
        emit IDisputes.DrawScheduled(id, 0, block.number + 2, REFEREES);
        _revealEnds(id);
        _assertStatus(id, IDisputes.Status.Drawing);
    }

    function test_movesOutOfTurnAreRefused() public {
        bytes32 none = keccak256("none");
        _refuse(abi.encodeWithSelector(IDisputes.WrongStatus.selector, none, IDisputes.Status.None));
        _revealEnds(none);
        bytes32 id = _open(0, 8);
        _refuse(abi.encodeWithSelector(IDisputes.WrongStatus.selector, id, IDisputes.Status.Ends));
        _revealMiddle(id);
        _revealEnds(id);
        _refuse(abi.encodeWithSelector(IDisputes.WrongStatus.selector, id, IDisputes.Status.Middle));
        _revealEnds(id);
        _refuse(abi.encodeWithSelector(IDisputes.WrongStatus.selector, id, IDisputes.Status.Middle));
        _answer(id, true);
        _revealMiddle(id);
        _refuse(abi.encodeWithSelector(IDisputes.WrongStatus.selector, id, IDisputes.Status.Answer));
        _revealMiddle(id);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.WrongStatus.selector, id, IDisputes.Status.Answer));
        disputes.drawCommittee(id);
    }

    function test_aTurnLastsToItsLastSecond() public {
        bytes32 id = _open(0, 8);
        uint256 deadline = block.timestamp + TURN;
        vm.warp(deadline + 1);
        _refuse(abi.encodeWithSelector(IDisputes.TurnOver.selector, deadline));
        _revealEnds(id);
        vm.warp(deadline);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.TurnNotOver.selector, deadline));
        disputes.expire(id);
        _revealEnds(id);
        deadline += TURN;
        vm.warp(deadline);
        _revealMiddle(id);
        deadline += TURN;
        vm.warp(deadline + 1);
        _refuse(abi.encodeWithSelector(IDisputes.TurnOver.selector, deadline));
        _answer(id, true);
    }

    // --- who lets a turn pass loses

    function test_aProviderThatOpensNoEndsLosesAsForAFalseStep() public {
        _expectLost(_open(0, 8));
    }

    function test_aProviderThatOpensNoMiddleLosesAsForAFalseStep() public {
        bytes32 id = _open(0, 8);
        _revealEnds(id);
        _expectLost(id);
    }

    function _expectLost(bytes32 id) private {
        uint256 supply = token.totalSupply();
        vm.warp(block.timestamp + TURN + 1);
        vm.expectEmit(address(disputes));
        emit IDisputes.DisputeEnded(id, _unitId(), IDisputes.Status.ProviderLost, 180 ether);
        vm.prank(stranger);
        disputes.expire(id);
        vm.assertEq(staking.lastOffence(provider), 2);
        vm.assertTrue(staking.used(id));
        vm.assertEq(staking.atRisk(provider), 1_000 ether); // 50 % of 2,000; 200 of it came here
        vm.assertEq(disputes.credits(challenger), BOND + COST);
        vm.assertEq(supply - token.totalSupply(), 800 ether + 180 ether);
        vm.assertTrue(disputes.units(_unitId()).convicted);
        _assertConserved();
    }

    function test_aChallengerThatDoesNotAnswerLosesItsBond() public {
        bytes32 id = _open(0, 8);
        _revealEnds(id);
        _revealMiddle(id);
        vm.warp(block.timestamp + TURN + 1);
        uint256 supply = token.totalSupply();
        vm.expectEmit(address(disputes));
        emit IDisputes.Credited(id, provider, COST);
        vm.expectEmit(address(disputes));
        emit IDisputes.DisputeEnded(id, _unitId(), IDisputes.Status.ChallengerLost, BOND - COST);
        disputes.expire(id);
        vm.assertEq(disputes.credits(provider), COST);
        vm.assertEq(disputes.credits(challenger), 0);
        vm.assertEq(supply - token.totalSupply(), BOND - COST);
        vm.assertFalse(staking.jailed(provider));
        _assertConserved();
    }

    /// @dev A provider that loses a dispute with itself on purpose gains no immunity for the unit.
    function test_aLostChallengeLeavesTheUnitDisputable() public {
        bytes32 id = _open(0, 8);
        _revealEnds(id);
        _revealMiddle(id);
        vm.warp(block.timestamp + TURN + 1);
        disputes.expire(id);
        _fund(stranger);
        _openAs(stranger, 0, 8);
    }

    function test_aFinishedDisputeCannotExpireAgain() public {
        bytes32 id = _open(0, 8);
        vm.warp(block.timestamp + TURN + 1);
        disputes.expire(id);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.WrongStatus.selector, id, IDisputes.Status.ProviderLost));
        disputes.expire(id);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.WrongStatus.selector, bytes32("x"), IDisputes.Status.None));
        disputes.expire("x");
    }

    // --- several disputes of one unit

    function test_aConvictionEndsTheOtherDisputesAndReturnsTheirBonds() public {
        _fund(stranger);
        bytes32 other = _openAs(stranger, 3, 4);
        _revealEnds(other);
        vm.assertEq(disputes.pendingDraws(), 1);
        bytes32 id = _open(0, 8);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.UnitNotConvicted.selector, _unitId()));
        disputes.dismiss(other);
        vm.warp(block.timestamp + TURN + 1);
        disputes.expire(id);

        bytes memory convicted = abi.encodeWithSelector(IDisputes.UnitConvicted.selector, _unitId());
        vm.expectRevert(convicted);
        disputes.drawCommittee(other);
        vm.expectRevert(convicted);
        disputes.expire(other);
        vm.expectRevert(convicted);
        _open(1, 8);
        vm.expectEmit(address(disputes));
        emit IDisputes.DisputeEnded(other, _unitId(), IDisputes.Status.Moot, 0);
        disputes.dismiss(other);
        vm.assertEq(disputes.credits(stranger), BOND);
        vm.assertEq(disputes.units(_unitId()).open, 0);
        vm.assertEq(disputes.pendingDraws(), 0);
        _assertConserved();
        vm.expectRevert(abi.encodeWithSelector(IDisputes.WrongStatus.selector, other, IDisputes.Status.Moot));
        disputes.dismiss(other);
    }

    function test_dismissingBeforeADrawKeepsThePendingCount() public {
        _fund(stranger);
        bytes32 other = _openAs(stranger, 0, 8);
        bytes32 id = _open(0, 8);
        vm.warp(block.timestamp + TURN + 1);
        disputes.expire(id);
        disputes.dismiss(other);
        vm.assertEq(disputes.pendingDraws(), 0);
        _assertConserved();
    }

    // --- strategies

    /// @dev An honest provider wins against every challenger: whatever is asked and answered, the last step is right.
    function testFuzz_anHonestProviderAlwaysWins(uint256 segments, uint256 lo, uint256 hi, uint256 answers) public {
        segments = _bound(segments, 1, 17);
        _renew(segments);
        lo = _bound(lo, 0, segments - 1);
        hi = _bound(hi, lo + 1, segments);
        bytes32 id = _open(uint16(lo), uint16(hi));
        _play(id, answers, false);
        vm.assertTrue(_stepIsRight(id));
        _judge(id, true);
        _assertStatus(id, IDisputes.Status.ChallengerLost);
        vm.assertEq(disputes.credits(provider), COST);
        _assertConserved();
    }

    /// @dev An honest challenger convicts every provider with a wrong state: it names one, starts from 0 and answers truly.
    function testFuzz_anHonestChallengerAlwaysConvicts(uint256 segments, uint256 wrong, uint256 pick, bool consistent)
        public
    {
        segments = _bound(segments, 1, 17);
        _honestStates(segments);
        wrong = _bound(wrong, 1, (1 << (segments + 1)) - 1); // one bit for each boundary
        for (uint256 j = 0; j <= segments; ++j) {
            if (wrong >> j & 1 == 1) states[j] = keccak256(abi.encode("wrong", j));
            // a cheat that goes on honestly from its wrong state
            else if (consistent && j > 0) states[j] = _replay(states[j - 1]);
        }
        _commitUnit();

        uint256 hi = _bound(pick, 0, segments);
        while (states[hi] == _right(hi)) hi = (hi + 1) % (segments + 1);
        bytes32 id = _open(0, hi == 0 ? 1 : uint16(hi));
        _play(id, 0, true);
        vm.assertFalse(_stepIsRight(id));
        _judge(id, false);
        _assertStatus(id, IDisputes.Status.ProviderLost);
        vm.assertEq(disputes.credits(challenger), BOND + COST);
        _assertConserved();
    }

    /// @dev A provider with two leaves for one boundary cannot choose: the challenger opens the ones that it was shown.
    function test_aProviderWithTwoLeavesForABoundaryIsHeldToTheOneItShowed() public {
        _honestStates(2);
        order.nonce += 1;
        _commitUnit();
        bytes32 shown = keccak256("wrong");
        bytes32[] memory leaves = new bytes32[](4);
        for (uint256 j = 0; j < 3; ++j) {
            leaves[j] = _stateLeaf(j, states[j], ENVIRONMENT);
        }
        leaves[3] = _stateLeaf(1, shown, ENVIRONMENT);
        unit.traceRoot = Tree.root(leaves);
        commitmentSignature = _sign(PROVIDER_KEY, escrow.commitmentDigest(unit));
        _commitWindow("a third unit");
        IDisputes.Opening memory start = IDisputes.Opening(states[0], Tree.proof(leaves, 0));
        IDisputes.Opening memory good = IDisputes.Opening(states[1], Tree.proof(leaves, 1));
        IDisputes.Opening memory bad = IDisputes.Opening(shown, Tree.proof(leaves, 3));

        bytes32 id = disputes.disputeIdOf(_unitId(), challenger, 0, 1);
        bytes[] memory calls = new bytes[](2);
        calls[0] = abi.encodeCall(
            disputes.open, (order, unit, commitmentSignature, windowRoot, windowProof, uint16(0), uint16(1))
        );
        calls[1] = abi.encodeCall(disputes.revealEnds, (id, unit, ENVIRONMENT, start, bad));
        vm.prank(challenger);
        disputes.multicall(calls);
        vm.assertEq(disputes.disputes(id).hiState, shown);
        vm.assertFalse(_stepIsRight(id));
        vm.expectRevert(abi.encodeWithSelector(IDisputes.WrongStatus.selector, id, IDisputes.Status.Drawing));
        disputes.revealEnds(id, unit, ENVIRONMENT, start, good);
    }

    // --- helpers

    /// @dev A fresh honest unit of `segments` segments.
    function _renew(uint256 segments) private {
        _honestStates(segments);
        order.nonce += 1;
        _commitUnit();
    }

    /// @dev Plays until one step is left; the challenger answers truly or by the bits of `answers`.
    function _play(bytes32 id, uint256 answers, bool truly) private {
        _revealEnds(id);
        uint256 rounds = 0;
        while (_status(id) == uint256(IDisputes.Status.Middle)) {
            uint16 middle = disputes.middleOf(id);
            _revealMiddle(id);
            _answer(id, truly ? states[middle] == _right(middle) : answers >> rounds & 1 == 1);
            ++rounds;
        }
        vm.assertLe(rounds, 5); // ceil(log2(17))
    }

    /// @dev What a referee finds.
    function _stepIsRight(bytes32 id) private view returns (bool) {
        IDisputes.Dispute memory d = disputes.disputes(id);
        vm.assertEq(d.hi, d.lo + 1);
        return d.hiState == _replay(d.loState) && (d.lo > 0 || d.loState == _right(0));
    }
}
