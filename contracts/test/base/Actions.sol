// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {JobActions} from "./JobActions.sol";

/// @notice Random moves of payers, providers, the operator and time on one network. The invariant suite calls these.
contract Actions is JobActions {
    uint256 public staked; // ever
    uint256 public withdrawn;
    uint256 public burned;
    mapping(address provider => uint256) public releasedAt; // when a provider's last request may leave

    function stake(uint256 pick, uint96 amount) external {
        if (staking.paused()) return;
        amount = uint96(_bound(amount, 1, 1_000 ether));
        _stake(staker(pick), amount);
        staked += amount;
    }

    function requestUnstake(uint256 pick, uint96 amount) external {
        address account = staker(pick);
        uint256 available = staking.stakeOf(account);
        if (available == 0) return;
        vm.prank(account);
        staking.requestUnstake(uint96(_bound(amount, 1, available)));
        releasedAt[account] = block.timestamp + UNBONDING_DELAY;
    }

    function withdraw(uint256 pick) external {
        address account = staker(pick);
        uint256 amount = staking.accountOf(account).unbonding;
        if (amount == 0 || block.timestamp < releasedAt[account]) return;
        vm.prank(account);
        staking.withdraw();
        withdrawn += amount;
    }

    function slash(uint256 pick, uint8 offence) external {
        uint256 supply = token.totalSupply();
        vm.prank(operator);
        staking.slash(staker(pick), uint8(_bound(offence, 2, 4)), bytes32(++nonce));
        burned += supply - token.totalSupply();
    }

    function release(uint256 pick) external {
        if (!staking.isJailed(staker(pick))) return;
        vm.prank(admin);
        staking.release(staker(pick));
    }

    function pause(bool stakes) external {
        if (stakes ? staking.paused() : escrow.paused()) return;
        vm.prank(guardian);
        if (stakes) staking.pause();
        else escrow.pause();
    }

    function wait(uint256 time) external {
        vm.warp(block.timestamp + _bound(time, 1 minutes, 4 days));
    }

    function staker(uint256 pick) public pure returns (address) {
        return address(uint160(0x7000 + pick % 3));
    }

    function network() external view returns (address, address, address, address, address) {
        return (address(token), address(treasury), address(staking), address(escrow), payer);
    }
}
