// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IDisputes} from "../../src/interfaces/IDisputes.sol";
import {IWorkWindows} from "../../src/interfaces/IWorkWindows.sol";
import {DisputeFixture} from "../base/DisputeFixture.sol";

/// @notice Conditions for opening a dispute.
contract DisputesOpenTest is DisputeFixture {
    function test_open_takesBondAndStartsTraceReveal() public {
        bytes32 id = disputes.disputeIdOf(_unitId(), challenger);
        uint256 held = token.balanceOf(challenger);
        vm.expectEmit(address(disputes));
        emit IDisputes.DisputeOpened(id, _unitId(), provider, challenger, 8);
        vm.expectEmit(address(disputes));
        emit IDisputes.TurnStarted(id, IDisputes.Status.Trace, block.timestamp + RESPONSE_PERIOD);
        vm.assertEq(_open(), id);

        vm.assertEq(held - token.balanceOf(challenger), BOND);
        _assertConserved();
        IDisputes.Dispute memory d = disputes.disputes(id);
        vm.assertEq(d.challenger, challenger);
        vm.assertEq(d.provider, provider);
        vm.assertEq(d.payer, payer);
        vm.assertEq(d.unitId, _unitId());
        vm.assertEq(d.segments, 8);
        IDisputes.Unit memory u = disputes.units(_unitId());
        vm.assertEq(u.open, 1);
        vm.assertEq(u.disputableUntil, block.timestamp + DISPUTE_PERIOD);
    }

    function test_open_revertsForOtherOrder() public {
        order.nonce += 1;
        vm.expectRevert(abi.encodeWithSelector(IDisputes.WrongOrder.selector, unit.jobId));
        _open();
    }

    /// @dev A trace too long for one transaction would make its provider lose.
    function test_open_revertsForInvalidSegmentCount() public {
        vm.assertEq(disputes.MAX_SEGMENTS(), 64);
        _expectInvalidSegments(0);
        _expectInvalidSegments(65);
        _honestStates(64);
        _commitUnit();
        _open();
        _honestStates(1);
        _commitUnit();
        _open();
    }

    function _expectInvalidSegments(uint16 segments) private {
        order.segments = segments;
        unit.jobId = _jobId();
        commitmentSignature = _sign(PROVIDER_KEY, escrow.commitmentDigest(unit));
        _commitWindow(unit.jobId);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.InvalidSegments.selector, segments));
        _open();
    }

    function test_open_revertsForUnitOutsideWindow() public {
        bytes32 root = windowRoot;
        windowProof[0] = "other";
        vm.expectRevert(abi.encodeWithSelector(IDisputes.NotInWindow.selector, root));
        _open();
        windowRoot = "none";
        vm.expectRevert(abi.encodeWithSelector(IWorkWindows.UnknownWindow.selector, bytes32("none")));
        _open();
    }

    /// @dev Only the operator commits windows. It must not be able to add a leaf that the provider never signed.
    function test_open_revertsWithoutProviderSignature() public {
        commitmentSignature = _sign(PROVIDER_KEY + 1, escrow.commitmentDigest(unit));
        vm.expectRevert(IDisputes.InvalidCommitmentSignature.selector);
        _open();
        commitmentSignature = "";
        vm.expectRevert(IDisputes.InvalidCommitmentSignature.selector);
        _open();
        unit.provider = address(0); // the address recovered from an invalid signature
        _commitWindow("a third unit");
        vm.expectRevert(IDisputes.InvalidCommitmentSignature.selector);
        _open();
    }

    /// @dev A provider that turns its account into a contract cannot disown its key's signatures.
    function test_open_acceptsKeySignature_whenProviderHasCode() public {
        vm.etch(provider, hex"fe");
        _open();
    }

    function test_open_revertsAfterDisputePeriod() public {
        uint256 end = block.timestamp + DISPUTE_PERIOD;
        vm.warp(end + 1);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.DisputePeriodOver.selector, end));
        _open();
        vm.warp(end);
        _open();
    }

    function test_unitInTwoWindows_usesEarlierPeriod() public {
        uint256 end = block.timestamp + DISPUTE_PERIOD;
        (bytes32 first, bytes32[] memory proof) = (windowRoot, windowProof);
        vm.warp(block.timestamp + 1 days);
        _commitWindow("a third unit");
        (bytes32 second, bytes32[] memory secondProof) = (windowRoot, windowProof);
        _open();
        _fund(thirdParty);
        (windowRoot, windowProof) = (first, proof);
        _openAs(thirdParty);
        vm.assertEq(disputes.units(_unitId()).disputableUntil, end);
        vm.warp(end + 1);
        (windowRoot, windowProof) = (second, secondProof);
        _fund(_other(0));
        vm.expectRevert(abi.encodeWithSelector(IDisputes.DisputePeriodOver.selector, end));
        _openAs(_other(0));
    }

    /// @dev The operator commits an old leaf again, after the provider deleted the trace.
    function test_rejectLate_endsDisputesOfOldUnit() public {
        uint256 end = block.timestamp + DISPUTE_PERIOD;
        (bytes32 first, bytes32[] memory proof) = (windowRoot, windowProof);
        vm.warp(block.timestamp + 365 days);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.DisputePeriodOver.selector, end));
        _open();
        _commitWindow("a third unit");
        bytes32 id = _open();
        vm.prank(thirdParty);
        disputes.rejectLate(id, first, proof);
        _assertStatus(id, IDisputes.Status.ChallengerLost);
        vm.assertEq(disputes.credits(provider), COST);
        vm.assertEq(staking.atRisk(provider), STAKE);
        _assertConserved();
        _fund(_other(0));
        vm.expectRevert(abi.encodeWithSelector(IDisputes.DisputePeriodOver.selector, end));
        _openAs(_other(0));
    }

    function test_rejectLate_revertsForDisputeInPeriod() public {
        uint256 end = block.timestamp + DISPUTE_PERIOD;
        vm.warp(end);
        bytes32 id = _open();
        vm.warp(end + 1);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.OpenedInTime.selector, end));
        disputes.rejectLate(id, windowRoot, windowProof);
    }

    function test_rejectLate_revertsForOtherProofOrPhase() public {
        (bytes32 first, bytes32[] memory proof) = (windowRoot, windowProof);
        vm.warp(block.timestamp + 365 days);
        _commitWindow("a third unit");
        bytes32 id = _open();
        vm.expectRevert(abi.encodeWithSelector(IDisputes.NotInWindow.selector, first));
        disputes.rejectLate(id, first, new bytes32[](1));
        vm.expectRevert(abi.encodeWithSelector(IWorkWindows.UnknownWindow.selector, bytes32("none")));
        disputes.rejectLate(id, "none", proof);
        _revealTrace(id);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.WrongStatus.selector, id, IDisputes.Status.Step));
        disputes.rejectLate(id, first, proof);
    }

    function test_challenger_disputesUnitOnce() public {
        bytes32 id = _open();
        vm.expectRevert(abi.encodeWithSelector(IDisputes.DisputeExists.selector, id));
        _open();
        _fund(thirdParty);
        _openAs(thirdParty);
        vm.assertEq(disputes.units(_unitId()).open, 2);
        _assertConserved();
        _revealTrace(id);
        vm.warp(block.timestamp + RESPONSE_PERIOD + 1);
        disputes.expire(id); // rejects the dispute
        vm.expectRevert(abi.encodeWithSelector(IDisputes.DisputeExists.selector, id));
        _open();
    }

    function test_open_revertsWithoutBond() public {
        vm.prank(challenger);
        token.transfer(thirdParty, 1_000 ether - BOND + 1);
        vm.expectPartialRevert(bytes4(keccak256("ERC20InsufficientBalance(address,uint256,uint256)")));
        _open();
    }
}
