// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {DisputeMessages} from "../../src/DisputeMessages.sol";
import {IDisputes} from "../../src/interfaces/IDisputes.sol";
import {UnitCommitment} from "../../src/Messages.sol";
import {DisputeFixture} from "../base/DisputeFixture.sol";
import {Tree} from "../base/Tree.sol";

/// @notice Trace reveal: the only list of states with the signed root is accepted.
contract DisputesTraceTest is DisputeFixture {
    function test_leaves_matchProtocol() public {
        unit.jobId = 0x1111111111111111111111111111111111111111111111111111111111111111;
        bytes32 environment = 0xeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee;
        bytes32 state = 0x2222222222222222222222222222222222222222222222222222222222222222;
        // zoo_protocol.trace.state_leaf with round 3, slot 1, boundary 2
        bytes32 leaf = 0x6cdbecb1a3d0d941aa1dc82a360c8b1d9bbd236274cd312770c7311942cc37a3;
        vm.assertEq(this.stateLeaf(unit, 2, state, environment), leaf);
        vm.assertEq(_stateLeaf(2, state, environment), leaf);
    }

    function stateLeaf(UnitCommitment calldata of_, uint64 boundary, bytes32 state, bytes32 environment)
        external
        pure
        returns (bytes32)
    {
        return DisputeMessages.stateLeaf(of_, boundary, state, environment);
    }

    function test_trace_canBeRevealedByAnyAccount() public {
        bytes32 id = _open();
        vm.expectEmit(address(disputes));
        emit IDisputes.TraceShown(id, ENVIRONMENT, states);
        vm.expectEmit(address(disputes));
        emit IDisputes.TurnStarted(id, IDisputes.Status.Step, block.timestamp + RESPONSE_PERIOD);
        vm.prank(thirdParty);
        disputes.showTrace(id, unit, ENVIRONMENT, states);
        _assertStatus(id, IDisputes.Status.Step);
    }

    function test_challenger_canRevealTraceWithDispute() public {
        bytes32 id = disputes.disputeIdOf(_unitId(), challenger);
        bytes[] memory calls = new bytes[](3);
        calls[0] = abi.encodeCall(disputes.open, (order, unit, commitmentSignature, windowRoot, windowProof));
        calls[1] = abi.encodeCall(disputes.showTrace, (id, unit, ENVIRONMENT, states));
        calls[2] = abi.encodeCall(disputes.nameStep, (id, 3));
        vm.prank(challenger);
        disputes.multicall(calls);
        _assertStatus(id, IDisputes.Status.Drawing);
        _assertConserved();
    }

    /// @dev Trees of every shape, with and without odd nodes.
    function test_traces_ofAllLengthsCanBeRevealed() public {
        for (uint256 segments = 1; segments <= 64; ++segments) {
            _newUnit(segments);
            _revealTrace(_open());
            if (segments % 9 == 0) _fund(challenger);
        }
    }

    function test_trace_isRevealedOnce() public {
        bytes32 id = _open();
        _revealTrace(id);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.WrongStatus.selector, id, IDisputes.Status.Step));
        _revealTrace(id);
    }

    function test_reveal_revertsForOtherUnitsTrace() public {
        bytes32 id = _open();
        bytes32 unitId = _unitId();
        unit.round += 1;
        unit.traceRoot = Tree.root(_leaves()); // a valid trace of another unit
        vm.expectRevert(abi.encodeWithSelector(IDisputes.WrongUnit.selector, unitId));
        _revealTrace(id);
        unit.round -= 1;
        unit.traceRoot = Tree.root(_leaves());
        unit.provider = thirdParty;
        vm.expectRevert(abi.encodeWithSelector(IDisputes.WrongUnit.selector, unitId));
        _revealTrace(id);
        unit.provider = provider;
        _revealTrace(id);
    }

    function test_reveal_revertsForAnyOtherState() public {
        bytes32 id = _open();
        for (uint256 j = 0; j < states.length; ++j) {
            bytes32 right = states[j];
            states[j] = keccak256("in no trace");
            _expectInvalid(id);
            states[j] = right;
        }
        _revealTrace(id);
    }

    function test_reveal_revertsForOtherEnvironmentClass() public {
        bytes32 id = _open();
        vm.expectRevert(IDisputes.InvalidTrace.selector);
        disputes.showTrace(id, unit, "another", states);
    }

    /// @dev Sorted pairs hash the same in both orders. The boundary in the leaf makes these lists invalid.
    function test_reveal_revertsForSwappedSiblings() public {
        bytes32 id = _open();
        _swap(0, 1);
        _expectInvalid(id);
        _swap(0, 1);
        for (uint256 i = 0; i < 2; ++i) {
            _swap(i, i + 2); // two pairs under one parent
        }
        _expectInvalid(id);
        for (uint256 i = 0; i < 2; ++i) {
            _swap(i, i + 2);
        }
        _revealTrace(id);
    }

    function testFuzz_reveal_revertsForAnyOtherOrder(uint256 segments, uint256 seed) public {
        _newUnit(_bound(segments, 1, 64));
        bytes32 id = _open();
        bytes32 right = keccak256(abi.encode(states));
        for (uint256 i = states.length - 1; i > 0; --i) {
            _swap(i, uint256(keccak256(abi.encode(seed, i))) % (i + 1));
        }
        if (keccak256(abi.encode(states)) != right) _expectInvalid(id);
        else _revealTrace(id);
    }

    function test_reveal_revertsForWrongStateCount() public {
        bytes32 id = _open();
        bytes32 last = states[8];
        states.pop();
        vm.expectRevert(abi.encodeWithSelector(IDisputes.WrongStateCount.selector, 8));
        _revealTrace(id);
        states.push(last);
        states.push(last);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.WrongStateCount.selector, 10));
        _revealTrace(id);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.WrongStateCount.selector, 0));
        disputes.showTrace(id, unit, ENVIRONMENT, new bytes32[](0));
    }

    // --- roots that cannot be revealed

    /// @dev The order fixes the number of segments. A provider that signed another number cannot respond.
    function test_tooShortTrace_isUpheldAgainstProvider() public {
        states.pop();
        bytes32 id = _commitTrace(_leaves());
        vm.expectRevert(abi.encodeWithSelector(IDisputes.WrongStateCount.selector, 8));
        _revealTrace(id);
        states.push(states[7]);
        _expectInvalid(id);
        _expectConvicted(id);
    }

    /// @dev With two leaves for one boundary a provider could reveal different traces in different disputes.
    function test_duplicateBoundary_isUpheldAgainstProvider() public {
        bytes32[] memory leaves = _leaves();
        bytes32[] memory doubled = new bytes32[](leaves.length + 1);
        for (uint256 i = 0; i < leaves.length; ++i) {
            doubled[i] = leaves[i];
        }
        doubled[leaves.length] = _stateLeaf(5, "another", ENVIRONMENT);
        bytes32 id = _commitTrace(doubled);
        _expectInvalid(id);
        states.push("another");
        vm.expectRevert(abi.encodeWithSelector(IDisputes.WrongStateCount.selector, 10));
        _revealTrace(id);
        states.pop();
        _expectConvicted(id);
    }

    /// @dev Two leaves are exchanged, so the number of leaves is right.
    function test_leavesOutOfOrder_areUpheldAgainstProvider() public {
        bytes32[] memory leaves = _leaves();
        (leaves[2], leaves[5]) = (leaves[5], leaves[2]);
        bytes32 id = _commitTrace(leaves);
        _expectInvalid(id);
        _swap(2, 5);
        _expectInvalid(id);
        _expectConvicted(id);
    }

    /// @dev A segment between two environment classes cannot be replayed, so it cannot be claimed.
    function test_mixedEnvironmentClasses_areUpheldAgainstProvider() public {
        bytes32[] memory leaves = _leaves();
        leaves[4] = _stateLeaf(4, states[4], "another");
        bytes32 id = _commitTrace(leaves);
        _expectInvalid(id);
        vm.expectRevert(IDisputes.InvalidTrace.selector);
        disputes.showTrace(id, unit, "another", states);
        _expectConvicted(id);
    }

    // --- helpers

    /// @dev Commits the unit with these leaves and disputes it.
    function _commitTrace(bytes32[] memory leaves) private returns (bytes32) {
        unit.traceRoot = Tree.root(leaves);
        commitmentSignature = _sign(PROVIDER_KEY, escrow.commitmentDigest(unit));
        _commitWindow("a third unit");
        return _open();
    }

    function _swap(uint256 i, uint256 j) private {
        (states[i], states[j]) = (states[j], states[i]);
    }

    function _expectInvalid(bytes32 id) private {
        vm.expectRevert(IDisputes.InvalidTrace.selector);
        _revealTrace(id);
    }

    function _expectConvicted(bytes32 id) private {
        vm.warp(block.timestamp + RESPONSE_PERIOD + 1);
        disputes.expire(id);
        _assertStatus(id, IDisputes.Status.ProviderLost);
        vm.assertTrue(disputes.units(_unitId()).convicted);
        _assertConserved();
    }
}
