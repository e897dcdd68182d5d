// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IJobEscrow} from "../../src/interfaces/IJobEscrow.sol";
import {JobOrder, UnitCommitment} from "../../src/Messages.sol";
import {Settlements} from "../base/Settlements.sol";

/// @notice Gas of a job's transactions, each as a separate transaction: intrinsic gas, calldata and cold storage
/// included. A batch pays 20 providers for 1,000 units of each job. The limits are the network's documented ones.
/// forge-config: default.isolate = true
contract GasTest is Settlements {
    uint32 private constant PROVIDERS = 20;

    bytes32[] private jobIds;

    event Measured(string what, uint256 gas);

    function test_openJob_staysWithinGasLimit() public {
        _prepay(300 ether);
        _assertGas("deposit for the first time, with permit", 130_000);
        _prepay(1 ether);
        _assertGas("deposit again, with permit", 100_000);
        JobOrder memory order = _order(1_000, 100 ether);
        for (uint256 i = 0; i < 2; ++i) {
            order.nonce = i;
            bytes memory signature = _signature(PAYER_KEY, escrow.orderDigest(order));
            vm.prank(thirdParty);
            escrow.openJob(order, signature);
            _assertGas("open a job", 110_000);
        }
        vm.prank(payer);
        escrow.withdraw(1 ether, payer);
        _assertGas("withdraw", 60_000);
    }

    function test_settle_staysWithinGasLimit() public {
        _openJobs(12);
        _settleJobs(1);
        _assertGas("settle the first job, with its refund", 120_000);
        _settleJobs(1);
        _assertGas("settle another job, with its refund", 100_000);
        _settleJobs(10);
        _assertGas("settle ten jobs, with their refunds", 365_000);
    }

    function test_claim_staysWithinGasLimit() public {
        _openJobs(15);
        Bill[] memory bills = new Bill[](15);
        for (uint256 i = 0; i < 15; ++i) {
            bills[i] = _settleJobs(1);
        }
        _endChallenge(bills[14]);

        _claimAs(0, bills, 0, 1);
        _assertGas("claim one batch, without any ZEN before", 95_000);
        token.transfer(_provider(1), 1);
        _claimAs(1, bills, 0, 1);
        uint256 one = _assertGas("claim one batch, for the first time", 75_000);
        token.transfer(_provider(2), 1);
        _claimAs(2, bills, 0, 11);
        uint256 eleven = _assertGas("claim eleven batches, for the first time", 225_000);
        emit Measured("claim each further batch in the same call", (eleven - one) / 10);
        vm.assertLe((eleven - one) / 10, 20_000);
        _claimAs(2, bills, 11, 1);
        _assertGas("claim one batch, having claimed before", 60_000);
    }

    /// @dev Worst case: every job of a full batch was refunded. A transaction has at most 2^24 gas (EIP-7825).
    function test_fullBatchVeto_staysWithinGasLimit() public {
        uint256 count = escrow.MAX_LINES();
        _openJobs(count);
        vm.warp(escrow.jobs(jobIds[0]).settleBy);
        Bill memory bill = _billOfJobs(count, false);
        _post(bill);
        _assertGas("settle 256 jobs", 1 << 24);
        bill.batchId = 1;
        vm.warp(block.timestamp + 1);
        for (uint256 i = 0; i < count; ++i) {
            escrow.refund(bill.lines[i].jobId);
        }
        _veto(bill);
        _assertGas("veto 256 refunded jobs", 1 << 24);
    }

    function _claimAs(uint256 index, Bill[] memory bills, uint256 from, uint256 count) private {
        IJobEscrow.Claim[] memory claims = new IJobEscrow.Claim[](count);
        for (uint256 i = 0; i < count; ++i) {
            claims[i] = _claimOf(bills[from + i], index);
        }
        vm.prank(_provider(index));
        escrow.claim(_provider(index), claims);
    }

    function _openJobs(uint256 count) private {
        for (uint256 i = 0; i < count; ++i) {
            JobOrder memory order = _order(1_000, 100 ether);
            order.nonce = i;
            jobIds.push(_open(order));
        }
    }

    function _settleJobs(uint256 count) private returns (Bill memory) {
        return _post(_billOfJobs(count, true));
    }

    function _billOfJobs(uint256 count, bool last) private returns (Bill memory bill) {
        IJobEscrow.JobLine[] memory lines = new IJobEscrow.JobLine[](count);
        for (uint256 i = 0; i < count; ++i) {
            lines[i] = _line(jobIds[jobIds.length - 1], 0, 50, last);
            jobIds.pop();
        }
        UnitCommitment[] memory units = new UnitCommitment[](PROVIDERS);
        for (uint32 i = 0; i < PROVIDERS; ++i) {
            units[i] = _unit(lines[0].jobId, 0, i, _provider(i));
        }
        bill = _bill(lines, units);
        for (uint256 i = 0; i < count; ++i) {
            bill.lines[i].units = 1_000;
        }
        for (uint256 i = 0; i < PROVIDERS; ++i) {
            bill.amounts[i] *= 50 * count; // an equal share of all units
        }
    }

    function _provider(uint256 index) private pure returns (address) {
        return address(uint160(uint256(keccak256(abi.encode(index)))));
    }

    function _assertGas(string memory what, uint256 limit) private returns (uint256 gas) {
        gas = vm.lastCallGas().gasTotalUsed;
        emit Measured(what, gas);
        vm.assertLe(gas, limit);
    }
}
