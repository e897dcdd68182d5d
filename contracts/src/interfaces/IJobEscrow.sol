// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {JobOrder, UnitCommitment} from "../Messages.sol";

/// @title Escrow and settlement of jobs
/// @notice Amounts in wei of ZEN, prices in wei of ZEN per GPU-hour, weights in reference GPU-microseconds. Times in
/// Unix seconds, fees in basis points of the payment. For every job: paid + fee + refund == budget, to the wei.
///
/// The operator settles verified units in settlement batches. A batch covers the next outer rounds of any number of
/// jobs. It moves their pay out of the escrow at once. Providers claim it by Merkle proof after the batch's challenge
/// period. Until then a dispute can withhold a unit's payout, and a guardian can veto the batch. A veto returns the pay
/// to the jobs.
/// @dev A job can be settled until `settleBy` and refunded by any account after it. The two periods never overlap, so
/// the order of transactions cannot decide the recipient. A pause stops only deposits and the opening of jobs.
interface IJobEscrow {
    /// @notice State of a job. Settled and Refunded are final unless a veto reopens a settled job.
    enum State {
        None,
        Open,
        Settled,
        Refunded
    }

    /// @param free Wei that the payer can withdraw and its orders can draw.
    /// @param drawn Wei of all budgets that its orders have drawn so far. With it a relay counts orders not opened yet.
    struct Balance {
        uint128 free;
        uint128 drawn;
    }

    /// @param payer Account that paid the budget and receives the refund.
    /// @param escrowed Wei of the budget that are not settled.
    /// @param maxPrice Highest price that a settlement can use, in wei of ZEN per GPU-hour.
    /// @param unitWeight Size of a unit in reference GPU-microseconds.
    /// @param unitsLeft Maximum number of units that can still be paid.
    /// @param nextRound First outer round that is not settled.
    /// @param settleBy Last second at which the job can be settled, in Unix time.
    /// @param feeBps Fee in basis points of payments, fixed when the job was opened.
    /// @param state None, Open, Settled or Refunded.
    struct Job {
        address payer;
        uint96 escrowed;
        uint80 maxPrice;
        uint48 unitWeight;
        uint32 unitsLeft;
        uint32 nextRound;
        uint40 settleBy;
        uint16 feeBps;
        State state;
    }

    /// @notice Settlement of one job in a batch.
    /// @param jobId The job.
    /// @param price Price of these units in wei of ZEN per GPU-hour, at most the payer's maximum.
    /// @param units Number of verified units paid.
    /// @param fromRound First outer round settled; equal to the job's `nextRound`.
    /// @param toRound The outer round after the last one settled.
    /// @param last Whether the job ends. If so, the rest of the escrow is refunded to the payer at once.
    /// @param record SHA2-256 digest inside the CID of the job's record.
    struct JobLine {
        bytes32 jobId;
        uint80 price;
        uint32 units;
        uint32 fromRound;
        uint32 toRound;
        bool last;
        bytes32 record;
    }

    /// @param net Wei that providers have not claimed yet.
    /// @param fee Wei that the treasury has not collected yet.
    /// @param claimableAt Unix time at which the challenge period ends; zero if the batch does not exist or was vetoed.
    /// @param id Number of the batch, counted from 1.
    /// @param contested Whether a payout of the batch was ever withheld.
    struct Batch {
        uint96 net;
        uint88 fee;
        uint40 claimableAt;
        uint24 id;
        bool contested;
    }

    /// @param amount The provider's pay in a batch in wei, net of the fee.
    /// @param proof Merkle proof from the claim's leaf to the batch root. It determines the batch.
    struct Claim {
        uint256 amount;
        bytes32[] proof;
    }

