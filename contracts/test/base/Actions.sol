// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {JobActions} from "./JobActions.sol";
import {StakeActions} from "./StakeActions.sol";

/// @notice Random moves of payers, providers, the operator and time on a network whose disputes are one account that says
/// what it likes. The invariant suite calls these.
contract Actions is JobActions, StakeActions {
    struct Dispute {
        uint256 batchId;
        uint256 unit;
        bytes32 unitId;
        bool decided;
        bool restored;
        bool returned;
    }

    Dispute[] public cases;
    mapping(bytes32 unitId => uint256) private caseOf; // the latest, from 1

    function withhold(uint256 pick, uint256 unit) external {
        if (batchCount() == 0) return;
        uint256 batchId = 1 + pick % batchCount();
        (Bill memory bill, bool over) = _at(batchId);
        if (over || vetoed[batchId]) return;
        unit %= bill.units.length;
        bytes32 unitId = _unitId(bill, unit);
        if (caseOf[unitId] > 0) {
            Dispute memory earlier = cases[caseOf[unitId] - 1];
            if (!earlier.restored && !vetoed[earlier.batchId]) return;
        }
        _withhold(bill, unit);
        cases.push(Dispute(batchId, unit, unitId, false, false, false));
        caseOf[unitId] = cases.length;
    }

    function decide(uint256 pick, bool restored) external {
        if (cases.length > 0) _decide(pick % cases.length, restored);
    }

    function returnStruck(uint256 pick) external {
        if (cases.length > 0) _returnStruck(pick % cases.length);
    }

    /// @dev Everybody takes what they are due; nothing here may fail, though intake is stopped.
    function everybodyLeaves() external {
        _later(60 days);
        for (uint256 i = 0; i < cases.length; ++i) {
            _decide(i, i % 2 == 0);
            _returnStruck(i);
        }
        _everybodyIsPaid();
        _everybodyUnstakes();
    }

    function stakers() public pure override returns (uint256) {
        return 3;
    }

    function staker(uint256 pick) public pure override returns (address) {
        return address(uint160(0x7000 + pick % 3));
    }

    function network() external view returns (address, address, address, address, address) {
        return (address(token), address(treasury), address(staking), address(escrow), payer);
    }

    function caseCount() external view returns (uint256) {
        return cases.length;
    }

    /// @dev What the disputed unit pays, or paid.
    function payOf(uint256 index) external view returns (address provider, uint256 net, uint256 fee) {
        return _payOf(cases[index].batchId, cases[index].unit);
    }

    function _decide(uint256 index, bool restored) private {
        Dispute storage dispute = cases[index];
        bool latest = caseOf[dispute.unitId] == index + 1;
        if (!latest || dispute.decided) return;
        require(_release(dispute.unitId, restored), "was withheld");
        (, bool over) = _at(dispute.batchId);
        (dispute.decided, dispute.restored) = (true, restored || vetoed[dispute.batchId]);
        dispute.returned = !dispute.restored && over;
    }

    function _returnStruck(uint256 index) private {
        Dispute storage dispute = cases[index];
        (, bool over) = _at(dispute.batchId);
        bool latest = caseOf[dispute.unitId] == index + 1;
        if (!latest || !over || !dispute.decided || dispute.restored || dispute.returned) return;
        escrow.returnStruck(dispute.unitId);
        dispute.returned = true;
    }
}
