// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {
    AccessControlDefaultAdminRules
} from "@openzeppelin/contracts/access/extensions/AccessControlDefaultAdminRules.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {ITreasury} from "./interfaces/ITreasury.sol";
import {IZenToken} from "./interfaces/IZenToken.sol";

/// @title Treasury of the network
contract Treasury is ITreasury, AccessControlDefaultAdminRules, ReentrancyGuardTransient {
    using SafeERC20 for IZenToken;

    bytes32 public constant TREASURER_ROLE = keccak256("TREASURER_ROLE");
    uint256 private constant BPS = 10_000;
    uint8 private constant COMMUNITY_GRANTS = 2;

    /// @notice The ZEN token.
    IZenToken public immutable token;
    /// @inheritdoc ITreasury
    uint256 public grantCount;

    uint16[3] private _shares;
    uint256[3] private _spent;
    uint256 private _totalSpent;
    mapping(uint256 grantId => Grant) private _grants;

    /// @param zen The ZEN token.
    /// @param shares Basis points of protocol development, security audits and community grants; their sum is 10,000.
    /// @param adminDelay Seconds between proposing and accepting a new admin.
    /// @param admin First holder of DEFAULT_ADMIN_ROLE.
    /// @param treasurer First holder of TREASURER_ROLE: the timelock.
    constructor(IZenToken zen, uint16[3] memory shares, uint48 adminDelay, address admin, address treasurer)
        AccessControlDefaultAdminRules(adminDelay, admin)
    {
        require(address(zen) != address(0), InvalidParameter("token"));
        require(uint256(shares[0]) + shares[1] + shares[2] == BPS, InvalidParameter("shares"));
        token = zen;
        _shares = shares;
        _grantRole(TREASURER_ROLE, treasurer);
    }

    /// @inheritdoc ITreasury
    function spend(uint8 destination, address to, uint256 amount, bytes32 purpose)
        external
        nonReentrant
        onlyRole(TREASURER_ROLE)
    {
        require(destination != COMMUNITY_GRANTS, GrantsOnly());
        _spend(destination, to, amount, purpose);
    }

    /// @inheritdoc ITreasury
    function grant(address recipient, uint256 amount, bytes32 purpose)
        external
        nonReentrant
        onlyRole(TREASURER_ROLE)
        returns (uint256 grantId)
    {
        grantId = ++grantCount;
        _grants[grantId] = Grant(recipient, SafeCast.toUint96(amount), purpose);
        emit Granted(grantId, recipient, amount, purpose);
        _spend(COMMUNITY_GRANTS, recipient, amount, purpose);
    }

    /// @inheritdoc ITreasury
    function grants(uint256 grantId) external view returns (Grant memory) {
        return _grants[grantId];
    }

    /// @inheritdoc ITreasury
    function spent(uint8 destination) external view returns (uint256) {
        _requireKnown(destination);
        return _spent[destination];
    }

    /// @inheritdoc ITreasury
    function received() public view returns (uint256) {
        return token.balanceOf(address(this)) + _totalSpent;
    }

    /// @inheritdoc ITreasury
    function available(uint8 destination) public view returns (uint256) {
        uint256 share = received() * shareBps(destination) / BPS;
        return share - _spent[destination];
    }

    /// @inheritdoc ITreasury
    function shareBps(uint8 destination) public view returns (uint256) {
        _requireKnown(destination);
        return _shares[destination];
    }

    function _spend(uint8 destination, address to, uint256 amount, bytes32 purpose) private {
        require(amount > 0, ZeroAmount());
        require(to != address(this), SpendToItself());
        uint256 funds = available(destination);
        require(amount <= funds, InsufficientFunds(amount, funds));
        _spent[destination] += amount;
        _totalSpent += amount;
        emit Spent(destination, to, amount, purpose);
        token.safeTransfer(to, amount);
    }

    function _requireKnown(uint8 destination) private view {
        require(destination < _shares.length, UnknownDestination(destination));
    }
}
