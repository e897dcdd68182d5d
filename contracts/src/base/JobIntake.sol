// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {EIP712} from "@openzeppelin/contracts/utils/cryptography/EIP712.sol";
import {SignatureChecker} from "@openzeppelin/contracts/utils/cryptography/SignatureChecker.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";
import {IJobEscrow} from "../interfaces/IJobEscrow.sol";
import {IProviderStaking} from "../interfaces/IProviderStaking.sol";
import {IZenToken} from "../interfaces/IZenToken.sol";
import {JobOrder, Messages, UnitCommitment} from "../Messages.sol";
import {ExactTransfers} from "./ExactTransfers.sol";
import {ZenIntake} from "./ZenIntake.sol";

/// @title Payer functions of the escrow: deposit, withdraw, open, cancel, refund
/// @dev Two storage slots for each job.
abstract contract JobIntake is IJobEscrow, ZenIntake, EIP712 {
    using ExactTransfers for IZenToken;
    using SafeERC20 for IZenToken;
    using Messages for JobOrder;
    using Messages for UnitCommitment;

    /// @notice Highest fee that can be set, in basis points.
    uint16 public constant MAX_FEE_BPS = 1_000;
    uint256 internal constant BPS = 10_000;
    /// @dev Assumed share of wrong sampled segments that verification detects if a quarter of the verifiers' stake is
    /// dishonest.
    uint256 private constant DETECTED_BPS = 6_600;
    uint8 private constant MAX_TIER = 4;
    uint256 private constant MICROSECONDS_PER_HOUR = 3_600_000_000;

    /// @notice Staking contract. It gives the lowest fraud penalty of each tier.
    IProviderStaking public immutable staking;
    /// @notice Seconds after an order's `waitUntil` until which the job can be settled. After it the job can be
    /// refunded.
    uint40 public immutable refundDelay;
    /// @notice Seconds during which a cancelled job can still be settled.
    uint40 public immutable cancelDelay;
    /// @notice Fee of jobs opened from now on, in basis points of the payment.
    uint16 public feeBps;

    mapping(bytes32 jobId => Job) internal _jobs;
    mapping(address payer => Balance) private _balances;

    /// @param staking_ Staking contract. It gives the lowest fraud penalty of each tier.
    /// @param feeBps_ First fee in basis points, at most MAX_FEE_BPS.
    /// @param refundDelay_ Seconds after `waitUntil` that the operator has to settle; must exceed the longest job.
    /// @param cancelDelay_ Seconds after a cancellation that the operator has to settle.
    constructor(IProviderStaking staking_, uint16 feeBps_, uint40 refundDelay_, uint40 cancelDelay_)
        EIP712("ZooCompute", "1")
    {
        require(address(staking_) != address(0), InvalidParameter("staking"));
        staking = staking_;
        refundDelay = refundDelay_;
        cancelDelay = cancelDelay_;
        _setFee(feeBps_);
    }

    /// @inheritdoc IJobEscrow
    function deposit(address payer, uint96 amount, uint256 permitDeadline, uint8 v, bytes32 r, bytes32 s)
        external
        nonReentrant
        whenNotPaused
    {
        require(amount > 0, NoAmount());
        _balances[payer].free += amount;
        emit Deposited(payer, amount);
        _tryPermit(payer, amount, permitDeadline, v, r, s);
        token.receiveExact(payer, amount);
    }

    /// @inheritdoc IJobEscrow
    function withdraw(uint256 amount, address to) external nonReentrant {
        require(amount > 0, NoAmount());
        require(to != address(0) && to != address(this), InvalidRecipient(to));
        _take(msg.sender, amount);
        emit Withdrawn(msg.sender, to, amount);
        token.safeTransfer(to, amount);
    }

    /// @inheritdoc IJobEscrow
    function openJob(JobOrder calldata order, bytes calldata orderSignature)
        external
        nonReentrant
        whenNotPaused
        returns (bytes32 jobId)
    {
        jobId = order.hash();
        require(_jobs[jobId].state == State.None, JobExists(jobId));
        _validateOrder(order);
        require(
            SignatureChecker.isValidSignatureNowCalldata(order.payer, _hashTypedDataV4(jobId), orderSignature),
            InvalidOrderSignature()
        );
        _take(order.payer, order.budget).drawn += order.budget;
        _open(jobId, order);
    }

    /// @inheritdoc IJobEscrow
    function cancel(bytes32 jobId) external {
        Job storage job = _requireOpen(jobId);
        require(msg.sender == job.payer, NotPayer(msg.sender));
        uint40 settleBy = SafeCast.toUint40(block.timestamp + cancelDelay);
        require(settleBy < job.settleBy, AlreadyCancelled(job.settleBy));
        job.settleBy = settleBy;
        emit JobCancelled(jobId, settleBy);
    }

    /// @inheritdoc IJobEscrow
    function refund(bytes32 jobId) external nonReentrant {
        Job storage job = _requireOpen(jobId);
        require(block.timestamp > job.settleBy, RefundTooEarly(job.settleBy));
        uint256 amount = job.escrowed;
        job.state = State.Refunded;
        job.escrowed = 0;
        emit JobRefunded(jobId, job.payer, amount);
        token.safeTransfer(job.payer, amount);
    }

    /// @inheritdoc IJobEscrow
    function setFee(uint16 newFeeBps) external onlyRole(DEFAULT_ADMIN_ROLE) {
        _setFee(newFeeBps);
    }

    /// @inheritdoc IJobEscrow
    function jobs(bytes32 jobId) external view returns (Job memory) {
        return _jobs[jobId];
    }

    /// @inheritdoc IJobEscrow
    function balances(address payer) external view returns (Balance memory) {
        return _balances[payer];
    }

    /// @inheritdoc IJobEscrow
    function jobIdOf(JobOrder calldata order) external pure returns (bytes32) {
        return order.hash();
    }

    /// @inheritdoc IJobEscrow
    function orderDigest(JobOrder calldata order) external view returns (bytes32) {
        return _hashTypedDataV4(order.hash());
    }

    /// @inheritdoc IJobEscrow
    function commitmentDigest(UnitCommitment calldata unit) external view returns (bytes32) {
        return _hashTypedDataV4(unit.hash());
    }

    /// @inheritdoc IJobEscrow
    function unitPrice(uint80 price, uint48 weight) public pure returns (uint256) {
        uint256 exact = uint256(price) * weight / MICROSECONDS_PER_HOUR;
        return exact - exact % BPS;
    }

    function _requireOpen(bytes32 jobId) internal view returns (Job storage job) {
        job = _jobs[jobId];
        require(job.state == State.Open, JobNotOpen(jobId, job.state));
    }

    function _payableUnitPrice(uint80 price, uint48 weight) internal pure returns (uint256 unit) {
        unit = unitPrice(price, weight);
        require(unit > 0, UnitPriceZero(price, weight));
    }

    /// @dev Takes `amount` wei from the payer's balance.
    function _take(address payer, uint256 amount) private returns (Balance storage balance) {
        balance = _balances[payer];
        uint256 free = balance.free;
        require(amount <= free, InsufficientBalance(payer, amount, free));
        // forge-lint: disable-next-line(unsafe-typecast)
        balance.free = uint128(free - amount); // below the uint128 that was read
    }

    function _open(bytes32 jobId, JobOrder calldata order) private {
        uint16 fee = feeBps;
        _jobs[jobId] = Job({
            payer: order.payer,
            escrowed: order.budget,
            maxPrice: order.maxPrice,
            unitWeight: order.unitWeight,
            unitsLeft: order.units,
            nextRound: 0,
            settleBy: order.waitUntil + refundDelay,
            feeBps: fee,
            state: State.Open
        });
        emit JobOpened(
            jobId,
            order.payer,
            order.tier,
            order.units,
            order.unitWeight,
            order.budget,
            order.maxPrice,
            fee,
            order.specHash
        );
    }

    function _setFee(uint16 newFeeBps) private {
        require(newFeeBps <= MAX_FEE_BPS, FeeTooHigh(newFeeBps));
        feeBps = newFeeBps;
        emit FeeChanged(newFeeBps);
    }

    function _validateOrder(JobOrder calldata order) private view {
        require(block.timestamp <= order.waitUntil, OrderExpired(order.waitUntil));
        require(order.tier >= 1 && order.tier <= MAX_TIER, UnknownTier(order.tier));
        require(order.units > 0, NoUnits());
        uint256 unit = _payableUnitPrice(order.maxPrice, order.unitWeight);
        require(order.budget >= unit, BudgetBelowOneUnit(order.budget, unit));
        uint256 penalty = staking.leastCheatPenalty(order.tier);
        uint256 sampling = order.samplingBps;
        require(order.segments > 0 && sampling <= BPS, SamplingImpossible(order.segments, sampling));
        // P * d >= (R / N) * (1 - s) / s without division, see IJobEscrow.openJob
        require(
            penalty * DETECTED_BPS * order.segments * sampling >= unit * (BPS - sampling) * BPS,
            StakeBelowGain(penalty, unit, order.segments, sampling)
        );
    }
}
