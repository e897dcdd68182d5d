// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IJobEscrow} from "../src/interfaces/IJobEscrow.sol";
import {JobEscrow} from "../src/JobEscrow.sol";
import {ProviderStaking} from "../src/ProviderStaking.sol";
import {ZenToken} from "../src/ZenToken.sol";
import {Actions} from "./base/Actions.sol";
import {Vm} from "./base/Vm.sol";

/// @notice What holds after any sequence of moves.
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

    /// @dev forge asks for these by name.
    function targetContracts() external view returns (address[] memory targets) {
        targets = new address[](1);
        targets[0] = address(actions);
    }

    function targetSelectors() external view returns (Selectors[] memory targets) {
        targets = new Selectors[](1);
        targets[0].target = address(actions);
        targets[0].selectors = new bytes4[](10);
        bytes4[10] memory all = [
            actions.openJob.selector,
            actions.settleJob.selector,
            actions.refundJob.selector,
            actions.stake.selector,
            actions.requestUnstake.selector,
            actions.withdraw.selector,
            actions.slash.selector,
            actions.release.selector,
            actions.pause.selector,
            actions.wait.selector
        ];
        for (uint256 i = 0; i < all.length; ++i) {
            targets[0].selectors[i] = all[i];
        }
    }

    function invariant_theEscrowHoldsExactlyTheOpenJobs() public view {
        uint256 open;
        uint256 count = actions.jobCount();
        for (uint256 i = 0; i < count; ++i) {
            IJobEscrow.Job memory job = escrow.jobs(actions.jobIds(i));
            if (job.state == IJobEscrow.State.Open) open += job.escrowed;
        }
        vm.assertEq(token.balanceOf(address(escrow)), open);
        vm.assertEq(open, actions.escrowed());
        vm.assertEq(actions.paidIn(), actions.paidOut() + open);
    }

    function invariant_theStakingHoldsExactlyWhatIsAtRisk() public view {
        uint256 atRisk;
        for (uint256 i = 0; i < 3; ++i) {
            atRisk += staking.atRisk(actions.provider(i));
        }
        vm.assertEq(token.balanceOf(address(staking)), atRisk);
        vm.assertEq(actions.staked(), atRisk + actions.withdrawn() + actions.burned());
    }

    function invariant_everyoneHasWhatTheyEarned() public view {
        uint256 toProviders;
        for (uint256 i = 0; i < 3; ++i) {
            uint256 balance = token.balanceOf(actions.provider(i));
            vm.assertEq(balance, actions.earned(actions.provider(i)));
            toProviders += balance;
        }
        uint256 workPay = toProviders - actions.withdrawn();
        uint256 fees = token.balanceOf(treasury);
        vm.assertEq(fees * 19, workPay); // 5 % of payments, exactly
        vm.assertEq(token.balanceOf(payer) + actions.escrowed() + workPay + fees, PAYER_START);
    }

    function invariant_onlySlashingDestroysZen() public view {
        vm.assertEq(token.totalSupply() + actions.burned(), 100_000_000 ether);
    }
}
