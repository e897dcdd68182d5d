// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {UnitCommitment} from "../../src/Messages.sol";
import {Tree} from "./Tree.sol";

/// @notice Traces of four segments with states derived from the unit's payload hash. One in four has a second leaf
/// for the second boundary, so it cannot be revealed.
library Traces {
    uint16 internal constant SEGMENTS = 4;
    uint16 internal constant DUPLICATE_BOUNDARY = 2;
    bytes32 internal constant ENVIRONMENT = keccak256("environment");

    /// @dev Returns the unit with the root of its trace.
    function withTraceRoot(UnitCommitment memory unit) internal pure returns (UnitCommitment memory) {
        unit.payloadHash = keccak256(abi.encode(unit.jobId, unit.round, unit.slot, unit.provider));
        unit.traceRoot = Tree.root(leaves(unit));
        return unit;
    }

    function hasDuplicateBoundary(UnitCommitment memory unit) internal pure returns (bool) {
        return uint256(unit.payloadHash) % 4 == 0;
    }

    function states(UnitCommitment memory unit) internal pure returns (bytes32[] memory list) {
        list = new bytes32[](SEGMENTS + 1);
        for (uint256 i = 0; i < list.length; ++i) {
            list[i] = _state(unit, i);
        }
    }

    function leaves(UnitCommitment memory unit) internal pure returns (bytes32[] memory list) {
        list = new bytes32[](hasDuplicateBoundary(unit) ? SEGMENTS + 2 : SEGMENTS + 1);
        for (uint256 i = 0; i < list.length; ++i) {
            list[i] = leaf(unit, i > SEGMENTS ? DUPLICATE_BOUNDARY : i, _state(unit, i), ENVIRONMENT);
        }
    }

    /// @dev Encodes a leaf as docs/protocol.md defines it.
    function leaf(UnitCommitment memory unit, uint256 boundary, bytes32 state, bytes32 environment)
        internal
        pure
        returns (bytes32)
    {
        bytes memory head = abi.encodePacked("zoo-trace-1", unit.jobId, uint64(unit.round), uint64(unit.slot));
        bytes memory encoded = abi.encodePacked(head, uint64(boundary), state, environment);
        return keccak256(abi.encode(keccak256(encoded)));
    }

    function _state(UnitCommitment memory unit, uint256 index) private pure returns (bytes32) {
        return keccak256(abi.encode(unit.payloadHash, index));
    }
}
