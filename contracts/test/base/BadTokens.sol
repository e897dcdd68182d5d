// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";

/// @dev Token that keeps a part of each transfer.
contract FeeToken is ERC20 {
    uint256 private fee;

    constructor() ERC20("Taking", "T") {}

    function mint(address to, uint256 amount) external {
        _mint(to, amount);
    }

    function setFee(uint256 newFee) external {
        fee = newFee;
    }

    function _update(address from, address to, uint256 amount) internal override {
        super._update(from, to, amount);
        if (from != address(0) && fee > 0) super._update(to, address(0), fee);
    }
}

/// @dev Token that moves nothing and returns `false` instead of reverting, as some old tokens do.
contract FalseToken {
    mapping(address account => uint256) public balanceOf;

    function mint(address to, uint256 amount) external {
        balanceOf[to] += amount;
    }

    function transferFrom(address, address, uint256) external pure returns (bool) {
        return false;
    }

    function transfer(address, uint256) external pure returns (bool) {
        return false;
    }
}
