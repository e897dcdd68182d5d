// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IJobEscrow} from "../src/interfaces/IJobEscrow.sol";
import {JobOrder, UnitCommitment} from "../src/Messages.sol";
import {Settlements} from "./base/Settlements.sol";

/// @notice What the transactions of a job cost in all, each as a transaction of its own: intrinsic gas, calldata and cold
/// storage included. A batch pays 20 providers for 1,000 units of each job. The limits are what the network promises.
/// forge-config: default.isolate = true
contract GasTest is Settlements {
    uint32 private constant PROVIDERS = 20;

    bytes32[] private jobIds;

    event Measured(string what, uint256 gas);

    function test_openJob() public {
        JobOrder memory order = _order(1_000, 100 ether);
        bytes memory signature = _signature(PAYER_KEY, escrow.orderDigest(order));
        (uint8 v, bytes32 r, bytes32 s) = _signPermit(PAYER_KEY, address(escrow), order.budget, block.timestamp);
        vm.prank(stranger);
        escrow.openJob(order, signature, block.timestamp, v, r, s);
        _assertGas("open the first job of a payer, with permit", 170_000);

        order.nonce = 2;
        signature = _signature(PAYER_KEY, escrow.orderDigest(order));
        (v, r, s) = _signPermit(PAYER_KEY, address(escrow), order.budget, block.timestamp);
        vm.prank(stranger);
        escrow.openJob(order, signature, block.timestamp, v, r, s);
        _assertGas("open another job, with permit", 170_000);
    }

    function test_settle() public {
        _openJobs(12);
        _settleJobs(1);
        _assertGas("settle the first job, with its refund", 120_000);
        _settleJobs(1);
        _assertGas("settle another job, with its refund", 120_000);
        _settleJobs(10);
        _assertGas("settle ten jobs, with their refunds", 500_000);
    }

    function test_claim() public {
        _openJobs(15);
        Bill[] memory bills = new Bill[](15);
        for (uint256 i = 0; i < 15; ++i) {
            bills[i] = _settleJobs(1);
        }
        _endChallenge(bills[14]);

        _claimAs(0, bills, 0, 1);
        _assertGas("claim, without any ZEN before", 93_000);
        token.transfer(_provider(1), 1);
        _claimAs(1, bills, 0, 1);
        uint256 one = _assertGas("claim one batch, holding ZEN before", 75_000);
        token.transfer(_provider(2), 1);
        _claimAs(2, bills, 0, 11);
        uint256 eleven = _assertGas("claim eleven batches", 300_000);
        vm.assertLe((eleven - one) / 10, 20_000);
        emit Measured("each further batch in the same call", (eleven - one) / 10);
        _claimAs(2, bills, 11, 1);
        _assertGas("claim one batch, having claimed before", 75_000);
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

    function _settleJobs(uint256 count) private returns (Bill memory bill) {
        IJobEscrow.JobLine[] memory lines = new IJobEscrow.JobLine[](count);
        UnitCommitment[] memory units = new UnitCommitment[](PROVIDERS * count);
        for (uint256 i = 0; i < count; ++i) {
            lines[i] = _line(jobIds[jobIds.length - 1], 0, 50, true);
            jobIds.pop();
            for (uint32 j = 0; j < PROVIDERS; ++j) {
                units[PROVIDERS * i + j] = _unit(lines[i].jobId, 0, j, _provider(j));
            }
        }
        bill = _bill(lines, units); // one of each provider's 50 units of the job
        for (uint256 i = 0; i < count; ++i) {
            bill.lines[i].units = 1_000;
        }
        for (uint256 i = 0; i < PROVIDERS; ++i) {
            bill.amounts[i] *= 50;
        }
        return _post(bill);
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
