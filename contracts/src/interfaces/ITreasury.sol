// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title Treasury of the network
/// @notice Destinations: 0 protocol development, 1 security audits, 2 community grants. Whatever ZEN arrives, by whatever
/// transfer, belongs to the three by fixed shares in basis points; each share rounds down, and the remainder of at
/// most 2 wei waits for the next arrival. Amounts in wei of ZEN.
interface ITreasury {
    /// @notice `amount` of destination `destination` went to `to`.
    /// @param purpose Hash of the document that says what for.
    event Spent(uint8 indexed destination, address indexed to, uint256 amount, bytes32 purpose);

    /// @notice A constructor argument makes no sense.
    /// @param parameter Its name.
    error InvalidParameter(string parameter);
    /// @notice No such destination.
    error UnknownDestination(uint8 destination);
    /// @notice More than the destination has.
    error InsufficientFunds(uint256 requested, uint256 available);
    /// @notice The amount is zero.
    error ZeroAmount();
    /// @notice Paying itself would count as an arrival and move money between destinations.
    error SpendToItself();

    /// @notice Pays `amount` of a destination's share. Only TREASURER_ROLE.
    function spend(uint8 destination, address to, uint256 amount, bytes32 purpose) external;

    /// @notice All that ever arrived.
    function received() external view returns (uint256);

    /// @notice What a destination may spend now.
    function available(uint8 destination) external view returns (uint256);

    /// @notice What a destination has spent.
    function spent(uint8 destination) external view returns (uint256);

    /// @notice Share of a destination in basis points.
    function shareBps(uint8 destination) external view returns (uint256);
}
