// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title Treasury of the network
/// @notice Destinations: 0 protocol development, 1 security audits, 2 community grants. All ZEN that arrives belongs to
/// the three by fixed shares in basis points. Each share rounds down; the remainder of at most 2 wei waits for the next
/// arrival. Amounts in wei of ZEN.
/// @dev The shares never change. Another split would move ZEN that has arrived, so it requires another treasury.
interface ITreasury {
    /// @param recipient Account that received the grant.
    /// @param amount Wei of ZEN.
    /// @param purpose Hash of the document that states the purpose.
    struct Grant {
        address recipient;
        uint96 amount;
        bytes32 purpose;
    }

    /// @notice `amount` wei of destination `destination` went to `to`. Emitted once for each payment, including grants.
    /// @param purpose Hash of the document that states the purpose.
    event Spent(uint8 indexed destination, address indexed to, uint256 amount, bytes32 purpose);

    /// @notice Grant `grantId` of `amount` wei went to `recipient`. `Spent` follows for the payment itself.
    /// @param purpose Hash of the document that states the purpose.
    event Granted(uint256 indexed grantId, address indexed recipient, uint256 amount, bytes32 purpose);

    /// @notice A constructor argument is outside its range.
    /// @param parameter Argument that is invalid.
    error InvalidParameter(string parameter);
    /// @notice `destination` is greater than 2.
    error UnknownDestination(uint8 destination);
    /// @notice `requested` wei exceed the `available` wei of the destination.
    error InsufficientFunds(uint256 requested, uint256 available);
    /// @notice The amount is zero.
    error ZeroAmount();
    /// @notice The recipient is the treasury. Such a payment would count as an arrival and move ZEN between
    /// destinations.
    error SpendToItself();

    /// @notice Destination 2 pays only through `grant`, which records each payment.
    error GrantsOnly();

    /// @notice Pays `amount` wei of protocol development (0) or security audits (1). Only TREASURER_ROLE.
    function spend(uint8 destination, address to, uint256 amount, bytes32 purpose) external;

    /// @notice Pays `amount` wei of the community's share to `recipient` and records it. Only TREASURER_ROLE.
    /// @param purpose Hash of the document that states the purpose.
    /// @return grantId Number of the grant, counted from 1.
    function grant(address recipient, uint256 amount, bytes32 purpose) external returns (uint256 grantId);

    /// @notice Number of grants.
    function grantCount() external view returns (uint256);

    /// @notice Returns grant `grantId`; empty if it does not exist.
    function grants(uint256 grantId) external view returns (Grant memory);

    /// @notice Returns all wei that ever arrived.
    function received() external view returns (uint256);

    /// @notice Returns the wei that a destination can spend now.
    function available(uint8 destination) external view returns (uint256);

    /// @notice Returns the wei that a destination has spent.
    function spent(uint8 destination) external view returns (uint256);

    /// @notice Returns the share of a destination in basis points.
    function shareBps(uint8 destination) external view returns (uint256);
}
