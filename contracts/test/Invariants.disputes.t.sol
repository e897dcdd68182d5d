// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Disputes} from "../src/Disputes.sol";
import {IDisputes} from "../src/interfaces/IDisputes.sol";
import {IJobEscrow} from "../src/interfaces/IJobEscrow.sol";
import {JobEscrow} from "../src/JobEscrow.sol";
import {Omissions} from "../src/Omissions.sol";
import {ProviderStaking} from "../src/ProviderStaking.sol";
import {Treasury} from "../src/Treasury.sol";
import {ZenToken} from "../src/ZenToken.sol";
import {CourtActions} from "./base/CourtActions.sol";
import {CourtBooks} from "./base/CourtBooks.sol";
import {Settlements} from "./base/Settlements.sol";
import {Vm} from "./base/Vm.sol";

/// @notice What holds after any sequence of moves on a network with its real disputes and omissions.
contract InvariantsDisputesTest {
    Vm private constant vm = Vm(address(uint160(uint256(keccak256("hevm cheat code")))));
    uint256 private constant BOND = 100 ether;
    uint256 private constant CLAIM_STAKE = 2 ether;
    uint256 private constant SUPPLY = 100_000_000 ether;

    CourtActions private actions;
    ZenToken private token;
    Treasury private treasury;
    ProviderStaking private staking;
    JobEscrow private escrow;
    Disputes private court;
    Omissions private omissions;
    address private payer;

    struct Selectors {
        address target;
        bytes4[] selectors;
    }

    function setUp() public {
        actions = new CourtActions();
        actions.setUp();
        (token, treasury, staking, escrow, court, omissions, payer) = actions.network();
    }

    /// @dev forge asks for these by name.
    function targetContracts() external view returns (address[] memory targets) {
        targets = new address[](1);
        targets[0] = address(actions);
    }

    /// @dev More often what a dispute needs to come to its end.
    function targetSelectors() external view returns (Selectors[] memory targets) {
        targets = new Selectors[](1);
        targets[0].target = address(actions);
        bytes4[18] memory all = [
            actions.openJob.selector,
            actions.settle.selector,
            actions.finish.selector,
            actions.challenge.selector,
            actions.play.selector,
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
            actions.betray.selector
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

    /// @dev Exits fail at no time and leave not a wei behind: no bond, no pay, no stake.
    function afterInvariant() external {
        actions.everybodyLeaves();
        vm.assertEq(token.balanceOf(address(court)), 0);
        vm.assertEq(token.balanceOf(address(escrow)), 0);
        vm.assertEq(token.balanceOf(address(omissions)), 0);
        vm.assertEq(token.balanceOf(address(staking)), 0);
    }

    function invariant_everyWeiIsInExactlyOnePlace() public view {
        _checkEscrowStakesAndOmissions();
        _checkCourt();
        _checkSupply();
    }

    function invariant_aUnitsPayIsInOnePlaceAndSlashesStayWithinTheStake() public view {
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

    /// @dev A bond is in the court exactly while its dispute is open; what came of the others is credited or gone.
    function _checkCourt() private view {
        uint256 owed;
        uint256 drawing;
        uint256 count = actions.disputeCount();
        for (uint256 i = 0; i < count; ++i) {
            IDisputes.Dispute memory dispute = actions.disputeOf(i);
            if (!_isOpen(dispute)) continue;
            owed += BOND;
            if (dispute.status == IDisputes.Status.Drawing) ++drawing;
            vm.assertEq(court.units(dispute.unitId).open, _openOver(dispute.unitId));
        }
        for (uint256 i = 0; i < actions.parties(); ++i) {
            owed += court.credits(actions.party(i));
        }
        vm.assertEq(token.balanceOf(address(court)), owed);
        vm.assertEq(court.pendingDraws(), drawing);
    }

    /// @dev Claimed, or claimable, or withheld, or struck: the pay of every batch, and of every worker.
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

    /// @dev All slashes of an account together never pass what it staked, and strand nothing of the rest.
    function _checkSlashes() private view {
        for (uint256 i = 0; i < actions.stakers(); ++i) {
            address account = actions.staker(i);
            uint256 slashed = actions.slashedBy(account) + actions.slashedByCourt(account);
            vm.assertEq(actions.stakedBy(account), staking.atRisk(account) + actions.withdrawnBy(account) + slashed);
        }
    }

    /// @dev Every wei is in a contract's books or with somebody, and only penalties and lost bonds are destroyed.
    function _checkSupply() private view {
        uint256 burned = actions.burned();
        uint256 total = token.balanceOf(payer) + token.balanceOf(address(treasury)) + token.balanceOf(address(actions))
            + token.balanceOf(address(escrow)) + token.balanceOf(address(staking)) + token.balanceOf(address(court))
            + token.balanceOf(address(omissions)) + token.balanceOf(actions.bondTaker());
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
            (, CourtBooks.Pay memory pay, bool standing) = actions.withheldAt(i);
            if (pay.held && standing) owed += pay.net + pay.fee;
        }
    }

    function _withheldFrom(uint256 batchId, address provider) private view returns (uint256 sum) {
        uint256 count = actions.withheldCount();
        for (uint256 i = 0; i < count; ++i) {
            (, CourtBooks.Pay memory pay,) = actions.withheldAt(i);
            bool away = pay.held || pay.struck;
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
