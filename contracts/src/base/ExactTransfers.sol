// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {IZenToken} from "../interfaces/IZenToken.sol";

/// @title Deposits that arrive in full or not at all
library ExactTransfers {
    using SafeERC20 for IZenToken;

    /// @notice The token delivered another amount than it was told to.
    error TransferShort(uint256 amount, uint256 received);

    /// @dev Takes `amount`, which is then credited: a token that keeps a part of it would leave the last to exit unpaid.
    function take(IZenToken token, address from, uint256 amount) internal {
        uint256 before = token.balanceOf(address(this));
        token.safeTransferFrom(from, address(this), amount);
        uint256 received = token.balanceOf(address(this)) - before;
        require(received == amount, TransferShort(amount, received));
    }
}
