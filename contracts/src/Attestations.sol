// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {
    AccessControlDefaultAdminRules
} from "@openzeppelin/contracts/access/extensions/AccessControlDefaultAdminRules.sol";
import {IAttestations} from "./interfaces/IAttestations.sol";

/// @title Attestations of trusted execution environments
contract Attestations is IAttestations, AccessControlDefaultAdminRules {
    bytes32 public constant ATTESTER_ROLE = keccak256("ATTESTER_ROLE");

    /// @inheritdoc IAttestations
    uint256 public immutable maxValidity;
    /// @inheritdoc IAttestations
    mapping(bytes32 measurement => bool) public isAccepted;

    mapping(address provider => Attestation) private _attestations;

    /// @param maxValidity_ Longest validity of an attestation: 1 second to 365 days.
    /// @param adminDelay Seconds between proposing and accepting a new admin.
    /// @param admin First holder of DEFAULT_ADMIN_ROLE.
    /// @param attester First holder of ATTESTER_ROLE.
    constructor(uint40 maxValidity_, uint48 adminDelay, address admin, address attester)
        AccessControlDefaultAdminRules(adminDelay, admin)
    {
        require(maxValidity_ > 0 && maxValidity_ <= 365 days, InvalidParameter("maxValidity"));
        maxValidity = maxValidity_;
        _grantRole(ATTESTER_ROLE, attester);
    }

    /// @inheritdoc IAttestations
    function setMeasurement(bytes32 measurement, bool accepted) external onlyRole(DEFAULT_ADMIN_ROLE) {
        isAccepted[measurement] = accepted;
        emit MeasurementSet(measurement, accepted);
    }

    /// @inheritdoc IAttestations
    function attest(address provider, bytes32 key, bytes32 measurement, uint40 expiresAt, bytes32 report)
        external
        onlyRole(ATTESTER_ROLE)
    {
        require(isAccepted[measurement], UnknownMeasurement(measurement));
        uint256 latest = block.timestamp + maxValidity;
        require(expiresAt > block.timestamp && expiresAt <= latest, InvalidExpiry(expiresAt, latest));
        _attestations[provider] = Attestation(key, measurement, expiresAt);
        emit Attested(provider, key, measurement, expiresAt, report);
    }

    /// @inheritdoc IAttestations
    function revoke(address provider) external onlyRole(ATTESTER_ROLE) {
        require(_attestations[provider].expiresAt > 0, NotAttested(provider));
        delete _attestations[provider];
        emit Revoked(provider);
    }

    /// @inheritdoc IAttestations
    function isAttested(address provider) external view returns (bool) {
        Attestation storage attestation = _attestations[provider];
        return block.timestamp < attestation.expiresAt && isAccepted[attestation.measurement];
    }

    /// @inheritdoc IAttestations
    function attestationOf(address provider) external view returns (Attestation memory) {
        return _attestations[provider];
    }
}
