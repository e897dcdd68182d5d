// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {JobOrder, UnitCommitment} from "../Messages.sol";

/// @title Escrow and settlement of jobs
/// @notice Amounts in wei of ZEN, prices in wei of ZEN per GPU-hour, weights in reference GPU-microseconds, times in Unix
/// seconds, fees in basis points of what is paid. For every job: paid + fee + refund == budget, to the wei.
///
/// The operator settles verified work in batches, each over the next rounds of any number of jobs. A batch takes the pay
/// out of the jobs' escrow at once; providers claim it by Merkle proof when the batch's challenge period is over. Until
/// then a dispute can withhold a unit's pay, and a guardian can veto the batch, which gives everything back to its jobs.
///
/// A job can be settled until `settleBy`, and refunded by anybody after that: at no time are both possible, so the order
/// of transactions never decides who gets the money. Nothing but the opening of jobs can be paused.
interface IJobEscrow {
    enum State {
        None,
        Open,
        Settled,
        Refunded
    }

    /// @param payer Who paid the budget in and gets the rest back.
    /// @param escrowed What is left of the budget for settlement.
    /// @param maxPrice Highest price that settlement may use.
    /// @param unitWeight Size of a unit.
    /// @param unitsLeft Most units that settlement may still pay.
    /// @param nextRound First round that is not settled.
    /// @param settleBy Last time at which the job can be settled.
    /// @param feeBps Treasury's share of payments, fixed when the job was opened.
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

    /// @notice What a batch settles of one job.
    /// @param jobId The job.
    /// @param price Price of these units, at most the payer's maximum.
    /// @param units Verified units that are paid.
    /// @param fromRound First round that is settled: the job's `nextRound`.
    /// @param toRound The round after the last one that is settled.
    /// @param last Whether the job is over, so that the rest goes back to its payer now.
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

    /// @param net Not yet claimed by providers.
    /// @param fee Not yet collected by the treasury.
    /// @param claimableAt End of the challenge period; zero if there is no such batch (any more).
    /// @param id Its number, from 1.
    /// @param contested Whether a unit's pay was ever withheld.
    struct Batch {
        uint96 net;
        uint88 fee;
        uint40 claimableAt;
        uint24 id;
        bool contested;
    }

    /// @param amount The provider's pay in a batch, net of the fee.
    /// @param proof Leads from the claim's leaf to the batch's root, and so says which batch.
    struct Claim {
        uint256 amount;
        bytes32[] proof;
    }

