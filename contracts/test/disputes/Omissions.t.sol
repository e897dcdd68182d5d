// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IAccessControl} from "@openzeppelin/contracts/access/IAccessControl.sol";
import {IOmissions} from "../../src/interfaces/IOmissions.sol";
import {IWorkWindows} from "../../src/interfaces/IWorkWindows.sol";
import {IZenToken} from "../../src/interfaces/IZenToken.sol";
import {Omissions} from "../../src/Omissions.sol";
import {DisputeFixture} from "../base/DisputeFixture.sol";

contract OmissionsTest is DisputeFixture {
    uint256 private constant ACKNOWLEDGER_KEY = 0xACC;
    uint96 private constant CLAIM_STAKE = 2 ether;
    uint96 private constant COMPENSATION = 30 ether;
    uint40 private constant CLAIM_PERIOD = 3 days;
    uint40 private constant RESPONSE = 1 days;
    uint40 private constant DELAY = 5 days;

    address private immutable operator = address(uint160(0x0BE7));
    address private immutable acknowledger = vm.addr(ACKNOWLEDGER_KEY);
    Omissions private omissions;
    uint40 private includeBy;

    function setUp() public override {
        super.setUp();
        omissions = _deployOmissions(_omissionTerms());
        token.transfer(operator, 1_000 ether);
        token.transfer(provider, 100 ether);
        vm.prank(operator);
        token.approve(address(omissions), type(uint256).max);
        vm.prank(provider);
        token.approve(address(omissions), type(uint256).max);
        vm.prank(operator);
        omissions.deposit(100 ether);
        includeBy = uint40(block.timestamp + 1 hours);
        unit.round = 99; // delivered but in no window
    }

    // --- the bond

    function test_deposit_worksForAnyAccount() public {
        vm.prank(provider);
        vm.expectEmit(address(omissions));
        emit IOmissions.Deposited(provider, 5 ether, 105 ether);
        omissions.deposit(5 ether);
        vm.assertEq(omissions.bond(), 105 ether);
        _assertHeld(0);
        vm.expectRevert(IOmissions.ZeroAmount.selector);
        omissions.deposit(0);
    }

    function test_withdrawal_paysAfterDelay() public {
        uint256 releaseAt = block.timestamp + DELAY;
        vm.expectEmit(address(omissions));
        emit IOmissions.WithdrawalRequested(40 ether, releaseAt);
        _request(40 ether);
        vm.assertEq(omissions.withdrawal().amount, 40 ether);
        vm.assertEq(omissions.withdrawal().releaseAt, releaseAt);
        vm.assertEq(omissions.bond(), 100 ether);
        vm.warp(releaseAt - 1);
        vm.expectRevert(abi.encodeWithSelector(IOmissions.WithdrawalTooEarly.selector, releaseAt));
        _withdraw();
        vm.warp(releaseAt);
        vm.expectEmit(address(omissions));
        emit IOmissions.Withdrawn(operator, 40 ether, 60 ether);
        _withdraw();
        vm.assertEq(token.balanceOf(operator), 940 ether);
        _assertHeld(0);
        vm.expectRevert(IOmissions.NoWithdrawal.selector);
        _withdraw();
    }

    function test_newRequest_replacesEarlierOneAndItsTime() public {
        _request(40 ether);
        vm.warp(block.timestamp + DELAY);
        _request(10 ether);
        vm.expectRevert(abi.encodeWithSelector(IOmissions.WithdrawalTooEarly.selector, block.timestamp + DELAY));
        _withdraw();
        vm.warp(block.timestamp + DELAY);
        _withdraw();
        vm.assertEq(omissions.bond(), 90 ether);
        vm.expectRevert(IOmissions.ZeroAmount.selector);
        _request(0);
    }

    function test_openClaims_holdTheirCompensation() public {
        _request(100 ether);
        vm.warp(block.timestamp + DELAY - CLAIM_PERIOD);
        includeBy = uint40(block.timestamp - 1);
        _claim();
        vm.warp(block.timestamp + CLAIM_PERIOD);
        _withdraw();
        vm.assertEq(omissions.bond(), COMPENSATION);
        _request(1);
        vm.warp(block.timestamp + DELAY);
        vm.expectRevert(abi.encodeWithSelector(IOmissions.BondHeld.selector, COMPENSATION, COMPENSATION));
        _withdraw();
        omissions.resolve(_unitId());
        vm.assertEq(omissions.bond(), 0);
        _assertHeld(0);
    }

    function test_withdrawal_revertsForNonOperator() public {
        bytes memory refusal = abi.encodeWithSelector(
            IAccessControl.AccessControlUnauthorizedAccount.selector, thirdParty, omissions.OPERATOR_ROLE()
        );
        vm.expectRevert(refusal);
        vm.prank(thirdParty);
        omissions.requestWithdrawal(1);
        vm.expectRevert(refusal);
        vm.prank(thirdParty);
        omissions.withdraw();
    }

    // --- claims

    function test_unansweredClaim_isCompensatedOnce() public {
        vm.warp(includeBy + 1);
        uint256 deadline = block.timestamp + RESPONSE;
        vm.expectEmit(address(omissions));
        emit IOmissions.ClaimOpened(_unitId(), provider, includeBy, deadline);
        _claim();
        IOmissions.Claim memory claimed = omissions.claims(_unitId());
        vm.assertEq(claimed.provider, provider);
        vm.assertEq(claimed.includeBy, includeBy);
        vm.assertEq(claimed.deadline, deadline);
        vm.assertEq(omissions.openClaims(), 1);
        vm.assertEq(token.balanceOf(provider), 98 ether);
        _assertHeld(1);

        vm.warp(deadline);
        vm.expectRevert(abi.encodeWithSelector(IOmissions.ResponseNotOver.selector, deadline));
        omissions.resolve(_unitId());
        vm.warp(deadline + 1);
        vm.expectEmit(address(omissions));
        emit IOmissions.Compensated(_unitId(), provider, COMPENSATION);
        vm.prank(thirdParty);
        omissions.resolve(_unitId());
        vm.assertEq(token.balanceOf(provider), 130 ether);
        vm.assertEq(omissions.bond(), 70 ether);
        vm.assertEq(omissions.openClaims(), 0);
        _assertHeld(0);
        vm.expectRevert(abi.encodeWithSelector(IOmissions.NoOpenClaim.selector, _unitId()));
        omissions.resolve(_unitId());
        bytes memory acknowledgement = _acknowledgement();
        vm.expectRevert(abi.encodeWithSelector(IOmissions.ClaimExists.selector, _unitId()));
        _claimWith(acknowledgement);
    }

    function test_timelyInclusion_answersClaim() public {
        vm.warp(includeBy);
        _commitWindow("neighbour");
        vm.warp(includeBy + 1);
        _claim();
        vm.warp(block.timestamp + RESPONSE);
        vm.expectEmit(address(omissions));
        emit IOmissions.ClaimAnswered(_unitId(), windowRoot);
        vm.prank(thirdParty);
        omissions.respond(unit, windowRoot, windowProof);
        vm.assertEq(omissions.bond(), 100 ether + CLAIM_STAKE);
        vm.assertEq(omissions.openClaims(), 0);
        _assertHeld(0);
        vm.expectRevert(abi.encodeWithSelector(IOmissions.NoOpenClaim.selector, _unitId()));
        omissions.resolve(_unitId());
        vm.expectRevert(abi.encodeWithSelector(IOmissions.NoOpenClaim.selector, _unitId()));
        omissions.respond(unit, windowRoot, windowProof);
        bytes memory acknowledgement = _acknowledgement();
        vm.expectRevert(abi.encodeWithSelector(IOmissions.ClaimExists.selector, _unitId()));
        _claimWith(acknowledgement);
    }

    function test_lateInclusion_doesNotAnswerClaim() public {
        vm.warp(includeBy + 1);
        _commitWindow("neighbour");
        _claim();
        vm.expectRevert(abi.encodeWithSelector(IOmissions.IncludedTooLate.selector, includeBy + 1, includeBy));
        omissions.respond(unit, windowRoot, windowProof);
    }

    function test_windowWithoutUnit_doesNotAnswerClaim() public {
        vm.warp(includeBy + 1);
        _claim();
        vm.expectRevert(abi.encodeWithSelector(IOmissions.NotInWindow.selector, windowRoot));
        omissions.respond(unit, windowRoot, windowProof); // the window of the unit's other round
        vm.expectRevert(abi.encodeWithSelector(IWorkWindows.UnknownWindow.selector, bytes32("none")));
        omissions.respond(unit, "none", windowProof);
    }

    function test_response_revertsAfterDeadline() public {
        _commitWindow("neighbour");
        vm.warp(includeBy + 1);
        _claim();
        uint256 deadline = block.timestamp + RESPONSE;
        vm.warp(deadline + 1);
        vm.expectRevert(abi.encodeWithSelector(IOmissions.ResponseOver.selector, deadline));
        omissions.respond(unit, windowRoot, windowProof);
    }

    function test_claim_revertsOutsideClaimPeriod() public {
        vm.warp(includeBy);
        bytes memory acknowledgement = _acknowledgement();
        vm.expectRevert(abi.encodeWithSelector(IOmissions.ClaimTooEarly.selector, includeBy));
        _claimWith(acknowledgement);
        uint256 end = includeBy + CLAIM_PERIOD;
        vm.warp(end + 1);
        vm.expectRevert(abi.encodeWithSelector(IOmissions.ClaimTooLate.selector, end));
        _claimWith(acknowledgement);
        vm.warp(end);
        _claimWith(acknowledgement);
    }

    function test_claim_revertsForNonProvider() public {
        vm.warp(includeBy + 1);
        bytes memory acknowledgement = _acknowledgement();
        vm.expectRevert(abi.encodeWithSelector(IOmissions.NotProvider.selector, thirdParty));
        vm.prank(thirdParty);
        omissions.claim(unit, includeBy, acknowledgement);
    }

    function test_compensation_isBoundedByBond() public {
        Omissions poor = _deployOmissions(_omissionTerms());
        omissions = poor;
        vm.prank(operator);
        token.approve(address(poor), 10 ether);
        vm.prank(operator);
        poor.deposit(10 ether);
        vm.prank(provider);
        token.approve(address(poor), CLAIM_STAKE);
        vm.warp(includeBy + 1);
        _claim();
        vm.warp(block.timestamp + RESPONSE + 1);
        poor.resolve(_unitId());
        vm.assertEq(token.balanceOf(provider), 110 ether);
        vm.assertEq(poor.bond(), 0);
        _assertHeld(0);
    }

    // --- acknowledgements

    function test_claim_revertsWithoutAcknowledgement() public {
        vm.warp(includeBy + 1);
        bytes memory acknowledgement = _acknowledgement();
        bytes32 digest = omissions.acknowledgementDigest(_unitId(), includeBy);
        bytes memory forged = _sign(PROVIDER_KEY, digest);
        vm.expectRevert(abi.encodeWithSelector(IOmissions.NotAcknowledged.selector, provider));
        _claimWith(forged);
        vm.expectRevert(abi.encodeWithSelector(IOmissions.NotAcknowledged.selector, address(0)));
        _claimWith("");

        includeBy -= 1; // another deadline
        vm.expectPartialRevert(IOmissions.NotAcknowledged.selector);
        _claimWith(acknowledgement);
        includeBy += 1;
        unit.slot += 1; // another unit
        vm.expectPartialRevert(IOmissions.NotAcknowledged.selector);
        _claimWith(acknowledgement);
        unit.slot -= 1;
        vm.chainId(999);
        vm.expectPartialRevert(IOmissions.NotAcknowledged.selector);
        _claimWith(acknowledgement);
    }

    function test_invalidSignature_isRejected_whenZeroHasRole() public {
        omissions.grantRole(omissions.ACKNOWLEDGER_ROLE(), address(0));
        vm.warp(includeBy + 1);
        vm.expectRevert(abi.encodeWithSelector(IOmissions.NotAcknowledged.selector, address(0)));
        _claimWith("");
    }

    function test_digests_areEip712OfThisContract() public {
        bytes32 domain = keccak256(
            abi.encode(
                keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"),
                keccak256("ZooOmissions"),
                keccak256("1"),
                block.chainid,
                address(omissions)
            )
        );
        bytes32 message =
            keccak256(abi.encode(keccak256("Acknowledgement(bytes32 unitId,uint40 includeBy)"), bytes32("u"), 5));
        vm.assertEq(omissions.acknowledgementDigest("u", 5), keccak256(abi.encodePacked(hex"1901", domain, message)));
        Omissions other = _deployOmissions(_omissionTerms());
        vm.assertTrue(other.acknowledgementDigest("u", 5) != omissions.acknowledgementDigest("u", 5));
    }

    /// @dev The operator must not be able to void its signatures.
    function test_acknowledger_cannotRenounce() public {
        bytes32 role = omissions.ACKNOWLEDGER_ROLE();
        vm.expectRevert(IOmissions.CannotRenounce.selector);
        vm.prank(acknowledger);
        omissions.renounceRole(role, acknowledger);
        bytes32 operatorRole = omissions.OPERATOR_ROLE();
        vm.prank(operator);
        omissions.renounceRole(operatorRole, operator);
        vm.assertFalse(omissions.hasRole(operatorRole, operator));
        omissions.revokeRole(role, acknowledger); // only the admin revokes it
        vm.warp(includeBy + 1);
        bytes memory acknowledgement = _acknowledgement();
        vm.expectRevert(abi.encodeWithSelector(IOmissions.NotAcknowledged.selector, acknowledger));
        _claimWith(acknowledgement);
    }

    function test_acknowledgement_isValid_whenAcknowledgerHasCode() public {
        vm.etch(acknowledger, hex"fe");
        vm.warp(includeBy + 1);
        _claim();
    }

    // --- terms

    function test_terms_areThoseGiven() public view {
        vm.assertEq(abi.encode(omissions.terms()), abi.encode(_omissionTerms()));
    }

    function test_constructor_revertsOnInvalidTerms() public {
        IOmissions.Terms memory terms = _omissionTerms();
        terms.withdrawalDelay = terms.claimPeriod;
        _deployOmissions(terms);
        terms.withdrawalDelay -= 1;
        _refuseTerms(terms, "withdrawalDelay");
        terms = _omissionTerms();
        terms.compensation = 0;
        _refuseTerms(terms, "compensation");
        terms = _omissionTerms();
        terms.claimPeriod = 0;
        _refuseTerms(terms, "claimPeriod");
        terms = _omissionTerms();
        terms.responsePeriod = 0;
        _refuseTerms(terms, "responsePeriod");
        vm.expectRevert(abi.encodeWithSelector(IOmissions.InvalidParameter.selector, "token"));
        new Omissions(IZenToken(address(0)), windows, terms, 1 days, address(this), operator, acknowledger);
    }

    // --- helpers

    function _omissionTerms() private pure returns (IOmissions.Terms memory) {
        return IOmissions.Terms(CLAIM_STAKE, COMPENSATION, CLAIM_PERIOD, RESPONSE, DELAY);
    }

    function _deployOmissions(IOmissions.Terms memory terms) private returns (Omissions) {
        return new Omissions(IZenToken(address(token)), windows, terms, 1 days, address(this), operator, acknowledger);
    }

    function _refuseTerms(IOmissions.Terms memory terms, string memory parameter) private {
        vm.expectRevert(abi.encodeWithSelector(IOmissions.InvalidParameter.selector, parameter));
        _deployOmissions(terms);
    }

    function _request(uint96 amount) private {
        vm.prank(operator);
        omissions.requestWithdrawal(amount);
    }

    function _withdraw() private {
        vm.prank(operator);
        omissions.withdraw();
    }

    function _acknowledgement() private view returns (bytes memory) {
        return _sign(ACKNOWLEDGER_KEY, omissions.acknowledgementDigest(_unitId(), includeBy));
    }

    function _claim() private {
        _claimWith(_acknowledgement());
    }

    function _claimWith(bytes memory acknowledgement) private {
        vm.prank(provider);
        omissions.claim(unit, includeBy, acknowledgement);
    }

    /// @dev The contract holds the bond and the stakes of open claims, to the wei.
    function _assertHeld(uint256 openClaims) private view {
        vm.assertEq(omissions.openClaims(), openClaims);
        vm.assertEq(token.balanceOf(address(omissions)), omissions.bond() + openClaims * CLAIM_STAKE);
    }
}
