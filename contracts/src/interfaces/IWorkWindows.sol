// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {UnitCommitment} from "../Messages.sol";

/// @title Commitment windows and their sampling seeds
/// @notice The operator commits one Merkle root over the unit commitments of a window before the window's seed is
/// known. The seed comes from the hash of a later block. Any account can record it, so the operator cannot delay a
/// seed. The root identifies a window. Times in Unix seconds.
interface IWorkWindows {
    /// @param id Number of the window, counted from 0.
    /// @param seedBlock Block number. Its hash gives the seed.
    /// @param leafCount Number of leaves.
    /// @param committedAt Unix time of the commitment.
    /// @param seed Sampling seed; zero until recorded.
    struct Window {
        uint64 id;
        uint64 seedBlock;
        uint32 leafCount;
        uint40 committedAt;
        bytes32 seed;
    }

    /// @notice Window `id` is committed. The hash of block `seedBlock` will give its seed.
    event WindowCommitted(uint256 indexed id, bytes32 indexed root, uint32 leafCount, uint256 seedBlock);
    /// @notice The hash was unavailable. Block `seedBlock` will give the seed of window `id`.
    event SeedRescheduled(uint256 indexed id, bytes32 indexed root, uint256 seedBlock);
    /// @notice The seed of window `id` is recorded and final.
    event SeedLatched(uint256 indexed id, bytes32 indexed root, bytes32 seed);

    /// @notice The root is zero or the window has zero leaves.
    error EmptyWindow();
    /// @notice The root was already committed. A second seed for the same units is not allowed.
    error RootUsed(bytes32 root);
    /// @notice No window has this root.
    error UnknownWindow(bytes32 root);
    /// @notice The current block is not after `seedBlock`.
    error SeedNotReady(uint256 seedBlock);
    /// @notice The seed is already recorded.
    error SeedKnown(bytes32 root);

    /// @notice Commits a window. Only OPERATOR_ROLE.
    /// @param root Merkle root over `Messages.leaf` of the window's unit commitments.
    /// @param leafCount Number of leaves.
    /// @return id Number of the window, counted from 0.
    function commitWindow(bytes32 root, uint32 leafCount) external returns (uint256 id);

    /// @notice Records the seed `keccak256(abi.encode(blockhash(seedBlock), id, root))`, once. Any account may call.
    /// The hash is available for 8,191 blocks (EIP-2935). After them, the call sets a new seed block instead. On a chain
    /// without that history, 256 blocks apply.
    function latchSeed(bytes32 root) external;

    /// @notice Returns the window with this root. Reverts with UnknownWindow if it does not exist.
    function windows(bytes32 root) external view returns (Window memory);

    /// @notice Returns whether `proof` leads from `unit` to the committed root. Reverts with UnknownWindow for an
    /// unknown root.
    function includes(bytes32 root, UnitCommitment calldata unit, bytes32[] calldata proof) external view returns (bool);

    /// @notice Number of windows; also the id of the next one.
    function windowCount() external view returns (uint256);
}
