// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {IERC20Permit} from "@openzeppelin/contracts/token/ERC20/extensions/IERC20Permit.sol";

/// @title Interface of the ZEN token for the other contracts
/// @notice ERC-20 with 18 decimals, EIP-2612 permits and burning. Amounts in wei of ZEN.
interface IZenToken is IERC20, IERC20Permit {
    /// @notice Burns `amount` wei of the caller's ZEN.
    function burn(uint256 amount) external;

    /// @notice Mints `amount` wei of ZEN to `to`, never beyond the cap. Only MINTER_ROLE.
    function mint(address to, uint256 amount) external;
}
