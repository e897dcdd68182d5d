// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {EIP712} from "@openzeppelin/contracts/utils/cryptography/EIP712.sol";
import {SignatureChecker} from "@openzeppelin/contracts/utils/cryptography/SignatureChecker.sol";
import {ZenIntake} from "./base/ZenIntake.sol";
import {IJobEscrow} from "./interfaces/IJobEscrow.sol";
import {IZenToken} from "./interfaces/IZenToken.sol";
import {JobOrder, Messages, UnitCommitment} from "./Messages.sol";

/// @title Escrow and settlement of jobs
/// @dev Two storage slots per job. Payments are computed from the job's own numbers, never from the balance.
contract JobEscrow is IJobEscrow, ZenIntake, EIP712 {
    using SafeERC20 for IZenToken;
    using Messages for JobOrder;
    using Messages for UnitCommitment;

    bytes32 public constant OPERATOR_ROLE = keccak256("OPERATOR_ROLE");
    /// @notice Highest fee that can be set, in basis points.
    uint16 public constant MAX_FEE_BPS = 1_000;
    uint256 private constant BPS = 10_000;
    uint256 private constant MICROSECONDS_PER_HOUR = 3_600_000_000;

    /// @notice Where fees go.
    address public immutable treasury;
    /// @notice Seconds after an order's `waitUntil` until which it can be settled, and after which it can be refunded.
    uint256 public immutable refundDelay;
    /// @notice Fee of jobs opened from now on, in basis points of what is paid.
    uint16 public feeBps;

    mapping(bytes32 jobId => Job) private _jobs;

    /// @param zen The ZEN token.
    /// @param treasury_ Where fees go.
    /// @param feeBps_ First fee in basis points, at most MAX_FEE_BPS.
    /// @param refundDelay_ Seconds after `waitUntil` that the operator has to settle; must exceed the longest job.
    /// @param adminDelay Seconds between proposing and accepting a new admin.
    /// @param admin First holder of DEFAULT_ADMIN_ROLE and PAUSER_ROLE.
    /// @param operator First holder of OPERATOR_ROLE.
    constructor(
        IZenToken zen,
        address treasury_,
        uint16 feeBps_,
        uint40 refundDelay_,
        uint48 adminDelay,
        address admin,
        address operator
    ) ZenIntake(zen, adminDelay, admin) EIP712("ZooCompute", "1") {
        require(treasury_ != address(0), InvalidParameter("treasury"));
        treasury = treasury_;
        refundDelay = refundDelay_;
        _setFee(feeBps_);
        _grantRole(OPERATOR_ROLE, operator);
    }

    /// @inheritdoc IJobEscrow
    function openJob(
        JobOrder calldata order,
        bytes calldata orderSignature,
        uint256 permitDeadline,
        uint8 v,
        bytes32 r,
        bytes32 s
    ) external nonReentrant whenNotPaused returns (bytes32 jobId) {
        jobId = order.hash();
        require(_jobs[jobId].state == State.None, JobExists(jobId));
        _requireSound(order);
        require(
            SignatureChecker.isValidSignatureNowCalldata(order.payer, _hashTypedDataV4(jobId), orderSignature),
            InvalidOrderSignature()
        );
        _open(jobId, order);
        _tryPermit(order.payer, order.budget, permitDeadline, v, r, s);
        token.safeTransferFrom(order.payer, address(this), order.budget);
    }

    /// @inheritdoc IJobEscrow
    function settle(bytes32 jobId, uint96 price, ProviderUnits[] calldata payments, bytes32 unitsRoot, bytes32 record)
        external
        nonReentrant
        onlyRole(OPERATOR_ROLE)
    {
        Job memory job = _requireOpen(jobId);
        require(block.timestamp <= job.waitUntil + refundDelay, SettlementEnded(job.waitUntil + refundDelay));
        require(price <= job.maxPrice, PriceAboveMaximum(price, job.maxPrice));
        _jobs[jobId].state = State.Settled;

        uint256 unit = payments.length > 0 ? _payableUnitPrice(price, job.unitWeight) : 0;
        uint256 gross = unit * _countUnits(payments, job.units);
        require(gross <= job.escrowed, BudgetExceeded(gross, job.escrowed));
        uint256 fee = gross * job.feeBps / BPS; // exact, since a unit's price is a multiple of BPS
        uint256 rest = job.escrowed - gross;
        emit JobSettled(jobId, price, gross - fee, fee, rest, unitsRoot, record);

        _payProviders(jobId, payments, unit - unit * job.feeBps / BPS);
        if (fee > 0) token.safeTransfer(treasury, fee);
        if (rest > 0) token.safeTransfer(job.payer, rest);
    }

    /// @inheritdoc IJobEscrow
    function refund(bytes32 jobId) external nonReentrant {
        Job memory job = _requireOpen(jobId);
        uint256 end = job.waitUntil + refundDelay;
        require(block.timestamp > end, RefundTooEarly(end));
        _jobs[jobId].state = State.Refunded;
        emit JobRefunded(jobId, job.payer, job.escrowed);
        token.safeTransfer(job.payer, job.escrowed);
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
    function unitPrice(uint96 price, uint64 weight) public pure returns (uint256) {
        uint256 exact = uint256(price) * weight / MICROSECONDS_PER_HOUR;
        return exact - exact % BPS;
    }

    function _open(bytes32 jobId, JobOrder calldata order) private {
        uint16 fee = feeBps;
        _jobs[jobId] = Job({
            payer: order.payer,
            escrowed: order.budget,
            maxPrice: order.maxPrice,
            unitWeight: order.unitWeight,
            units: order.units,
            waitUntil: order.waitUntil,
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

    function _payProviders(bytes32 jobId, ProviderUnits[] calldata payments, uint256 netPerUnit) private {
        for (uint256 i = 0; i < payments.length; ++i) {
            ProviderUnits calldata payment = payments[i];
            uint256 amount = netPerUnit * payment.units;
            emit ProviderPaid(jobId, payment.provider, payment.units, amount);
            token.safeTransfer(payment.provider, amount);
        }
    }

    function _requireSound(JobOrder calldata order) private view {
        require(block.timestamp <= order.waitUntil, OrderExpired(order.waitUntil));
        require(order.tier >= 1 && order.tier <= 3, UnknownTier(order.tier));
        require(order.units > 0, NoUnits());
        uint256 unit = _payableUnitPrice(order.maxPrice, order.unitWeight);
        require(order.budget >= unit, BudgetBelowOneUnit(order.budget, unit));
    }

    function _requireOpen(bytes32 jobId) private view returns (Job memory job) {
        job = _jobs[jobId];
        require(job.state == State.Open, JobNotOpen(jobId, job.state));
    }

    /// @dev The sum of units, with providers strictly ascending so that none is listed twice (and none is zero).
    function _countUnits(ProviderUnits[] calldata payments, uint256 allowed) private pure returns (uint256 sum) {
        address previous = address(0);
        for (uint256 i = 0; i < payments.length; ++i) {
            address provider = payments[i].provider;
            require(provider > previous, ProvidersNotAscending(provider));
            require(payments[i].units > 0, NoUnitsFor(provider));
            sum += payments[i].units;
            previous = provider;
        }
        require(sum <= allowed, TooManyUnits(sum, allowed));
    }

    function _payableUnitPrice(uint96 price, uint64 weight) private pure returns (uint256 unit) {
        unit = unitPrice(price, weight);
        require(unit > 0, UnitPriceZero(price, weight));
    }
}
