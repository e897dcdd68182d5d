// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @notice The cheatcodes of forge that these tests use.
interface Vm {
    struct Log {
        bytes32[] topics;
        bytes data;
        address emitter;
    }

    struct Gas {
        uint64 gasLimit;
        uint64 gasTotalUsed;
        uint64 gasMemoryUsed;
        int64 gasRefunded;
        uint64 gasRemaining;
    }

    function addr(uint256 privateKey) external pure returns (address);
    function sign(uint256 privateKey, bytes32 digest) external pure returns (uint8 v, bytes32 r, bytes32 s);
    function prank(address sender) external;
    function warp(uint256 timestamp) external;
    function roll(uint256 number) external;
    function chainId(uint256 id) external;
    function etch(address target, bytes calldata code) external;
    function deal(address account, uint256 balance) external;
    function label(address account, string calldata name) external;
    function expectRevert(bytes calldata data) external;
    function expectRevert(bytes4 selector) external;
    function expectPartialRevert(bytes4 selector) external;
    function expectEmit(address emitter) external;
    function snapshotState() external returns (uint256 id);
    function revertToState(uint256 id) external returns (bool);
    function recordLogs() external;
    function getRecordedLogs() external returns (Log[] memory logs);
    function lastCallGas() external view returns (Gas memory gas);
    function setBlockhash(uint256 number, bytes32 hash) external;
    function assertEq(uint256 left, uint256 right) external pure;
    function assertEq(uint256 left, uint256 right, string calldata message) external pure;
    function assertEq(address left, address right) external pure;
    function assertEq(bytes32 left, bytes32 right) external pure;
    function assertEq(bytes calldata left, bytes calldata right) external pure;
    function assertTrue(bool condition) external pure;
    function assertFalse(bool condition) external pure;
    function assertLe(uint256 left, uint256 right) external pure;
    function readFile(string calldata path) external view returns (string memory);
    function toString(uint256 value) external pure returns (string memory);
    function keyExistsJson(string calldata json, string calldata path) external view returns (bool);
    function parseJsonString(string calldata json, string calldata path) external pure returns (string memory);
    function parseJsonUint(string calldata json, string calldata path) external pure returns (uint256);
    function parseJsonUintArray(string calldata json, string calldata path) external pure returns (uint256[] memory);
    function parseJsonAddress(string calldata json, string calldata path) external pure returns (address);
    function parseJsonBytes(string calldata json, string calldata path) external pure returns (bytes memory);
    function parseJsonBytes32(string calldata json, string calldata path) external pure returns (bytes32);
    function parseJsonBytes32Array(string calldata json, string calldata path) external pure returns (bytes32[] memory);
}
