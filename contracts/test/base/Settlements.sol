// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Hashes} from "@openzeppelin/contracts/utils/cryptography/Hashes.sol";
import {IJobEscrow} from "../../src/interfaces/IJobEscrow.sol";
import {UnitCommitment} from "../../src/Messages.sol";
import {Network} from "./Network.sol";
import {Tree} from "./Tree.sol";

/// @notice Settlement data of the operator: lines, pay of each provider, trees and proofs from verified units. Computed
/// independently of the contract's arithmetic.
abstract contract Settlements is Network {
    /// @param batchId Number of the batch, once posted.
    /// @param units Verified units, each of a round of one of the lines.
    /// @param prices Price of each unit.
    /// @param providers Providers with pay, without duplicates.
    /// @param amounts Net pay of each provider.
    struct Bill {
        uint256 batchId;
        IJobEscrow.JobLine[] lines;
        UnitCommitment[] units;
        uint80[] prices;
        address[] providers;
        uint256[] amounts;
    }

    address internal constant ALICE = address(0xA11CE);
    address internal constant BOB = address(0xB0B);

    // --- from units to a bill

    function _line(bytes32 jobId, uint32 fromRound, uint32 toRound, bool last)
        internal
        pure
        returns (IJobEscrow.JobLine memory)
    {
        return IJobEscrow.JobLine(jobId, PRICE, 0, fromRound, toRound, last, keccak256("record"));
    }

    function _unit(bytes32 jobId, uint32 round, uint32 slot, address provider)
        internal
        pure
        returns (UnitCommitment memory)
    {
        return UnitCommitment(jobId, round, slot, provider, keccak256("trace"), keccak256("payload"));
    }

    /// @dev Counts the units of each line and sums their providers' pay.
    function _bill(IJobEscrow.JobLine[] memory lines, UnitCommitment[] memory units)
        internal
        view
        returns (Bill memory bill)
    {
        bill.lines = lines;
        bill.units = units;
        bill.prices = new uint80[](units.length);
        bill.providers = new address[](units.length);
        bill.amounts = new uint256[](units.length);
        uint256 providers;
        for (uint256 i = 0; i < units.length; ++i) {
            IJobEscrow.JobLine memory line = _lineOf(lines, units[i]);
            ++line.units;
            bill.prices[i] = line.price;
            uint256 index = 0;
            while (index < providers && bill.providers[index] != units[i].provider) ++index;
            if (index == providers) bill.providers[providers++] = units[i].provider;
            (uint256 net,) = _pay(units[i].jobId, line.price);
            bill.amounts[index] += net;
        }
        _truncate(bill, providers);
    }

    /// @dev One line of one job: `alice` units by ALICE and `bob` by BOB, all in its first round.
    function _billFor(IJobEscrow.JobLine memory line, uint256 alice, uint256 bob) internal view returns (Bill memory) {
        UnitCommitment[] memory units = new UnitCommitment[](alice + bob);
        for (uint32 i = 0; i < units.length; ++i) {
            units[i] = _unit(line.jobId, line.fromRound, i, i < alice ? ALICE : BOB);
        }
        IJobEscrow.JobLine[] memory lines = new IJobEscrow.JobLine[](1);
        lines[0] = line;
        return _bill(lines, units);
    }

    /// @dev Returns the pay of one unit of the job at `price`.
    function _pay(bytes32 jobId, uint80 price) internal view returns (uint256 net, uint256 fee) {
        IJobEscrow.Job memory job = escrow.jobs(jobId);
        uint256 gross = uint256(price) * job.unitWeight / 3_600_000_000 / 10_000 * 10_000;
        fee = gross * job.feeBps / 10_000;
        net = gross - fee;
    }

    // --- from a bill to trees and proofs

    function _claimLeaves(Bill memory bill) internal pure returns (bytes32[] memory leaves) {
        leaves = new bytes32[](bill.providers.length);
        for (uint256 i = 0; i < leaves.length; ++i) {
            leaves[i] = _leaf(abi.encode(bill.providers[i], bill.amounts[i]));
        }
    }

    function _unitLeaves(Bill memory bill) internal pure returns (bytes32[] memory leaves) {
        leaves = new bytes32[](bill.units.length);
        for (uint256 i = 0; i < leaves.length; ++i) {
            leaves[i] = _leaf(abi.encode(bill.units[i], bill.prices[i]));
        }
    }

    function _claimsRoot(Bill memory bill) internal pure returns (bytes32) {
        return Tree.root(_claimLeaves(bill));
    }

    function _unitsRoot(Bill memory bill) internal pure returns (bytes32) {
        return Tree.root(_unitLeaves(bill));
    }

    function _settlementHash(Bill memory bill) internal pure returns (bytes32) {
        return keccak256(abi.encode(_claimsRoot(bill), _unitsRoot(bill), bill.lines));
    }

    function _batchRoot(Bill memory bill) internal pure returns (bytes32) {
        return Hashes.commutativeKeccak256(_claimsRoot(bill), _claimsSibling(bill));
    }

    function _claimOf(Bill memory bill, uint256 index) internal pure returns (IJobEscrow.Claim memory) {
        bytes32[] memory rest = new bytes32[](1);
        rest[0] = _claimsSibling(bill);
        return IJobEscrow.Claim(bill.amounts[index], Tree.proof(_claimLeaves(bill), index, rest));
    }

    function _claimsOf(Bill memory bill, uint256 index) internal pure returns (IJobEscrow.Claim[] memory claims) {
        claims = new IJobEscrow.Claim[](1);
        claims[0] = _claimOf(bill, index);
    }

    function _unitProof(Bill memory bill, uint256 index) internal pure returns (bytes32[] memory) {
        bytes32[] memory rest = new bytes32[](2);
        (rest[0], rest[1]) = (_settlementHash(bill), _claimsRoot(bill));
        return Tree.proof(_unitLeaves(bill), index, rest);
    }

    function _unitId(Bill memory bill, uint256 index) internal pure returns (bytes32) {
        return _leaf(abi.encode(bill.units[index]));
    }

    // --- calls

    function _post(Bill memory bill) internal returns (Bill memory) {
        vm.prank(operator);
        bill.batchId = escrow.settle(_claimsRoot(bill), _unitsRoot(bill), bill.lines);
        return bill;
    }

    function _expectPostRefused(Bill memory bill, bytes memory reason) internal {
        vm.prank(operator);
        vm.expectRevert(reason);
        escrow.settle(_claimsRoot(bill), _unitsRoot(bill), bill.lines);
    }

    function _claim(Bill memory bill, uint256 index) internal {
        IJobEscrow.Claim[] memory claims = _claimsOf(bill, index);
        vm.prank(bill.providers[index]);
        escrow.claim(bill.providers[index], claims);
    }

    function _veto(Bill memory bill) internal {
        vm.prank(guardian);
        escrow.veto(bill.batchId, _claimsRoot(bill), _unitsRoot(bill), bill.lines);
    }

    function _withhold(Bill memory bill, uint256 index) internal returns (bytes32) {
        bytes32[] memory proof = _unitProof(bill, index);
        vm.prank(disputes);
        return escrow.withhold(bill.batchId, bill.units[index], bill.prices[index], proof);
    }

    function _release(bytes32 unitId, bool restored) internal returns (bool) {
        vm.prank(disputes);
        return escrow.release(unitId, restored);
    }

    function _collect(Bill memory bill) internal returns (uint256) {
        bytes32[] memory roots = new bytes32[](1);
        roots[0] = _batchRoot(bill);
        return escrow.collectFees(roots);
    }

    function _endChallenge(Bill memory bill) internal {
        vm.warp(escrow.batches(_batchRoot(bill)).claimableAt);
    }

    function _lineOf(IJobEscrow.JobLine[] memory lines, UnitCommitment memory unit)
        private
        pure
        returns (IJobEscrow.JobLine memory)
    {
        for (uint256 i = 0; i < lines.length; ++i) {
            bool within = lines[i].fromRound <= unit.round && unit.round < lines[i].toRound;
            if (within && lines[i].jobId == unit.jobId) return lines[i];
        }
        revert("no line covers the unit");
    }

    function _claimsSibling(Bill memory bill) private pure returns (bytes32) {
        return Hashes.commutativeKeccak256(_unitsRoot(bill), _settlementHash(bill));
    }

    function _truncate(Bill memory bill, uint256 providers) private pure {
        (address[] memory accounts, uint256[] memory amounts) = (bill.providers, bill.amounts);
        assembly ("memory-safe") {
            mstore(accounts, providers)
            mstore(amounts, providers)
        }
    }

    function _leaf(bytes memory encoded) private pure returns (bytes32) {
        return keccak256(bytes.concat(keccak256(encoded)));
    }
}