    /// @notice `amount` wei moved from the wallet of `payer` into its balance.
    event Deposited(address indexed payer, uint256 amount);
    /// @notice `payer` withdrew `amount` wei of its balance to `to`.
    event Withdrawn(address indexed payer, address to, uint256 amount);
    /// @notice The payer's budget is in escrow for job `jobId`.
    event JobOpened(
        bytes32 indexed jobId,
        address indexed payer,
        uint8 tier,
        uint32 units,
        uint48 unitWeight,
        uint96 budget,
        uint80 maxPrice,
        uint16 feeBps,
        bytes32 specHash
    );
    /// @notice The payer cancelled the job. It can be settled until `settleBy` and refunded after it.
    event JobCancelled(bytes32 indexed jobId, uint256 settleBy);
    /// @notice Batch `batchId` settles `units` units of outer rounds `fromRound` to `toRound` - 1. `paid` wei for
    /// providers and `fee` wei for the treasury left the escrow. If `last`, the job ended and `refund` wei went to its
    /// payer.
    event JobSettled(
        bytes32 indexed jobId,
        uint256 indexed batchId,
        uint80 price,
        uint32 units,
        uint32 fromRound,
        uint32 toRound,
        uint256 paid,
        uint256 fee,
        uint256 refund,
        bool last,
        bytes32 record
    );
    /// @notice From `claimableAt` on, batch `batchId` pays `net` wei to providers and `fee` wei to the treasury.
    event BatchPosted(uint256 indexed batchId, bytes32 root, uint256 net, uint256 fee, uint256 claimableAt);
    /// @notice The batch is void; its pay returned to its jobs.
    event BatchVetoed(uint256 indexed batchId);
    /// @notice `net` and `fee` of a vetoed batch returned to the escrow of job `jobId`, or to its payer if `refunded`.
    event SettlementReverted(bytes32 indexed jobId, uint256 indexed batchId, uint256 net, uint256 fee, bool refunded);
    /// @notice `provider` claimed `amount` wei of batch `batchId`.
    event Claimed(uint256 indexed batchId, address indexed provider, uint256 amount);
    /// @notice `amount` wei of fees of batch `batchId` went to the treasury.
    event FeesCollected(uint256 indexed batchId, uint256 amount);
    /// @notice The payout of unit `unitId` is held outside batch `batchId` until its dispute ends.
    event UnitWithheld(bytes32 indexed unitId, uint256 indexed batchId, address provider, uint256 net, uint256 fee);
    /// @notice The unit's payout is not held any more. It is back in its batch, or paid out if the provider had already
    /// claimed. If the batch was vetoed, the payout returned to the job.
    event UnitRestored(bytes32 indexed unitId, uint256 indexed batchId, uint256 net, uint256 fee, bool paidOut);
    /// @notice The unit's payout is forfeited: `amount` wei went to the payer of job `jobId`.
    event UnitStruck(bytes32 indexed unitId, bytes32 indexed jobId, uint256 indexed batchId, uint256 amount);
    /// @notice The job was not settled in time; `amount` wei went back to `payer`.
    event JobRefunded(bytes32 indexed jobId, address indexed payer, uint256 amount);
    /// @notice Jobs opened from now on pay a fee of `feeBps` basis points.
    event FeeChanged(uint16 feeBps);

    /// @notice The amount is zero.
    error NoAmount();
    /// @notice The balance of `payer` has `available` wei; `needed` wei are asked of it.
    error InsufficientBalance(address payer, uint256 needed, uint256 available);
    /// @notice The signature is not the payer's signature of this order.
    error InvalidOrderSignature();
    /// @notice A job was already opened with this order.
    error JobExists(bytes32 jobId);
    /// @notice The order expired at `waitUntil`.
    error OrderExpired(uint256 waitUntil);
    /// @notice `tier` is not 1, 2, 3 or 4.
    error UnknownTier(uint8 tier);
    /// @notice The order has zero units.
    error NoUnits();
    /// @notice A unit of `weight` at `price` costs less than 10,000 wei, so its price rounds to zero.
    error UnitPriceZero(uint256 price, uint256 weight);
    /// @notice The budget is below the price of one unit at the maximum price.
    error BudgetBelowOneUnit(uint256 budget, uint256 unitPrice);
    /// @notice The order has zero segments, or `samplingBps` exceeds 10,000.
    error SamplingImpossible(uint256 segments, uint256 samplingBps);
    /// @notice The lowest fraud penalty of the tier does not cover the gain from fraud at the order's sampling rate.
    /// Lower the price or the unit weight, or raise the sampling rate or the number of segments.
    error StakeBelowGain(uint256 leastPenalty, uint256 unitPrice, uint256 segments, uint256 samplingBps);
    /// @notice `caller` is not the payer of the job.
    error NotPayer(address caller);
    /// @notice The job is unknown, settled or refunded.
    error JobNotOpen(bytes32 jobId, State state);
    /// @notice The job already ends at `settleBy` or earlier than a cancellation would set.
    error AlreadyCancelled(uint256 settleBy);
    /// @notice The settlement period ended at `settleBy`. Only a refund is allowed.
    error SettlementEnded(uint256 settleBy);
    /// @notice The settlement period lasts until `settleBy`. A refund is allowed after it.
    error RefundTooEarly(uint256 settleBy);
    /// @notice The price exceeds the payer's maximum.
    error PriceAboveMaximum(uint256 price, uint256 maxPrice);
    /// @notice The batch has zero lines.
    error EmptyBatch();
    /// @notice The batch has more lines than a veto can revert in one transaction.
    error TooManyLines(uint256 lines, uint256 allowed);
    /// @notice `fromRound` is not the job's next outer round `nextRound`.
    error RoundsNotNext(bytes32 jobId, uint256 fromRound, uint256 nextRound);
    /// @notice The line covers zero outer rounds, and either pays units or does not end its job.
    error NoRounds(bytes32 jobId);
    /// @notice The line pays more units than the order has left.
    error TooManyUnits(uint256 units, uint256 allowed);
    /// @notice The payment exceeds the escrow.
    error BudgetExceeded(uint256 gross, uint256 escrowed);
    /// @notice No batch has this root and number: it was vetoed, or the proof is wrong.
    error UnknownBatch(bytes32 batchRoot);
    /// @notice The challenge period lasts until `claimableAt`.
    error ChallengePeriodRunning(uint256 claimableAt);
    /// @notice The challenge period ended at `claimableAt`.
    error ChallengePeriodOver(uint256 claimableAt);
    /// @notice The provider has already claimed this batch.
    error AlreadyClaimed(uint256 batchId, address provider);
    /// @notice Disputes hold the provider's whole pay in this batch.
    error AllWithheld(uint256 batchId, address provider);
    /// @notice `amount` exceeds the `left` wei of the batch: its trees do not match its totals.
    error BatchOverdrawn(uint256 batchId, uint256 amount, uint256 left);
    /// @notice The unit's payout is already held.
    error AlreadyWithheld(bytes32 unitId);
    /// @notice The unit's payout is not forfeited, or was already refunded.
    error NotStruck(bytes32 unitId);
    /// @notice `to` is the zero address or this contract.
    error InvalidRecipient(address to);
    /// @notice The fee exceeds MAX_FEE_BPS.
    error FeeTooHigh(uint256 feeBps);

