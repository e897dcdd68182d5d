// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title Treasury of the network
/// @notice Destinations: 0 protocol development, 1 security audits, 2 community grants. Whatever ZEN arrives, by whatever
/// transfer, belongs to the three by fixed shares in basis points; each share rounds down, and the remainder of at
/// most 2 wei waits for the next arrival. The shares never change: another split would move money that has arrived, so
/// it takes another treasury. Amounts in wei of ZEN.
interface ITreasury {
    /// @param recipient Who got the grant.
    /// @param amount Wei of ZEN.
    /// @param purpose Hash of the document that says what for.
    struct Grant {
        address recipient;
        uint96 amount;
        bytes32 purpose;
    }

    /// @notice `amount` of destination `destination` went to `to`. Each payment has exactly one, grants too.
    /// @param purpose Hash of the document that says what for.
    event Spent(uint8 indexed destination, address indexed to, uint256 amount, bytes32 purpose);

    /// @notice Grant number `grantId`, of `amount`, went to `recipient`. The payment itself follows as `Spent`.
    /// @param purpose Hash of the document that says what for.
    event Granted(uint256 indexed grantId, address indexed recipient, uint256 amount, bytes32 purpose);

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

    /// @notice Community grants leave by `grant` only, so that each is on record.
    error GrantsOnly();

    /// @notice Pays `amount` of the share of protocol development (0) or security audits (1). Only TREASURER_ROLE.
    function spend(uint8 destination, address to, uint256 amount, bytes32 purpose) external;

    /// @notice Pays `amount` of the community's share to `recipient` and records it. Only TREASURER_ROLE.
    /// @param purpose Hash of the document that says what for.
    /// @return grantId Its number, counted from 1.
    function grant(address recipient, uint256 amount, bytes32 purpose) external returns (uint256 grantId);

    /// @notice Number of grants so far.
    function grantCount() external view returns (uint256);

    /// @notice Grant number `grantId`; empty if there is none.
    function grants(uint256 grantId) external view returns (Grant memory);

    /// @notice All that ever arrived.
    function received() external view returns (uint256);

    /// @notice What a destination may spend now.
    function available(uint8 destination) external view returns (uint256);

    /// @notice What a destination has spent.
    function spent(uint8 destination) external view returns (uint256);

    /// @notice Share of a destination in basis points.
    function shareBps(uint8 destination) external view returns (uint256);
}
