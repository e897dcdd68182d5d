// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {IZenToken} from "../interfaces/IZenToken.sol";

/// @title Transfers that deliver the exact amount or revert
library ExactTransfers {
    using SafeERC20 for IZenToken;

    /// @notice The token delivered `received` wei instead of `amount` wei.
    error TransferShort(uint256 amount, uint256 received);

    /// @dev Transfers `amount` wei from `from` to this contract. A token that keeps a part would leave the contract
    /// insolvent.
    function receiveExact(IZenToken token, address from, uint256 amount) internal {
        uint256 before = token.balanceOf(address(this));
        token.safeTransferFrom(from, address(this), amount);
        uint256 received = token.balanceOf(address(this)) - before;
        require(received == amount, TransferShort(amount, received));
    }
}
