// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IDisputes} from "../../src/interfaces/IDisputes.sol";
import {IReferees} from "../../src/interfaces/IReferees.sol";
import {DisputeFixture} from "../base/DisputeFixture.sol";

/// @notice Committee timeouts: delisting, redraws, and no benefit for a dishonest provider.
contract DisputesTimeoutTest is DisputeFixture {
    uint256 private constant ALL = 20;
    uint256 private constant SEATS = 5;

    function setUp() public override {
        super.setUp();
        for (uint256 i = REFEREES; i < ALL; ++i) {
            referees.push(vm.addr(FIRST_REFEREE_KEY + i));
            _register(referees[i]);
        }
    }

    // --- redraw

    function test_dishonestProvider_isSlashed_whenCommitteeTimesOut() public {
        bytes32 id = _openAndSelect(2);
        address[] memory committee = _draw(id);
        _replace(id, committee);
        _assertStatus(id, IDisputes.Status.Drawing);
        vm.assertEq(disputes.disputes(id).draw, 1);
        _drawAndDecide(id, false);
        _assertStatus(id, IDisputes.Status.ProviderLost);
        vm.assertEq(staking.atRisk(provider), STAKE / 2);
        vm.assertEq(disputes.credits(challenger), BOND + COST);
        _assertConserved();
    }

    function test_honestProvider_wins_whenCommitteeIsRedrawn() public {
        bytes32 id = _openAndSelect(2);
        _replace(id, _draw(id));
        _drawAndDecide(id, true);
        _assertStatus(id, IDisputes.Status.ChallengerLost);
        _assertConserved();
    }

    function test_dispute_isInconclusive_whenAllCommitteesTimeOut() public {
        escrow.withhold(7, unit, 5, new bytes32[](1));
        bytes32 id = _openAndSelect(2);
        uint256 opened = block.timestamp;
        for (uint256 draw = 0; draw < 3; ++draw) {
            _replace(id, _draw(id));
        }
        _assertStatus(id, IDisputes.Status.Undecided);
        vm.assertEq(block.timestamp, opened + 3 * (uint256(VERDICT_PERIOD) + 1)); // a draw itself takes no time
        vm.assertEq(disputes.credits(challenger), BOND);
        vm.assertEq(staking.atRisk(provider), STAKE);
        vm.assertEq(token.balanceOf(payer), escrow.PAY());
        for (uint256 i = 0; i < ALL; ++i) {
            vm.assertEq(staking.atRisk(referees[i]), 1_000 ether); // a timeout is not slashed
        }
        _assertConserved();
    }

    function test_replaceCommittee_revertsUnlessQuorumMissed() public {
        bytes32 id = _openAndSelect(2);
        address[] memory none = new address[](0);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.WrongStatus.selector, id, IDisputes.Status.Drawing));
        disputes.replaceCommittee(id, none);
        address[] memory committee = _draw(id);
        uint256 deadline = disputes.disputes(id).deadline;
        vm.warp(deadline);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.TurnNotOver.selector, deadline));
        disputes.replaceCommittee(id, committee);
        disputes.submitVerdict(id, false, committee, _verdicts(id, false, committee, 3)); // in the last second
        vm.warp(deadline + 1);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.WrongStatus.selector, id, IDisputes.Status.ProviderLost));
        disputes.replaceCommittee(id, committee);
        for (uint256 i = 0; i < SEATS; ++i) {
            vm.assertTrue(disputes.listedUntil(committee[i]) > block.timestamp); // also without a signature
        }
    }

    function test_replaceCommittee_revertsForOtherCommittee() public {
        bytes32 id = _openAndSelect(2);
        address[] memory committee = _draw(id);
        vm.warp(block.timestamp + VERDICT_PERIOD + 1);
        address first = committee[0];
        committee[0] = referees[0] == first ? referees[1] : referees[0];
        vm.expectRevert(IDisputes.WrongCommittee.selector);
        disputes.replaceCommittee(id, committee);
        committee[0] = first;
        vm.expectRevert(abi.encodeWithSelector(IDisputes.WrongStatus.selector, id, IDisputes.Status.Judging));
        disputes.expire(id);
        disputes.replaceCommittee(id, committee);
    }

    function test_replaceCommittee_reverts_whenUnitIsConvicted() public {
        _fund(thirdParty);
        bytes32 other = _openAndSelectAs(thirdParty, 3);
        bytes32 id = _openAndSelect(2);
        address[] memory committee = _draw(other);
        _drawAndDecide(id, false);
        vm.warp(block.timestamp + VERDICT_PERIOD + 1);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.UnitConvicted.selector, _unitId()));
        disputes.replaceCommittee(other, committee);
        disputes.dismiss(other);
        vm.assertTrue(disputes.listedUntil(committee[0]) > block.timestamp);
    }

    /// @dev A missed hash gives no choice of seed: the next seed block is in the future.
    function test_redraw_isRescheduled_whenHashUnavailable() public {
        bytes32 id = _openAndSelect(2);
        address[] memory committee = _draw(id);
        _replace(id, committee);
        vm.roll(disputes.disputes(id).seedBlock + 257);
        _relist(committee);
        vm.expectEmit(address(disputes));
        emit IDisputes.DrawScheduled(id, 1, block.number + 2, ALL);
        disputes.drawCommittee(id);
        _assertStatus(id, IDisputes.Status.Drawing);
        vm.assertEq(disputes.disputes(id).draw, 1); // the draw number does not change
        _assertNoneOf(committee, _draw(id));
    }

    // --- delisting

    function test_unresponsiveReferee_isDelistedWithoutPenalty() public {
        bytes32 id = _openAndSelect(2);
        address[] memory committee = _draw(id);
        vm.warp(block.timestamp + VERDICT_PERIOD + 1);
        for (uint256 i = 0; i < SEATS; ++i) {
            vm.expectEmit(address(disputes));
            emit IReferees.RefereeStruck(committee[i], block.timestamp - 1);
        }
        vm.prank(thirdParty);
        disputes.replaceCommittee(id, committee);
        for (uint256 i = 0; i < SEATS; ++i) {
            vm.assertEq(disputes.listedUntil(committee[i]), block.timestamp - 1);
            vm.assertEq(staking.atRisk(committee[i]), 1_000 ether);
        }
        _draw(id);
        disputes.evict(committee[0]); // can be evicted once no draw is pending
        vm.assertFalse(disputes.isReferee(committee[0]));
        _relist(committee);
        vm.assertEq(disputes.listedUntil(committee[0]), block.timestamp + 30 days);
    }

    function test_signingReferee_staysListedAndDrawable() public {
        bytes32 id = _openAndSelect(2);
        address[] memory committee = _draw(id);
        uint256 until = disputes.listedUntil(committee[0]);
        bytes[] memory signatures = _verdicts(id, false, committee, 2);
        signatures[1] = _sign(_refereeKey(committee[1]), disputes.objectionDigest(id, 0));
        disputes.submitVerdict(id, false, committee, signatures);
        signatures = _verdicts(id, true, committee, 3);
        (signatures[0], signatures[1]) = (bytes(""), bytes(""));
        disputes.submitVerdict(id, true, committee, signatures);
        vm.assertEq(disputes.signedSeats(id), 7);
        _replace(id, committee);
        for (uint256 i = 0; i < SEATS; ++i) {
            bool signed = i < 3;
            vm.assertEq(disputes.listedUntil(committee[i]), signed ? until : block.timestamp - 1);
        }
        vm.assertEq(disputes.signedSeats(id), 0); // the stored signatures belong to the previous draw
        uint256 again = 0;
        for (uint256 salt = 0; salt < 20; ++salt) {
            address[] memory next = _drawnWith(id, salt);
            for (uint256 i = 0; i < SEATS; ++i) {
                for (uint256 j = 0; j < SEATS; ++j) {
                    if (next[i] != committee[j]) continue;
                    vm.assertTrue(j < 3);
                    ++again;
                }
            }
        }
        vm.assertTrue(again > 0);
    }

    function test_lateSignature_doesNotPreventDelisting() public {
        bytes32 id = _openAndSelect(2);
        address[] memory committee = _draw(id);
        bytes[] memory signatures = _verdicts(id, false, committee, 1);
        uint256 deadline = disputes.disputes(id).deadline;
        vm.warp(deadline + 1);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.TurnOver.selector, deadline));
        disputes.submitVerdict(id, false, committee, signatures);
        disputes.replaceCommittee(id, committee);
        vm.assertEq(disputes.listedUntil(committee[0]), deadline);
    }

    function test_unlistedReferee_cannotBeDelisted() public {
        bytes32 id = _openAndSelect(2);
        address[] memory committee = _draw(id);
        vm.prank(committee[0]);
        disputes.resign();
        _replace(id, committee);
        vm.assertEq(disputes.listedUntil(committee[0]), 0);
    }

    // --- eligibility after a timeout

    /// @dev Excludes delisted members that registered again, and referees registered after the first draw.
    function testFuzz_redraw_usesOnlyListedSigningReferees(uint128 salt, uint256 seats) public {
        bytes32 id = _openAndSelect(2);
        address[] memory committee = _drawnWithFor(id, salt);
        bytes[] memory signatures = _verdicts(id, true, committee, SEATS);
        uint256 signing = 0;
        for (uint256 i = 0; i < SEATS; ++i) {
            if (seats >> i & 1 == 1 && ++signing <= 2) continue;
            signatures[i] = "";
        }
        disputes.submitVerdict(id, true, committee, signatures);
        uint256 signed = disputes.signedSeats(id);
        vm.warp(block.timestamp + 1);
        _register(thirdParty);
        _replace(id, committee);
        _relist(committee); // immediately
        address[] memory second = _drawnWithFor(id, uint256(salt) + 1);
        _assertNotDrawn(committee, signed, second);
        _replace(id, second); // after another verdict period
        _relist(second);
        address[] memory third = _drawnWithFor(id, uint256(salt) + 2);
        _assertNotDrawn(committee, signed, third);
        _assertNoneOf(second, third);
    }

    /// @dev Resigning and registering again before the deadline does not help either.
    function test_earlyResignation_doesNotRestoreEligibility() public {
        bytes32 id = _openAndSelect(2);
        address[] memory committee = _draw(id);
        vm.warp(block.timestamp + 1);
        for (uint256 i = 0; i < SEATS; ++i) {
            vm.prank(committee[i]);
            disputes.resign();
        }
        _relist(committee);
        _replace(id, committee);
        _relist(committee);
        for (uint256 salt = 0; salt < 20; ++salt) {
            _assertNoneOf(committee, _drawnWith(id, salt));
        }
    }

    /// @dev If too few others are left, the draw falls back to delisted members.
    function test_smallNetwork_redrawsSameReferees() public {
        for (uint256 i = SEATS; i < ALL; ++i) {
            vm.prank(referees[i]);
            disputes.resign();
        }
        bytes32 id = _openAndSelect(2);
        _replace(id, _draw(id)); // none has registered again yet
        address[] memory second = _draw(id);
        vm.assertEq(second.length, SEATS);
        _relist(second);
        _replace(id, second);
        _drawAndDecide(id, false);
        _assertStatus(id, IDisputes.Status.ProviderLost);
    }

    /// @dev The reserve fills only the remaining seats.
    function test_reserve_isDrawnLast() public {
        for (uint256 i = 8; i < ALL; ++i) {
            vm.prank(referees[i]);
            disputes.resign();
        }
        bytes32 id = _openAndSelect(2);
        address[] memory committee = _draw(id);
        _replace(id, committee);
        _relist(committee);
        for (uint256 salt = 0; salt < 10; ++salt) {
            address[] memory next = _drawnWith(id, salt);
            vm.assertEq(_common(committee, next), 2); // three other referees are available
        }
    }

    /// @dev Members are delisted while the draw of another dispute is pending and its seed is known.
    /// The result of that draw does not depend on the order of the calls.
    function test_delisting_doesNotChangePendingDraw() public {
        bytes32 id = _openAndSelect(2);
        address[] memory committee = _draw(id);
        vm.warp(block.timestamp + VERDICT_PERIOD + 1);
        _fund(thirdParty);
        bytes32 other = _openAndSelectAs(thirdParty, 3);
        uint256 seedBlock = disputes.disputes(other).seedBlock;
        vm.roll(seedBlock + 1);
        vm.warp(block.timestamp + 24);
        for (uint256 salt = 0; salt < 10; ++salt) {
            vm.setBlockhash(seedBlock, keccak256(abi.encode(salt)));
            uint256 before = vm.snapshotState();
            bytes32 expected = keccak256(abi.encode(_drawnNow(other)));
            vm.revertToState(before);
            disputes.replaceCommittee(id, committee);
            vm.assertEq(keccak256(abi.encode(_drawnNow(other))), expected);
            vm.revertToState(before);
        }
    }

    // --- helpers

    /// @dev Lets the verdict period pass and replaces the committee.
    function _replace(bytes32 id, address[] memory committee) private {
        vm.warp(uint256(disputes.disputes(id).deadline) + 1);
        disputes.replaceCommittee(id, committee);
    }

    /// @dev Registers the referees again.
    function _relist(address[] memory accounts) private {
        for (uint256 i = 0; i < accounts.length; ++i) {
            _register(accounts[i]);
        }
    }

    function _drawnWith(bytes32 id, uint256 salt) private returns (address[] memory committee) {
        uint256 before = vm.snapshotState();
        committee = _drawnWithFor(id, salt);
        vm.revertToState(before);
    }

    function _drawnWithFor(bytes32 id, uint256 salt) private returns (address[] memory) {
        uint256 seedBlock = disputes.disputes(id).seedBlock;
        vm.roll(seedBlock + 1);
        vm.setBlockhash(seedBlock, keccak256(abi.encode(salt)));
        return _drawnNow(id);
    }

    function _drawnNow(bytes32 id) private returns (address[] memory committee) {
        vm.recordLogs();
        disputes.drawCommittee(id);
        committee = _drawnIn(vm.getRecordedLogs());
        vm.assertEq(committee.length, SEATS);
    }

    function _assertNotDrawn(address[] memory committee, uint256 signed, address[] memory next) private view {
        for (uint256 i = 0; i < SEATS; ++i) {
            vm.assertTrue(next[i] != thirdParty);
            for (uint256 j = 0; j < SEATS; ++j) {
                if (signed >> j & 1 == 0) vm.assertTrue(next[i] != committee[j]);
            }
        }
    }

    function _assertNoneOf(address[] memory some, address[] memory others) private pure {
        vm.assertEq(_common(some, others), 0);
    }

    function _common(address[] memory some, address[] memory others) private pure returns (uint256 count) {
        for (uint256 i = 0; i < some.length; ++i) {
            for (uint256 j = 0; j < others.length; ++j) {
                if (some[i] == others[j]) ++count;
            }
        }
    }
}
