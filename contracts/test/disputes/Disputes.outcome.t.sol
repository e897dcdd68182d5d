// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Disputes} from "../../src/Disputes.sol";
import {IDisputes} from "../../src/interfaces/IDisputes.sol";
import {IZenToken} from "../../src/interfaces/IZenToken.sol";
import {DisputeFixture} from "../base/DisputeFixture.sol";
import {Tree} from "../base/Tree.sol";

/// @notice Effects of a verdict or of none: payout, costs, credits; and the terms.
contract DisputesOutcomeTest is DisputeFixture {
    // --- inconclusive

    function test_unresponsiveCommittee_isRedrawnThenInconclusive() public {
        escrow.withhold(7, unit, 5, new bytes32[](1));
        bytes32 id = _openAndSelect(2);
        for (uint8 draw = 0; draw < 3; ++draw) {
            vm.assertEq(disputes.disputes(id).draw, draw);
            address[] memory committee = _draw(id);
            uint256 deadline = block.timestamp + VERDICT_PERIOD;
            bytes[] memory signatures = _verdicts(id, true, committee, 3);
            vm.warp(deadline);
            vm.expectRevert(abi.encodeWithSelector(IDisputes.TurnNotOver.selector, deadline));
            disputes.replaceCommittee(id, committee);
            vm.warp(deadline + 1);
            vm.expectRevert(abi.encodeWithSelector(IDisputes.TurnOver.selector, deadline));
            disputes.submitVerdict(id, true, committee, signatures);
            if (draw == 2) {
                vm.expectEmit(address(disputes));
                emit IDisputes.DisputeEnded(id, _unitId(), IDisputes.Status.Undecided, 0);
            } else {
                vm.expectEmit(address(disputes));
                emit IDisputes.DrawScheduled(id, draw + 1, block.number + 2, REFEREES);
            }
            disputes.replaceCommittee(id, committee);
        }
        vm.assertEq(disputes.credits(challenger), BOND);
        vm.assertFalse(staking.jailed(provider));
        vm.assertEq(token.balanceOf(payer), escrow.PAY()); // the unit stays unpaid
        IDisputes.Unit memory u = disputes.units(_unitId());
        vm.assertTrue(u.unpaid);
        vm.assertFalse(u.convicted);
        vm.assertEq(u.open, 0);
        _assertConserved();
    }

    // --- a segment is decided once

    function test_correctSegment_staysCorrect() public {
        _drawAndDecide(_openAndSelect(2), true);
        _fund(thirdParty);
        bytes32 id = _openAs(thirdParty);
        _revealTrace(id);
        vm.expectEmit(address(disputes));
        emit IDisputes.DisputeEnded(id, _unitId(), IDisputes.Status.ChallengerLost, BOND - COST);
        vm.prank(thirdParty);
        disputes.nameStep(id, 2);
        vm.assertEq(disputes.credits(provider), 2 * COST);
        _assertConserved();
        _fund(_other(0));
        bytes32 next = _openAndSelectAs(_other(0), 3); // another segment of the unit can still be disputed
        _assertStatus(next, IDisputes.Status.Drawing);
        _drawAndDecide(next, false);
        vm.assertTrue(disputes.units(_unitId()).convicted);
    }

    /// @dev The same segment number in another unit is another segment.
    function test_correctSegment_doesNotAffectOtherUnits() public {
        _drawAndDecide(_openAndSelect(2), true);
        unit.slot += 1;
        unit.traceRoot = Tree.root(_leaves());
        commitmentSignature = _sign(PROVIDER_KEY, escrow.commitmentDigest(unit));
        _commitWindow("a third unit");
        _assertStatus(_openAndSelect(2), IDisputes.Status.Drawing);
    }

    // --- small slashable balance

    function test_bond_isReturned_whenSlashableBalanceIsZero() public {
        staking.setStake(provider, 0);
        _drawAndDecide(_openAndSelect(2), false);
        vm.assertEq(disputes.credits(challenger), BOND);
        vm.assertTrue(staking.jailed(provider));
        _assertConserved();
    }

    function testFuzz_insufficientShare_coversChallengerFirst(uint96 stake) public {
        uint256 atRisk = _bound(stake, 0, 1_000 ether);
        staking.setStake(provider, atRisk);
        bytes32 id = _openAndSelect(2);
        address[] memory committee = _draw(id);
        disputes.submitVerdict(id, false, committee, _verdicts(id, false, committee, 3));
        uint256 share = atRisk / 2 / 5;
        uint256 cost = share < COST ? share : COST;
        vm.assertEq(disputes.credits(challenger), BOND + cost);
        uint256 fee = (share - cost) / 5; // same fee as with signatures of all seats
        for (uint256 i = 0; i < 3; ++i) {
            vm.assertEq(disputes.credits(committee[i]), fee < FEE ? fee : FEE);
        }
        _assertConserved();
    }

    // --- payout of the unit

    function test_payout_isHeldThenForfeited_whenDisputeUpheld() public {
        bytes32 id = _openAndSelect(2);
        vm.prank(thirdParty);
        disputes.withhold(unit, 7, 5, new bytes32[](1));
        vm.assertEq(escrow.withheld(_unitId()), provider);
        _drawAndDecide(id, false);
        vm.assertEq(token.balanceOf(payer), escrow.PAY());
        vm.assertEq(token.balanceOf(provider), 0);
    }

    function test_payout_isForfeited_whenBatchFollowsUpheldDispute() public {
        _drawAndDecide(_openAndSelect(2), false);
        disputes.withhold(unit, 7, 5, new bytes32[](1));
        vm.assertEq(token.balanceOf(payer), escrow.PAY());
    }

    function test_payout_isForfeited_whenProviderTimesOut() public {
        bytes32 id = _open();
        disputes.withhold(unit, 7, 5, new bytes32[](1));
        vm.warp(block.timestamp + RESPONSE_PERIOD + 1);
        disputes.expire(id);
        vm.assertEq(token.balanceOf(payer), escrow.PAY());
    }

    /// @dev A provider that opens and wins a dispute itself is not paid before the dispute period ends.
    function test_payout_isRestored_whenNoDisputeIsPossible() public {
        bytes32 id = _openAndSelect(2);
        disputes.withhold(unit, 7, 5, new bytes32[](1));
        _drawAndDecide(id, true);
        vm.assertEq(token.balanceOf(provider), 0);
        uint256 end = disputes.units(_unitId()).disputableUntil;
        vm.warp(end);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.NotRestorable.selector, _unitId(), end));
        disputes.restore(_unitId());
        vm.warp(end + 1);
        vm.prank(thirdParty);
        disputes.restore(_unitId());
        vm.assertEq(token.balanceOf(provider), escrow.PAY());
    }

    function test_payout_isRestoredAtOnce_whenPeriodOver() public {
        vm.warp(block.timestamp + DISPUTE_PERIOD);
        bytes32 id = _openAndSelect(2);
        disputes.withhold(unit, 7, 5, new bytes32[](1));
        vm.warp(block.timestamp + 1);
        _drawAndDecide(id, true);
        vm.assertEq(token.balanceOf(provider), escrow.PAY());
    }

    function test_payout_waitsForLastOfSeveralDisputes() public {
        vm.warp(block.timestamp + DISPUTE_PERIOD);
        bytes32 first = _openAndSelect(2);
        _fund(thirdParty);
        bytes32 second = _openAndSelectAs(thirdParty, 3);
        disputes.withhold(unit, 7, 5, new bytes32[](1));
        vm.warp(block.timestamp + 1);
        _drawAndDecide(first, true);
        vm.assertEq(token.balanceOf(provider), 0);
        uint256 end = disputes.units(_unitId()).disputableUntil;
        vm.expectRevert(abi.encodeWithSelector(IDisputes.NotRestorable.selector, _unitId(), end));
        disputes.restore(_unitId());
        _drawAndDecide(second, false);
        vm.assertEq(token.balanceOf(payer), escrow.PAY());
        vm.expectRevert(abi.encodeWithSelector(IDisputes.NotRestorable.selector, _unitId(), end));
        disputes.restore(_unitId());
    }

    function test_withholdAndRestore_revertForUndisputedUnit() public {
        vm.expectRevert(abi.encodeWithSelector(IDisputes.NotDisputed.selector, _unitId()));
        disputes.withhold(unit, 7, 5, new bytes32[](1));
        bytes32 id = _openAndSelect(2);
        _drawAndDecide(id, true);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.NotDisputed.selector, _unitId()));
        disputes.withhold(unit, 7, 5, new bytes32[](1));
        vm.expectRevert(abi.encodeWithSelector(IDisputes.NotRestorable.selector, bytes32("other"), 0));
        disputes.restore("other");
    }

    // --- credits

    function test_credits_arePaidOnce() public {
        _drawAndDecide(_openAndSelect(2), false);
        uint256 held = token.balanceOf(challenger);
        vm.expectEmit(address(disputes));
        emit IDisputes.Withdrawn(challenger, BOND + COST);
        vm.prank(challenger);
        disputes.withdraw();
        vm.assertEq(token.balanceOf(challenger) - held, BOND + COST);
        _assertConserved();
        vm.prank(challenger);
        vm.expectRevert(IDisputes.NothingToWithdraw.selector);
        disputes.withdraw();
    }

    function test_credits_addUpOverDisputes() public {
        _drawAndDecide(_openAndSelect(2), true);
        _fund(thirdParty);
        _drawAndDecide(_openAndSelectAs(thirdParty, 3), true);
        vm.assertEq(disputes.credits(provider), 2 * COST);
        _assertConserved();
    }

    // --- terms

    function test_terms_areThoseGiven() public view {
        vm.assertEq(abi.encode(disputes.terms()), abi.encode(_terms()));
    }

    function test_constructor_revertsOnInvalidTerms() public {
        IDisputes.Terms memory terms = _terms();
        terms.seats = 15;
        terms.quorum = 8;
        terms.seedDelay = 200;
        terms.maxDraws = 1;
        terms.bond = terms.cost + 15 * terms.refereeFee;
        _deploy(terms); // the largest accepted values
        terms.quorum = 15;
        _deploy(terms);
        terms.bond -= 1;
        _refuseTerms(terms, "bond");
        terms.seats = 16;
        _refuseTerms(terms, "seats");
        terms.seats = 0;
        _refuseTerms(terms, "seats");
        terms = _terms();
        terms.quorum = 6;
        _refuseTerms(terms, "quorum");
        (terms.seats, terms.quorum) = (4, 2);
        _refuseTerms(terms, "quorum");
        terms = _terms();
        terms.seedDelay = 0;
        _refuseTerms(terms, "seedDelay");
        terms.seedDelay = 201;
        _refuseTerms(terms, "seedDelay");
        terms = _terms();
        terms.maxDraws = 0;
        _refuseTerms(terms, "maxDraws");
        terms = _terms();
        terms.disputePeriod = 0;
        _refuseTerms(terms, "disputePeriod");
        terms = _terms();
        terms.turnPeriod = 0;
        _refuseTerms(terms, "turnPeriod");
        terms = _terms();
        terms.verdictPeriod = 0;
        _refuseTerms(terms, "verdictPeriod");
        vm.expectRevert(abi.encodeWithSelector(IDisputes.InvalidParameter.selector, "token"));
        new Disputes(IZenToken(address(0)), staking, windows, escrow, _terms());
    }

    function _refuseTerms(IDisputes.Terms memory terms, string memory parameter) private {
        vm.expectRevert(abi.encodeWithSelector(IDisputes.InvalidParameter.selector, parameter));
        _deploy(terms);
    }
}
