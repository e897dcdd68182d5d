// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Disputes} from "../../src/Disputes.sol";
import {IDisputes} from "../../src/interfaces/IDisputes.sol";
import {IVerdicts} from "../../src/interfaces/IVerdicts.sol";
import {DisputeFixture} from "../base/DisputeFixture.sol";

/// @dev A contract referee that approves one digest (ERC-1271).
contract ContractReferee {
    bytes32 public approved;

    function approve(bytes32 digest) external {
        approved = digest;
    }

    function isValidSignature(bytes32 digest, bytes calldata) external view returns (bytes4) {
        return digest == approved ? this.isValidSignature.selector : bytes4(0);
    }
}

/// @notice Signatures that make a verdict.
contract DisputesVerdictTest is DisputeFixture {
    // --- verdicts

    function test_verdictAgainstProvider_slashesAndCreditsChallenger() public {
        bytes32 id = _openAndSelect(2);
        address[] memory committee = _draw(id);
        uint256 supply = token.totalSupply();
        bytes[] memory signatures = _verdicts(id, false, committee, 4);
        vm.expectEmit(address(disputes));
        emit IDisputes.VerdictGiven(id, 0, false, 4);
        vm.expectEmit(address(disputes));
        emit IDisputes.DisputeEnded(id, _unitId(), IDisputes.Status.ProviderLost, 160 ether);
        vm.prank(thirdParty);
        disputes.submitVerdict(id, false, committee, signatures);

        vm.assertEq(staking.lastOffence(provider), 2);
        vm.assertTrue(staking.used(id));
        vm.assertEq(staking.atRisk(provider), STAKE / 2);
        vm.assertEq(disputes.credits(challenger), BOND + COST);
        for (uint256 i = 0; i < 5; ++i) {
            vm.assertEq(disputes.credits(committee[i]), i < 4 ? FEE : 0);
        }
        vm.assertEq(supply - token.totalSupply(), 800 ether + 160 ether); // 40 of the share of 200 went to costs
        vm.assertTrue(disputes.units(_unitId()).convicted);
        _assertConserved();
    }

    function test_verdictForProvider_paysProviderAndReferees() public {
        bytes32 id = _openAndSelect(2);
        address[] memory committee = _draw(id);
        uint256 supply = token.totalSupply();
        bytes[] memory signatures = _verdicts(id, true, committee, 3);
        vm.expectEmit(address(disputes));
        emit IDisputes.DisputeEnded(id, _unitId(), IDisputes.Status.ChallengerLost, 65 ether);
        disputes.submitVerdict(id, true, committee, signatures);

        vm.assertEq(disputes.credits(provider), COST);
        vm.assertEq(disputes.credits(challenger), 0);
        for (uint256 i = 0; i < 5; ++i) {
            vm.assertEq(disputes.credits(committee[i]), i < 3 ? FEE : 0);
        }
        vm.assertEq(supply - token.totalSupply(), 65 ether);
        vm.assertFalse(staking.jailed(provider));
        vm.assertEq(staking.atRisk(provider), STAKE);
        _assertConserved();
    }

    function test_quorum_isReachedByAnyMembers() public {
        bytes32 id = _openAndSelect(2);
        address[] memory committee = _draw(id);
        bytes[] memory signatures = _verdicts(id, false, committee, 5);
        (signatures[0], signatures[3]) = (bytes(""), bytes(""));
        disputes.submitVerdict(id, false, committee, signatures);
        for (uint256 i = 0; i < 5; ++i) {
            vm.assertEq(disputes.credits(committee[i]), i == 0 || i == 3 ? 0 : FEE);
        }
    }

    function test_verdictBelowQuorum_isNotExecuted() public {
        bytes32 id = _openAndSelect(2);
        address[] memory committee = _draw(id);
        bytes[] memory signatures = _verdicts(id, false, committee, 2);
        vm.expectEmit(address(disputes));
        emit IVerdicts.VotesKept(id, 0, false, 3);
        disputes.submitVerdict(id, false, committee, signatures);
        disputes.submitVerdict(id, false, committee, signatures); // the same two members
        disputes.submitVerdict(id, true, committee, _verdicts(id, true, committee, 2)); // two for each outcome
        _assertStatus(id, IDisputes.Status.Judging);
        vm.assertEq(disputes.credits(committee[0]), 0);
    }

    function test_signatures_addUpOverSeveralCalls() public {
        bytes32 id = _openAndSelect(2);
        address[] memory committee = _draw(id);
        bytes[] memory all = _verdicts(id, false, committee, 5);
        all[3] = _sign(_refereeKey(committee[3]), disputes.objectionDigest(id, 0));
        disputes.submitVerdict(id, false, committee, _only(all, 4));
        disputes.submitVerdict(id, true, committee, _only(_verdicts(id, true, committee, 5), 0));
        disputes.submitVerdict(id, false, committee, _only(all, 3));
        vm.expectEmit(address(disputes));
        emit IDisputes.VerdictGiven(id, 0, false, 3);
        vm.prank(thirdParty);
        disputes.submitVerdict(id, false, committee, _only(all, 1));
        _assertStatus(id, IDisputes.Status.ProviderLost);
        for (uint256 i = 0; i < 5; ++i) {
            vm.assertEq(disputes.credits(committee[i]), i == 1 || i == 4 ? FEE : 0);
        }
        _assertConserved();
    }

    /// @dev A member with a verdict and an objection has one vote.
    function test_member_votesOnceOverSeveralCalls() public {
        bytes32 id = _openAndSelect(2);
        address[] memory committee = _draw(id);
        bytes[] memory signatures = _verdicts(id, false, committee, 2);
        disputes.submitVerdict(id, false, committee, signatures);
        signatures[0] = _sign(_refereeKey(committee[0]), disputes.objectionDigest(id, 0));
        disputes.submitVerdict(id, false, committee, signatures);
        _assertStatus(id, IDisputes.Status.Judging);
        vm.assertEq(disputes.signedSeats(id), 3);
    }

    function _only(bytes[] memory all, uint256 seat) private pure returns (bytes[] memory signatures) {
        signatures = new bytes[](all.length);
        signatures[seat] = all[seat];
    }

    function test_signature_countsOnceForItsSeat() public {
        bytes32 id = _openAndSelect(2);
        address[] memory committee = _draw(id);
        bytes[] memory signatures = _verdicts(id, false, committee, 2);
        signatures[2] = signatures[1];
        vm.expectRevert(abi.encodeWithSelector(IDisputes.InvalidVerdictSignature.selector, committee[2]));
        disputes.submitVerdict(id, false, committee, signatures);

        address[] memory doubled = _draw2(committee);
        signatures = _verdicts(id, false, doubled, 3);
        vm.expectRevert(IDisputes.WrongCommittee.selector);
        disputes.submitVerdict(id, false, doubled, signatures);
    }

    function _draw2(address[] memory committee) private pure returns (address[] memory doubled) {
        doubled = new address[](5);
        for (uint256 i = 0; i < 5; ++i) {
            doubled[i] = committee[i / 2];
        }
    }

    function test_nonMemberSignature_isRejected() public {
        bytes32 id = _openAndSelect(2);
        address[] memory committee = _draw(id);
        bytes[] memory signatures = _verdicts(id, false, committee, 3);
        bytes32 digest = disputes.verdictDigest(id, 0, false);
        signatures[1] = _sign(0xBAD, digest);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.InvalidVerdictSignature.selector, committee[1]));
        disputes.submitVerdict(id, false, committee, signatures);

        signatures = _verdicts(id, false, committee, 3);
        committee[1] = vm.addr(0xBAD);
        signatures[1] = _sign(0xBAD, digest);
        vm.expectRevert(IDisputes.WrongCommittee.selector);
        disputes.submitVerdict(id, false, committee, signatures);
    }

    function test_signatureList_hasOneEntryPerMember() public {
        bytes32 id = _openAndSelect(2);
        address[] memory committee = _draw(id);
        vm.expectRevert(IDisputes.WrongCommittee.selector);
        disputes.submitVerdict(id, false, committee, new bytes[](4));
        vm.expectRevert(IDisputes.WrongCommittee.selector);
        disputes.submitVerdict(id, false, committee, new bytes[](6));
    }

    /// @dev A contract could disown its approval later, so it could not be slashed.
    function test_contractReferee_cannotSignByErc1271() public {
        ContractReferee referee = new ContractReferee();
        bytes32 id = _openAndSelect(2);
        address[] memory committee = _draw(id);
        vm.etch(committee[0], address(referee).code);
        ContractReferee(committee[0]).approve(disputes.verdictDigest(id, 0, false));
        bytes[] memory signatures = _verdicts(id, false, committee, 3);
        signatures[0] = "any";
        vm.expectRevert(abi.encodeWithSelector(IDisputes.InvalidVerdictSignature.selector, committee[0]));
        disputes.submitVerdict(id, false, committee, signatures);
    }

    // --- replay of signatures

    function test_signature_isRejectedForOppositeOutcome() public {
        bytes32 id = _openAndSelect(2);
        address[] memory committee = _draw(id);
        _expectInvalid(id, true, committee, _verdicts(id, false, committee, 3));
    }

    function test_signature_isRejectedForOtherDispute() public {
        bytes32 id = _openAndSelect(2);
        address[] memory committee = _draw(id);
        bytes[] memory signatures = _verdicts(keccak256("another"), false, committee, 3);
        _expectInvalid(id, false, committee, signatures);
    }

    function test_signature_isRejectedForNextDraw() public {
        bytes32 id = _openAndSelect(2);
        address[] memory first = _draw(id);
        vm.warp(block.timestamp + VERDICT_PERIOD + 1);
        disputes.replaceCommittee(id, first);
        address[] memory committee = _draw(id);
        bytes32 old = disputes.verdictDigest(id, 0, false);
        bytes[] memory signatures = new bytes[](5);
        for (uint256 i = 0; i < 3; ++i) {
            signatures[i] = _sign(_refereeKey(committee[i]), old);
        }
        _expectInvalid(id, false, committee, signatures);
        signatures = _verdicts(id, false, first, 3);
        vm.expectRevert(IDisputes.WrongCommittee.selector); // the first committee is replaced
        disputes.submitVerdict(id, false, first, signatures);
    }

    function test_signature_isRejectedOnOtherChain() public {
        bytes32 id = _openAndSelect(2);
        address[] memory committee = _draw(id);
        bytes[] memory signatures = _verdicts(id, false, committee, 3);
        vm.chainId(999);
        _expectInvalid(id, false, committee, signatures);
    }

    function test_signature_isRejectedForOtherContract() public {
        Disputes other = _deploy(_terms());
        vm.assertTrue(other.verdictDigest("id", 0, false) != disputes.verdictDigest("id", 0, false));
        bytes32 domain = keccak256(
            abi.encode(
                keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"),
                keccak256("ZooDisputes"),
                keccak256("1"),
                block.chainid,
                address(disputes)
            )
        );
        bytes32 message = keccak256(
            abi.encode(keccak256("Verdict(bytes32 disputeId,uint32 draw,bool providerCorrect)"), bytes32("id"), 2, true)
        );
        vm.assertEq(disputes.verdictDigest("id", 2, true), keccak256(abi.encodePacked(hex"1901", domain, message)));
    }

    function _expectInvalid(bytes32 id, bool correct, address[] memory committee, bytes[] memory signatures) private {
        vm.expectRevert(abi.encodeWithSelector(IDisputes.InvalidVerdictSignature.selector, committee[0]));
        disputes.submitVerdict(id, correct, committee, signatures);
    }

    function test_verdict_isExecutedOnce() public {
        bytes32 id = _openAndSelect(2);
        address[] memory committee = _draw(id);
        bytes[] memory signatures = _verdicts(id, true, committee, 3);
        disputes.submitVerdict(id, true, committee, signatures);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.WrongStatus.selector, id, IDisputes.Status.ChallengerLost));
        disputes.submitVerdict(id, true, committee, signatures);
    }
}