    /// @notice `budget` of `payer` is in escrow for job `jobId`.
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
    /// @notice The payer ended the job; what is not settled until `settleBy` can be refunded.
    event JobCancelled(bytes32 indexed jobId, uint256 settleBy);
    /// @notice Batch `batchId` settles `units` units of rounds `fromRound` to `toRound` - 1: `paid` for providers and `fee`
    /// for the treasury left the job's escrow. If `last` the job is over and `refund` went to its payer.
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
    /// @notice Batch `batchId` pays `net` to providers and `fee` to the treasury from `claimableAt` on.
    event BatchPosted(uint256 indexed batchId, bytes32 root, uint256 net, uint256 fee, uint256 claimableAt);
    /// @notice The batch is void; its jobs have their escrow back.
    event BatchVetoed(uint256 indexed batchId);
    /// @notice `net` and `fee` that a vetoed batch had taken are in escrow for job `jobId` again, or with its payer if the
    /// job was refunded meanwhile.
    event SettlementReverted(bytes32 indexed jobId, uint256 indexed batchId, uint256 net, uint256 fee, bool refunded);
    /// @notice `provider` took `amount` of batch `batchId` to `to`.
    event Claimed(uint256 indexed batchId, address indexed provider, uint256 amount);
    /// @notice `amount` of batch `batchId` went to the treasury.
    event FeesCollected(uint256 indexed batchId, uint256 amount);
    /// @notice The pay of unit `unitId` left batch `batchId` until its dispute ends.
    event UnitWithheld(bytes32 indexed unitId, uint256 indexed batchId, address provider, uint256 net, uint256 fee);
    /// @notice The unit's pay is no longer withheld: back in its batch, paid out if the provider claimed meanwhile, or, if
    /// the batch was vetoed, with the job like all of the batch.
    event UnitRestored(bytes32 indexed unitId, uint256 indexed batchId, uint256 net, uint256 fee, bool paidOut);
    /// @notice The dispute ended against the provider: `amount` went to the payer of job `jobId`.
    event UnitStruck(bytes32 indexed unitId, bytes32 indexed jobId, uint256 indexed batchId, uint256 amount);
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
    /// @notice No such tier, or none that providers work in.
    error UnknownTier(uint8 tier);
    /// @notice The order asks for no unit.
    error NoUnits();
    /// @notice At this price a unit of this weight costs less than the smallest amount, 10,000 wei.
    error UnitPriceZero(uint256 price, uint256 weight);
    /// @notice The budget does not pay one unit at the maximum price.
    error BudgetBelowOneUnit(uint256 budget, uint256 unitPrice);
    /// @notice No segment could be drawn, or more than all of them.
    error SamplingImpossible(uint256 segments, uint256 samplingBps);
    /// @notice What a cheat with the tier's minimum stake loses at least does not cover what cheating can gain at the
    /// order's sampling rate: lower the price or the unit's weight, or raise the sampling rate or the number of segments.
    error StakeBelowGain(uint256 leastPenalty, uint256 unitPrice, uint256 segments, uint256 samplingBps);
    /// @notice Only the payer can do this.
    error NotPayer(address caller);
    /// @notice The job is not open (unknown, settled or refunded).
    error JobNotOpen(bytes32 jobId, State state);
    /// @notice The job ends by `settleBy` anyway.
    error AlreadyCancelled(uint256 settleBy);
    /// @notice Settlement ended at `settleBy`; only a refund is left.
    error SettlementEnded(uint256 settleBy);
    /// @notice A refund without settlement is possible after `settleBy`.
    error RefundTooEarly(uint256 settleBy);
    /// @notice The price is above the payer's maximum.
    error PriceAboveMaximum(uint256 price, uint256 maxPrice);
    /// @notice A batch without lines.
    error EmptyBatch();
    /// @notice More lines than a veto could revert in one transaction.
    error TooManyLines(uint256 lines, uint256 allowed);
    /// @notice There is a batch with this root.
    error BatchExists(bytes32 batchRoot);
    /// @notice These rounds were settled before, or others come first: the job's next one is `nextRound`.
    error RoundsNotNext(bytes32 jobId, uint256 fromRound, uint256 nextRound);
    /// @notice A line that pays units, or does not end its job, must settle at least one round.
    error NoRounds(bytes32 jobId);
    /// @notice More units than the order allows.
    error TooManyUnits(uint256 units, uint256 allowed);
    /// @notice The payments exceed the escrow.
    error BudgetExceeded(uint256 gross, uint256 escrowed);
    /// @notice No batch has this root, or not this number: it was vetoed, or the proof is wrong.
    error UnknownBatch(bytes32 batchRoot);
    /// @notice The challenge period lasts until `claimableAt`.
    error ChallengePeriodRunning(uint256 claimableAt);
    /// @notice The challenge period ended at `claimableAt`.
    error ChallengePeriodOver(uint256 claimableAt);
    /// @notice The provider claimed this batch before.
    error AlreadyClaimed(uint256 batchId, address provider);
    /// @notice All that the provider earned in this batch is withheld by disputes.
    error AllWithheld(uint256 batchId, address provider);
    /// @notice More than the batch has left: its tree contradicts its totals.
    error BatchOverdrawn(uint256 batchId, uint256 amount, uint256 left);
    /// @notice The unit's pay is withheld already.
    error AlreadyWithheld(bytes32 unitId);
    /// @notice No dispute struck this unit, or its pay went back already.
    error NotStruck(bytes32 unitId);
    /// @notice Nobody could take the money from there.
    error InvalidRecipient(address to);
    /// @notice The fee is above MAX_FEE_BPS.
    error FeeTooHigh(uint256 feeBps);

    /// @notice Puts the payer's budget in escrow. Anybody may relay an order that the payer signed. Stops while paused.
    /// Refuses an order whose tier does not deter cheating: with P the least penalty of a cheat with the tier's minimum
    /// stake, d = 66 % the share of drawn false segments that count as convicted (a quarter of the verifiers may lie), R
    /// the price of a unit at the maximum price, N its segments and s the sampling rate, P * d >= (R / N) * (1 - s) / s.
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

    /// @notice Ends a job early. Only its payer. The operator has `cancelDelay` seconds to settle what was done.
    function cancel(bytes32 jobId) external;

