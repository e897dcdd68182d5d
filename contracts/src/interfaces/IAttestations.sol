// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title Attestations of trusted execution environments
/// @notice Which measurements (hashes of the software that runs inside) the network accepts, and which provider keys were
/// attested to belong to an environment of such a measurement. Optional: an attestation lowers the rate at which work is
/// sampled, never to zero. An attester checks the quotes off chain; this registry bounds what it can claim to
/// accepted measurements and a limited time. Times in Unix seconds.
interface IAttestations {
    /// @param key Public key, or its hash, that the environment holds.
    /// @param measurement Hash of what runs inside it.
    /// @param expiresAt First second at which the attestation does not count any more; 0: never attested, or revoked.
    struct Attestation {
        bytes32 key;
        bytes32 measurement;
        uint40 expiresAt;
    }

    /// @notice From now on `measurement` is accepted, or not any more.
    event MeasurementSet(bytes32 indexed measurement, bool accepted);
    /// @notice `key` of `provider` was attested for `measurement` until `expiresAt`.
    /// @param report Hash of the quote and its certificates.
    event Attested(
        address indexed provider, bytes32 indexed key, bytes32 indexed measurement, uint256 expiresAt, bytes32 report
    );
    /// @notice The attestation of `provider` was withdrawn.
    event Revoked(address indexed provider);

    /// @notice A constructor argument makes no sense.
    /// @param parameter Its name.
    error InvalidParameter(string parameter);
    /// @notice This measurement is not accepted.
    error UnknownMeasurement(bytes32 measurement);
    /// @notice An attestation must end later than now and by `latest`.
    error InvalidExpiry(uint256 expiresAt, uint256 latest);
    /// @notice `provider` has no attestation to revoke.
    error NotAttested(address provider);

    /// @notice Accepts or withdraws a measurement; withdrawn, it ends all attestations for it at once. Only
    /// DEFAULT_ADMIN_ROLE.
    function setMeasurement(bytes32 measurement, bool accepted) external;

    /// @notice Records that `key` of `provider` belongs to an environment of `measurement`, in place of any earlier
    /// attestation. Only ATTESTER_ROLE.
    /// @param expiresAt Later than now, at most `maxValidity` seconds ahead.
    /// @param report Hash of the quote and its certificates, for whoever checks it again.
    function attest(address provider, bytes32 key, bytes32 measurement, uint40 expiresAt, bytes32 report) external;

    /// @notice Withdraws the attestation of `provider`. Only ATTESTER_ROLE.
    function revoke(address provider) external;

    /// @notice Whether `provider` has an attestation that has not expired, for a measurement that is still accepted.
    function isAttested(address provider) external view returns (bool);

    /// @notice The last attestation of `provider`, whether or not it still counts.
    function attestationOf(address provider) external view returns (Attestation memory);

    /// @notice Whether `measurement` is accepted.
    function isAccepted(bytes32 measurement) external view returns (bool);

    /// @notice Longest time, in seconds, that an attestation can be given for.
    function maxValidity() external view returns (uint256);
}
