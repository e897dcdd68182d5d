// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";
import {ERC20Burnable} from "@openzeppelin/contracts/token/ERC20/extensions/ERC20Burnable.sol";
import {ERC20Capped} from "@openzeppelin/contracts/token/ERC20/extensions/ERC20Capped.sol";
import {ERC20Permit} from "@openzeppelin/contracts/token/ERC20/extensions/ERC20Permit.sol";
import {
    AccessControlDefaultAdminRules
} from "@openzeppelin/contracts/access/extensions/AccessControlDefaultAdminRules.sol";

/// @title ZEN, the token in which stakes are held and work is paid
/// @notice Capped ERC-20 with permits. The supply in circulation never exceeds `cap()`; new ZEN comes only from a
/// holder of MINTER_ROLE, after deployment the given minter alone (the emission, bounded by its schedule). The name "ZEN" is also its EIP-712 domain name, version "1".
contract ZenToken is ERC20Capped, ERC20Burnable, ERC20Permit, AccessControlDefaultAdminRules {
    bytes32 public constant MINTER_ROLE = keccak256("MINTER_ROLE");

    /// @param supplyCap Most wei of ZEN that may exist at once.
    /// @param initialSupply Wei of ZEN created now.
    /// @param initialHolder Receives the initial supply.
    /// @param adminDelay Seconds between proposing and accepting a new admin.
    /// @param admin First holder of DEFAULT_ADMIN_ROLE.
    /// @param minter First holder of MINTER_ROLE; zero address: nobody.
    constructor(
        uint256 supplyCap,
        uint256 initialSupply,
        address initialHolder,
        uint48 adminDelay,
        address admin,
        address minter
    ) ERC20("ZEN", "ZEN") ERC20Permit("ZEN") ERC20Capped(supplyCap) AccessControlDefaultAdminRules(adminDelay, admin) {
        if (minter != address(0)) _grantRole(MINTER_ROLE, minter);
        _mint(initialHolder, initialSupply);
    }

    /// @notice Creates `amount` wei of ZEN for `to`. Reverts with ERC20ExceededCap beyond the cap.
    function mint(address to, uint256 amount) external onlyRole(MINTER_ROLE) {
        _mint(to, amount);
    }

    /// @inheritdoc ERC20
    function _update(address from, address to, uint256 value) internal override(ERC20, ERC20Capped) {
        super._update(from, to, value);
    }
}