    /// @notice Settles the next rounds of one or more jobs. Only OPERATOR_ROLE.
    ///
    /// The batch's root is pair(claims, pair(units, lines)): the roots of a tree of claims, one leaf
    /// `abi.encode(address provider, uint256 amount)` for each provider, and of a tree of paid units, one leaf
    /// `abi.encode(UnitCommitment unit, uint80 price)` for each unit, and `keccak256(abi.encode(lines))`. Leaves are hashed
    /// twice, pairs sorted.
    /// @param claims Root of the claims; anything if no unit is paid.
    /// @param units Root of the paid units; anything if there is none.
    /// @param lines What is settled of each job.
    /// @return batchId Number of the batch, from 1; zero if no unit is paid, for then there is nothing to claim.
    function settle(bytes32 claims, bytes32 units, JobLine[] calldata lines) external returns (uint256 batchId);

    /// @notice Voids a batch whose challenge period is running: its jobs are as before it, except that what was refunded
    /// stays refunded. Only GUARDIAN_ROLE. The rounds of a job can be settled again if its later batches were vetoed first;
    /// otherwise only its money and its units come back, to be settled with later rounds.
    /// @param batchId The batch.
    /// @param claims As given to `settle`.
    /// @param units As given to `settle`.
    /// @param lines As given to `settle`.
    function veto(uint256 batchId, bytes32 claims, bytes32 units, JobLine[] calldata lines) external;

    /// @notice Pays the caller what it earned in these batches, each once, less what disputes withhold.
    /// @param to Who receives it: the provider itself, or its payout address.
    /// @param claims Batches whose challenge period is over.
    /// @return amount Sum paid.
    function claim(address to, Claim[] calldata claims) external returns (uint256 amount);

    /// @notice Sends the fees of batches whose challenge period is over to the treasury. Anybody may call.
    function collectFees(bytes32[] calldata batchRoots) external returns (uint256 amount);

    /// @notice Takes a unit's pay out of a batch whose challenge period is running. Only DISPUTES_ROLE.
    /// @param batchId The batch.
    /// @param unit The unit.
    /// @param price The price that the batch pays it at.
    /// @param proof Leads from the paid unit's leaf to the batch's root.
    /// @return unitId Leaf of the unit's commitment, by which `release` knows it.
    function withhold(uint256 batchId, UnitCommitment calldata unit, uint80 price, bytes32[] calldata proof)
        external
        returns (bytes32 unitId);

    /// @notice Decides about a withheld unit's pay. Only DISPUTES_ROLE.
    /// @param restored Whether the provider gets it, now. Otherwise the payer does, as soon as the batch can no longer be
    /// vetoed: now, or by `returnStruck`.
    /// @return held Whether anything was withheld and undecided.
    function release(bytes32 unitId, bool restored) external returns (bool held);

    /// @notice Sends the pay of a unit that a dispute struck back to its payer, once the challenge period of its batch is
    /// over. Anybody may call.
    function returnStruck(bytes32 unitId) external;

    /// @notice Returns what is left of a job that was not settled in time. Anybody may call, the payer gets it.
    function refund(bytes32 jobId) external;

    /// @notice Changes the fee of jobs opened from now on. Only DEFAULT_ADMIN_ROLE, at most MAX_FEE_BPS.
    function setFee(uint16 feeBps) external;

    /// @notice Gross price of one unit: floor(price * weight / 3.6e9), rounded down to a multiple of 10,000 wei so that
    /// every fee in basis points is exact.
    function unitPrice(uint80 price, uint48 weight) external pure returns (uint256);

    /// @notice The job, all zero if there is none.
    function jobs(bytes32 jobId) external view returns (Job memory);

    /// @notice The batch, all zero if there is none or it was vetoed.
    function batches(bytes32 batchRoot) external view returns (Batch memory);

    /// @notice Number of batches, which is the id of the newest.
    function batchCount() external view returns (uint256);

    /// @notice Whether `provider` claimed batch `batchId`.
    function isClaimed(uint256 batchId, address provider) external view returns (bool);

    /// @notice Net pay of `provider` in batch `batchId` that disputes withhold or have struck.
    function withheldOf(uint256 batchId, address provider) external view returns (uint256);

    /// @notice Id of the job that `order` opens: its EIP-712 struct hash.
    function jobIdOf(JobOrder calldata order) external pure returns (bytes32);

    /// @notice What a payer signs to order.
    function orderDigest(JobOrder calldata order) external view returns (bytes32);

    /// @notice What a provider signs to commit to a unit (all messages of the network share this contract's domain).
    function commitmentDigest(UnitCommitment calldata unit) external view returns (bytes32);
}
