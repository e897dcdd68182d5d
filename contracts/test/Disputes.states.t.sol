// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IDisputes} from "../src/interfaces/IDisputes.sol";
import {Game} from "./base/Game.sol";
import {Tree} from "./base/Tree.sol";

/// @notice A trace must have one state for each boundary: with two, a provider could show each side another.
contract DisputesStatesTest is Game {
    uint16 private constant BOUNDARY = 5;
    bytes32 private constant SECOND = keccak256("another state");

    IDisputes.Opening private first;
    IDisputes.Opening private second;

    function setUp() public override {
        super.setUp();
        _twoStates(SECOND, ENVIRONMENT);
    }

    /// @dev Commits the unit anew, with a second leaf for BOUNDARY in its trace.
    function _twoStates(bytes32 state, bytes32 environment) private {
        bytes32[] memory one = _leaves();
        bytes32[] memory both = new bytes32[](one.length + 1);
        for (uint256 i = 0; i < one.length; ++i) {
            both[i] = one[i];
        }
        both[one.length] = _stateLeaf(BOUNDARY, state, environment);
        unit.traceRoot = Tree.root(both);
        commitmentSignature = _sign(PROVIDER_KEY, escrow.commitmentDigest(unit));
        _commitWindow(state);
        first = IDisputes.Opening(states[BOUNDARY], Tree.proof(both, BOUNDARY));
        second = IDisputes.Opening(state, Tree.proof(both, one.length));
    }

    function _prove(bytes32 id, bytes32[2] memory environments) private {
        vm.prank(stranger);
        disputes.proveTwoStates(id, unit, BOUNDARY, environments, first, second);
    }

    function test_twoStatesOfOneBoundaryConvict() public {
        bytes32 id = _open(0, 8);
        _prove(id, [ENVIRONMENT, ENVIRONMENT]);
        _assertStatus(id, IDisputes.Status.ProviderLost);
        vm.assertEq(staking.lastOffence(provider), 2);
        vm.assertEq(disputes.credits(challenger), BOND + COST);
        _assertConserved();

        vm.expectRevert(abi.encodeWithSelector(IDisputes.WrongStatus.selector, id, IDisputes.Status.ProviderLost));
        _prove(id, [ENVIRONMENT, ENVIRONMENT]);
    }

    function test_oneStateInTwoEnvironmentsConvictsToo() public {
        bytes32 other = keccak256("another class");
        _twoStates(states[BOUNDARY], other);
        bytes32 id = _open(0, 8);
        _prove(id, [ENVIRONMENT, other]);
        _assertStatus(id, IDisputes.Status.ProviderLost);
    }

    function test_oneStateShownTwiceProvesNothing() public {
        bytes32 id = _open(0, 8);
        second = first;
        vm.expectRevert(abi.encodeWithSelector(IDisputes.SameState.selector, BOUNDARY));
        _prove(id, [ENVIRONMENT, ENVIRONMENT]);
    }

    function test_bothStatesMustBeInTheTrace() public {
        bytes32 id = _open(0, 8);
        IDisputes.Opening memory right = first;
        first.state = keccak256("in no trace");
        vm.expectRevert(abi.encodeWithSelector(IDisputes.InvalidOpening.selector, BOUNDARY));
        _prove(id, [ENVIRONMENT, ENVIRONMENT]);
        first = right;
        second.state = keccak256("in no trace");
        vm.expectRevert(abi.encodeWithSelector(IDisputes.InvalidOpening.selector, BOUNDARY));
        _prove(id, [ENVIRONMENT, ENVIRONMENT]);
    }

    function test_aProviderIsConvictedOnceForAUnit() public {
        bytes32 id = _open(0, 8);
        _fund(stranger);
        bytes32 other = _openAs(stranger, 0, 4);
        _prove(id, [ENVIRONMENT, ENVIRONMENT]);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.UnitConvicted.selector, _unitId()));
        _prove(other, [ENVIRONMENT, ENVIRONMENT]);
    }

    function test_aDrawThatIsPendingIsNoLongerWaitedFor() public {
        bytes32 id = _open(BOUNDARY, BOUNDARY + 1);
        bytes32[] memory both = new bytes32[](states.length + 1);
        for (uint256 i = 0; i < states.length; ++i) {
            both[i] = _leaves()[i];
        }
        both[states.length] = _stateLeaf(BOUNDARY, SECOND, ENVIRONMENT);
        IDisputes.Opening memory end = IDisputes.Opening(states[BOUNDARY + 1], Tree.proof(both, BOUNDARY + 1));
        disputes.revealEnds(id, unit, ENVIRONMENT, first, end);
        vm.assertEq(disputes.pendingDraws(), 1);
        _prove(id, [ENVIRONMENT, ENVIRONMENT]);
        vm.assertEq(disputes.pendingDraws(), 0);
    }
}
