// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IOmissions} from "../../src/interfaces/IOmissions.sol";
import {UnitCommitment} from "../../src/Messages.sol";
import {DisputeNetwork} from "../base/DisputeNetwork.sol";

/// @notice Random calls around acknowledged units inside and outside windows. None may revert.
abstract contract OmissionActions is DisputeNetwork {
    UnitCommitment[] private claimedUnits;
    mapping(address account => uint256) public compensated; // including returned stakes

    function moveBond(uint256 kind, uint96 amount) external {
        amount = uint96(_bound(amount, 1, 100 ether));
        if (kind % 3 == 0) _announce(amount);
        else if (kind % 3 == 1) _deposit(amount);
        else _withdrawBond();
    }

    /// @dev Claims a unit in a window, or a unit that the operator omitted.
    function claimOmission(uint256 pick, bool lost, uint256 age) external {
        UnitCommitment memory unit = _committedUnit(0, uint32(claimedUnits.length), 0, worker(pick));
        if (!lost && workUnits.length > 0) unit = workUnits[pick % workUnits.length].unit;
        if (omissions.claims(_idOf(unit)).state != IOmissions.State.None) return;
        uint40 includeBy = uint40(block.timestamp - _bound(age, 1, CLAIM_PERIOD));
        bytes memory acknowledgement =
            _signature(ACKNOWLEDGER_KEY, omissions.acknowledgementDigest(_idOf(unit), includeBy));
        token.transfer(unit.provider, CLAIM_STAKE);
        vm.prank(unit.provider);
        token.approve(address(omissions), CLAIM_STAKE);
        vm.prank(unit.provider);
        omissions.claim(unit, includeBy, acknowledgement);
        claimedUnits.push(unit);
    }

    function endClaim(uint256 pick) external {
        if (claimedUnits.length > 0) _endClaim(claimedUnits[pick % claimedUnits.length]);
    }

    function bondOwner() external view returns (address) {
        return operator;
    }

    function _endOmissions() internal {
        for (uint256 i = 0; i < claimedUnits.length; ++i) {
            _endClaim(claimedUnits[i]);
        }
        if (omissions.bond() == 0) return;
        _announce(omissions.bond());
        vm.warp(omissions.withdrawal().releaseAt);
        _withdrawBond();
    }

    /// @dev Answers the claim if possible; otherwise resolves it after its deadline.
    function _endClaim(UnitCommitment memory unit) private {
        bytes32 unitId = _idOf(unit);
        IOmissions.Claim memory claimed = omissions.claims(unitId);
        if (claimed.state != IOmissions.State.Open) return;
        if (block.timestamp > claimed.deadline) {
            uint256 before = token.balanceOf(unit.provider);
            omissions.resolve(unitId);
            compensated[unit.provider] += token.balanceOf(unit.provider) - before;
        } else if (workIndex[unitId] > 0) {
            WorkUnit memory work = workUnits[workIndex[unitId] - 1];
            if (work.committedAt <= claimed.includeBy) omissions.respond(unit, work.windowRoot, work.windowProof);
        }
    }

    function _announce(uint256 amount) private {
        vm.prank(operator);
        omissions.requestWithdrawal(uint96(amount));
    }

    function _deposit(uint96 amount) private {
        token.approve(address(omissions), amount);
        omissions.deposit(amount);
    }

    function _withdrawBond() private {
        IOmissions.Withdrawal memory announced = omissions.withdrawal();
        bool open = announced.amount > 0 && block.timestamp >= announced.releaseAt;
        if (!open || omissions.bond() <= omissions.openClaims() * COMPENSATION) return;
        vm.prank(operator);
        omissions.withdraw();
    }
}
