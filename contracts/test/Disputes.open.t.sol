// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {DisputeMessages} from "../src/DisputeMessages.sol";
import {IDisputes} from "../src/interfaces/IDisputes.sol";
import {IWorkWindows} from "../src/interfaces/IWorkWindows.sol";
import {UnitCommitment} from "../src/Messages.sol";
import {Game} from "./base/Game.sol";
import {Tree} from "./base/Tree.sol";

/// @notice What can be disputed, and which states can be opened.
contract DisputesOpenTest is Game {
    // --- opening

    function test_openingTakesTheBondAndStartsTheProvidersTurn() public {
        bytes32 id = disputes.disputeIdOf(_unitId(), challenger, 2, 6);
        uint256 held = token.balanceOf(challenger);
        vm.expectEmit(address(disputes));
        emit IDisputes.DisputeOpened(id, _unitId(), provider, challenger, 2, 6);
        vm.expectEmit(address(disputes));
        emit IDisputes.TurnStarted(id, IDisputes.Status.Ends, block.timestamp + TURN);
        vm.assertEq(_open(2, 6), id);

        vm.assertEq(held - token.balanceOf(challenger), BOND);
        _assertConserved();
        IDisputes.Dispute memory d = disputes.disputes(id);
        vm.assertEq(d.challenger, challenger);
        vm.assertEq(d.provider, provider);
        vm.assertEq(d.payer, payer);
        vm.assertEq(d.unitId, _unitId());
        vm.assertEq(d.lo, 2);
        vm.assertEq(d.hi, 6);
        IDisputes.Unit memory u = disputes.units(_unitId());
        vm.assertEq(u.open, 1);
        vm.assertEq(u.disputableUntil, block.timestamp + DISPUTE_PERIOD);
    }

    function test_refusesAnotherOrder() public {
        order.nonce += 1;
        vm.expectRevert(abi.encodeWithSelector(IDisputes.WrongOrder.selector, unit.jobId));
        _open(0, 8);
    }

    function test_refusesARangeOutsideTheTrace() public {
        vm.expectRevert(abi.encodeWithSelector(IDisputes.InvalidRange.selector, 4, 4, 8));
        _open(4, 4);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.InvalidRange.selector, 5, 4, 8));
        _open(5, 4);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.InvalidRange.selector, 0, 9, 8));
        _open(0, 9);
        _open(0, 8);
    }

    function test_refusesAUnitThatNoWindowIncludes() public {
        bytes32 root = windowRoot;
        windowProof[0] = "other";
        vm.expectRevert(abi.encodeWithSelector(IDisputes.NotInWindow.selector, root));
        _open(0, 8);
        windowRoot = "none";
        vm.expectRevert(abi.encodeWithSelector(IWorkWindows.UnknownWindow.selector, bytes32("none")));
        _open(0, 8);
    }

    /// @dev The operator alone commits windows; it must not be able to frame a provider with a leaf that nobody signed.
    function test_refusesACommitmentThatTheProviderDidNotSign() public {
        commitmentSignature = _sign(PROVIDER_KEY + 1, escrow.commitmentDigest(unit));
        vm.expectRevert(IDisputes.InvalidCommitmentSignature.selector);
        _open(0, 8);
        commitmentSignature = "";
        vm.expectRevert(IDisputes.InvalidCommitmentSignature.selector);
        _open(0, 8);
        unit.provider = address(0); // what a signature that is none would recover to
        _commitWindow("a third unit");
        vm.expectRevert(IDisputes.InvalidCommitmentSignature.selector);
        _open(0, 8);
    }

    /// @dev A provider that turns its account into a contract cannot disown what its key signed.
    function test_codeAtTheProvidersAccountDoesNotVoidItsSignature() public {
        vm.etch(provider, hex"fe");
        _open(0, 8);
    }

    function test_refusesAUnitAfterItsPeriod() public {
        uint256 end = block.timestamp + DISPUTE_PERIOD;
        vm.warp(end + 1);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.DisputePeriodOver.selector, end));
        _open(0, 8);
        vm.warp(end);
        _open(0, 8);
    }

    function test_aUnitInTwoWindowsIsDisputableInThePeriodOfEither() public {
        bytes32 first = windowRoot;
        bytes32[] memory proof = windowProof;
        vm.warp(block.timestamp + 1 days);
        _commitWindow("a third unit");
        uint256 end = block.timestamp + DISPUTE_PERIOD;
        _open(0, 8);
        (windowRoot, windowProof) = (first, proof);
        _open(1, 8); // the earlier window does not bring the end forward
        vm.assertEq(disputes.units(_unitId()).disputableUntil, end);
    }

    function test_aChallengerDisputesARangeOnce() public {
        bytes32 id = _open(0, 8);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.DisputeExists.selector, id));
        _open(0, 8);
        _open(1, 8);
        _fund(stranger);
        _openAs(stranger, 0, 8);
        vm.assertEq(disputes.units(_unitId()).open, 3);
        _assertConserved();
    }

    function test_openingNeedsTheBond() public {
        vm.prank(challenger);
        token.transfer(stranger, 1_000 ether - BOND + 1);
        vm.expectPartialRevert(bytes4(keccak256("ERC20InsufficientBalance(address,uint256,uint256)")));
        _open(0, 8);
    }

    // --- opening states

    function test_leavesAreThoseOfTheProtocol() public {
        unit.jobId = 0x1111111111111111111111111111111111111111111111111111111111111111;
        bytes32 environment = 0xeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee;
        bytes32 state = 0x2222222222222222222222222222222222222222222222222222222222222222;
        // zoo_protocol.trace.state_leaf with round 3, slot 1, boundary 2
        bytes32 leaf = 0x6cdbecb1a3d0d941aa1dc82a360c8b1d9bbd236274cd312770c7311942cc37a3;
        vm.assertEq(this.stateLeaf(unit, 2, state, environment), leaf);
        vm.assertEq(_stateLeaf(2, state, environment), leaf);
    }

    function stateLeaf(UnitCommitment calldata of_, uint16 boundary, bytes32 state, bytes32 environment)
        external
        pure
        returns (bytes32)
    {
        return DisputeMessages.stateLeaf(of_, boundary, state, environment);
    }

    function test_anybodyOpensTheEnds() public {
        bytes32 id = _open(2, 6);
        vm.expectEmit(address(disputes));
        emit IDisputes.EndsRevealed(id, ENVIRONMENT, states[2], states[6]);
        vm.expectEmit(address(disputes));
        emit IDisputes.TurnStarted(id, IDisputes.Status.Middle, block.timestamp + TURN);
        vm.prank(stranger);
        disputes.revealEnds(id, unit, ENVIRONMENT, _opening(2), _opening(6));
        IDisputes.Dispute memory d = disputes.disputes(id);
        vm.assertEq(d.loState, states[2]);
        vm.assertEq(d.hiState, states[6]);
        vm.assertEq(d.environmentClass, ENVIRONMENT);
        vm.assertEq(disputes.middleOf(id), 4);
    }

    function test_refusesEndsThatAreNotInTheTrace() public {
        bytes32 id = _open(2, 6);
        IDisputes.Opening memory wrong = _opening(2);
        wrong.state = keccak256("wrong");
        vm.expectRevert(abi.encodeWithSelector(IDisputes.InvalidOpening.selector, 2));
        disputes.revealEnds(id, unit, ENVIRONMENT, wrong, _opening(6));
        vm.expectRevert(abi.encodeWithSelector(IDisputes.InvalidOpening.selector, 6));
        disputes.revealEnds(id, unit, ENVIRONMENT, _opening(2), wrong);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.InvalidOpening.selector, 2)); // a leaf of another boundary
        disputes.revealEnds(id, unit, ENVIRONMENT, _opening(3), _opening(6));
        vm.expectRevert(abi.encodeWithSelector(IDisputes.InvalidOpening.selector, 2));
        disputes.revealEnds(id, unit, "another", _opening(2), _opening(6));
        _revealEnds(id);
    }

    function test_refusesAnotherUnitsTrace() public {
        bytes32 id = _open(0, 8);
        bytes32 unitId = _unitId();
        unit.round += 1;
        unit.traceRoot = keccak256("another trace");
        _refuse(abi.encodeWithSelector(IDisputes.WrongUnit.selector, unitId));
        _revealEnds(id);
    }

    function test_refusesAMiddleThatIsNotInTheTrace() public {
        bytes32 id = _open(0, 8);
        _revealEnds(id);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.InvalidOpening.selector, 4));
        disputes.revealMiddle(id, unit, _opening(3));
        vm.expectEmit(address(disputes));
        emit IDisputes.MiddleRevealed(id, 4, states[4]);
        vm.expectEmit(address(disputes));
        emit IDisputes.TurnStarted(id, IDisputes.Status.Answer, block.timestamp + TURN);
        _revealMiddle(id);
    }

    /// @dev States of two environments cannot be opened in one dispute, so no step between them can be claimed.
    function test_allStatesShareOneEnvironment() public {
        bytes32[] memory leaves = _leaves();
        leaves[4] = _stateLeaf(4, states[4], "another");
        unit.traceRoot = Tree.root(leaves);
        commitmentSignature = _sign(PROVIDER_KEY, escrow.commitmentDigest(unit));
        _commitWindow("a third unit");
        IDisputes.Opening[3] memory openings;
        for (uint256 i = 0; i < 3; ++i) {
            openings[i] = IDisputes.Opening(states[4 * i], Tree.proof(leaves, 4 * i));
        }
        bytes32 id = _open(0, 8);
        disputes.revealEnds(id, unit, ENVIRONMENT, openings[0], openings[2]);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.InvalidOpening.selector, 4));
        disputes.revealMiddle(id, unit, openings[1]);
    }
}
