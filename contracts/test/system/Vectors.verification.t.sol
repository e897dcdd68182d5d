// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {MerkleProof} from "@openzeppelin/contracts/utils/cryptography/MerkleProof.sol";
import {DisputeMessages} from "../../src/DisputeMessages.sol";
import {UnitCommitment} from "../../src/Messages.sol";
import {Settlements} from "../base/Settlements.sol";

/// @notice The sampling and trace vectors, which the Python side satisfies too. The contracts record seeds and
/// check leaves. The sampled segments of a seed are computed here.
contract VerificationVectorsTest is Settlements {
    using DisputeMessages for UnitCommitment;

    string private json;

    function test_seeds_matchVectors() public {
        json = vm.readFile("../tests/vectors/draws.json");
        uint256 count = 0;
        for (; vm.keyExistsJson(json, _billAt(".seeds", count)); ++count) {
            string memory entry = _billAt(".seeds", count);
            bytes32 root = _bytes32(entry, ".root");
            vm.prank(operator);
            vm.assertEq(windows.commitWindow(root, 1), count);
            uint64 seedBlock = windows.windows(root).seedBlock;
            vm.roll(seedBlock + 1);
            vm.setBlockhash(seedBlock, _bytes32(entry, ".blockHash"));
            windows.latchSeed(root);
            vm.assertEq(windows.windows(root).seed, _bytes32(entry, ".seed"));
        }
        vm.assertEq(count, 3);
    }

    function test_words_matchVectors() public {
        json = vm.readFile("../tests/vectors/draws.json");
        uint256 count = 0;
        for (; vm.keyExistsJson(json, _billAt(".words", count)); ++count) {
            string memory entry = _billAt(".words", count);
            string memory domain = vm.parseJsonString(json, string.concat(entry, ".domain"));
            uint64 counter = uint64(_uint(entry, ".counter"));
            bytes32 word = bytes32(_draw(_bytes32(entry, ".seed"), domain, _bytes32(entry, ".subject"), counter));
            vm.assertEq(word, _bytes32(entry, ".word"));
        }
        vm.assertEq(count, 4);
    }

    function test_sampledSegments_matchVectors() public {
        json = vm.readFile("../tests/vectors/draws.json");
        uint256 count = 0;
        for (; vm.keyExistsJson(json, _billAt(".units", count)); ++count) {
            string memory entry = _billAt(".units", count);
            bool[] memory drawn = _drawSegments(
                _bytes32(entry, ".seed"),
                _bytes32(entry, ".traceRoot"),
                _uint(entry, ".segments"),
                _uint(entry, ".rateBps")
            );
            uint256[] memory expected = vm.parseJsonUintArray(json, string.concat(entry, ".drawn"));
            uint256 found = 0;
            for (uint256 segment = 0; segment < drawn.length; ++segment) {
                if (!drawn[segment]) continue;
                vm.assertEq(segment, expected[found]);
                ++found;
            }
            vm.assertEq(found, expected.length);
        }
        vm.assertEq(count, 8);
    }

    function test_traces_matchVectors() public {
        json = vm.readFile("../tests/vectors/traces.json");
        uint256 count = 0;
        for (; vm.keyExistsJson(json, _billAt(".traces", count)); ++count) {
            _checkTrace(_billAt(".traces", count));
        }
        vm.assertEq(count, 5);
    }

    function stateLeaf(UnitCommitment calldata unit, uint16 boundary, bytes32 state, bytes32 environment)
        external
        pure
        returns (bytes32)
    {
        return unit.stateLeaf(boundary, state, environment);
    }

    function rootOf(UnitCommitment calldata unit, bytes32 environment, bytes32[] calldata states)
        external
        pure
        returns (bytes32)
    {
        return unit.rootOf(environment, states);
    }

    function _checkTrace(string memory entry) private view {
        UnitCommitment memory unit;
        unit.jobId = _bytes32(entry, ".jobId");
        unit.round = uint32(_uint(entry, ".round"));
        unit.slot = uint32(_uint(entry, ".slot"));
        unit.traceRoot = _bytes32(entry, ".root");
        bytes32 environment = _bytes32(entry, ".environmentClass");
        string memory list = string.concat(entry, ".boundaries");
        uint16 count = 0;
        while (vm.keyExistsJson(json, _billAt(list, count))) ++count;
        vm.assertTrue(count > 1);
        bytes32[] memory states = new bytes32[](count);
        for (uint16 j = 0; j < count; ++j) {
            states[j] = _bytes32(_billAt(list, j), ".state");
            _checkBoundary(unit, environment, _billAt(list, j), j);
        }
        vm.assertEq(this.rootOf(unit, environment, states), unit.traceRoot);
    }

    function _checkBoundary(UnitCommitment memory unit, bytes32 environment, string memory boundary, uint16 j)
        private
        view
    {
        bytes32[] memory proof = vm.parseJsonBytes32Array(json, string.concat(boundary, ".proof"));
        bytes32 state = _bytes32(boundary, ".state");
        bytes32 leaf = this.stateLeaf(unit, j, state, environment);
        vm.assertEq(leaf, _bytes32(boundary, ".leaf"));
        vm.assertTrue(MerkleProof.verify(proof, unit.traceRoot, leaf));
        bytes32 next = this.stateLeaf(unit, j + 1, state, environment);
        vm.assertFalse(MerkleProof.verify(proof, unit.traceRoot, next));
    }

    /// @dev `segments * rate / 10_000` segments without replacement, and one more with the remainder's probability.
    function _drawSegments(bytes32 seed, bytes32 root, uint256 segments, uint256 rate)
        private
        pure
        returns (bool[] memory drawn)
    {
        drawn = new bool[](segments);
        uint256 count = segments * rate / 10_000;
        if (_draw(seed, "count", root, 0) % 10_000 < segments * rate % 10_000) ++count;
        for (uint64 i = 0; i < count; ++i) {
            uint256 left = _draw(seed, "segment", root, i) % (segments - i);
            uint256 segment = 0;
            for (; drawn[segment] || left > 0; ++segment) {
                if (!drawn[segment]) --left;
            }
            drawn[segment] = true;
        }
    }

    function _draw(bytes32 seed, string memory domain, bytes32 subject, uint64 counter) private pure returns (uint256) {
        return uint256(keccak256(abi.encodePacked(seed, domain, uint8(0), subject, counter)));
    }

    function _uint(string memory entry, string memory field) private view returns (uint256) {
        return vm.parseJsonUint(json, string.concat(entry, field));
    }

    function _bytes32(string memory entry, string memory field) private view returns (bytes32) {
        return vm.parseJsonBytes32(json, string.concat(entry, field));
    }

    function _billAt(string memory list, uint256 index) private pure returns (string memory) {
        return string.concat(list, "[", vm.toString(index), "]");
    }
}
