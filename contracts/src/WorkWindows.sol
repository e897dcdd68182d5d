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
    using SafeCast for uint256;

    bytes32 public constant OPERATOR_ROLE = keccak256("OPERATOR_ROLE");

    /// @dev Kept under the root, so that one slot both refuses a second use of a root and holds the window.
    struct Commitment {
        uint64 id;
        uint64 seedBlock;
        uint32 leafCount; // zero: this root was never committed
        uint40 committedAt;
    }

    /// @notice Blocks between a commitment (or a missed seed) and the block that makes the seed.
    uint256 public immutable seedDelay;
    /// @inheritdoc IWorkWindows
    uint256 public windowCount;

    mapping(bytes32 root => Commitment) private _commitments;
    mapping(bytes32 root => bytes32 seed) private _seeds;

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
        _commitments[root] = Commitment(id.toUint64(), seedBlock, leafCount, block.timestamp.toUint40());
        emit WindowCommitted(id, root, leafCount, seedBlock);
    }

    /// @inheritdoc IWorkWindows
    function latchSeed(bytes32 root) external {
        Commitment memory window = _known(root);
        require(_seeds[root] == 0, SeedKnown(root));
        require(block.number > window.seedBlock, SeedNotReady(window.seedBlock));
        bytes32 blockHash = blockhash(window.seedBlock);
        if (blockHash == 0) {
            uint64 later = _nextSeedBlock();
            _commitments[root].seedBlock = later;
            emit SeedRescheduled(window.id, root, later);
        } else {
            bytes32 seed = keccak256(abi.encode(blockHash, uint256(window.id), root));
            _seeds[root] = seed;
            emit SeedLatched(window.id, root, seed);
        }
    }

    /// @inheritdoc IWorkWindows
    function windows(bytes32 root) external view returns (Window memory) {
        Commitment memory window = _known(root);
        return Window(window.id, window.leafCount, window.committedAt, window.seedBlock, _seeds[root]);
    }

    /// @inheritdoc IWorkWindows
    function includes(bytes32 root, UnitCommitment calldata unit, bytes32[] calldata proof)
        external
        view
        returns (bool)
    {
        _known(root);
        return MerkleProof.verifyCalldata(proof, root, unit.leaf());
    }

    function _known(bytes32 root) private view returns (Commitment memory window) {
        window = _commitments[root];
        require(window.leafCount > 0, UnknownWindow(root));
    }

    function _nextSeedBlock() private view returns (uint64) {
        return (block.number + seedDelay).toUint64();
    }
}
