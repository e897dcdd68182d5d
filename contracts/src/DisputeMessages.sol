// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Hashes} from "@openzeppelin/contracts/utils/cryptography/Hashes.sol";
import {UnitCommitment} from "./Messages.sol";

/// @notice Result of a referee's replay of the disputed segment.
/// @param disputeId The dispute.
/// @param draw Number of the committee within the dispute, counted from 0.
/// @param providerCorrect Whether the replay from the provider's start state ends in its committed end state.
struct Verdict {
    bytes32 disputeId;
    uint32 draw;
    bool providerCorrect;
}

/// @notice A referee's vote against the provider for another reason than the replay's result. The data behind the start
/// state is unavailable, or the start state is not the round's. Or the environment class is not the job's, or the
/// payload is not the committed one. It depends on the data that the referee received, which cannot be proven later. So
/// it counts for the quorum, but is neither paid nor slashed.
/// @param disputeId The dispute.
/// @param draw Number of the committee within the dispute, counted from 0.
struct Objection {
    bytes32 disputeId;
    uint32 draw;
}

/// @notice The operator's inclusion acknowledgement for a delivered commitment.
/// @param unitId `Messages.leaf` of the commitment.
/// @param includeBy Unix time by which a window that includes it will be committed.
struct Acknowledgement {
    bytes32 unitId;
    uint40 includeBy;
}

/// @title Hashes of the messages signed by referees and the operator, and of a unit's trace
library DisputeMessages {
    bytes32 internal constant VERDICT_TYPEHASH =
        keccak256("Verdict(bytes32 disputeId,uint32 draw,bool providerCorrect)");
    bytes32 internal constant OBJECTION_TYPEHASH = keccak256("Objection(bytes32 disputeId,uint32 draw)");
    bytes32 internal constant ACKNOWLEDGEMENT_TYPEHASH = keccak256("Acknowledgement(bytes32 unitId,uint40 includeBy)");

    /// @notice EIP-712 struct hash of a verdict.
    function hash(Verdict memory verdict) internal pure returns (bytes32) {
        return keccak256(abi.encode(VERDICT_TYPEHASH, verdict));
    }

    /// @notice EIP-712 struct hash of an objection.
    function hash(Objection memory objection) internal pure returns (bytes32) {
        return keccak256(abi.encode(OBJECTION_TYPEHASH, objection));
    }

    /// @notice EIP-712 struct hash of an acknowledgement.
    function hash(Acknowledgement memory acknowledgement) internal pure returns (bytes32) {
        return keccak256(abi.encode(ACKNOWLEDGEMENT_TYPEHASH, acknowledgement));
    }

    /// @notice Returns the leaf of a boundary state in its unit's trace, as docs/protocol.md defines it.
    /// @dev Hashed twice, so that an inner node cannot pass as a leaf. It contains the boundary, since sorted pairs do
    /// not bind positions.
    /// @param unit The unit.
    /// @param boundary 0 for the start state, the order's `segments` for the end state.
    /// @param stateDigest Digest of the state.
    /// @param environmentClass Environment class of the unit. Replays in it are comparable bit by bit.
    function stateLeaf(UnitCommitment calldata unit, uint64 boundary, bytes32 stateDigest, bytes32 environmentClass)
        internal
        pure
        returns (bytes32)
    {
        bytes memory encoded = abi.encodePacked(
            "zoo-trace-1", unit.jobId, uint64(unit.round), uint64(unit.slot), boundary, stateDigest, environmentClass
        );
        return keccak256(bytes.concat(keccak256(encoded)));
    }

    /// @notice Returns the trace root of the states, in the order of their boundaries.
    /// @dev The number of states fixes the tree's shape, and each leaf contains its boundary. So with sorted pairs too,
    /// no second list of that length has the same root: two exchanged neighbours would have leaves with each other's
    /// boundary.
    /// @param unit The unit.
    /// @param environmentClass Environment class of all states.
    /// @param states State digests, from boundary 0 on; at least one.
    function rootOf(UnitCommitment calldata unit, bytes32 environmentClass, bytes32[] calldata states)
        internal
        pure
        returns (bytes32)
    {
        uint256 count = states.length;
        bytes32[] memory nodes = new bytes32[](count);
        for (uint64 j = 0; j < count; ++j) {
            nodes[j] = stateLeaf(unit, j, states[j], environmentClass);
        }
        for (; count > 1; count = (count + 1) / 2) {
            for (uint256 i = 0; i < count / 2; ++i) {
                nodes[i] = Hashes.commutativeKeccak256(nodes[2 * i], nodes[2 * i + 1]);
            }
            if (count % 2 == 1) nodes[count / 2] = nodes[count - 1]; // an odd node moves up unchanged
        }
        return nodes[0];
    }
}
