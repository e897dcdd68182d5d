// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {
    AccessControlDefaultAdminRules
} from "@openzeppelin/contracts/access/extensions/AccessControlDefaultAdminRules.sol";
import {MerkleProof} from "@openzeppelin/contracts/utils/cryptography/MerkleProof.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";
import {IWorkWindows} from "./interfaces/IWorkWindows.sol";
import {Messages, UnitCommitment} from "./Messages.sol";

/// @title Windows of committed work and their challenge seeds
contract WorkWindows is IWorkWindows, AccessControlDefaultAdminRules {
    using Messages for UnitCommitment;

    bytes32 public constant OPERATOR_ROLE = keccak256("OPERATOR_ROLE");

    /// @dev Kept under the root, so that one slot both refuses a second use of a root and holds the window.
    struct Commitment {
        uint64 seedBlock;
        uint32 leafCount; // zero: this root was never committed
    }

    /// @notice Blocks between a commitment (or a missed seed) and the block that makes the seed.
    uint256 public immutable seedDelay;
    /// @inheritdoc IWorkWindows
    uint256 public windowCount;

    mapping(uint256 id => bytes32 root) private _roots;
    mapping(bytes32 root => Commitment) private _commitments;
    mapping(uint256 id => bytes32 seed) private _seeds;

    /// @notice A constructor argument makes no sense.
    /// @param parameter Its name.
    error InvalidParameter(string parameter);

    /// @param delay Blocks until the seed's block, 1 to 200 (a block's hash is in reach for 256).
    /// @param adminDelay Seconds between proposing and accepting a new admin.
    /// @param admin First holder of DEFAULT_ADMIN_ROLE.
    /// @param operator First holder of OPERATOR_ROLE.
    constructor(uint256 delay, uint48 adminDelay, address admin, address operator)
        AccessControlDefaultAdminRules(adminDelay, admin)
    {
        require(delay > 0 && delay <= 200, InvalidParameter("delay"));
        seedDelay = delay;
        _grantRole(OPERATOR_ROLE, operator);
    }

    /// @inheritdoc IWorkWindows
    function commitWindow(bytes32 root, uint32 leafCount) external onlyRole(OPERATOR_ROLE) returns (uint256 id) {
        require(root != 0 && leafCount > 0, EmptyWindow());
        require(_commitments[root].leafCount == 0, RootUsed(root));
        id = windowCount++;
        uint64 seedBlock = _nextSeedBlock();
        _roots[id] = root;
        _commitments[root] = Commitment(seedBlock, leafCount);
        emit WindowCommitted(id, root, leafCount, seedBlock);
    }

    /// @inheritdoc IWorkWindows
    function latchSeed(uint256 id) external {
        bytes32 root = _rootOf(id);
        require(_seeds[id] == 0, SeedKnown(id));
        uint64 seedBlock = _commitments[root].seedBlock;
        require(block.number > seedBlock, SeedNotReady(seedBlock));
        bytes32 blockHash = blockhash(seedBlock);
        if (blockHash == 0) {
            uint64 later = _nextSeedBlock();
            _commitments[root].seedBlock = later;
            emit SeedRescheduled(id, later);
        } else {
            bytes32 seed = keccak256(abi.encode(blockHash, id, root));
            _seeds[id] = seed;
            emit SeedLatched(id, seed);
        }
    }

    /// @inheritdoc IWorkWindows
    function windows(uint256 id) external view returns (Window memory) {
        bytes32 root = _rootOf(id);
        Commitment memory commitment = _commitments[root];
        return Window(root, commitment.leafCount, commitment.seedBlock, _seeds[id]);
    }

    /// @inheritdoc IWorkWindows
    function includes(uint256 id, UnitCommitment calldata unit, bytes32[] calldata proof) external view returns (bool) {
        return MerkleProof.verifyCalldata(proof, _rootOf(id), unit.leaf());
    }

    function _rootOf(uint256 id) private view returns (bytes32 root) {
        root = _roots[id];
        require(root != 0, UnknownWindow(id));
    }

    function _nextSeedBlock() private view returns (uint64) {
        return SafeCast.toUint64(block.number + seedDelay);
    }
}
