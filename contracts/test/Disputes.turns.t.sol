// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IDisputes} from "../src/interfaces/IDisputes.sol";
import {Game} from "./base/Game.sol";

/// @notice Turns, who lets one pass, several disputes of one unit, and what strategies lead to.
contract DisputesTurnsTest is Game {
    // --- naming the step

    function test_onlyTheChallengerNamesTheStep() public {
        bytes32 id = _open();
        _showTrace(id);
        vm.prank(provider);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.NotChallenger.selector, provider));
        disputes.nameStep(id, 3);
    }

    function test_theNamedStepGoesToItsDraw() public {
        bytes32 id = _open();
        _showTrace(id);
        vm.expectEmit(address(disputes));
        emit IDisputes.StepNamed(id, 7);
        vm.expectEmit(address(disputes));
        emit IDisputes.DrawScheduled(id, 0, block.number + 2, REFEREES);
        vm.prank(challenger);
        disputes.nameStep(id, 7);
        vm.assertEq(disputes.disputes(id).step, 7);
        _assertStatus(id, IDisputes.Status.Drawing);
    }

    function test_refusesAStepBeyondTheTrace() public {
        bytes32 id = _open();
        _showTrace(id);
        vm.prank(challenger);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.NoSuchStep.selector, 8, 8));
        disputes.nameStep(id, 8);
    }

    function test_anOnlyStepNeedsNoNaming() public {
        _renew(1);
        bytes32 id = _open();
        vm.expectEmit(address(disputes));
        emit IDisputes.StepNamed(id, 0);
        vm.expectEmit(address(disputes));
        emit IDisputes.DrawScheduled(id, 0, block.number + 2, REFEREES);
        _showTrace(id);
        _assertStatus(id, IDisputes.Status.Drawing);
    }

    // --- turns

    function test_movesOutOfTurnAreRefused() public {
        bytes32 none = keccak256("none");
        vm.expectRevert(abi.encodeWithSelector(IDisputes.WrongStatus.selector, none, IDisputes.Status.None));
        _showTrace(none);
        bytes32 id = _open();
        vm.prank(challenger);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.WrongStatus.selector, id, IDisputes.Status.Trace));
        disputes.nameStep(id, 3);
        _showTrace(id);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.WrongStatus.selector, id, IDisputes.Status.Step));
        disputes.drawCommittee(id);
        _nameStep(id, 3);
        vm.prank(challenger);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.WrongStatus.selector, id, IDisputes.Status.Drawing));
        disputes.nameStep(id, 4);
    }

    function test_aTurnLastsToItsLastSecond() public {
        bytes32 id = _open();
        uint256 deadline = block.timestamp + TURN;
        vm.warp(deadline + 1);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.TurnOver.selector, deadline));
        _showTrace(id);
        vm.warp(deadline);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.TurnNotOver.selector, deadline));
        disputes.expire(id);
        _showTrace(id);
        deadline += TURN;
        vm.warp(deadline + 1);
        vm.prank(challenger);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.TurnOver.selector, deadline));
        disputes.nameStep(id, 3);
        vm.warp(deadline);
        _nameStep(id, 3);
    }

    // --- who lets a turn pass loses

    function test_aProviderThatShowsNoTraceLosesAsForAFalseStep() public {
        _expectLost(_open());
    }

    /// @dev So does one that crashes after the other side's dispute was answered: each dispute has its own turn.
    function test_aProviderThatAnswersOneDisputeOfTwoLosesTheOther() public {
        _fund(stranger);
        _showTrace(_openAs(stranger));
        _expectLost(_open());
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

    function test_aChallengerThatNamesNoStepLosesItsBond() public {
        bytes32 id = _open();
        _showTrace(id);
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
        bytes32 id = _open();
        _showTrace(id);
        vm.warp(block.timestamp + TURN + 1);
        disputes.expire(id);
        _fund(stranger);
        _openAs(stranger);
    }

    function test_aFinishedDisputeCannotExpireAgain() public {
        bytes32 id = _open();
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
        bytes32 other = _namedAs(stranger, 3);
        vm.assertEq(disputes.pendingDraws(), 1);
        bytes32 id = _open();
        vm.expectRevert(abi.encodeWithSelector(IDisputes.UnitNotConvicted.selector, _unitId()));
        disputes.dismiss(other);
        vm.warp(block.timestamp + TURN + 1);
        disputes.expire(id);

        bytes memory convicted = abi.encodeWithSelector(IDisputes.UnitConvicted.selector, _unitId());
        vm.expectRevert(convicted);
        disputes.drawCommittee(other);
        vm.expectRevert(convicted);
        disputes.expire(other);
        vm.prank(_other(0));
        vm.expectRevert(convicted);
        disputes.open(order, unit, commitmentSignature, windowRoot, windowProof);
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
        bytes32 other = _openAs(stranger);
        bytes32 id = _open();
        vm.warp(block.timestamp + TURN + 1);
        disputes.expire(id);
        disputes.dismiss(other);
        vm.assertEq(disputes.pendingDraws(), 0);
        _assertConserved();
    }

    // --- strategies

    /// @dev An honest provider wins against every challenger: whatever step is named is right.
    function testFuzz_anHonestProviderAlwaysWins(uint256 segments, uint256 step) public {
        segments = _bound(segments, 1, 64);
        _renew(segments);
        bytes32 id = _open();
        _showTrace(id);
        if (segments > 1) _nameStep(id, uint16(_bound(step, 0, segments - 1)));
        vm.assertTrue(_stepIsRight(id));
        _judge(id, true);
        _assertStatus(id, IDisputes.Status.ChallengerLost);
        vm.assertEq(disputes.credits(provider), COST);
        _assertConserved();
    }

    /// @dev An honest challenger convicts every provider with a wrong state: it names the step to the first.
    function testFuzz_anHonestChallengerAlwaysConvicts(uint256 segments, uint256 wrong, bool consistent) public {
        segments = _bound(segments, 1, 64);
        _honestStates(segments);
        wrong = _bound(wrong, 1, (1 << (segments + 1)) - 1); // one bit for each boundary
        for (uint256 j = 0; j <= segments; ++j) {
            if (wrong >> j & 1 == 1) states[j] = keccak256(abi.encode("wrong", j));
            // a cheat that goes on honestly from its wrong state
            else if (consistent && j > 0) states[j] = _replay(states[j - 1]);
        }
        _commitUnit();

        bytes32 id = _open();
        _showTrace(id);
        uint16 first = 0;
        bytes32 right = keccak256("start");
        for (; states[first] == right; ++first) {
            right = _replay(right);
        }
        if (segments > 1) _nameStep(id, first == 0 ? 0 : first - 1);
        vm.assertFalse(_stepIsRight(id));
        _judge(id, false);
        _assertStatus(id, IDisputes.Status.ProviderLost);
        vm.assertEq(disputes.credits(challenger), BOND + COST);
        _assertConserved();
    }

    /// @dev Five transactions whatever the length; three and four for one and two segments if the draw goes with its verdict.
    function test_aDrawAndItsVerdictCanBeOneTransaction() public {
        bytes32 id = _named(2);
        uint256 seedBlock = disputes.disputes(id).seedBlock;
        vm.roll(seedBlock + 1);
        uint256 start = vm.snapshotState();
        address[] memory committee = disputes.drawCommittee(id);
        vm.revertToState(start);
        vm.assertEq(committee.length, 5);
        bytes[] memory calls = new bytes[](2);
        calls[0] = abi.encodeCall(disputes.drawCommittee, (id));
        calls[1] = abi.encodeCall(disputes.submitVerdict, (id, false, committee, _verdicts(id, false, committee, 3)));
        vm.prank(stranger);
        disputes.multicall(calls);
        _assertStatus(id, IDisputes.Status.ProviderLost);
    }

    // --- helpers

    /// @dev What a referee finds of the named step, given the shown states.
    function _stepIsRight(bytes32 id) private view returns (bool) {
        uint256 step = disputes.disputes(id).step;
        return states[step + 1] == _replay(states[step]) && (step > 0 || states[0] == keccak256("start"));
    }
}
