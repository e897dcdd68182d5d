// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {JobActions} from "./JobActions.sol";
import {StakeActions} from "./StakeActions.sol";

/// @notice Random calls of payers, providers, operator and time. A single account stands in for the disputes contract.
/// The invariant suite calls these.
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
    mapping(bytes32 unitId => uint256) private caseOf; // index of the latest case, plus one

    function withhold(uint256 pick, uint256 unit) external {
        if (batchCount() == 0) return;
        uint256 batchId = 1 + pick % batchCount();
        (Bill memory bill, bool over) = _billAt(batchId);
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
        if (cases.length > 0) _refundForfeited(pick % cases.length);
    }

    /// @dev All accounts withdraw their due amounts. No call may fail, also while intake is paused.
    function exitAll() external {
        _later(60 days);
        for (uint256 i = 0; i < cases.length; ++i) {
            _decide(i, i % 2 == 0);
            _refundForfeited(i);
        }
        _payAll();
        _unstakeAll();
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

    /// @dev Returns the pay of the disputed unit.
    function payOf(uint256 index) external view returns (address provider, uint256 net, uint256 fee) {
        return _payOf(cases[index].batchId, cases[index].unit);
    }

    function _decide(uint256 index, bool restored) private {
        Dispute storage dispute = cases[index];
        bool latest = caseOf[dispute.unitId] == index + 1;
        if (!latest || dispute.decided) return;
        require(_release(dispute.unitId, restored), "was withheld");
        (, bool over) = _billAt(dispute.batchId);
        (dispute.decided, dispute.restored) = (true, restored || vetoed[dispute.batchId]);
        dispute.returned = !dispute.restored && over;
    }

    function _refundForfeited(uint256 index) private {
        Dispute storage dispute = cases[index];
        (, bool over) = _billAt(dispute.batchId);
        bool latest = caseOf[dispute.unitId] == index + 1;
        if (!latest || !over || !dispute.decided || dispute.restored || dispute.returned) return;
        escrow.returnStruck(dispute.unitId);
        dispute.returned = true;
    }
}
