// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {TimelockController} from "@openzeppelin/contracts/governance/TimelockController.sol";

/// @title The network's timelock: admin of its contracts and treasurer of its treasury
/// @notice An admin change takes effect at least `getMinDelay()` seconds after its announcement on chain. Users can
/// react before it does. The timelock administers itself: its delay and roles change by the same process only, and no
/// account has admin rights over it.
contract Timelock is TimelockController {
    /// @notice The proposer list or the executor list is empty.
    error NobodyInCharge();

    /// @param minDelay Minimum seconds between announcement and execution.
    /// @param proposers Accounts that can announce and cancel.
    /// @param executors Accounts that can execute announced calls after the delay; the zero address allows any account.
    constructor(uint256 minDelay, address[] memory proposers, address[] memory executors)
        TimelockController(minDelay, proposers, executors, address(0))
    {
        require(proposers.length > 0 && executors.length > 0, NobodyInCharge());
    }
}
