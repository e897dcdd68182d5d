// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {IERC20Permit} from "@openzeppelin/contracts/token/ERC20/extensions/IERC20Permit.sol";

/// @title ZEN as the other contracts use it
/// @notice An ERC-20 with 18 decimals (amounts in wei of ZEN), EIP-2612 permits and burning.
interface IZenToken is IERC20, IERC20Permit {
    /// @notice Destroys `amount` wei of the caller's ZEN.
    function burn(uint256 amount) external;

    /// @notice Creates `amount` wei of ZEN for `to`. Only MINTER_ROLE, and never beyond the cap.
    function mint(address to, uint256 amount) external;
}
