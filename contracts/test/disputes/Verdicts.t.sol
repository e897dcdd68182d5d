// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IDisputes} from "../../src/interfaces/IDisputes.sol";
import {IVerdicts} from "../../src/interfaces/IVerdicts.sol";
import {DisputeFixture} from "../base/DisputeFixture.sol";

/// @notice Referee signatures: objections, equivocation and dissenting verdicts with their penalties.
contract VerdictsTest is DisputeFixture {
    uint256 private constant REFEREE_STAKE = 1_000 ether;
    bytes32 private id;
    address[] private committee;

    function setUp() public override {
        super.setUp();
        id = _openAndSelect(2);
        committee = _draw(id);
    }

    // --- equivocation

    function test_equivocation_costsWholeBalance() public {
        uint256 supply = token.totalSupply();
        vm.expectEmit(address(disputes));
        emit IVerdicts.RefereePunished(id, 0, committee[1], 6);
        vm.prank(thirdParty);
        disputes.proveContradiction(id, 0, _vote(1, true), _vote(1, false));
        vm.assertEq(staking.atRisk(committee[1]), 0);
        vm.assertTrue(staking.jailed(committee[1]));
        vm.assertEq(staking.lastOffence(committee[1]), 6);
        vm.assertEq(supply - token.totalSupply(), REFEREE_STAKE);
        vm.assertEq(disputes.credits(thirdParty), 0);
        _assertConserved();
    }

    function test_equivocation_isSlashedOncePerCommittee() public {
        bytes memory forProvider = _vote(0, true);
        bytes memory forChallenger = _vote(0, false);
        disputes.proveContradiction(id, 0, forProvider, forChallenger);
        staking.setStake(committee[0], 7 ether);
        vm.expectRevert("evidence used");
        disputes.proveContradiction(id, 0, forProvider, forChallenger);
        forProvider = _sign(_refereeKey(committee[0]), disputes.verdictDigest(id, 1, true));
        forChallenger = _sign(_refereeKey(committee[0]), disputes.verdictDigest(id, 1, false));
        disputes.proveContradiction(id, 1, forProvider, forChallenger);
        vm.assertEq(staking.atRisk(committee[0]), 0);
    }

    function test_nonEquivocation_isRejected() public {
        uint256 key = _refereeKey(committee[0]);
        _assertNoContradiction(_vote(0, true), _vote(0, true)); // one outcome twice
        _assertNoContradiction(_vote(0, false), _vote(0, true)); // each in the other's argument
        _assertNoContradiction(_vote(0, true), _vote(1, false)); // two referees
        _assertNoContradiction(_vote(0, true), _objection(0)); // an objection is not a verdict
        _assertNoContradiction(_vote(0, true), _sign(key, disputes.verdictDigest(id, 1, false))); // two committees
        _assertNoContradiction(_vote(0, true), _sign(key, disputes.verdictDigest("another", 0, false)));
        _assertNoContradiction("", ""); // no signer
        _assertNoContradiction(new bytes(65), new bytes(65));
    }

    function _assertNoContradiction(bytes memory forProvider, bytes memory forChallenger) private {
        vm.expectRevert(IVerdicts.NoContradiction.selector);
        disputes.proveContradiction(id, 0, forProvider, forChallenger);
    }

    // --- dissenting verdicts

    function testFuzz_singleDissenter_losesOneFifth(bool correct, uint256 odd, bool executed) public {
        odd %= 5;
        bytes[] memory signatures = _votes(correct, odd);
        if (executed) {
            bytes[] memory sent = _votes(correct, odd);
            sent[odd] = "";
            disputes.submitVerdict(id, correct, committee, sent);
        }
        uint256 supply = token.totalSupply();
        vm.expectEmit(address(disputes));
        emit IVerdicts.RefereePunished(id, 0, committee[odd], 5);
        vm.prank(thirdParty);
        disputes.proveWrongVerdict(id, correct, committee, signatures, odd);
        for (uint256 i = 0; i < 5; ++i) {
            vm.assertEq(staking.atRisk(committee[i]), i == odd ? REFEREE_STAKE * 4 / 5 : REFEREE_STAKE);
            vm.assertTrue(staking.jailed(committee[i]) == (i == odd));
            vm.assertEq(disputes.credits(committee[i]), executed && i != odd ? FEE : 0);
        }
        vm.assertEq(supply - token.totalSupply(), REFEREE_STAKE / 5);
        _assertConserved();
        vm.expectRevert("evidence used");
        disputes.proveWrongVerdict(id, correct, committee, signatures, odd);
    }

    /// @dev A referee that equivocates can be slashed for both offences.
    function test_equivocation_takesRestAfterWrongVerdict() public {
        disputes.proveWrongVerdict(id, true, committee, _votes(true, 3), 3);
        vm.assertEq(staking.atRisk(committee[3]), REFEREE_STAKE * 4 / 5);
        disputes.proveContradiction(id, 0, _vote(3, true), _vote(3, false));
        vm.assertEq(staking.atRisk(committee[3]), 0);
        _assertConserved();
    }

    /// @dev A bare majority, bribed or not, cannot slash the others.
    function testFuzz_twoDissenters_areNotSlashed(bool correct, uint256 one, uint256 other, uint256 odd) public {
        (one, other) = (one % 5, other % 5);
        if (one == other) other = (one + 1) % 5;
        bytes[] memory signatures = _votes(correct, one);
        signatures[other] = _vote(other, !correct);
        for (uint256 side = 0; side < 2; ++side) {
            vm.expectPartialRevert(IDisputes.InvalidVerdictSignature.selector);
            disputes.proveWrongVerdict(id, side == 0, committee, signatures, odd % 5);
        }
    }

    function test_absentOrObjectingReferee_isNotSlashed() public {
        bytes[] memory signatures = _votes(true, 2);
        signatures[4] = "";
        _assertNotWrong(signatures, 2, 4);
        signatures[4] = _objection(4);
        _assertNotWrong(signatures, 2, 4);
        signatures = _votes(true, 2);
        signatures[2] = _objection(2);
        _assertNotWrong(signatures, 2, 2);
        signatures[2] = "";
        _assertNotWrong(signatures, 2, 2);
        signatures[2] = _vote(2, true);
        _assertNotWrong(signatures, 2, 2); // all agree
    }

    function _assertNotWrong(bytes[] memory signatures, uint256 odd, uint256 invalid) private {
        vm.expectRevert(abi.encodeWithSelector(IDisputes.InvalidVerdictSignature.selector, committee[invalid]));
        disputes.proveWrongVerdict(id, true, committee, signatures, odd);
    }

    function test_proof_revertsForOtherCommittee() public {
        bytes[] memory signatures = _votes(true, 0);
        vm.expectRevert(IDisputes.WrongCommittee.selector);
        disputes.proveWrongVerdict(id, true, committee, new bytes[](4), 0);
        vm.expectRevert(IDisputes.WrongCommittee.selector);
        disputes.proveWrongVerdict("another", true, committee, signatures, 0);
        vm.expectRevert(IDisputes.WrongCommittee.selector);
        disputes.proveWrongVerdict("another", true, new address[](0), new bytes[](0), 0);
        for (uint256 i = 0; i < 5; ++i) {
            signatures[i] = _vote(i, true);
        }
        vm.expectRevert(abi.encodeWithSignature("Panic(uint256)", 0x32)); // a sixth member does not exist
        disputes.proveWrongVerdict(id, true, committee, signatures, 5);

        signatures = _votes(true, 0);
        vm.warp(block.timestamp + VERDICT_PERIOD + 1);
        disputes.replaceCommittee(id, committee);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.InvalidVerdictSignature.selector, committee[0]));
        disputes.proveWrongVerdict(id, true, committee, signatures, 0); // signatures of the previous draw
        _draw(id);
        vm.expectRevert(IDisputes.WrongCommittee.selector);
        disputes.proveWrongVerdict(id, true, committee, signatures, 0);
    }

    /// @dev Later, members without stake could sign the opposite of their earlier verdict at no cost.
    function test_dissentProof_revertsAfterDeadline() public {
        disputes.submitVerdict(id, true, committee, _votesOfAll(true));
        bytes[] memory signatures = _votes(false, 1); // four members changed their verdict
        uint256 end = block.timestamp + VERDICT_PERIOD + DISPUTE_PERIOD;
        vm.warp(end + 1);
        vm.expectRevert(abi.encodeWithSelector(IVerdicts.ProofTooLate.selector, end));
        disputes.proveWrongVerdict(id, false, committee, signatures, 1);
        disputes.proveContradiction(id, 0, _vote(0, true), _vote(0, false)); // possible while stake is left
        vm.warp(end);
        disputes.proveWrongVerdict(id, false, committee, signatures, 1);
        vm.assertEq(staking.atRisk(committee[1]), REFEREE_STAKE * 4 / 5);
    }

    function test_committeeOfTwo_cannotProveDissent() public {
        for (uint8 seats = 1; seats <= 3; ++seats) {
            IDisputes.Terms memory terms = _terms();
            (terms.seats, terms.quorum) = (seats, seats == 1 ? 1 : 2);
            disputes = _deploy(terms);
            for (uint256 i = 0; i < REFEREES; ++i) {
                _register(referees[i]);
            }
            token.transfer(challenger, BOND);
            vm.prank(challenger);
            token.approve(address(disputes), BOND);
            id = _openAndSelect(2);
            committee = _draw(id);
            bytes[] memory signatures = new bytes[](seats);
            for (uint256 i = 0; i < seats; ++i) {
                signatures[i] = _vote(i, i > 0);
            }
            if (seats < 3) vm.expectRevert(abi.encodeWithSelector(IVerdicts.TooFewMembers.selector, seats));
            disputes.proveWrongVerdict(id, true, committee, signatures, 0);
        }
        vm.assertEq(staking.atRisk(committee[0]), REFEREE_STAKE * 4 / 5);
    }

    // --- objections

    function test_objection_countsAgainstProviderWithoutFee() public {
        bytes[] memory signatures = new bytes[](5);
        (signatures[0], signatures[2], signatures[4]) = (_vote(0, false), _objection(2), _vote(4, false));
        vm.expectEmit(address(disputes));
        emit IDisputes.VerdictGiven(id, 0, false, 3);
        disputes.submitVerdict(id, false, committee, signatures);
        _assertStatus(id, IDisputes.Status.ProviderLost);
        for (uint256 i = 0; i < 5; ++i) {
            vm.assertEq(disputes.credits(committee[i]), i == 0 || i == 4 ? FEE : 0);
        }
        _assertConserved();
    }

    function test_objection_isRejectedForProviderVerdict() public {
        bytes[] memory signatures = _votes(true, 1);
        signatures[1] = _objection(1);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.InvalidVerdictSignature.selector, committee[1]));
        disputes.submitVerdict(id, true, committee, signatures);
    }

    function test_objection_isBoundToDisputeAndDraw() public view {
        bytes32 domain = keccak256(
            abi.encode(
                keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"),
                keccak256("ZooDisputes"),
                keccak256("1"),
                block.chainid,
                address(disputes)
            )
        );
        bytes32 message = keccak256(abi.encode(keccak256("Objection(bytes32 disputeId,uint32 draw)"), bytes32("id"), 2));
        vm.assertEq(disputes.objectionDigest("id", 2), keccak256(abi.encodePacked(hex"1901", domain, message)));
    }

    // --- signatures

    function _vote(uint256 seat, bool correct) private view returns (bytes memory) {
        return _sign(_refereeKey(committee[seat]), disputes.verdictDigest(id, 0, correct));
    }

    function _objection(uint256 seat) private view returns (bytes memory) {
        return _sign(_refereeKey(committee[seat]), disputes.objectionDigest(id, 0));
    }

    function _votesOfAll(bool correct) private view returns (bytes[] memory) {
        return _votes(correct, 5);
    }

    /// @dev All sign `correct` except one.
    function _votes(bool correct, uint256 odd) private view returns (bytes[] memory signatures) {
        signatures = new bytes[](5);
        for (uint256 i = 0; i < 5; ++i) {
            signatures[i] = _vote(i, (i == odd) != correct);
        }
    }
}