    /// @notice Moves ZEN from the payer's wallet into its balance. Any account can relay a payer's permit. An allowance
    /// for this contract has no other use, so a relay of it takes nothing: the payer can withdraw at any time. Stops
    /// while paused.
    /// @param payer Owner of the ZEN and of the balance.
    /// @param amount Wei to move.
    /// @param permitDeadline Deadline in Unix seconds of the EIP-2612 permit over `amount` for this contract. A failing
    /// permit is ignored: an earlier allowance makes it unnecessary, and the transfer decides.
    /// @param v Part of the permit's signature.
    /// @param r Part of the permit's signature.
    /// @param s Part of the permit's signature.
    function deposit(address payer, uint96 amount, uint256 permitDeadline, uint8 v, bytes32 r, bytes32 s) external;

    /// @notice Pays out a part of the caller's balance. A pause does not stop it.
    /// @param amount Wei, at most the free balance.
    /// @param to Recipient.
    function withdraw(uint256 amount, address to) external;

    /// @notice Moves an order's budget from the payer's balance into the job's escrow. Any account can relay an order
    /// that the payer signed. Stops while paused. Reverts with StakeBelowGain unless P * d >= (R / N) * (1 - s) / s, where:
    ///
    /// - P is the lowest fraud penalty at the tier's minimum stake, in wei.
    /// - d = 66 % is the assumed share of wrong sampled segments that verification detects. A quarter of the verifiers'
    ///   stake may be dishonest.
    /// - R is the price of a unit at the maximum price, in wei.
    /// - N is the number of segments of a unit, and s is the sampling rate.
    /// @param order The order.
    /// @param orderSignature EIP-712 signature of the payer over the order (ERC-1271 for contracts).
    /// @return jobId EIP-712 struct hash of the order.
    function openJob(JobOrder calldata order, bytes calldata orderSignature) external returns (bytes32 jobId);

    /// @notice Ends a job early. Only its payer. The operator has `cancelDelay` seconds to settle completed units.
    function cancel(bytes32 jobId) external;

    /// @notice Settles the next outer rounds of one or more jobs. Only OPERATOR_ROLE.
    /// @dev The batch root is pair(claims, pair(units, keccak256(abi.encode(claims, units, lines)))). Leaves are hashed twice, pairs
    /// are sorted. A claim leaf is `abi.encode(address provider, uint256 amount)`, one for each provider. A leaf of a
    /// paid unit is `abi.encode(UnitCommitment unit, uint80 price)`.
    /// @param claims Merkle root of the claims; any value if no unit is paid.
    /// @param units Merkle root of the paid units; any value if no unit is paid.
    /// @param lines Settlement of each job.
    /// @return batchId Number of the batch, counted from 1; zero if no unit is paid, since the batch has no claims.
    function settle(bytes32 claims, bytes32 units, JobLine[] calldata lines) external returns (uint256 batchId);

