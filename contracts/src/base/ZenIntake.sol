// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {
    AccessControlDefaultAdminRules
} from "@openzeppelin/contracts/access/extensions/AccessControlDefaultAdminRules.sol";
import {Pausable} from "@openzeppelin/contracts/utils/Pausable.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {IZenToken} from "../interfaces/IZenToken.sol";

/// @title Token, permits and pause of contracts that take in ZEN
/// @notice A pause stops intake only and ends by itself after MAX_PAUSE. A hostile pauser can delay deposits by at most
/// MAX_PAUSE for each call. It never blocks a withdrawal.
abstract contract ZenIntake is AccessControlDefaultAdminRules, Pausable, ReentrancyGuardTransient {
    bytes32 public constant PAUSER_ROLE = keccak256("PAUSER_ROLE");
    /// @notice Seconds after which a pause ends by itself.
    uint256 public constant MAX_PAUSE = 72 hours;

    /// @notice The ZEN token.
    IZenToken public immutable token;
    /// @notice Unix time at which the current pause ends; in the past or 0 while intake is open.
    uint256 public pausedUntil;

    /// @notice A constructor argument is outside its range.
    /// @param parameter Argument that is invalid.
    error InvalidParameter(string parameter);

    /// @param zen The ZEN token.
    /// @param adminDelay Seconds between proposing and accepting a new admin.
    /// @param admin First holder of DEFAULT_ADMIN_ROLE.
    /// @param pauser First holder of PAUSER_ROLE: a guardian that can act at once if the admin is a timelock.
    constructor(IZenToken zen, uint48 adminDelay, address admin, address pauser)
        AccessControlDefaultAdminRules(adminDelay, admin)
    {
        require(address(zen) != address(0), InvalidParameter("token"));
        token = zen;
        _grantRole(PAUSER_ROLE, pauser);
    }

    /// @notice Stops intake for MAX_PAUSE seconds. A running pause cannot be extended.
    function pause() external onlyRole(PAUSER_ROLE) {
        _pause();
        pausedUntil = block.timestamp + MAX_PAUSE;
    }

    /// @notice Ends a pause early.
    function unpause() external onlyRole(PAUSER_ROLE) {
        _unpause();
        pausedUntil = 0;
    }

    /// @notice Returns whether intake is stopped now.
    function paused() public view override returns (bool) {
        return block.timestamp < pausedUntil;
    }

    /// @dev Applies an EIP-2612 permit and ignores its failure. A third party can use the permit first, or the owner
    /// can have approved by transaction. The transfer that follows decides.
    function _tryPermit(address owner, uint256 amount, uint256 deadline, uint8 v, bytes32 r, bytes32 s) internal {
        try token.permit(owner, address(this), amount, deadline, v, r, s) {} catch {}
    }
}
