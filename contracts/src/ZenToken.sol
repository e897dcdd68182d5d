// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";
import {ERC20Burnable} from "@openzeppelin/contracts/token/ERC20/extensions/ERC20Burnable.sol";
import {ERC20Capped} from "@openzeppelin/contracts/token/ERC20/extensions/ERC20Capped.sol";
import {ERC20Permit} from "@openzeppelin/contracts/token/ERC20/extensions/ERC20Permit.sol";
import {
    AccessControlDefaultAdminRules
} from "@openzeppelin/contracts/access/extensions/AccessControlDefaultAdminRules.sol";

/// @title ZEN, the token of stakes and payments
/// @notice Capped ERC-20 with permits. The supply never exceeds `cap()`. Only holders of MINTER_ROLE mint; after
/// deployment that is only the given minter, the emission. The name "ZEN" is also the EIP-712 domain name, with version
/// "1".
contract ZenToken is ERC20Capped, ERC20Burnable, ERC20Permit, AccessControlDefaultAdminRules {
    bytes32 public constant MINTER_ROLE = keccak256("MINTER_ROLE");

    /// @param supplyCap Maximum supply in wei of ZEN.
    /// @param initialSupply Wei of ZEN minted now.
    /// @param initialHolder Receives the initial supply.
    /// @param adminDelay Seconds between proposing and accepting a new admin.
    /// @param admin First holder of DEFAULT_ADMIN_ROLE.
    /// @param minter First holder of MINTER_ROLE; the zero address grants it to no account.
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

    /// @notice Mints `amount` wei of ZEN to `to`. Reverts with ERC20ExceededCap beyond the cap. Only MINTER_ROLE.
    function mint(address to, uint256 amount) external onlyRole(MINTER_ROLE) {
        _mint(to, amount);
    }

    /// @inheritdoc ERC20
    function _update(address from, address to, uint256 value) internal override(ERC20, ERC20Capped) {
        super._update(from, to, value);
    }
}
