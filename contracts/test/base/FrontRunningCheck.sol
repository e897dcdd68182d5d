// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Vm} from "./Vm.sol";

/// @notice Front-running check: an attacker sends a pending call first.
abstract contract FrontRunningCheck {
    Vm private constant _VM = Vm(address(uint160(uint256(keccak256("hevm cheat code")))));
    address internal constant ATTACKER = address(0x7417F);

    /// @dev Hash of the state that front-running could change: all balances and the contract's answers.
    function _stateHash() internal view virtual returns (bytes32);

    /// @dev Any account may send the call: an attacker that sends it first changes nothing.
    function _assertSameForAnySender(address target, address victim, bytes memory call) internal {
        require(_frontRun(target, victim, call), "the attacker's call was rejected");
    }

    /// @dev Only the sender may send the call: the attacker is rejected, and the call still has its effect.
    function _assertSenderOnly(address target, address victim, bytes memory call) internal {
        require(!_frontRun(target, victim, call), "the attacker's call succeeded");
    }

    /// @return taken Whether the attacker's call succeeded.
    function _frontRun(address target, address victim, bytes memory call) private returns (bool taken) {
        uint256 start = _VM.snapshotState();
        require(_send(victim, target, call), "the call fails without an attacker");
        bytes32 undisturbed = _stateHash();
        _VM.revertToState(start);
        taken = _send(ATTACKER, target, call);
        require(_send(victim, target, call) || taken, "the victim's call was blocked");
        _VM.assertEq(_stateHash(), undisturbed);
    }

    function _send(address sender, address target, bytes memory call) internal returns (bool done) {
        _VM.prank(sender);
        (done,) = target.call(call);
    }
}
