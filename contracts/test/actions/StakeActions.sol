// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Settlements} from "../base/Settlements.sol";

/// @notice Random calls around stakes, pauses and time, with a record for each staker. None may revert.
abstract contract StakeActions is Settlements {
    mapping(address account => uint256) public stakedBy; // total to date
    mapping(address account => uint256) public withdrawnBy;
    mapping(address account => uint256) public slashedBy;
    mapping(address account => uint256) private releasedAt; // release time of the last request
    uint256 private slashes;

    function stake(uint256 pick, uint96 amount) external {
        if (staking.paused()) return;
        amount = uint96(_bound(amount, 1, 1_000 ether));
        _stake(staker(pick), amount);
        stakedBy[staker(pick)] += amount;
    }

    function requestUnstake(uint256 pick, uint96 amount) external {
        address account = staker(pick);
        uint256 available = staking.stakeOf(account);
        if (available > 0) _requestUnstake(account, _bound(amount, 1, available));
    }

    function withdraw(uint256 pick) external {
        if (block.timestamp >= releasedAt[staker(pick)]) _withdraw(staker(pick));
    }

    function slash(uint256 pick, uint8 offence) external {
        address account = staker(pick);
        vm.prank(operator);
        (uint256 amount,) = staking.slash(account, uint8(_bound(offence, 2, 5)), bytes32(++slashes));
        slashedBy[account] += amount;
    }

    function release(uint256 pick) external {
        if (!staking.isJailed(staker(pick))) return;
        vm.prank(admin);
        staking.release(staker(pick));
    }

    function pause(bool stakes) external {
        if (stakes) _pauseStakes();
        else _pauseJobs();
    }

    function wait(uint256 time) external {
        vm.warp(block.timestamp + _bound(time, 1 minutes, 4 days));
    }

    function stakers() public pure virtual returns (uint256);

    function staker(uint256 pick) public view virtual returns (address);

    /// @dev Advances time and pauses all intake.
    function _later(uint256 time) internal {
        vm.warp(block.timestamp + time);
        _pauseStakes();
        _pauseJobs();
    }

    function _unstakeAll() internal {
        for (uint256 i = 0; i < stakers(); ++i) {
            uint256 rest = staking.stakeOf(staker(i));
            if (rest > 0) _requestUnstake(staker(i), rest);
        }
        _later(UNBONDING_DELAY);
        for (uint256 i = 0; i < stakers(); ++i) {
            _withdraw(staker(i));
        }
    }

    function _requestUnstake(address account, uint256 amount) private {
        vm.prank(account);
        staking.requestUnstake(uint96(amount));
        releasedAt[account] = block.timestamp + UNBONDING_DELAY;
    }

    function _withdraw(address account) private {
        uint256 amount = staking.accountOf(account).unbonding;
        if (amount == 0) return;
        vm.prank(account);
        staking.withdraw();
        withdrawnBy[account] += amount;
    }

    function _pauseStakes() private {
        if (staking.paused()) return;
        vm.prank(guardian);
        staking.pause();
    }

    function _pauseJobs() private {
        if (escrow.paused()) return;
        vm.prank(guardian);
        escrow.pause();
    }
}
