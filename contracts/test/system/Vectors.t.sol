// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {IJobEscrow} from "../../src/interfaces/IJobEscrow.sol";
import {JobEscrow} from "../../src/JobEscrow.sol";
import {JobOrder, UnitCommitment} from "../../src/Messages.sol";
import {Settlements} from "../base/Settlements.sol";

/// @notice The vectors of tests/vectors, which the Python side satisfies too.
contract VectorsTest is Settlements {
    string private json;

    function test_messages_matchVectors() public {
        json = vm.readFile("../tests/vectors/messages.json");
        // same code, address and chain as in the vectors
        JobEscrow there = JobEscrow(vm.parseJsonAddress(json, ".verifyingContract"));
        vm.etch(address(there), address(escrow).code);
        vm.chainId(_uint(".chainId"));

        uint256 count = _length(".orders");
        for (uint256 i = 0; i < count; ++i) {
            string memory entry = _billAt(".orders", i);
            JobOrder memory order = _readOrder(entry);
            vm.assertEq(there.jobIdOf(order), _bytes32(_join(entry, ".structHash")));
            vm.assertEq(there.orderDigest(order), _bytes32(_join(entry, ".digest")));
            vm.assertEq(_signer(there.orderDigest(order), entry), order.payer);
        }
        vm.assertEq(count, 3);

        count = _length(".commitments");
        for (uint256 i = 0; i < count; ++i) {
            string memory entry = _billAt(".commitments", i);
            UnitCommitment memory unit = _readCommitment(entry);
            vm.assertEq(there.commitmentDigest(unit), _bytes32(_join(entry, ".digest")));
            vm.assertEq(_signer(there.commitmentDigest(unit), entry), unit.provider);
        }
        vm.assertEq(count, 2);
    }

    function test_windows_matchVectors() public {
        json = vm.readFile("../tests/vectors/windows.json");
        uint256 count = _length(".windows");
        for (uint256 i = 0; i < count; ++i) {
            string memory entry = _billAt(".windows", i);
            uint256 size = _length(_join(entry, ".units"));
            bytes32 root = _bytes32(_join(entry, ".root"));
            vm.prank(operator);
            windows.commitWindow(root, uint32(size));
            for (uint256 j = 0; j < size; ++j) {
                string memory unitEntry = _billAt(_join(entry, ".units"), j);
                bytes32[] memory proof = vm.parseJsonBytes32Array(json, _join(unitEntry, ".proof"));
                UnitCommitment memory unit = _readCommitment(unitEntry);
                vm.assertTrue(windows.includes(root, unit, proof));
                unit.slot ^= 1;
                vm.assertFalse(windows.includes(root, unit, proof));
            }
        }
        vm.assertEq(count, 5);
    }

    function test_unitPrices_matchVectors() public {
        json = vm.readFile("../tests/vectors/money.json");
        uint256 count = _length(".unitPrices");
        for (uint256 i = 0; i < count; ++i) {
            string memory entry = _billAt(".unitPrices", i);
            uint256 unit =
                escrow.unitPrice(uint80(_uint(_join(entry, ".price"))), uint48(_uint(_join(entry, ".weight"))));
            vm.assertEq(unit, _uint(_join(entry, ".unit")));
        }
        vm.assertEq(count, 50);
    }

    function test_settlements_matchVectors() public {
        json = vm.readFile("../tests/vectors/money.json");
        uint256 count = _length(".splits");
        for (uint256 i = 0; i < count; ++i) {
            _checkSettlement(_billAt(".splits", i), i);
        }
        vm.assertEq(count, 12);
    }

    /// @dev An unknown batch's error contains the root.
    function test_batchRoots_matchVectors() public {
        json = vm.readFile("../tests/vectors/money.json");
        uint256 count = _length(".batches");
        for (uint256 i = 0; i < count; ++i) {
            string memory entry = _billAt(".batches", i);
            IJobEscrow.JobLine[] memory lines = _readLines(_join(entry, ".lines"));
            (bytes32 claims, bytes32 units) = (_bytes32(_join(entry, ".claims")), _bytes32(_join(entry, ".units")));
            bytes32 root = _bytes32(_join(entry, ".root"));
            vm.prank(guardian);
            vm.expectRevert(abi.encodeWithSelector(IJobEscrow.UnknownBatch.selector, root));
            escrow.veto(1, claims, units, lines);
        }
        vm.assertEq(count, 3);
    }

    function _readLines(string memory list) private view returns (IJobEscrow.JobLine[] memory lines) {
        lines = new IJobEscrow.JobLine[](_length(list));
        for (uint256 i = 0; i < lines.length; ++i) {
            string memory entry = _billAt(list, i);
            lines[i].jobId = _bytes32(_join(entry, ".jobId"));
            lines[i].price = uint80(_uint(_join(entry, ".price")));
            lines[i].units = uint32(_uint(_join(entry, ".units")));
            lines[i].fromRound = uint32(_uint(_join(entry, ".fromRound")));
            lines[i].toRound = uint32(_uint(_join(entry, ".toRound")));
            lines[i].last = i % 2 == 0;
            lines[i].record = _bytes32(_join(entry, ".record"));
        }
    }

    function _checkSettlement(string memory entry, uint256 nonce) private {
        vm.prank(admin);
        escrow.setFee(uint16(_uint(_join(entry, ".feeBps"))));
        uint256 units = _uint(_join(entry, ".units[0]")) + _uint(_join(entry, ".units[1]"));
        JobOrder memory order = _order(uint32(units), uint96(_uint(_join(entry, ".escrowed"))));
        order.unitWeight = uint48(_uint(_join(entry, ".weight")));
        order.maxPrice = uint80(_uint(_join(entry, ".price")));
        order.samplingBps = 10_000; // valid at any price
        order.nonce = nonce;
        Bill memory bill = _billFor(_line(_open(order), 0, 1, true), 0, 0);
        bill.lines[0].units = uint32(units);
        bill.lines[0].price = order.maxPrice;
        uint256 held = token.balanceOf(payer);
        _post(bill);

        vm.assertEq(escrow.batches(_batchRoot(bill)).net, _uint(_join(entry, ".paid")));
        vm.assertEq(escrow.batches(_batchRoot(bill)).fee, _uint(_join(entry, ".fee")));
        vm.assertEq(token.balanceOf(payer) - held, _uint(_join(entry, ".refund")));
    }

    function _readOrder(string memory entry) private view returns (JobOrder memory order) {
        order.payer = vm.parseJsonAddress(json, _join(entry, ".payer"));
        order.specHash = _bytes32(_join(entry, ".specHash"));
        order.tier = uint8(_uint(_join(entry, ".tier")));
        order.units = uint32(_uint(_join(entry, ".units")));
        order.unitWeight = uint48(_uint(_join(entry, ".unitWeight")));
        order.segments = uint16(_uint(_join(entry, ".segments")));
        order.samplingBps = uint16(_uint(_join(entry, ".samplingBps")));
        order.budget = uint96(_uint(_join(entry, ".budget")));
        order.maxPrice = uint80(_uint(_join(entry, ".maxPrice")));
        order.waitUntil = uint40(_uint(_join(entry, ".waitUntil")));
        order.nonce = _uint(_join(entry, ".nonce"));
    }

    function _readCommitment(string memory entry) private view returns (UnitCommitment memory unit) {
        unit.jobId = _bytes32(_join(entry, ".jobId"));
        unit.round = uint32(_uint(_join(entry, ".round")));
        unit.slot = uint32(_uint(_join(entry, ".slot")));
        unit.provider = vm.parseJsonAddress(json, _join(entry, ".provider"));
        unit.traceRoot = _bytes32(_join(entry, ".traceRoot"));
        unit.payloadHash = _bytes32(_join(entry, ".payloadHash"));
    }

    function _signer(bytes32 digest, string memory entry) private view returns (address) {
        return ECDSA.recover(digest, vm.parseJsonBytes(json, _join(entry, ".signature")));
    }

    function _uint(string memory path) private view returns (uint256) {
        return vm.parseJsonUint(json, path);
    }

    function _bytes32(string memory path) private view returns (bytes32) {
        return vm.parseJsonBytes32(json, path);
    }

    function _length(string memory list) private view returns (uint256 count) {
        while (vm.keyExistsJson(json, _billAt(list, count))) ++count;
    }

    function _billAt(string memory list, uint256 index) private pure returns (string memory) {
        return string.concat(list, "[", vm.toString(index), "]");
    }

    function _join(string memory path, string memory field) private pure returns (string memory) {
        return string.concat(path, field);
    }
}
