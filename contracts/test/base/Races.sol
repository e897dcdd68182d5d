// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Vm} from "./Vm.sol";

/// @notice What somebody who sees a call coming can do with it: send the same one first.
abstract contract Races {
    Vm private constant _VM = Vm(address(uint160(uint256(keccak256("hevm cheat code")))));
    address internal constant THIEF = address(0x7417F);

    /// @dev Everything that a race could change: balances of all, and what the contract under test says.
    function _picture() internal view virtual returns (bytes32);

    /// @dev Anybody may send the call: that a thief does so first changes nothing at all.
    function _sameWhoeverIsFirst(address target, address victim, bytes memory call) internal {
        require(_race(target, victim, call), "the thief was refused");
    }

    /// @dev The call is its sender's alone: a thief is refused, and then it has its effect.
    function _onlyFor(address target, address victim, bytes memory call) internal {
        require(!_race(target, victim, call), "the thief was let in");
    }

    /// @return taken Whether the thief's call went through.
    function _race(address target, address victim, bytes memory call) private returns (bool taken) {
        uint256 start = _VM.snapshotState();
        require(_send(victim, target, call), "the call fails even without a thief");
        bytes32 undisturbed = _picture();
        _VM.revertToState(start);
        taken = _send(THIEF, target, call);
        require(_send(victim, target, call) || taken, "the victim was kept out");
        _VM.assertEq(_picture(), undisturbed);
    }

    function _send(address sender, address target, bytes memory call) internal returns (bool done) {
        _VM.prank(sender);
        (done,) = target.call(call);
    }
}
