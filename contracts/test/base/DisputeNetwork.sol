// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Disputes} from "../../src/Disputes.sol";
import {IDisputes, IDisputeStaking, IDisputeEscrow} from "../../src/interfaces/IDisputes.sol";
import {IOmissions} from "../../src/interfaces/IOmissions.sol";
import {IZenToken} from "../../src/interfaces/IZenToken.sol";
import {JobOrder, UnitCommitment} from "../../src/Messages.sol";
import {Omissions} from "../../src/Omissions.sol";
import {JobActions} from "../actions/JobActions.sol";
import {StakeActions} from "../actions/StakeActions.sol";
import {Traces} from "./Traces.sol";
import {Tree} from "./Tree.sol";

/// @notice Network with real disputes and omissions: workers with keys, units with traces, windows, referees.
abstract contract DisputeNetwork is JobActions, StakeActions {
    using Traces for UnitCommitment;

    /// @param batchId Latest batch that pays the unit; 0 if none.
    /// @param index Index of the unit in that batch's bill.
    struct WorkUnit {
        UnitCommitment unit;
        bytes32 unitId;
        bytes32 windowRoot;
        bytes32[] windowProof;
        uint256 committedAt;
        uint256 batchId;
        uint256 index;
    }

    uint256 internal constant WORKERS = 3;
    uint256 internal constant REFEREES = 5;
    uint96 internal constant BOND = 100 ether;
    uint40 internal constant DISPUTE_PERIOD = 2 days;
    uint96 internal constant CLAIM_STAKE = 2 ether;
    uint96 internal constant COMPENSATION = 30 ether;
    uint40 internal constant CLAIM_PERIOD = 3 days;
    uint256 internal constant ACKNOWLEDGER_KEY = 0xACC;
    uint256 private constant FIRST_WORKER_KEY = 0xB0B0;
    uint256 private constant FIRST_REFEREE_KEY = 0x5EED;

    Disputes internal disputeContract;
    Omissions internal omissions;
    address[] internal workers;
    address[] internal referees;
    WorkUnit[] internal workUnits;
    mapping(bytes32 unitId => uint256) internal workIndex; // index plus one

    function setUp() public virtual override {
        super.setUp();
        IZenToken zen = IZenToken(address(token));
        disputeContract = new Disputes(
            zen,
            IDisputeStaking(address(staking)),
            windows,
            IDisputeEscrow(address(escrow)),
            IDisputes.Terms(BOND, 20 ether, 5 ether, DISPUTE_PERIOD, 2 hours, 6 hours, 2, 3, 2, 2)
        );
        omissions = new Omissions(
            zen,
            windows,
            IOmissions.Terms(CLAIM_STAKE, COMPENSATION, CLAIM_PERIOD, 1 days, 5 days),
            1 days,
            admin,
            operator,
            vm.addr(ACKNOWLEDGER_KEY)
        );
        bytes32 role = escrow.DISPUTES_ROLE();
        vm.prank(admin);
        escrow.grantRole(role, address(disputeContract));
        vm.prank(admin);
        staking.grantRole(role, address(disputeContract));
        for (uint256 i = 0; i < WORKERS; ++i) {
            workers.push(vm.addr(FIRST_WORKER_KEY + i));
        }
        for (uint256 i = 0; i < REFEREES; ++i) {
            referees.push(vm.addr(FIRST_REFEREE_KEY + i));
        }
    }

    function worker(uint256 pick) public view override returns (address) {
        return workers[pick % WORKERS];
    }

    function stakers() public pure override returns (uint256) {
        return WORKERS + REFEREES;
    }

    function staker(uint256 pick) public view override returns (address) {
        pick %= stakers();
        return pick < WORKERS ? workers[pick] : referees[pick - WORKERS];
    }

    function _order(uint32 units, uint96 budget) internal view override returns (JobOrder memory order) {
        order = super._order(units, budget);
        order.segments = Traces.SEGMENTS;
    }

    function _committedUnit(bytes32 jobId, uint32 round, uint32 slot, address account)
        internal
        pure
        override
        returns (UnitCommitment memory)
    {
        return _unit(jobId, round, slot, account).withTraceRoot();
    }

    /// @dev Units without a window are committed together with their batch.
    function _record(Bill memory bill) internal override {
        super._record(bill);
        _commit(bill.units);
        for (uint256 i = 0; i < bill.units.length; ++i) {
            WorkUnit storage work = workUnits[workIndex[_idOf(bill.units[i])] - 1];
            (work.batchId, work.index) = (bill.batchId, i);
        }
    }

    /// @dev Commits one window over the units that are in none.
    function _commit(UnitCommitment[] memory units) internal {
        bytes32[] memory leaves = new bytes32[](units.length);
        uint256 first = workUnits.length;
        uint256 count;
        for (uint256 i = 0; i < units.length; ++i) {
            bytes32 unitId = _idOf(units[i]);
            if (workIndex[unitId] > 0) continue;
            leaves[count++] = unitId;
            workUnits.push();
            WorkUnit storage work = workUnits[workUnits.length - 1];
            (work.unit, work.unitId, work.committedAt) = (units[i], unitId, block.timestamp);
            workIndex[unitId] = workUnits.length;
        }
        if (count == 0) return;
        assembly ("memory-safe") {
            mstore(leaves, count)
        }
        bytes32 root = Tree.root(leaves);
        vm.prank(operator);
        windows.commitWindow(root, uint32(count));
        for (uint256 i = 0; i < count; ++i) {
            workUnits[first + i].windowRoot = root;
            workUnits[first + i].windowProof = Tree.proof(leaves, i);
        }
    }

    function _idOf(UnitCommitment memory unit) internal pure returns (bytes32) {
        return keccak256(bytes.concat(keccak256(abi.encode(unit))));
    }

    function _commitmentSignature(UnitCommitment memory unit) internal view returns (bytes memory) {
        uint256 key = FIRST_WORKER_KEY;
        while (vm.addr(key) != unit.provider) ++key;
        return _signature(key, escrow.commitmentDigest(unit));
    }

    /// @dev Signatures of the first `count` members of a committee; empty for the others.
    function _verdicts(bytes32 id, bool providerCorrect, address[] memory committee, uint256 count)
        internal
        view
        returns (bytes[] memory signatures)
    {
        bytes32 digest = disputeContract.verdictDigest(id, disputeContract.disputes(id).draw, providerCorrect);
        signatures = new bytes[](committee.length);
        for (uint256 i = 0; i < count; ++i) {
            uint256 key = FIRST_REFEREE_KEY;
            while (vm.addr(key) != committee[i]) ++key;
            signatures[i] = _signature(key, digest);
        }
    }
}
