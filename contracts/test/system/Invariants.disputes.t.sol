// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Disputes} from "../../src/Disputes.sol";
import {IDisputes} from "../../src/interfaces/IDisputes.sol";
import {IJobEscrow} from "../../src/interfaces/IJobEscrow.sol";
import {JobEscrow} from "../../src/JobEscrow.sol";
import {Omissions} from "../../src/Omissions.sol";
import {ProviderStaking} from "../../src/ProviderStaking.sol";
import {Treasury} from "../../src/Treasury.sol";
import {ZenToken} from "../../src/ZenToken.sol";
import {DisputeActions} from "../actions/DisputeActions.sol";
import {DisputeRecords} from "../actions/DisputeRecords.sol";
import {Settlements} from "../base/Settlements.sol";
import {Vm} from "../base/Vm.sol";

/// @notice Invariants after any call sequence on a network with real disputes and omissions.
contract InvariantsDisputesTest {
    Vm private constant vm = Vm(address(uint160(uint256(keccak256("hevm cheat code")))));
    uint256 private constant BOND = 100 ether;
    uint256 private constant CLAIM_STAKE = 2 ether;
    uint256 private constant SUPPLY = 100_000_000 ether;

    DisputeActions private actions;
    ZenToken private token;
    Treasury private treasury;
    ProviderStaking private staking;
    JobEscrow private escrow;
    Disputes private disputeContract;
    Omissions private omissions;
    address private payer;

    struct Selectors {
        address target;
        bytes4[] selectors;
    }

    function setUp() public {
        actions = new DisputeActions();
        actions.setUp();
        (token, treasury, staking, escrow, disputeContract, omissions, payer) = actions.network();
    }

    /// @dev forge requires these function names.
    function targetContracts() external view returns (address[] memory targets) {
        targets = new address[](1);
        targets[0] = address(actions);
    }

    /// @dev Weights the calls that a dispute needs to end.
    function targetSelectors() external view returns (Selectors[] memory targets) {
        targets = new Selectors[](1);
        targets[0].target = address(actions);
        bytes4[18] memory all = [
            actions.openJob.selector,
            actions.settle.selector,
            actions.commitUnit.selector,
            actions.challenge.selector,
            actions.actInDispute.selector,
            actions.withholdUnit.selector,
            actions.settleUnits.selector,
            actions.withdrawCredits.selector,
            actions.changeReferees.selector,
            actions.tick.selector,
            actions.wait.selector,
            actions.claim.selector,
            actions.veto.selector,
            actions.other.selector,
            actions.claimOmission.selector,
            actions.endClaim.selector,
            actions.moveBond.selector,
            actions.proveMisconduct.selector
        ];
        uint8[18] memory times = [uint8(1), 3, 1, 4, 6, 1, 2, 1, 1, 1, 1, 2, 1, 4, 1, 1, 1, 1];
        targets[0].selectors = new bytes4[](33);
        uint256 next;
        for (uint256 i = 0; i < all.length; ++i) {
            for (uint256 j = 0; j < times[i]; ++j) {
                targets[0].selectors[next++] = all[i];
            }
        }
    }

    /// @dev Exits never fail and leave no wei behind: no bond, no pay, no stake.
    function afterInvariant() external {
        actions.exitAll();
        vm.assertEq(token.balanceOf(address(disputeContract)), 0);
        vm.assertEq(token.balanceOf(address(escrow)), 0);
        vm.assertEq(token.balanceOf(address(omissions)), 0);
        vm.assertEq(token.balanceOf(address(staking)), 0);
    }

    function invariant_everyWei_isInExactlyOnePlace() public view {
        _checkEscrowStakesAndOmissions();
        _checkCourt();
        _checkSupply();
    }

    function invariant_payoutsAreInOnePlaceAndSlashesBounded() public view {
        _checkPay();
        _checkSlashes();
    }

    function _checkEscrowStakesAndOmissions() private view {
        vm.assertEq(token.balanceOf(address(escrow)), _owedByTheEscrow());
        vm.assertEq(token.balanceOf(address(omissions)), omissions.bond() + omissions.openClaims() * CLAIM_STAKE);
        uint256 atRisk;
        for (uint256 i = 0; i < actions.stakers(); ++i) {
            atRisk += staking.atRisk(actions.staker(i));
        }
        vm.assertEq(token.balanceOf(address(staking)), atRisk);
    }

    /// @dev The disputes contract holds a bond exactly while its dispute is open. Later it is credited, paid or burned.
    function _checkCourt() private view {
        uint256 owed;
        uint256 drawing;
        uint256 count = actions.disputeCount();
        for (uint256 i = 0; i < count; ++i) {
            IDisputes.Dispute memory dispute = actions.disputeOf(i);
            if (!_isOpen(dispute)) continue;
            owed += BOND;
            if (dispute.status == IDisputes.Status.Drawing) ++drawing;
            vm.assertEq(disputeContract.units(dispute.unitId).open, _openOver(dispute.unitId));
        }
        for (uint256 i = 0; i < actions.parties(); ++i) {
            owed += disputeContract.credits(actions.party(i));
        }
        vm.assertEq(token.balanceOf(address(disputeContract)), owed);
        vm.assertEq(disputeContract.pendingDraws(), drawing);
    }

    /// @dev The pay of every batch and every worker is claimed, claimable, held or forfeited.
    function _checkPay() private view {
        uint256[3] memory paid;
        uint256 count = actions.batchCount();
        for (uint256 i = 1; i <= count; ++i) {
            if (actions.vetoed(i)) continue;
            (Settlements.Bill memory bill, IJobEscrow.Batch memory batch) = actions.billOf(i);
            uint256 claimable;
            for (uint256 j = 0; j < bill.providers.length; ++j) {
                uint256 withheld = escrow.withheldOf(i, bill.providers[j]);
                vm.assertEq(withheld, _withheldFrom(i, bill.providers[j]));
                if (!escrow.isClaimed(i, bill.providers[j])) claimable += bill.amounts[j] - withheld;
                else paid[_number(bill.providers[j])] += bill.amounts[j] - withheld;
            }
            vm.assertEq(batch.net, claimable);
        }
        for (uint256 i = 0; i < 3; ++i) {
            address worker = actions.worker(i);
            uint256 other = actions.withdrawnBy(worker) + actions.creditsTaken(worker) + actions.compensated(worker);
            uint256 held = token.balanceOf(worker) + token.balanceOf(actions.payoutOf(worker));
            vm.assertEq(held, paid[i] + other);
        }
    }

    /// @dev All slashes of an account together never exceed its stakes, and the rest stays withdrawable.
    function _checkSlashes() private view {
        for (uint256 i = 0; i < actions.stakers(); ++i) {
            address account = actions.staker(i);
            uint256 slashed = actions.slashedBy(account) + actions.slashedByDisputes(account);
            vm.assertEq(actions.stakedBy(account), staking.atRisk(account) + actions.withdrawnBy(account) + slashed);
        }
    }

    /// @dev Every wei is in a contract's records or with an account. Only penalties and lost bonds are burned.
    function _checkSupply() private view {
        uint256 burned = actions.burned();
        uint256 total = token.balanceOf(payer) + token.balanceOf(address(treasury)) + token.balanceOf(address(actions))
            + token.balanceOf(address(escrow)) + token.balanceOf(address(staking))
            + token.balanceOf(address(disputeContract)) + token.balanceOf(address(omissions))
            + token.balanceOf(actions.bondOwner());
        for (uint256 i = 0; i < actions.stakers(); ++i) {
            burned += actions.slashedBy(actions.staker(i));
        }
        for (uint256 i = 0; i < actions.parties(); ++i) {
            total += token.balanceOf(actions.party(i)) + token.balanceOf(actions.payoutOf(actions.party(i)));
        }
        vm.assertEq(total, token.totalSupply());
        vm.assertEq(total + burned, SUPPLY);
    }

    function _owedByTheEscrow() private view returns (uint256 owed) {
        uint256 count = actions.jobCount();
        for (uint256 i = 0; i < count; ++i) {
            owed += escrow.jobs(actions.jobIds(i)).escrowed;
        }
        count = actions.batchCount();
        for (uint256 i = 1; i <= count; ++i) {
            (, IJobEscrow.Batch memory batch) = actions.billOf(i);
            if (!actions.vetoed(i)) owed += uint256(batch.net) + batch.fee;
        }
        count = actions.withheldCount();
        for (uint256 i = 0; i < count; ++i) {
            (, DisputeRecords.Pay memory pay, bool inForce) = actions.withheldAt(i);
            if (pay.held && inForce) owed += pay.net + pay.fee;
        }
    }

    function _withheldFrom(uint256 batchId, address provider) private view returns (uint256 sum) {
        uint256 count = actions.withheldCount();
        for (uint256 i = 0; i < count; ++i) {
            (, DisputeRecords.Pay memory pay,) = actions.withheldAt(i);
            bool away = pay.held || pay.forfeited;
            if (away && pay.batchId == batchId && pay.provider == provider) sum += pay.net;
        }
    }

    function _openOver(bytes32 unitId) private view returns (uint256 open) {
        uint256 count = actions.disputeCount();
        for (uint256 i = 0; i < count; ++i) {
            IDisputes.Dispute memory dispute = actions.disputeOf(i);
            if (dispute.unitId == unitId && _isOpen(dispute)) ++open;
        }
    }

    function _isOpen(IDisputes.Dispute memory dispute) private pure returns (bool) {
        return dispute.status >= IDisputes.Status.Trace && dispute.status <= IDisputes.Status.Judging;
    }

    function _number(address worker) private view returns (uint256 number) {
        while (actions.worker(number) != worker) ++number;
    }
}
