// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title Attestations of trusted execution environments
/// @notice Registry of accepted measurements and of provider keys that were attested for them. A measurement is the
/// hash of the software that runs inside an environment. Attestation is optional. It lowers the rate at which a
/// provider's segments are sampled, never to zero.
/// @dev An attester checks TEE quotes off chain. This registry limits its power to accepted measurements and a bounded
/// validity. Times are Unix seconds.
interface IAttestations {
    /// @param key Public key that the environment holds, or its hash.
    /// @param measurement Hash of the software inside the environment.
    /// @param expiresAt First second at which the attestation is invalid; 0 if it was never given or was revoked.
    struct Attestation {
        bytes32 key;
        bytes32 measurement;
        uint40 expiresAt;
    }

    /// @notice The admin accepted or withdrew `measurement`.
    event MeasurementSet(bytes32 indexed measurement, bool accepted);
    /// @notice `key` of `provider` is attested for `measurement` until `expiresAt`.
    /// @param report Hash of the TEE quote and its certificates.
    event Attested(
        address indexed provider, bytes32 indexed key, bytes32 indexed measurement, uint256 expiresAt, bytes32 report
    );
    /// @notice The attestation of `provider` is revoked.
    event Revoked(address indexed provider);

    /// @notice A constructor argument is outside its range.
    /// @param parameter Argument that is invalid.
    error InvalidParameter(string parameter);
    /// @notice `measurement` is not accepted.
    error UnknownMeasurement(bytes32 measurement);
    /// @notice `expiresAt` is not in the future or is after `latest`.
    error InvalidExpiry(uint256 expiresAt, uint256 latest);
    /// @notice `provider` has no attestation.
    error NotAttested(address provider);

    /// @notice Accepts or withdraws a measurement. Withdrawal ends all attestations for it at once. Only
    /// DEFAULT_ADMIN_ROLE.
    function setMeasurement(bytes32 measurement, bool accepted) external;

    /// @notice Records that `key` of `provider` belongs to an environment of `measurement`. Replaces an earlier
    /// attestation. Only ATTESTER_ROLE.
    /// @param expiresAt Unix time in the future, at most `maxValidity` seconds from now.
    /// @param report Hash of the TEE quote and its certificates, for later verification.
    function attest(address provider, bytes32 key, bytes32 measurement, uint40 expiresAt, bytes32 report) external;

    /// @notice Deletes the attestation of `provider`. Only ATTESTER_ROLE.
    function revoke(address provider) external;

    /// @notice Returns whether `provider` has an unexpired attestation for an accepted measurement.
    function isAttested(address provider) external view returns (bool);

    /// @notice Returns the latest attestation of `provider`, valid or not.
    function attestationOf(address provider) external view returns (Attestation memory);

    /// @notice Returns whether `measurement` is accepted.
    function isAccepted(bytes32 measurement) external view returns (bool);

    /// @notice Longest validity of an attestation, in seconds.
    function maxValidity() external view returns (uint256);
}
