// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IJobEscrow} from "../../src/interfaces/IJobEscrow.sol";
import {JobEscrow} from "../../src/JobEscrow.sol";
import {ProviderStaking} from "../../src/ProviderStaking.sol";
import {ZenToken} from "../../src/ZenToken.sol";
import {Actions} from "../actions/Actions.sol";
import {Settlements} from "../base/Settlements.sol";
import {Vm} from "../base/Vm.sol";

/// @notice Invariants after any call sequence.
contract InvariantsTest {
    Vm private constant vm = Vm(address(uint160(uint256(keccak256("hevm cheat code")))));
    uint256 private constant PAYER_START = 1_000_000 ether;

    Actions private actions;
    ZenToken private token;
    ProviderStaking private staking;
    JobEscrow private escrow;
    address private treasury;
    address private payer;

    struct Selectors {
        address target;
        bytes4[] selectors;
    }

    function setUp() public {
        actions = new Actions();
        actions.setUp();
        address tokenAddress;
        address stakingAddress;
        address escrowAddress;
        (tokenAddress, treasury, stakingAddress, escrowAddress, payer) = actions.network();
        token = ZenToken(tokenAddress);
        staking = ProviderStaking(stakingAddress);
        escrow = JobEscrow(escrowAddress);
    }

    /// @dev forge requires these function names.
    function targetContracts() external view returns (address[] memory targets) {
        targets = new address[](1);
        targets[0] = address(actions);
    }

    function targetSelectors() external view returns (Selectors[] memory targets) {
        targets = new Selectors[](1);
        targets[0].target = address(actions);
        bytes4[20] memory all = [
            actions.openJob.selector,
            actions.deposit.selector,
            actions.withdrawBalance.selector,
            actions.settle.selector,
            actions.settle.selector, // weighted, since other calls depend on it
            actions.claim.selector,
            actions.collectFees.selector,
            actions.veto.selector,
            actions.withhold.selector,
            actions.decide.selector,
            actions.returnStruck.selector,
            actions.cancel.selector,
            actions.refund.selector,
            actions.stake.selector,
            actions.requestUnstake.selector,
            actions.withdraw.selector,
            actions.slash.selector,
            actions.release.selector,
            actions.pause.selector,
            actions.wait.selector
        ];
        targets[0].selectors = new bytes4[](all.length);
        for (uint256 i = 0; i < all.length; ++i) {
            targets[0].selectors[i] = all[i];
        }
    }

    /// @dev Exits never fail and leave no wei behind.
    function afterInvariant() external {
        actions.exitAll();
        vm.assertEq(token.balanceOf(address(escrow)), 0);
        vm.assertEq(token.balanceOf(address(staking)), 0);
    }

    function invariant_escrow_holdsExactlyItsObligations() public view {
        uint256 owed = escrow.balances(payer).free;
        vm.assertEq(owed, actions.freeBalance());
        uint256 count = actions.jobCount();
        for (uint256 i = 0; i < count; ++i) {
            owed += escrow.jobs(actions.jobIds(i)).escrowed;
        }
        count = actions.batchCount();
        for (uint256 i = 1; i <= count; ++i) {
            (, IJobEscrow.Batch memory batch) = actions.billOf(i);
            if (!actions.vetoed(i)) owed += uint256(batch.net) + batch.fee;
        }
        count = actions.caseCount();
        for (uint256 i = 0; i < count; ++i) {
            (,, uint256 net, uint256 fee, bool held,) = _case(i);
            if (held) owed += net + fee;
        }
        vm.assertEq(token.balanceOf(address(escrow)), owed);
    }

    function invariant_everyBudget_isEscrowedSettledOrReturned() public view {
        uint256 count = actions.jobCount();
        for (uint256 i = 0; i < count; ++i) {
            bytes32 jobId = actions.jobIds(i);
            IJobEscrow.Job memory job = escrow.jobs(jobId);
            vm.assertTrue(job.state == IJobEscrow.State.Open || job.escrowed == 0);
            vm.assertEq(job.escrowed + actions.settledOf(jobId) + actions.returnedOf(jobId), actions.budgetOf(jobId));
        }
    }

    /// @dev For every batch and provider, pay is claimed, claimable, held or forfeited.
    function invariant_providerPay_isInExactlyOnePlace() public view {
        uint256[3] memory claimed;
        uint256 count = actions.batchCount();
        for (uint256 i = 1; i <= count; ++i) {
            if (actions.vetoed(i)) continue;
            (Settlements.Bill memory bill, IJobEscrow.Batch memory batch) = actions.billOf(i);
            uint256 claimable;
            for (uint256 j = 0; j < bill.providers.length; ++j) {
                uint256 withheld = escrow.withheldOf(i, bill.providers[j]);
                vm.assertEq(withheld, _withheldFrom(i, bill.providers[j]));
                bool done = escrow.isClaimed(i, bill.providers[j]);
                if (done) claimed[uint160(bill.providers[j]) - 0x8000] += bill.amounts[j] - withheld;
                else claimable += bill.amounts[j] - withheld;
            }
            vm.assertEq(batch.net, claimable);
        }
        for (uint256 i = 0; i < 3; ++i) {
            address worker = actions.worker(i);
            vm.assertEq(token.balanceOf(worker) + token.balanceOf(actions.payoutOf(worker)), claimed[i]);
        }
    }

    /// @dev 5 % of every payment, exactly.
    function invariant_treasury_receivesExactFees() public view {
        uint256 fees = token.balanceOf(treasury);
        uint256 gross;
        uint256 count = actions.batchCount();
        for (uint256 i = 1; i <= count; ++i) {
            (, IJobEscrow.Batch memory batch) = actions.billOf(i);
            if (!actions.vetoed(i)) fees += batch.fee;
        }
        count = actions.caseCount();
        for (uint256 i = 0; i < count; ++i) {
            (,,, uint256 fee, bool held, bool forfeited) = _case(i);
            if (held || forfeited) fees += fee;
        }
        count = actions.jobCount();
        for (uint256 i = 0; i < count; ++i) {
            gross += actions.settledOf(actions.jobIds(i));
        }
        vm.assertEq(fees * 20, gross);
    }

    function invariant_payerMoney_isHeldByNoOtherAccount() public view {
        uint256 total = token.balanceOf(payer) + token.balanceOf(treasury) + token.balanceOf(address(escrow));
        for (uint256 i = 0; i < 3; ++i) {
            address worker = actions.worker(i);
            total += token.balanceOf(worker) + token.balanceOf(actions.payoutOf(worker));
        }
        vm.assertEq(total, PAYER_START);
    }

    function invariant_staking_holdsExactlySlashableBalances() public view {
        uint256 sum;
        for (uint256 i = 0; i < actions.stakers(); ++i) {
            address account = actions.staker(i);
            uint256 atRisk = staking.atRisk(account);
            vm.assertEq(token.balanceOf(account), actions.withdrawnBy(account));
            vm.assertEq(actions.stakedBy(account), atRisk + actions.withdrawnBy(account) + actions.slashedBy(account));
            sum += atRisk;
        }
        vm.assertEq(token.balanceOf(address(staking)), sum);
    }

    function invariant_supply_shrinksOnlyBySlashing() public view {
        uint256 burned;
        for (uint256 i = 0; i < actions.stakers(); ++i) {
            burned += actions.slashedBy(actions.staker(i));
        }
        vm.assertEq(token.totalSupply() + burned, 100_000_000 ether);
    }

    /// @dev `held`: in the escrow outside its batch. `forfeited`: refunded to the payer.
    function _case(uint256 index)
        private
        view
        returns (uint256 batchId, address provider, uint256 net, uint256 fee, bool held, bool forfeited)
    {
        bool decided;
        bool restored;
        (batchId,,, decided, restored, forfeited) = actions.cases(index);
        (provider, net, fee) = actions.payOf(index);
        held = !actions.vetoed(batchId) && !restored && !forfeited;
    }

    function _withheldFrom(uint256 batchId, address provider) private view returns (uint256 sum) {
        uint256 count = actions.caseCount();
        for (uint256 i = 0; i < count; ++i) {
            (uint256 batch, address account, uint256 net,, bool held, bool forfeited) = _case(i);
            if (batch == batchId && account == provider && (held || forfeited)) sum += net;
        }
    }
}