    /// @notice Voids a batch during its challenge period and restores its jobs. Refunded jobs stay refunded. Only
    /// GUARDIAN_ROLE. The outer rounds of a job can be settled again only if its later batches were vetoed first.
    /// Otherwise its pay and its units return and can be settled with later rounds. At least `cancelDelay` seconds
    /// remain to settle a restored job. So a veto near `settleBy` does not refund verified work.
    /// @param batchId Number of the batch.
    /// @param claims As given to `settle`.
    /// @param units As given to `settle`.
    /// @param lines As given to `settle`.
    function veto(uint256 batchId, bytes32 claims, bytes32 units, JobLine[] calldata lines) external;

    /// @notice Pays the caller its claims in these batches, each once, minus held payouts.
    /// @param to Recipient: the provider itself or its payout address.
    /// @param claims Claims in batches after their challenge period.
    /// @return amount Sum paid, in wei.
    function claim(address to, Claim[] calldata claims) external returns (uint256 amount);

    /// @notice Sends the fees of batches after their challenge period to the treasury. Any account may call.
    function collectFees(bytes32[] calldata batchRoots) external returns (uint256 amount);

    /// @notice Withholds a unit's payout from a batch during its challenge period. Only DISPUTES_ROLE.
    /// @param batchId Number of the batch.
    /// @param unit Commitment of the unit.
    /// @param price Price of the unit in the batch, in wei of ZEN per GPU-hour.
    /// @param proof Merkle proof from the leaf of the paid unit to the batch root.
    /// @return unitId Leaf of the unit's commitment, the key for `release`.
    function withhold(uint256 batchId, UnitCommitment calldata unit, uint80 price, bytes32[] calldata proof)
        external
        returns (bytes32 unitId);

    /// @notice Decides a held payout. Only DISPUTES_ROLE.
    /// @param unitId Leaf of the unit's commitment.
    /// @param restored True: the provider is paid now. False: the payout is forfeited to the payer. The payer receives
    /// it once the batch can no longer be vetoed, now or by `returnStruck`.
    /// @return held Whether an undecided payout was held.
    function release(bytes32 unitId, bool restored) external returns (bool held);

    /// @notice Refunds a forfeited payout to the payer, once the challenge period of its batch is over. Any account may
    /// call.
    function returnStruck(bytes32 unitId) external;

    /// @notice Refunds the escrow of a job that was not settled in time to its payer. Any account may call.
    function refund(bytes32 jobId) external;

    /// @notice Changes the fee of jobs opened from now on, at most MAX_FEE_BPS basis points. Only DEFAULT_ADMIN_ROLE.
    function setFee(uint16 feeBps) external;

    /// @notice Returns the gross price of one unit in wei: floor(price * weight / 3.6e9), rounded down to a multiple of
    /// 10,000. The rounding makes every fee in basis points exact.
    function unitPrice(uint80 price, uint48 weight) external pure returns (uint256);

    /// @notice Returns the payer's balance.
    function balances(address payer) external view returns (Balance memory);

    /// @notice Returns the job; all zero if it does not exist.
    function jobs(bytes32 jobId) external view returns (Job memory);

    /// @notice Returns the batch; all zero if it does not exist or was vetoed.
    function batches(bytes32 batchRoot) external view returns (Batch memory);

    /// @notice Number of batches; also the id of the newest batch.
    function batchCount() external view returns (uint256);

    /// @notice Returns whether `provider` has claimed batch `batchId`.
    function isClaimed(uint256 batchId, address provider) external view returns (bool);

    /// @notice Returns the net pay of `provider` in batch `batchId` that is held or forfeited, in wei.
    function withheldOf(uint256 batchId, address provider) external view returns (uint256);

    /// @notice Returns the id of the job that `order` opens: its EIP-712 struct hash.
    function jobIdOf(JobOrder calldata order) external pure returns (bytes32);

    /// @notice Returns the EIP-712 digest that a payer signs to order.
    function orderDigest(JobOrder calldata order) external view returns (bytes32);

    /// @notice Returns the EIP-712 digest that a provider signs to commit to a unit. All messages of the network share
    /// this contract's domain.
    function commitmentDigest(UnitCommitment calldata unit) external view returns (bytes32);
}
