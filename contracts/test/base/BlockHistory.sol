// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Vm} from "./Vm.sol";

/// @notice The block history contract of EIP-2935, which the tests' EVM version lacks.
library BlockHistory {
    Vm private constant vm = Vm(address(uint160(uint256(keccak256("hevm cheat code")))));
    address private constant HISTORY = 0x0000F90827F1C53a10cb7A02335B175320002935;
    address private constant SYSTEM = 0xffffFFFfFFffffffffffffffFfFFFfffFFFfFFfE;

    uint256 internal constant REACH = 8_191;

    /// @dev Installs the contract and lets it store the hash of block `number`, as the chain does in the next block.
    function store(uint256 number, bytes32 blockHash) internal {
        vm.etch(
            HISTORY,
            hex"3373fffffffffffffffffffffffffffffffffffffffe14604657602036036042575f35600143038111604257611fff81430311604257611fff9006545f5260205ff35b5f5ffd5b5f35611fff60014303065500"
        );
        vm.roll(number + 1);
        vm.prank(SYSTEM);
        (bool stored,) = HISTORY.call(abi.encode(blockHash));
        require(stored, "history refused the hash");
    }
}
