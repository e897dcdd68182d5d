// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {UnitCommitment} from "../Messages.sol";

/// @title Windows of committed work and their challenge seeds
/// @notice The operator commits one Merkle root over the unit commitments of a window before the window's seed can be
/// known: the seed comes from the hash of a later block. Anybody may latch it, so that nobody can hold back a seed.
/// A window is named by its root; its number only counts. Times in Unix seconds.
interface IWorkWindows {
    /// @param id Number of the window, counted from 0.
    /// @param seedBlock Block whose hash makes the seed.
    /// @param leafCount Number of leaves.
    /// @param committedAt Time of the commitment.
    /// @param seed Challenge seed, zero until latched.
    struct Window {
        uint64 id;
        uint64 seedBlock;
        uint32 leafCount;
        uint40 committedAt;
        bytes32 seed;
    }

    /// @notice Window `id` is fixed; its seed comes from the hash of block `seedBlock`.
    event WindowCommitted(uint256 indexed id, bytes32 indexed root, uint32 leafCount, uint256 seedBlock);
    /// @notice The hash was out of reach, the seed of window `id` now comes from block `seedBlock`.
    event SeedRescheduled(uint256 indexed id, bytes32 indexed root, uint256 seedBlock);
    /// @notice The seed of window `id` is known and final.
    event SeedLatched(uint256 indexed id, bytes32 indexed root, bytes32 seed);

    /// @notice A window needs a root and at least one leaf.
    error EmptyWindow();
    /// @notice This root was committed before; a second seed for the same work is refused.
    error RootUsed(bytes32 root);
    /// @notice No window has this root.
    error UnknownWindow(bytes32 root);
    /// @notice The seed's block is not yet behind the head: wait until after `seedBlock`.
    error SeedNotReady(uint256 seedBlock);
    /// @notice The seed is final.
    error SeedKnown(bytes32 root);

    /// @notice Fixes a window. Only OPERATOR_ROLE.
    /// @param root Merkle root over `Messages.leaf` of the window's unit commitments.
    /// @param leafCount Number of leaves.
    /// @return id Number of the window, counted from 0.
    function commitWindow(bytes32 root, uint32 leafCount) external returns (uint256 id);

    /// @notice Makes the seed `keccak256(abi.encode(blockhash(seedBlock), id, root))` final, once. If that block is more
    /// than 256 blocks old its hash is gone, and a new seed block is set instead.
    function latchSeed(bytes32 root) external;

    /// @notice The window with this root. Reverts with UnknownWindow if there is none.
    function windows(bytes32 root) external view returns (Window memory);

    /// @notice Whether `proof` leads from `unit` to the committed root. Reverts with UnknownWindow if it is not committed.
    function includes(bytes32 root, UnitCommitment calldata unit, bytes32[] calldata proof) external view returns (bool);

    /// @notice Number of windows, which is the id of the next one.
    function windowCount() external view returns (uint256);
}
