// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @notice A payer's consent to escrow `budget` for at most `units` units. Its EIP-712 struct hash is the job id.
/// @param payer Account that pays, signs and receives the refund.
/// @param specHash Hash of the canonical job specification.
/// @param tier 1 Bronze, 2 Silver, 3 Gold, 4 Iron.
/// @param units Maximum number of units that can be paid.
/// @param unitWeight Size of a unit in reference GPU-microseconds.
/// @param segments Number of segments in a unit's trace that can be sampled.
/// @param samplingBps Lowest share of segments that is sampled, in basis points.
/// @param budget Wei of ZEN put in escrow.
/// @param maxPrice Highest price in wei of ZEN per GPU-hour.
/// @param waitUntil Unix time until which the payer waits for capacity.
/// @param nonce Number that makes this order differ from the payer's others.
struct JobOrder {
    address payer;
    bytes32 specHash;
    uint8 tier;
    uint32 units;
    uint48 unitWeight;
    uint16 segments;
    uint16 samplingBps;
    uint96 budget;
    uint80 maxPrice;
    uint40 waitUntil;
    uint256 nonce;
}

/// @notice A provider's signed result of one unit, made before any reveal or sampling.
/// @param jobId Job of the unit.
/// @param round Outer round, counted from 0.
/// @param slot Replica within the job, counted from 0.
/// @param provider Provider that executed and signs the unit.
/// @param traceRoot Merkle root over the digests of the unit's boundary states.
/// @param payloadHash Salted hash of the unit's payload.
struct UnitCommitment {
    bytes32 jobId;
    uint32 round;
    uint32 slot;
    address provider;
    bytes32 traceRoot;
    bytes32 payloadHash;
}

/// @title Hashes of the signed messages
library Messages {
    bytes32 internal constant JOB_ORDER_TYPEHASH = keccak256(
        "JobOrder(address payer,bytes32 specHash,uint8 tier,uint32 units,uint48 unitWeight,uint16 segments,uint16 samplingBps,uint96 budget,uint80 maxPrice,uint40 waitUntil,uint256 nonce)"
    );
    bytes32 internal constant UNIT_COMMITMENT_TYPEHASH = keccak256(
        "UnitCommitment(bytes32 jobId,uint32 round,uint32 slot,address provider,bytes32 traceRoot,bytes32 payloadHash)"
    );

    /// @notice Returns the EIP-712 struct hash of an order: the job id.
    function hash(JobOrder calldata order) internal pure returns (bytes32) {
        // All fields are static, so the struct is encoded as its words in order.
        return keccak256(abi.encode(JOB_ORDER_TYPEHASH, order));
    }

    /// @notice Returns the EIP-712 struct hash of a commitment.
    function hash(UnitCommitment calldata unit) internal pure returns (bytes32) {
        return keccak256(abi.encode(UNIT_COMMITMENT_TYPEHASH, unit));
    }

    /// @notice Returns the leaf of a commitment in its window's tree. Hashed twice, so that an inner node cannot pass
    /// as a leaf.
    function leaf(UnitCommitment calldata unit) internal pure returns (bytes32) {
        return keccak256(bytes.concat(keccak256(abi.encode(unit))));
    }

    /// @notice Returns the leaf of a paid unit in its settlement batch's tree: the commitment and its price.
    /// @param price Wei of ZEN per GPU-hour.
    function paidLeaf(UnitCommitment calldata unit, uint80 price) internal pure returns (bytes32) {
        return keccak256(bytes.concat(keccak256(abi.encode(unit, price))));
    }

    /// @notice Returns the leaf of a provider's claim in its settlement batch's tree.
    /// @param amount Wei of ZEN, net of the fee.
    function claimLeaf(address provider, uint256 amount) internal pure returns (bytes32) {
        return keccak256(bytes.concat(keccak256(abi.encode(provider, amount))));
    }
}
