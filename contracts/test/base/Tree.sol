// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Hashes} from "@openzeppelin/contracts/utils/cryptography/Hashes.sol";

/// @notice Merkle trees as docs/protocol.md defines them: sorted pairs; an odd node moves up unchanged.
library Tree {
    function root(bytes32[] memory leaves) internal pure returns (bytes32) {
        bytes32[] memory level = leaves;
        while (level.length > 1) level = _parents(level);
        return level.length == 0 ? bytes32(0) : level[0];
    }

    /// @dev Returns the siblings on the path up from `leaves[index]`.
    function proof(bytes32[] memory leaves, uint256 index) internal pure returns (bytes32[] memory) {
        return proof(leaves, index, new bytes32[](0));
    }

    /// @dev Returns the same path followed by `rest`.
    function proof(bytes32[] memory leaves, uint256 index, bytes32[] memory rest)
        internal
        pure
        returns (bytes32[] memory path)
    {
        path = new bytes32[](_depth(leaves.length) + rest.length);
        uint256 length;
        for (bytes32[] memory level = leaves; level.length > 1; level = _parents(level)) {
            uint256 sibling = index ^ 1;
            if (sibling < level.length) path[length++] = level[sibling];
            index /= 2;
        }
        for (uint256 i = 0; i < rest.length; ++i) {
            path[length++] = rest[i];
        }
        assembly ("memory-safe") {
            mstore(path, length) // an odd node has no sibling
        }
    }

    function _parents(bytes32[] memory level) private pure returns (bytes32[] memory parents) {
        parents = new bytes32[]((level.length + 1) / 2);
        for (uint256 i = 0; i < level.length; i += 2) {
            bool odd = i + 1 == level.length;
            parents[i / 2] = odd ? level[i] : Hashes.commutativeKeccak256(level[i], level[i + 1]);
        }
    }

    function _depth(uint256 leaves) private pure returns (uint256 depth) {
        while (1 << depth < leaves) ++depth;
    }
}
