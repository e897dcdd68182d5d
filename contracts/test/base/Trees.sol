// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @notice Merkle trees as docs/protocol.md builds them, for tests: sorted pairs, an odd node rises unchanged.
library Trees {
    function root(bytes32[] memory leaves) internal pure returns (bytes32) {
        bytes32[] memory level = leaves;
        while (level.length > 1) level = _above(level);
        return level[0];
    }

    function proof(bytes32[] memory leaves, uint256 index) internal pure returns (bytes32[] memory) {
        bytes32[] memory path = new bytes32[](32);
        uint256 length = 0;
        bytes32[] memory level = leaves;
        while (level.length > 1) {
            if (index ^ 1 < level.length) path[length++] = level[index ^ 1];
            level = _above(level);
            index /= 2;
        }
        bytes32[] memory cut = new bytes32[](length);
        for (uint256 i = 0; i < length; ++i) {
            cut[i] = path[i];
        }
        return cut;
    }

    function _above(bytes32[] memory level) private pure returns (bytes32[] memory above) {
        above = new bytes32[]((level.length + 1) / 2);
        for (uint256 i = 0; i < above.length; ++i) {
            if (2 * i + 1 == level.length) above[i] = level[2 * i];
            else above[i] = _parent(level[2 * i], level[2 * i + 1]);
        }
    }

    function _parent(bytes32 left, bytes32 right) private pure returns (bytes32) {
        return left <= right ? keccak256(abi.encode(left, right)) : keccak256(abi.encode(right, left));
    }
}
