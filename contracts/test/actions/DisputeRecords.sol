// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IDisputes} from "../../src/interfaces/IDisputes.sol";
import {IJobEscrow} from "../../src/interfaces/IJobEscrow.sol";
import {IProviderStaking} from "../../src/interfaces/IProviderStaking.sol";
import {DisputeNetwork} from "../base/DisputeNetwork.sol";
import {Vm} from "../base/Vm.sol";

/// @notice Records of disputes, held payouts and penalties, derived from events.
abstract contract DisputeRecords is DisputeNetwork {
    /// @param batchId Batch from which the pay was withheld, unless vetoed.
    /// @param held In the escrow outside its batch.
    /// @param forfeited Refunded to the payer.
    struct Pay {
        uint256 batchId;
        address provider;
        uint256 net;
        uint256 fee;
        bool held;
        bool forfeited;
    }

    uint256 private constant CHALLENGERS = 4;

    bytes32[] internal disputeIds;
    bytes32[] internal openIds;
    bytes32[] internal withheldIds; // unit ids without duplicates
    mapping(bytes32 unitId => Pay) public payOf;
    mapping(bytes32 disputeId => address[]) internal committeeOf;
    mapping(address account => uint256) public creditsTaken;
    mapping(address provider => uint256) public slashedByDisputes;
    uint256 public burned; // wei burned by disputes

    modifier recorded() {
        vm.recordLogs();
        _;
        _recordLogs(vm.getRecordedLogs());
    }

    function isHeld(bytes32 unitId) public view returns (bool) {
        return payOf[unitId].held && !vetoed[payOf[unitId].batchId];
    }

    function challenger(uint256 pick) public pure returns (address) {
        return address(uint160(0xC000 + pick % CHALLENGERS));
    }

    /// @dev Number of accounts that can be credited.
    function parties() public pure returns (uint256) {
        return WORKERS + REFEREES + CHALLENGERS;
    }

    function party(uint256 pick) public view returns (address) {
        pick %= parties();
        if (pick < WORKERS) return workers[pick];
        return pick < WORKERS + REFEREES ? referees[pick - WORKERS] : challenger(pick - WORKERS - REFEREES);
    }

    function disputeCount() external view returns (uint256) {
        return disputeIds.length;
    }

    function disputeOf(uint256 index) external view returns (IDisputes.Dispute memory) {
        return disputeContract.disputes(disputeIds[index]);
    }

    function withheldCount() external view returns (uint256) {
        return withheldIds.length;
    }

    function withheldAt(uint256 index) external view returns (bytes32 unitId, Pay memory pay, bool inForce) {
        unitId = withheldIds[index];
        pay = payOf[unitId];
        inForce = !vetoed[pay.batchId];
    }

    function _recordPendingLogs() internal {
        _recordLogs(vm.getRecordedLogs());
        vm.recordLogs();
    }

    function _isOpen(bytes32 id) internal view returns (bool) {
        IDisputes.Status status = disputeContract.disputes(id).status;
        return status >= IDisputes.Status.Trace && status <= IDisputes.Status.Judging;
    }

    function _recordLogs(Vm.Log[] memory logs) private {
        for (uint256 i = 0; i < logs.length; ++i) {
            bytes32 kind = logs[i].topics[0];
            if (kind == IJobEscrow.UnitWithheld.selector) {
                _recordWithheld(logs[i]);
            } else if (kind == IJobEscrow.UnitRestored.selector) {
                _recordRestored(logs[i]);
            } else if (kind == IJobEscrow.UnitStruck.selector) {
                _recordForfeited(logs[i].topics[1]);
            } else if (kind == IProviderStaking.Slashed.selector) {
                _recordSlashed(logs[i]);
            } else if (kind == IDisputes.DisputeEnded.selector) {
                _recordEnded(logs[i]);
            } else if (kind == IDisputes.CommitteeDrawn.selector) {
                (, committeeOf[logs[i].topics[1]]) = abi.decode(logs[i].data, (uint32, address[]));
            }
        }
    }

    function _recordWithheld(Vm.Log memory log) private {
        bytes32 unitId = log.topics[1];
        require(!isHeld(unitId), "withheld twice");
        (address provider, uint256 net, uint256 fee) = abi.decode(log.data, (address, uint256, uint256));
        if (payOf[unitId].batchId == 0) withheldIds.push(unitId);
        payOf[unitId] = Pay(uint256(log.topics[2]), provider, net, fee, true, false);
    }

    /// @dev Pay that a vetoed batch returned to its job is reported as restored, too.
    function _recordRestored(Vm.Log memory log) private {
        bytes32 unitId = log.topics[1];
        if (isHeld(unitId)) {
            require(!disputeContract.units(unitId).unpaid, "paid despite an upheld or inconclusive dispute");
            require(disputeContract.units(unitId).open == 0, "paid during a dispute");
        }
        payOf[unitId].held = false;
    }

    function _recordForfeited(bytes32 unitId) private {
        require(isHeld(unitId) && disputeContract.units(unitId).unpaid, "forfeited without a dispute");
        (payOf[unitId].held, payOf[unitId].forfeited) = (false, true);
    }

    function _recordSlashed(Vm.Log memory log) private {
        (, uint256 amount, uint256 share) = abi.decode(log.data, (uint8, uint256, uint256));
        slashedByDisputes[address(uint160(uint256(log.topics[1])))] += amount;
        burned += amount - share;
    }

    function _recordEnded(Vm.Log memory log) private {
        (, uint256 leftOver) = abi.decode(log.data, (IDisputes.Status, uint256));
        burned += leftOver;
        uint256 i = 0;
        while (openIds[i] != log.topics[1]) ++i;
        openIds[i] = openIds[openIds.length - 1];
        openIds.pop();
    }
}
