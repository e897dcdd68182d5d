// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {JobOrder, UnitCommitment} from "../Messages.sol";

/// @title Escrow and settlement of jobs
/// @notice Amounts in wei of ZEN, prices in wei of ZEN per GPU-hour, weights in reference GPU-microseconds, times in Unix
/// seconds, fees in basis points of what is paid. For every job: paid + fee + refund == budget, to the wei.
///
/// A job is settled by the operator until `waitUntil + refundDelay`, and refunded by anybody after that: at no time are
/// both possible, so the order of transactions never decides who gets the money. Neither can be paused.
interface IJobEscrow {
    enum State {
        None,
        Open,
        Settled,
        Refunded
    }

    /// @param payer Who paid the budget in and gets the rest back.
    /// @param escrowed The budget, as it was paid in.
    /// @param maxPrice Highest price that settlement may use.
    /// @param unitWeight Size of a unit.
    /// @param units Most units that settlement may pay.
    /// @param waitUntil Time until which the payer waits for capacity.
    /// @param feeBps Treasury's share of payments, fixed when the job was opened.
    /// @param state None, Open, Settled or Refunded.
    struct Job {
        address payer;
        uint96 escrowed;
        uint96 maxPrice;
        uint64 unitWeight;
        uint32 units;
        uint40 waitUntil;
        uint16 feeBps;
        State state;
    }

    /// @param provider Who is paid.
    /// @param units Verified units that it is paid for.
    struct ProviderUnits {
        address provider;
        uint32 units;
    }

    /// @notice `budget` of `payer` is in escrow for job `jobId`.
    event JobOpened(
        bytes32 indexed jobId,
        address indexed payer,
        uint8 tier,
        uint32 units,
        uint64 unitWeight,
        uint96 budget,
        uint96 maxPrice,
        uint16 feeBps,
        bytes32 specHash
    );
    /// @notice `provider` got `amount`, net of the fee, for `units` units.
    event ProviderPaid(bytes32 indexed jobId, address indexed provider, uint32 units, uint256 amount);
    /// @notice The job is over: `paid` to providers, `fee` to the treasury, `refund` to the payer.
    /// @param price Clearing price.
    /// @param unitsRoot Merkle root over the job's paid units.
    /// @param record SHA2-256 digest inside the CID of the job's record.
    event JobSettled(
        bytes32 indexed jobId,
        uint96 price,
        uint256 paid,
        uint256 fee,
        uint256 refund,
        bytes32 unitsRoot,
        bytes32 record
    );
    /// @notice The job was not settled in time; all `amount` went back to `payer`.
    event JobRefunded(bytes32 indexed jobId, address indexed payer, uint256 amount);
    /// @notice Jobs opened from now on pay `feeBps`.
    event FeeChanged(uint16 feeBps);

    /// @notice The payer did not sign this order.
    error InvalidOrderSignature();
    /// @notice This order was opened before.
    error JobExists(bytes32 jobId);
    /// @notice The order was good until `waitUntil`.
    error OrderExpired(uint256 waitUntil);
    /// @notice No such tier.
    error UnknownTier(uint8 tier);
    /// @notice The order asks for no unit.
    error NoUnits();
    /// @notice At this price a unit of this weight costs less than the smallest amount, 10,000 wei.
    error UnitPriceZero(uint256 price, uint256 weight);
    /// @notice The budget does not pay one unit at the maximum price.
    error BudgetBelowOneUnit(uint256 budget, uint256 unitPrice);
    /// @notice The job is not open (unknown, settled or refunded).
    error JobNotOpen(bytes32 jobId, State state);
    /// @notice Settlement ended at `end`; only a refund is left.
    error SettlementEnded(uint256 end);
    /// @notice A refund without settlement is possible after `end`.
    error RefundTooEarly(uint256 end);
    /// @notice The price is above the payer's maximum.
    error PriceAboveMaximum(uint256 price, uint256 maxPrice);
    /// @notice Providers must be strictly ascending by address, each once.
    error ProvidersNotAscending(address provider);
    /// @notice A provider is listed with no unit.
    error NoUnitsFor(address provider);
    /// @notice More units than the order allows.
    error TooManyUnits(uint256 units, uint256 allowed);
    /// @notice The payments exceed the escrow.
    error BudgetExceeded(uint256 gross, uint256 escrowed);
    /// @notice The fee is above MAX_FEE_BPS.
    error FeeTooHigh(uint256 feeBps);

    /// @notice Puts the payer's budget in escrow. Anybody may relay an order that the payer signed. Stops while paused.
    /// @param order The order.
    /// @param orderSignature EIP-712 signature of the payer over the order (ERC-1271 for contracts).
    /// @param permitDeadline Deadline of the EIP-2612 permit over the budget for this contract. With an allowance in
    /// place the permit may be worthless: a permit that fails is ignored, the transfer decides.
    /// @param v Part of the permit's signature.
    /// @param r Part of the permit's signature.
    /// @param s Part of the permit's signature.
    /// @return jobId EIP-712 struct hash of the order.
    function openJob(
        JobOrder calldata order,
        bytes calldata orderSignature,
        uint256 permitDeadline,
        uint8 v,
        bytes32 r,
        bytes32 s
    ) external returns (bytes32 jobId);

    /// @notice Pays the verified units of a job and returns the rest, once. Only OPERATOR_ROLE. No payments: full refund.
    /// @param jobId The job.
    /// @param price Clearing price, at most the payer's maximum; any up to it where nobody is paid.
    /// @param payments Providers in strictly ascending order with the units that each is paid for.
    /// @param unitsRoot Merkle root over the paid units.
    /// @param record SHA2-256 digest inside the CID of the job's record.
    function settle(bytes32 jobId, uint96 price, ProviderUnits[] calldata payments, bytes32 unitsRoot, bytes32 record)
        external;

    /// @notice Returns the whole budget of a job that was not settled in time. Anybody may call, the payer gets it.
    function refund(bytes32 jobId) external;

    /// @notice Changes the fee of jobs opened from now on. Only DEFAULT_ADMIN_ROLE, at most MAX_FEE_BPS.
    function setFee(uint16 feeBps) external;

    /// @notice Gross price of one unit: floor(price * weight / 3.6e9), rounded down to a multiple of 10,000 wei so that
    /// every fee in basis points is exact.
    function unitPrice(uint96 price, uint64 weight) external pure returns (uint256);

    /// @notice The job, all zero if there is none.
    function jobs(bytes32 jobId) external view returns (Job memory);

    /// @notice Id of the job that `order` opens: its EIP-712 struct hash.
    function jobIdOf(JobOrder calldata order) external pure returns (bytes32);

    /// @notice What a payer signs to order.
    function orderDigest(JobOrder calldata order) external view returns (bytes32);

    /// @notice What a provider signs to commit to a unit (all messages of the network share this contract's domain).
    function commitmentDigest(UnitCommitment calldata unit) external view returns (bytes32);
}
