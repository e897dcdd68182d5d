// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IDisputes} from "../../src/interfaces/IDisputes.sol";
import {DisputeFixture} from "../base/DisputeFixture.sol";

/// @notice Phases of a dispute, missed deadlines, several disputes of one unit, and strategies.
contract DisputesPhasesTest is DisputeFixture {
    // --- segment selection

    function test_selection_revertsForNonChallenger() public {
        bytes32 id = _open();
        _revealTrace(id);
        vm.prank(provider);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.NotChallenger.selector, provider));
        disputes.nameStep(id, 3);
    }

    function test_selectedSegment_proceedsToDraw() public {
        bytes32 id = _open();
        _revealTrace(id);
        vm.expectEmit(address(disputes));
        emit IDisputes.StepNamed(id, 7);
        vm.expectEmit(address(disputes));
        emit IDisputes.DrawScheduled(id, 0, block.number + 2, REFEREES);
        vm.prank(challenger);
        disputes.nameStep(id, 7);
        vm.assertEq(disputes.disputes(id).step, 7);
        _assertStatus(id, IDisputes.Status.Drawing);
    }

    function test_selection_revertsBeyondTrace() public {
        bytes32 id = _open();
        _revealTrace(id);
        vm.prank(challenger);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.NoSuchStep.selector, 8, 8));
        disputes.nameStep(id, 8);
    }

    function test_singleSegment_needsNoSelection() public {
        _newUnit(1);
        bytes32 id = _open();
        vm.expectEmit(address(disputes));
        emit IDisputes.StepNamed(id, 0);
        vm.expectEmit(address(disputes));
        emit IDisputes.DrawScheduled(id, 0, block.number + 2, REFEREES);
        _revealTrace(id);
        _assertStatus(id, IDisputes.Status.Drawing);
    }

    // --- phases

    function test_calls_revertInOtherPhases() public {
        bytes32 none = keccak256("none");
        vm.expectRevert(abi.encodeWithSelector(IDisputes.WrongStatus.selector, none, IDisputes.Status.None));
        _revealTrace(none);
        bytes32 id = _open();
        vm.prank(challenger);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.WrongStatus.selector, id, IDisputes.Status.Trace));
        disputes.nameStep(id, 3);
        _revealTrace(id);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.WrongStatus.selector, id, IDisputes.Status.Step));
        disputes.drawCommittee(id);
        _selectSegment(id, 3);
        vm.prank(challenger);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.WrongStatus.selector, id, IDisputes.Status.Drawing));
        disputes.nameStep(id, 4);
    }

    function test_phase_lastsUntilLastSecond() public {
        bytes32 id = _open();
        uint256 deadline = block.timestamp + RESPONSE_PERIOD;
        vm.warp(deadline + 1);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.TurnOver.selector, deadline));
        _revealTrace(id);
        vm.warp(deadline);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.TurnNotOver.selector, deadline));
        disputes.expire(id);
        _revealTrace(id);
        deadline += RESPONSE_PERIOD;
        vm.warp(deadline + 1);
        vm.prank(challenger);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.TurnOver.selector, deadline));
        disputes.nameStep(id, 3);
        vm.warp(deadline);
        _selectSegment(id, 3);
    }

    // --- missed response deadlines

    function test_missedTraceReveal_hasIncorrectSegmentPenalty() public {
        _expectLost(_open());
    }

    /// @dev Each dispute has its own deadline, so an answer in one dispute does not count in another.
    function test_oneMissedReveal_losesDespiteAnsweredDispute() public {
        _fund(thirdParty);
        _revealTrace(_openAs(thirdParty));
        _expectLost(_open());
    }

    function _expectLost(bytes32 id) private {
        uint256 supply = token.totalSupply();
        vm.warp(block.timestamp + RESPONSE_PERIOD + 1);
        vm.expectEmit(address(disputes));
        emit IDisputes.DisputeEnded(id, _unitId(), IDisputes.Status.ProviderLost, 180 ether);
        vm.prank(thirdParty);
        disputes.expire(id);
        vm.assertEq(staking.lastOffence(provider), 2);
        vm.assertTrue(staking.used(id));
        vm.assertEq(staking.atRisk(provider), 1_000 ether); // 50 % of 2,000; the dispute share is 200
        vm.assertEq(disputes.credits(challenger), BOND + COST);
        vm.assertEq(supply - token.totalSupply(), 800 ether + 180 ether);
        vm.assertTrue(disputes.units(_unitId()).convicted);
        _assertConserved();
    }

    function test_missedSelection_losesBond() public {
        bytes32 id = _open();
        _revealTrace(id);
        vm.warp(block.timestamp + RESPONSE_PERIOD + 1);
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

    /// @dev A provider that opens and loses a dispute itself gains no immunity for the unit.
    function test_rejectedDispute_leavesUnitDisputable() public {
        bytes32 id = _open();
        _revealTrace(id);
        vm.warp(block.timestamp + RESPONSE_PERIOD + 1);
        disputes.expire(id);
        _fund(thirdParty);
        _openAs(thirdParty);
    }

    function test_finishedDispute_cannotExpireAgain() public {
        bytes32 id = _open();
        vm.warp(block.timestamp + RESPONSE_PERIOD + 1);
        disputes.expire(id);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.WrongStatus.selector, id, IDisputes.Status.ProviderLost));
        disputes.expire(id);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.WrongStatus.selector, bytes32("x"), IDisputes.Status.None));
        disputes.expire("x");
    }

    // --- several disputes of one unit

    function test_upheldDispute_endsOthersAndReturnsTheirBonds() public {
        _fund(thirdParty);
        bytes32 other = _openAndSelectAs(thirdParty, 3);
        vm.assertEq(disputes.pendingDraws(), 1);
        bytes32 id = _open();
        vm.expectRevert(abi.encodeWithSelector(IDisputes.UnitNotConvicted.selector, _unitId()));
        disputes.dismiss(other);
        vm.warp(block.timestamp + RESPONSE_PERIOD + 1);
        disputes.expire(id);

        bytes memory unitConvicted = abi.encodeWithSelector(IDisputes.UnitConvicted.selector, _unitId());
        vm.expectRevert(unitConvicted);
        disputes.drawCommittee(other);
        vm.expectRevert(unitConvicted);
        disputes.expire(other);
        vm.prank(_other(0));
        vm.expectRevert(unitConvicted);
        disputes.open(order, unit, commitmentSignature, windowRoot, windowProof);
        vm.expectEmit(address(disputes));
        emit IDisputes.DisputeEnded(other, _unitId(), IDisputes.Status.Moot, 0);
        disputes.dismiss(other);
        vm.assertEq(disputes.credits(thirdParty), BOND);
        vm.assertEq(disputes.units(_unitId()).open, 0);
        vm.assertEq(disputes.pendingDraws(), 0);
        _assertConserved();
        vm.expectRevert(abi.encodeWithSelector(IDisputes.WrongStatus.selector, other, IDisputes.Status.Moot));
        disputes.dismiss(other);
    }

    function test_dismissal_keepsPendingDrawCount() public {
        _fund(thirdParty);
        bytes32 other = _openAs(thirdParty);
        bytes32 id = _open();
        vm.warp(block.timestamp + RESPONSE_PERIOD + 1);
        disputes.expire(id);
        disputes.dismiss(other);
        vm.assertEq(disputes.pendingDraws(), 0);
        _assertConserved();
    }

    // --- strategies

    /// @dev An honest provider wins against every challenger, since every segment is correct.
    function testFuzz_honestProvider_alwaysWins(uint256 segments, uint256 step) public {
        segments = _bound(segments, 1, 64);
        _newUnit(segments);
        bytes32 id = _open();
        _revealTrace(id);
        if (segments > 1) _selectSegment(id, uint16(_bound(step, 0, segments - 1)));
        vm.assertTrue(_segmentIsCorrect(id));
        _drawAndDecide(id, true);
        _assertStatus(id, IDisputes.Status.ChallengerLost);
        vm.assertEq(disputes.credits(provider), COST);
        _assertConserved();
    }

    /// @dev An honest challenger wins against every wrong state by selecting the segment that ends in the first one.
    function testFuzz_honestChallenger_alwaysWins(uint256 segments, uint256 wrong, bool consistent) public {
        segments = _bound(segments, 1, 64);
        _honestStates(segments);
        wrong = _bound(wrong, 1, (1 << (segments + 1)) - 1); // one bit for each boundary
        for (uint256 j = 0; j <= segments; ++j) {
            if (wrong >> j & 1 == 1) states[j] = keccak256(abi.encode("wrong", j));
            // a dishonest provider that continues honestly from its wrong state
            else if (consistent && j > 0) states[j] = _replay(states[j - 1]);
        }
        _commitUnit();

        bytes32 id = _open();
        _revealTrace(id);
        uint16 first = 0;
        bytes32 right = keccak256("start");
        for (; states[first] == right; ++first) {
            right = _replay(right);
        }
        if (segments > 1) _selectSegment(id, first == 0 ? 0 : first - 1);
        vm.assertFalse(_segmentIsCorrect(id));
        _drawAndDecide(id, false);
        _assertStatus(id, IDisputes.Status.ProviderLost);
        vm.assertEq(disputes.credits(challenger), BOND + COST);
        _assertConserved();
    }

    /// @dev Five transactions for any trace length. With draw and verdict together: 3 for one segment, else 4.
    function test_drawAndVerdict_fitInOneTransaction() public {
        bytes32 id = _openAndSelect(2);
        uint256 seedBlock = disputes.disputes(id).seedBlock;
        vm.roll(seedBlock + 1);
        uint256 start = vm.snapshotState();
        address[] memory committee = disputes.drawCommittee(id);
        vm.revertToState(start);
        vm.assertEq(committee.length, 5);
        bytes[] memory calls = new bytes[](2);
        calls[0] = abi.encodeCall(disputes.drawCommittee, (id));
        calls[1] = abi.encodeCall(disputes.submitVerdict, (id, false, committee, _verdicts(id, false, committee, 3)));
        vm.prank(thirdParty);
        disputes.multicall(calls);
        _assertStatus(id, IDisputes.Status.ProviderLost);
    }

    // --- helpers

    /// @dev A referee's result for the selected segment, given the revealed states.
    function _segmentIsCorrect(bytes32 id) private view returns (bool) {
        uint256 step = disputes.disputes(id).step;
        return states[step + 1] == _replay(states[step]) && (step > 0 || states[0] == keccak256("start"));
    }
}
