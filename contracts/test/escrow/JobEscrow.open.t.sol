// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IERC1271} from "@openzeppelin/contracts/interfaces/IERC1271.sol";
import {Pausable} from "@openzeppelin/contracts/utils/Pausable.sol";
import {ZenIntake} from "../../src/base/ZenIntake.sol";
import {IJobEscrow} from "../../src/interfaces/IJobEscrow.sol";
import {IProviderStaking} from "../../src/interfaces/IProviderStaking.sol";
import {IZenToken} from "../../src/interfaces/IZenToken.sol";
import {JobEscrow} from "../../src/JobEscrow.sol";
import {JobOrder} from "../../src/Messages.sol";
import {Settlements} from "../base/Settlements.sol";

/// @dev A contract payer that accepts the signatures of one key.
contract ContractPayer is IERC1271 {
    bytes32 private immutable accepted;

    constructor(bytes memory signature) {
        accepted = keccak256(signature);
    }

    function approve(IZenToken token, address spender, uint256 amount) external {
        token.approve(spender, amount);
    }

    function isValidSignature(bytes32, bytes memory signature) external view returns (bytes4) {
        return keccak256(signature) == accepted ? IERC1271.isValidSignature.selector : bytes4(0);
    }
}

contract JobEscrowOpenTest is Settlements {
    function test_openJob_escrowsBudgetAndRecordsOrder() public {
        JobOrder memory order = _order(12, 1 ether);
        uint256 before = token.balanceOf(payer);
        bytes32 expected = escrow.jobIdOf(order);

        bytes memory signature = _signature(PAYER_KEY, escrow.orderDigest(order));
        _prepay(1.5 ether);
        _expectOpened(expected, order);
        bytes32 jobId = escrow.openJob(order, signature);

        vm.assertEq(jobId, expected);
        vm.assertEq(before - token.balanceOf(payer), 1.5 ether);
        vm.assertEq(escrow.balances(payer).free, 0.5 ether);
        vm.assertEq(escrow.balances(payer).drawn, 1 ether);
        _assertRecorded(escrow.jobs(jobId), order);
    }

    function test_openJob_revertsForUsedOrder() public {
        JobOrder memory order = _order(1, 1 ether);
        bytes32 jobId = _open(order);
        bytes memory signature = _signature(PAYER_KEY, escrow.orderDigest(order));
        vm.expectRevert(abi.encodeWithSelector(IJobEscrow.JobExists.selector, jobId));
        escrow.openJob(order, signature);

        _post(_billFor(_line(jobId, 0, 0, true), 0, 0)); // also not after it ended
        vm.expectRevert(abi.encodeWithSelector(IJobEscrow.JobExists.selector, jobId));
        escrow.openJob(order, signature);
    }

    function test_openJob_revertsForOtherSigner() public {
        JobOrder memory order = _order(1, 1 ether);
        bytes memory signature = _signature(0xBAD, escrow.orderDigest(order));
        _prepay(1 ether);
        vm.expectRevert(IJobEscrow.InvalidOrderSignature.selector);
        escrow.openJob(order, signature);
    }

    function test_openJob_revertsForChangedOrder() public {
        bytes memory signature = _signature(PAYER_KEY, escrow.orderDigest(_order(2, 1 ether)));
        _prepay(100 ether);
        for (uint256 field = 0; field < 10; ++field) {
            JobOrder memory order = _order(2, 1 ether);
            if (field == 0) order.specHash = keccak256("other");
            if (field == 1) order.tier = 2;
            if (field == 2) order.units += 1;
            if (field == 3) order.unitWeight += 1;
            if (field == 4) order.budget += 1;
            if (field == 5) order.maxPrice += 1;
            if (field == 6) order.waitUntil += 1;
            if (field == 7) order.nonce += 1;
            if (field == 8) order.segments += 1;
            if (field == 9) order.samplingBps += 1;
            vm.expectRevert(IJobEscrow.InvalidOrderSignature.selector);
            escrow.openJob(order, signature);
        }
    }

    function test_openJob_revertsForOtherDeploymentOrChain() public {
        JobOrder memory order = _order(1, 1 ether);
        JobEscrow other = _deployEscrow(IZenToken(address(token)), address(treasury), operator, disputes);
        bytes memory signature = _signature(PAYER_KEY, other.orderDigest(order));
        _prepay(1 ether);
        vm.expectRevert(IJobEscrow.InvalidOrderSignature.selector);
        escrow.openJob(order, signature);

        signature = _signature(PAYER_KEY, escrow.orderDigest(order));
        vm.chainId(4242);
        vm.expectRevert(IJobEscrow.InvalidOrderSignature.selector);
        escrow.openJob(order, signature);
    }

    function test_openJob_acceptsContractPayer() public {
        bytes memory signature = "the owners agreed";
        ContractPayer wallet = new ContractPayer(signature);
        token.transfer(address(wallet), 1 ether);
        wallet.approve(IZenToken(address(token)), address(escrow), 1 ether);
        escrow.deposit(address(wallet), 1 ether, 0, 0, 0, 0);
        JobOrder memory order = _order(1, 1 ether);
        order.payer = address(wallet);

        vm.expectRevert(IJobEscrow.InvalidOrderSignature.selector);
        escrow.openJob(order, "they did not");
        bytes32 jobId = escrow.openJob(order, signature);
        _post(_billFor(_line(jobId, 0, 0, true), 0, 0));
        vm.assertEq(token.balanceOf(address(wallet)), 1 ether);
    }

    function test_openJob_revertsForLowBalance() public {
        JobOrder memory order = _order(1, 1 ether);
        bytes memory signature = _signature(PAYER_KEY, escrow.orderDigest(order));
        _prepay(1 ether - 1);
        vm.expectRevert(
            abi.encodeWithSelector(IJobEscrow.InsufficientBalance.selector, payer, 1 ether, 1 ether - 1)
        );
        escrow.openJob(order, signature);
        _prepay(1);
        escrow.openJob(order, signature);
    }

    /// @dev The payer signs all orders before one of them is opened.
    function test_openJob_drawsOneDepositForSeveralOrders() public {
        bytes[] memory signatures = new bytes[](3);
        JobOrder memory order = _order(1, 1 ether);
        for (uint256 i = 0; i < 3; ++i) {
            order.nonce = i;
            signatures[i] = _signature(PAYER_KEY, escrow.orderDigest(order));
        }
        _prepay(3 ether);
        for (uint256 i = 3; i > 0; --i) {
            order.nonce = i - 1;
            vm.prank(thirdParty);
            escrow.openJob(order, signatures[i - 1]);
        }
        vm.assertEq(escrow.balances(payer).free, 0);
        vm.assertEq(escrow.balances(payer).drawn, 3 ether);
    }

    function test_openJob_revertsForExpiredOrder() public {
        JobOrder memory order = _order(1, 1 ether);
        vm.warp(order.waitUntil + 1);
        _expectRefusal(order, abi.encodeWithSelector(IJobEscrow.OrderExpired.selector, order.waitUntil));
        vm.warp(order.waitUntil); // the last valid second
        _open(order);
    }

    function test_openJob_revertsForUnknownTier() public {
        JobOrder memory order = _order(1, 1 ether);
        order.tier = 0;
        _expectRefusal(order, abi.encodeWithSelector(IJobEscrow.UnknownTier.selector, 0));
        order.tier = 5;
        _expectRefusal(order, abi.encodeWithSelector(IJobEscrow.UnknownTier.selector, 5));
        order.tier = 4;
        _open(order);
    }

    function test_openJob_revertsForZeroUnits() public {
        _expectRefusal(_order(0, 1 ether), abi.encodeWithSelector(IJobEscrow.NoUnits.selector));
    }

    function test_openJob_revertsForBudgetBelowOneUnit() public {
        _expectRefusal(
            _order(1, uint96(UNIT - 1)), abi.encodeWithSelector(IJobEscrow.BudgetBelowOneUnit.selector, UNIT - 1, UNIT)
        );
        _open(_order(1, uint96(UNIT)));
    }

    function test_openJob_revertsForZeroUnitPrice() public {
        JobOrder memory order = _order(1, 1 ether);
        order.maxPrice = 399_999; // 90 s at this price: 9,999 wei
        _expectRefusal(order, abi.encodeWithSelector(IJobEscrow.UnitPriceZero.selector, 399_999, WEIGHT));
        order.maxPrice = 400_000;
        _open(order);
    }

    function test_pause_stopsIntakeAndEndsByItself() public {
        JobOrder memory order = _order(1, 1 ether);
        order.waitUntil += 30 days;
        vm.prank(guardian);
        escrow.pause();
        vm.assertEq(escrow.pausedUntil(), block.timestamp + 72 hours);
        _expectRefusal(order, abi.encodeWithSelector(Pausable.EnforcedPause.selector));

        vm.warp(block.timestamp + 1 hours);
        vm.prank(guardian); // a running pause cannot be extended
        vm.expectRevert(Pausable.EnforcedPause.selector);
        escrow.pause();

        vm.warp(escrow.pausedUntil() - 1);
        vm.assertTrue(escrow.paused());
        vm.warp(escrow.pausedUntil());
        vm.assertFalse(escrow.paused());
        _open(order);
    }

    function test_pause_canBeEndedEarly() public {
        vm.prank(guardian);
        escrow.pause();
        vm.prank(guardian);
        escrow.unpause();
        _open(_order(1, 1 ether));
        vm.prank(guardian);
        vm.expectRevert(Pausable.ExpectedPause.selector);
        escrow.unpause();
    }

    function test_pause_revertsForNonPauser() public {
        bytes32 role = escrow.PAUSER_ROLE();
        vm.prank(operator);
        _expectMissingRole(operator, role);
        escrow.pause();
        vm.prank(guardian);
        escrow.pause();
        vm.prank(operator);
        _expectMissingRole(operator, role);
        escrow.unpause();
    }

    function test_constructor_revertsOnInvalidParameters() public {
        IZenToken zen = IZenToken(address(token));
        _expectInvalid("token");
        _deployEscrow(IZenToken(address(0)), address(treasury), operator, disputes);
        _expectInvalid("treasury");
        _deployEscrow(zen, address(0), operator, disputes);
        JobEscrow.Parties memory parties = JobEscrow.Parties(address(treasury), operator, guardian, disputes);
        _expectInvalid("staking");
        new JobEscrow(zen, IProviderStaking(address(0)), parties, 500, 1, 1, 1, 1, admin);
        vm.expectRevert(abi.encodeWithSelector(IJobEscrow.FeeTooHigh.selector, 1_001));
        new JobEscrow(zen, staking, parties, 1_001, 1, 1, 1, 1, admin);
        new JobEscrow(zen, staking, parties, 1_000, 1, 1, 1, 1, admin);
    }

    function test_constructor_storesParameters() public view {
        vm.assertEq(address(escrow.token()), address(token));
        vm.assertEq(address(escrow.staking()), address(staking));
        vm.assertEq(escrow.treasury(), address(treasury));
        vm.assertEq(escrow.refundDelay(), REFUND_DELAY);
        vm.assertEq(escrow.cancelDelay(), CANCEL_DELAY);
        vm.assertEq(escrow.challengePeriod(), CHALLENGE_PERIOD);
        vm.assertEq(escrow.feeBps(), 500);
        vm.assertEq(escrow.defaultAdmin(), admin);
        vm.assertEq(escrow.defaultAdminDelay(), 1 days);
    }

    function test_openJob_revertsOnTimeOverflow() public {
        JobOrder memory order = _order(1, 1 ether);
        order.waitUntil = type(uint40).max - REFUND_DELAY + 1;
        _expectRefusal(order, abi.encodeWithSelector(bytes4(keccak256("Panic(uint256)")), 0x11));
        order.waitUntil -= 1;
        _open(order);
    }

    function test_openJob_revertsForImpossibleSampling() public {
        JobOrder memory order = _order(1, 1 ether);
        order.segments = 0;
        order.samplingBps = 10_000;
        _expectRefusal(order, abi.encodeWithSelector(IJobEscrow.SamplingImpossible.selector, 0, 10_000));
        (order.segments, order.samplingBps) = (1, 10_001);
        _expectRefusal(order, abi.encodeWithSelector(IJobEscrow.SamplingImpossible.selector, 1, 10_001));
        order.samplingBps = 10_000; // all segments are replayed: no gain at any price
        (order.maxPrice, order.unitWeight) = (100_000 ether, 3_600_000_000);
        order.budget = 100_000 ether;
        _open(order);
    }

    /// @dev A dishonest provider of tier 1 loses 5,000 ZEN, of which 66 % count. With 64 segments and 2 % sampling,
    /// a unit can cost at most 3,300 * 64 / 49.
    function test_openJob_revertsForGainAboveStake() public {
        JobOrder memory order = _order(1, 20_000 ether);
        order.unitWeight = 3_600_000_000; // the price of a unit equals the price
        uint80 most = uint80(uint256(3_300 ether) * 64 * 200 / 9_800 / 10_000 * 10_000);
        order.maxPrice = most + 10_000;
        _expectRefusal(order, _stakeBelowGain(5_000 ether, most + 10_000, 64, 200));
        order.tier = 2; // twice the stake
        _open(order);
        order.tier = 1;
        order.maxPrice = most;
        _open(order);
        order.samplingBps = 199;
        _expectRefusal(order, _stakeBelowGain(5_000 ether, most, 64, 199));
        (order.samplingBps, order.segments) = (200, 63);
        _expectRefusal(order, _stakeBelowGain(5_000 ether, most, 63, 200));
        (order.samplingBps, order.segments) = (0, 64);
        _expectRefusal(order, _stakeBelowGain(5_000 ether, most, 64, 0));
    }

    /// @dev P * d >= (R / N) * (1 - s) / s, in rational numbers: P * d * N * s >= R * (1 - s).
    function testFuzz_openJob_works_whenStakeCoversGain(uint16 segments, uint16 samplingBps, uint80 price) public {
        JobOrder memory order = _order(1, type(uint96).max);
        order.unitWeight = 3_600_000_000;
        order.segments = uint16(_bound(segments, 1, type(uint16).max));
        order.samplingBps = uint16(_bound(samplingBps, 0, 200)); // above it every price is covered
        order.maxPrice = uint80(_bound(price, 10_000, 1_000_000 ether));
        order.budget = 1_000_000 ether;
        uint256 unit = uint256(order.maxPrice) / 10_000 * 10_000;
        bool covered = uint256(3_300 ether) * order.segments * order.samplingBps >= unit * (10_000 - order.samplingBps);
        if (covered) _open(order);
        else _expectRefusal(order, _stakeBelowGain(5_000 ether, unit, order.segments, order.samplingBps));
    }

    function _stakeBelowGain(uint256 penalty, uint256 unit, uint256 segments, uint256 sampling)
        private
        pure
        returns (bytes memory)
    {
        return abi.encodeWithSelector(IJobEscrow.StakeBelowGain.selector, penalty, unit, segments, sampling);
    }

    function _expectInvalid(string memory parameter) private {
        vm.expectRevert(abi.encodeWithSelector(ZenIntake.InvalidParameter.selector, parameter));
    }

    function _expectOpened(bytes32 jobId, JobOrder memory order) private {
        vm.expectEmit(address(escrow));
        emit IJobEscrow.JobOpened(jobId, payer, 1, 12, WEIGHT, 1 ether, PRICE, 500, order.specHash);
    }

    function _assertRecorded(IJobEscrow.Job memory job, JobOrder memory order) private view {
        vm.assertEq(job.payer, payer);
        vm.assertEq(job.escrowed, 1 ether);
        vm.assertEq(job.maxPrice, PRICE);
        vm.assertEq(job.unitWeight, WEIGHT);
        vm.assertEq(job.unitsLeft, 12);
        vm.assertEq(job.nextRound, 0);
        vm.assertEq(job.settleBy, order.waitUntil + REFUND_DELAY);
        vm.assertEq(job.feeBps, 500);
        vm.assertTrue(job.state == IJobEscrow.State.Open);
    }

    /// @dev Everything is valid except for `reason`.
    function _expectRefusal(JobOrder memory order, bytes memory reason) private {
        if (!escrow.paused()) _prepay(order.budget);
        bytes memory signature = _signature(PAYER_KEY, escrow.orderDigest(order));
        vm.expectRevert(reason);
        escrow.openJob(order, signature);
    }
}
