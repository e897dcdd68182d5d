// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {UnitCommitment} from "./Messages.sol";

/// @notice A referee's finding, signed in the domain of the Disputes contract.
/// @param disputeId The dispute.
/// @param draw Number of the draw that made the signer a referee of it.
/// @param providerCorrect Whether replaying the disputed step gives the state that the provider committed to.
struct Verdict {
    bytes32 disputeId;
    uint32 draw;
    bool providerCorrect;
}

/// @notice The operator's promise, signed in the domain of the Omissions contract, that a commitment which it received
/// stands in a window that is committed in time.
/// @param unitId Leaf of the commitment (`Messages.leaf`).
/// @param includeBy Last time, in Unix seconds, at which such a window may be committed.
struct Acknowledgement {
    bytes32 unitId;
    uint40 includeBy;
}

/// @title Hashes of what disputes are about
library DisputeMessages {
    bytes32 internal constant VERDICT_TYPEHASH =
        keccak256("Verdict(bytes32 disputeId,uint32 draw,bool providerCorrect)");
    bytes32 internal constant ACKNOWLEDGEMENT_TYPEHASH = keccak256("Acknowledgement(bytes32 unitId,uint40 includeBy)");

    /// @notice EIP-712 struct hash of a verdict.
    function hash(Verdict memory verdict) internal pure returns (bytes32) {
        return keccak256(abi.encode(VERDICT_TYPEHASH, verdict));
    }

    /// @notice EIP-712 struct hash of an acknowledgement.
    function hash(Acknowledgement memory acknowledgement) internal pure returns (bytes32) {
        return keccak256(abi.encode(ACKNOWLEDGEMENT_TYPEHASH, acknowledgement));
    }

    /// @notice Leaf `boundary` of a unit's trace (docs/protocol.md): hashed twice, its position bound by its content.
    function traceLeaf(UnitCommitment calldata unit, uint256 boundary, bytes32 state, bytes32 environment)
        internal
        pure
        returns (bytes32)
    {
        bytes memory encoded = abi.encodePacked(
            "zoo-trace-1",
            unit.jobId,
            uint64(unit.round),
            uint64(unit.slot),
            uint64(boundary), // a boundary is at most the order's segments, 16 bits
            state,
            environment
        );
        return keccak256(bytes.concat(keccak256(encoded)));
    }
}
