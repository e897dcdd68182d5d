// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IJobEscrow} from "../../src/interfaces/IJobEscrow.sol";
import {JobOrder, UnitCommitment} from "../../src/Messages.sol";
import {Settlements} from "../base/Settlements.sol";

/// @notice Random calls around jobs, with a record of their expected results. Arguments are bounded to valid values,
/// so none may revert.
abstract contract JobActions is Settlements {
    bytes32[] public jobIds;
    mapping(bytes32 jobId => uint256) public budgetOf;
    mapping(bytes32 jobId => uint256) public settledOf; // in batches that were not vetoed
    mapping(bytes32 jobId => uint256) public returnedOf; // to the payer, except forfeited units
    mapping(uint256 batchId => bool) public vetoed;
    uint256 public freeBalance; // deposits that neither orders nor withdrawals took

    mapping(bytes32 jobId => JobOrder) internal orderOf;
    uint256 private nonce;
    bytes[] private bills; // ABI-encoded, by batch
    mapping(bytes32 jobId => mapping(uint256 round => bool)) private settledRound;

    // --- payers

    function openJob(uint32 units, uint96 budget, uint40 patience) external {
        JobOrder memory order = _order(uint32(_bound(units, 1, 50)), uint96(_bound(budget, UNIT, 2 ether)));
        order.waitUntil = uint40(block.timestamp + _bound(patience, 0, 3 days));
        order.nonce = ++nonce;
        if (escrow.paused()) return;
        bytes32 jobId;
        if (freeBalance >= order.budget) {
            jobId = escrow.openJob(order, _signature(PAYER_KEY, escrow.orderDigest(order)));
            freeBalance -= order.budget;
        } else {
            jobId = _open(order);
        }
        jobIds.push(jobId);
        orderOf[jobId] = order;
        budgetOf[jobId] = order.budget;
    }

    function deposit(uint96 amount) external {
        if (escrow.paused()) return;
        amount = uint96(_bound(amount, 1, 2 ether));
        _prepay(amount);
        freeBalance += amount;
    }

    /// @dev Withdraws a part of the free balance, also while intake is paused.
    function withdrawBalance(uint256 amount) public {
        if (freeBalance == 0) return;
        amount = _bound(amount, 1, freeBalance);
        freeBalance -= amount;
        vm.prank(payer);
        escrow.withdraw(amount, payer);
    }

    function cancel(uint256 pick) external {
        (bytes32 jobId, IJobEscrow.Job memory job) = _pickOpen(pick);
        if (jobId == 0 || job.settleBy <= block.timestamp + CANCEL_DELAY) return;
        vm.prank(payer);
        escrow.cancel(jobId);
    }

    function refund(uint256 pick) external {
        (bytes32 jobId, IJobEscrow.Job memory job) = _pickOpen(pick);
        if (jobId == 0 || block.timestamp <= job.settleBy) return;
        escrow.refund(jobId);
        returnedOf[jobId] += job.escrowed;
    }

    // --- settlement

    /// @dev Settles a batch over up to three jobs.
    function settle(uint256 pick, uint256 seed) external {
        IJobEscrow.JobLine[] memory lines = new IJobEscrow.JobLine[](3);
        uint256 count;
        for (uint256 i = 0; i < 3 && i < jobIds.length; ++i) {
            bytes32 jobId = jobIds[(pick % jobIds.length + i) % jobIds.length];
            IJobEscrow.Job memory job = escrow.jobs(jobId);
            if (job.state != IJobEscrow.State.Open || block.timestamp > job.settleBy) continue;
            seed = uint256(keccak256(abi.encode(seed)));
            uint32 rounds = uint32(1 + seed % 3);
            IJobEscrow.JobLine memory line = _line(jobId, job.nextRound, job.nextRound + rounds, seed >> 8 & 3 == 0);
            line.price = uint80(PRICE / 4 + (seed >> 16) % (PRICE * 3 / 4));
            uint256 affordable = job.escrowed / escrow.unitPrice(line.price, WEIGHT);
            if (affordable > job.unitsLeft) affordable = job.unitsLeft;
            line.units = uint32((seed >> 128) % (1 + (affordable < 5 ? affordable : 5)));
            lines[count++] = line;
        }
        if (count == 0) return;
        assembly ("memory-safe") {
            mstore(lines, count)
        }
        _record(_post(_bill(lines, _work(lines, seed))));
    }

    function claim(uint256 pick, uint256 workerPick, bool payout) external {
        address account = worker(workerPick);
        IJobEscrow.Claim[] memory claims = new IJobEscrow.Claim[](3);
        uint256 count;
        for (uint256 i = 0; i < bills.length && count < 3; ++i) {
            uint256 batchId = 1 + (pick % bills.length + i) % bills.length;
            (Bill memory bill, bool over) = _billAt(batchId);
            (uint256 index, uint256 due) = _claimableOf(bill, account);
            if (over && due > 0) claims[count++] = _claimOf(bill, index);
        }
        assembly ("memory-safe") {
            mstore(claims, count)
        }
        vm.prank(account);
        escrow.claim(payout ? payoutOf(account) : account, claims);
    }

    function collectFees(uint256 pick) external {
        if (bills.length == 0) return;
        (Bill memory bill, bool over) = _billAt(1 + pick % bills.length);
        if (over) _collect(bill);
    }

    function veto(uint256 pick, uint256 chance) external {
        if (bills.length == 0 || chance % 3 > 0) return;
        uint256 batchId = 1 + pick % bills.length;
        (Bill memory bill, bool over) = _billAt(batchId);
        if (over || vetoed[batchId]) return;
        _veto(bill);
        vetoed[batchId] = true;
        for (uint256 i = 0; i < bill.lines.length; ++i) {
            IJobEscrow.JobLine memory line = bill.lines[i];
            uint256 gross = escrow.unitPrice(line.price, WEIGHT) * line.units;
            settledOf[line.jobId] -= gross;
            if (escrow.jobs(line.jobId).state == IJobEscrow.State.Refunded) returnedOf[line.jobId] += gross;
            // rounds before a batch in force cannot be settled again
            if (escrow.jobs(line.jobId).nextRound == line.fromRound) _mark(line, false);
        }
    }

    /// @dev Pays every due claim, fee and refund. No call may fail.
    function _payAll() internal {
        for (uint256 i = 0; i < bills.length; ++i) {
            if (vetoed[i + 1]) continue;
            Bill memory bill = abi.decode(bills[i], (Bill));
            for (uint256 j = 0; j < bill.providers.length; ++j) {
                (, uint256 due) = _claimableOf(bill, bill.providers[j]);
                if (due > 0) _claim(bill, j);
            }
            _collect(bill);
        }
        for (uint256 i = 0; i < jobIds.length; ++i) {
            if (escrow.jobs(jobIds[i]).state == IJobEscrow.State.Open) escrow.refund(jobIds[i]);
        }
        if (freeBalance > 0) withdrawBalance(freeBalance - 1); // all of it: _bound adds one
    }

    // --- state

    function worker(uint256 pick) public view virtual returns (address) {
        return address(uint160(0x8000 + pick % 3));
    }

    function payoutOf(address account) public pure returns (address) {
        return address(uint160(account) + 0x1000);
    }

    function jobCount() external view returns (uint256) {
        return jobIds.length;
    }

    function batchCount() public view returns (uint256) {
        return bills.length;
    }

    function billOf(uint256 batchId) external view returns (Bill memory, IJobEscrow.Batch memory) {
        Bill memory bill = abi.decode(bills[batchId - 1], (Bill));
        return (bill, escrow.batches(_batchRoot(bill)));
    }

    /// @dev Returns the pay of the unit with this index in its batch's bill.
    function _payOf(uint256 batchId, uint256 index) internal view returns (address provider, uint256 net, uint256 fee) {
        Bill memory bill = abi.decode(bills[batchId - 1], (Bill));
        UnitCommitment memory unit = bill.units[index];
        (net, fee) = _pay(unit.jobId, bill.prices[index]);
        provider = unit.provider;
    }

    /// @dev Returns the commitment of a worker's unit.
    function _committedUnit(bytes32 jobId, uint32 round, uint32 slot, address account)
        internal
        pure
        virtual
        returns (UnitCommitment memory)
    {
        return _unit(jobId, round, slot, account);
    }

    function _record(Bill memory bill) internal virtual {
        if (bill.batchId > 0) bills.push(abi.encode(bill));
        require(bill.batchId == 0 || bill.batchId == bills.length, "batch number");
        for (uint256 i = 0; i < bill.lines.length; ++i) {
            IJobEscrow.JobLine memory line = bill.lines[i];
            settledOf[line.jobId] += escrow.unitPrice(line.price, WEIGHT) * line.units;
            _mark(line, true);
            if (line.last) returnedOf[line.jobId] = budgetOf[line.jobId] - settledOf[line.jobId];
        }
    }

    /// @dev A round must not be settled twice.
    function _mark(IJobEscrow.JobLine memory line, bool settled) private {
        for (uint256 round = line.fromRound; round < line.toRound; ++round) {
            require(settledRound[line.jobId][round] != settled, "round settled twice");
            settledRound[line.jobId][round] = settled;
        }
    }

    /// @dev Returns the units of the lines with random workers; `_bill` counts them again.
    function _work(IJobEscrow.JobLine[] memory lines, uint256 seed)
        private
        view
        returns (UnitCommitment[] memory units)
    {
        uint256 total;
        for (uint256 i = 0; i < lines.length; ++i) {
            total += lines[i].units;
        }
        units = new UnitCommitment[](total);
        uint256 next;
        for (uint256 i = 0; i < lines.length; ++i) {
            for (uint32 j = 0; j < lines[i].units; ++j) {
                seed = uint256(keccak256(abi.encode(seed)));
                units[next++] = _committedUnit(lines[i].jobId, lines[i].fromRound, j, worker(seed));
            }
            lines[i].units = 0;
        }
    }

    /// @dev Returns the claim index of `account` in the bill and the amount that it can still claim.
    function _claimableOf(Bill memory bill, address account) private view returns (uint256 index, uint256 due) {
        while (index < bill.providers.length && bill.providers[index] != account) ++index;
        if (index == bill.providers.length || escrow.isClaimed(bill.batchId, account)) return (index, 0);
        due = bill.amounts[index] - escrow.withheldOf(bill.batchId, account);
    }

    function _billAt(uint256 batchId) internal view returns (Bill memory bill, bool over) {
        bill = abi.decode(bills[batchId - 1], (Bill));
        uint256 claimableAt = escrow.batches(_batchRoot(bill)).claimableAt;
        over = !vetoed[batchId] && claimableAt <= block.timestamp;
    }

    function _pickOpen(uint256 pick) private view returns (bytes32, IJobEscrow.Job memory job) {
        for (uint256 i = 0; i < jobIds.length; ++i) {
            bytes32 jobId = jobIds[(pick % jobIds.length + i) % jobIds.length];
            job = escrow.jobs(jobId);
            if (job.state == IJobEscrow.State.Open) return (jobId, job);
        }
        return (0, job);
    }
}
