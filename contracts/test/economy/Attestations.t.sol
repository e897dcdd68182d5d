// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Attestations} from "../../src/Attestations.sol";
import {IAttestations} from "../../src/interfaces/IAttestations.sol";
import {RewardNetwork} from "../base/RewardNetwork.sol";

contract AttestationsTest is RewardNetwork {
    address private immutable provider = address(0x1111);
    bytes32 private constant IMAGE = keccak256("image");
    bytes32 private constant KEY = keccak256("key");

    function setUp() public override {
        super.setUp();
        _setMeasurement(IMAGE, true);
    }

    function test_attestation_isValidUntilExpiry() public {
        uint40 expiresAt = uint40(block.timestamp + 10 days);
        vm.assertFalse(attestations.isAttested(provider));
        vm.expectEmit(address(attestations));
        emit IAttestations.Attested(provider, KEY, IMAGE, expiresAt, "report");
        _attest(IMAGE, expiresAt);
        vm.assertTrue(attestations.isAttested(provider));
        vm.assertFalse(attestations.isAttested(thirdParty));
        IAttestations.Attestation memory attestation = attestations.attestationOf(provider);
        vm.assertEq(attestation.key, KEY);
        vm.assertEq(attestation.measurement, IMAGE);
        vm.assertEq(attestation.expiresAt, expiresAt);
        vm.warp(expiresAt - 1);
        vm.assertTrue(attestations.isAttested(provider));
        vm.warp(expiresAt);
        vm.assertFalse(attestations.isAttested(provider));
    }

    function test_attest_revertsForUnknownMeasurement() public {
        bytes32 other = keccak256("other image");
        vm.expectRevert(abi.encodeWithSelector(IAttestations.UnknownMeasurement.selector, other));
        _attest(other, uint40(block.timestamp + 1));
        _setMeasurement(other, true);
        _attest(other, uint40(block.timestamp + 1));
        vm.assertTrue(attestations.isAttested(provider));
    }

    function test_withdrawnMeasurement_endsItsAttestations() public {
        _attest(IMAGE, uint40(block.timestamp + 10 days));
        vm.expectEmit(address(attestations));
        emit IAttestations.MeasurementSet(IMAGE, false);
        _setMeasurement(IMAGE, false);
        vm.assertFalse(attestations.isAccepted(IMAGE));
        vm.assertFalse(attestations.isAttested(provider));
        vm.expectRevert(abi.encodeWithSelector(IAttestations.UnknownMeasurement.selector, IMAGE));
        _attest(IMAGE, uint40(block.timestamp + 10 days));
    }

    function test_attest_revertsOnInvalidExpiry() public {
        uint256 latest = block.timestamp + MAX_VALIDITY;
        _expectInvalidExpiry(block.timestamp);
        _expectInvalidExpiry(latest + 1);
        _attest(IMAGE, uint40(block.timestamp + 1));
        _attest(IMAGE, uint40(latest));
        vm.assertEq(attestations.attestationOf(provider).expiresAt, latest);
    }

    function test_revoke_endsAttestation() public {
        _attest(IMAGE, uint40(block.timestamp + 10 days));
        vm.expectEmit(address(attestations));
        emit IAttestations.Revoked(provider);
        vm.prank(attester);
        attestations.revoke(provider);
        vm.assertFalse(attestations.isAttested(provider));
        vm.assertEq(attestations.attestationOf(provider).key, 0);
        vm.expectRevert(abi.encodeWithSelector(IAttestations.NotAttested.selector, provider));
        vm.prank(attester);
        attestations.revoke(provider);
    }

    function test_calls_revertWithoutRole() public {
        bytes32 attesterRole = attestations.ATTESTER_ROLE();
        bytes32 adminRole = attestations.DEFAULT_ADMIN_ROLE();
        vm.prank(admin);
        _expectMissingRole(admin, attesterRole);
        attestations.attest(provider, KEY, IMAGE, uint40(block.timestamp + 1), "report");
        vm.prank(provider);
        _expectMissingRole(provider, attesterRole);
        attestations.revoke(provider);
        vm.prank(attester);
        _expectMissingRole(attester, adminRole);
        attestations.setMeasurement(KEY, true);
    }

    function test_constructor_revertsOnInvalidParameters() public {
        vm.expectRevert(abi.encodeWithSelector(IAttestations.InvalidParameter.selector, "maxValidity"));
        new Attestations(0, 1 days, admin, attester);
        vm.expectRevert(abi.encodeWithSelector(IAttestations.InvalidParameter.selector, "maxValidity"));
        new Attestations(365 days + 1, 1 days, admin, attester);
        vm.assertEq(new Attestations(1, 1 days, admin, attester).maxValidity(), 1);
        vm.assertEq(new Attestations(365 days, 1 days, admin, attester).maxValidity(), 365 days);
    }

    function testFuzz_isAttested_requiresValidityAndAcceptance(uint40 validity, uint40 later, bool accepted) public {
        validity = uint40(_bound(validity, 1, MAX_VALIDITY));
        uint256 attestedAt = block.timestamp;
        _attest(IMAGE, uint40(attestedAt + validity));
        _setMeasurement(IMAGE, accepted);
        later = uint40(_bound(later, 0, 2 * MAX_VALIDITY));
        vm.warp(attestedAt + later);
        vm.assertTrue(attestations.isAttested(provider) == (accepted && later < validity));
    }

    function _setMeasurement(bytes32 measurement, bool accepted) private {
        vm.prank(admin);
        attestations.setMeasurement(measurement, accepted);
    }

    function _attest(bytes32 measurement, uint40 expiresAt) private {
        vm.prank(attester);
        attestations.attest(provider, KEY, measurement, expiresAt, "report");
    }

    function _expectInvalidExpiry(uint256 expiresAt) private {
        bytes4 selector = IAttestations.InvalidExpiry.selector;
        vm.expectRevert(abi.encodeWithSelector(selector, expiresAt, block.timestamp + MAX_VALIDITY));
        _attest(IMAGE, uint40(expiresAt));
    }
}
