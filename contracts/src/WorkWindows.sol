// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {
    AccessControlDefaultAdminRules
} from "@openzeppelin/contracts/access/extensions/AccessControlDefaultAdminRules.sol";
import {Blockhash} from "@openzeppelin/contracts/utils/Blockhash.sol";
import {MerkleProof} from "@openzeppelin/contracts/utils/cryptography/MerkleProof.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";
import {IWorkWindows} from "./interfaces/IWorkWindows.sol";
import {Messages, UnitCommitment} from "./Messages.sol";

/// @title Commitment windows and their sampling seeds
contract WorkWindows is IWorkWindows, AccessControlDefaultAdminRules {
    using Messages for UnitCommitment;

    bytes32 public constant OPERATOR_ROLE = keccak256("OPERATOR_ROLE");

    /// @dev One storage slot. A `leafCount` of zero means that the root was never committed.
    struct Commitment {
        uint64 id;
        uint64 seedBlock;
        uint32 leafCount;
        uint40 committedAt;
    }

    /// @notice Blocks between a commitment (or an unavailable hash) and the seed block.
    uint256 public immutable seedDelay;
    /// @inheritdoc IWorkWindows
    uint256 public windowCount;

    mapping(bytes32 root => Commitment) private _commitments;
    mapping(bytes32 root => bytes32 seed) private _seeds;

    /// @notice A constructor argument is outside its range.
    /// @param parameter Argument that is invalid.
    error InvalidParameter(string parameter);

    /// @param delay Blocks until the seed block, 1 to 200.
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
        _commitments[root] = Commitment(SafeCast.toUint64(id), seedBlock, leafCount, SafeCast.toUint40(block.timestamp));
        emit WindowCommitted(id, root, leafCount, seedBlock);
    }

    /// @inheritdoc IWorkWindows
    function latchSeed(bytes32 root) external {
        Commitment memory commitment = _requireCommitted(root);
        require(_seeds[root] == 0, SeedKnown(root));
        require(block.number > commitment.seedBlock, SeedNotReady(commitment.seedBlock));
        bytes32 blockHash = Blockhash.blockHash(commitment.seedBlock);
        if (blockHash == 0) {
            uint64 later = _nextSeedBlock();
            _commitments[root].seedBlock = later;
            emit SeedRescheduled(commitment.id, root, later);
        } else {
            bytes32 seed = keccak256(abi.encode(blockHash, uint256(commitment.id), root));
            _seeds[root] = seed;
            emit SeedLatched(commitment.id, root, seed);
        }
    }

    /// @inheritdoc IWorkWindows
    function windows(bytes32 root) external view returns (Window memory) {
        Commitment memory c = _requireCommitted(root);
        return Window(c.id, c.seedBlock, c.leafCount, c.committedAt, _seeds[root]);
    }

    /// @inheritdoc IWorkWindows
    function includes(bytes32 root, UnitCommitment calldata unit, bytes32[] calldata proof)
        external
        view
        returns (bool)
    {
        _requireCommitted(root);
        return MerkleProof.verifyCalldata(proof, root, unit.leaf());
    }

    function _requireCommitted(bytes32 root) private view returns (Commitment memory commitment) {
        commitment = _commitments[root];
        require(commitment.leafCount > 0, UnknownWindow(root));
    }

    function _nextSeedBlock() private view returns (uint64) {
        return SafeCast.toUint64(block.number + seedDelay);
    }
}
