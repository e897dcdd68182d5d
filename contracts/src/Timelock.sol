// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {TimelockController} from "@openzeppelin/contracts/governance/TimelockController.sol";

/// @title The network's timelock: admin of its contracts, treasurer of its treasury
/// @notice Whatever an admin may change takes effect no sooner than `getMinDelay()` seconds after it was announced on chain,
/// so that everybody can see it coming and leave. The timelock administers itself: its own delay and roles change by
/// the same way only, and no account stands above it.
contract Timelock is TimelockController {
    /// @notice There must be somebody to propose and somebody to execute, or nothing could ever be changed.
    error NobodyInCharge();

    /// @param minDelay Least seconds between announcing and executing.
    /// @param proposers May announce and cancel.
    /// @param executors May execute what is due; the zero address stands for anybody.
    constructor(uint256 minDelay, address[] memory proposers, address[] memory executors)
        TimelockController(minDelay, proposers, executors, address(0))
    {
        require(proposers.length > 0 && executors.length > 0, NobodyInCharge());
    }
}
