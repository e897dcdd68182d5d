// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {JobOrder, UnitCommitment} from "../Messages.sol";

/// @notice Functions of ProviderStaking that disputes call.
interface IDisputeStaking {
    /// @notice Slashes `provider` and jails it. Sends `share` of the slashed `amount` to the caller. Both in wei.
    function slash(address provider, uint8 offence, bytes32 evidence) external returns (uint256 amount, uint256 share);

    /// @notice Returns whether `account` is not jailed and has the minimum stake of `tier` (0: verifier).
    function qualifies(address account, uint8 tier) external view returns (bool);
}

/// @notice Functions of JobEscrow that disputes call.
interface IDisputeEscrow {
    /// @notice Moves a unit's payout out of a batch that is still in its challenge period.
    function withhold(uint256 batchId, UnitCommitment calldata unit, uint80 price, bytes32[] calldata proof)
        external
        returns (bytes32 unitId);

    /// @notice Pays a held payout to the provider, or forfeits it to the payer. Has no effect if no payout is held.
    function release(bytes32 unitId, bool restored) external returns (bool);

    /// @notice Returns the EIP-712 digest that a provider signs to commit to a unit.
    function commitmentDigest(UnitCommitment calldata unit) external view returns (bytes32);
}

/// @title Disputes over work units
/// @notice A challenger locks a bond in ZEN. The provider reveals the digests of all boundary states, which must hash
/// to the signed trace root. The challenger selects the first segment with a wrong end state. A committee of referees
/// replays that segment and signs a verdict. Referees are drawn from the staked verifiers by the hash of a later block.
/// A party that misses its response deadline loses. A committee that misses its quorum is replaced, and its members
/// without a signature are delisted. Amounts in wei of ZEN, times in Unix seconds. No account has admin or pause
/// rights.
///
/// The committee finds for the provider if and only if all of these hold:
///
/// - The data behind the start state of the segment is available.
/// - A replay from that state in the revealed environment class ends in the committed end state.
/// - For the first segment, the start state is the state from which the job's outer round starts.
/// - For the last segment, the end state covers the committed payload.
///
/// A root has exactly one list of states of the trace's length. So a provider cannot reveal different traces in
/// different disputes. A root without such a list cannot be revealed, and its provider loses.
///
/// A dispute takes five transactions for any trace length: `open`, `showTrace`, `nameStep`, `drawCommittee`,
/// `submitVerdict`. A unit of one segment needs no selection. One `multicall` can hold a draw and its verdict while the
/// hash of the seed block is available.
///
/// A unit can have several disputes at a time, one for each challenger. Otherwise a provider could block the others by
/// opening one itself. A segment found correct stays correct. An upheld dispute ends all other disputes of the unit. A
/// held payout goes to the provider once no dispute is open and none can be opened.
/// @dev Terms, penalty table and unbonding delay must fit: a dispute opened in the last second must end before the
/// provider's stake can leave.
interface IDisputes {
    /// @notice State of a dispute.
    ///
    /// - Trace: the provider must reveal the trace.
    /// - Step: the challenger must select a segment.
    /// - Drawing: the committee waits for its seed.
    /// - Judging: the committee must sign.
    /// - ProviderLost: final. The dispute is upheld.
    /// - ChallengerLost: final. The dispute is rejected.
    /// - Undecided: final. The dispute is inconclusive: the last committee missed its quorum or could not be drawn.
    /// - Moot: final. Another dispute of the unit was upheld.
    enum Status {
        None,
        Trace,
        Step,
        Drawing,
        Judging,
        ProviderLost,
        ChallengerLost,
        Undecided,
        Moot
    }

    /// @param bond Wei that a challenger locks.
    /// @param cost Wei paid to the winner for its cost.
    /// @param refereeFee Wei for each referee with a verdict signature; less if the funds do not cover all seats.
    /// @param disputePeriod Seconds after the commitment of its window during which a unit can be disputed.
    /// @param turnPeriod Seconds that a party has to respond.
    /// @param verdictPeriod Seconds that a committee has to sign.
    /// @param seedDelay Blocks until the block that seeds a draw, 1 to 200.
    /// @param seats Referees in a committee, 1 to 15.
    /// @param quorum Signatures that decide, more than half of the seats.
    /// @param maxDraws Maximum number of committees in a dispute.
    struct Terms {
        uint96 bond;
        uint96 cost;
        uint96 refereeFee;
        uint40 disputePeriod;
        uint40 turnPeriod;
        uint40 verdictPeriod;
        uint8 seedDelay;
        uint8 seats;
        uint8 quorum;
        uint8 maxDraws;
    }

    /// @param challenger Account that opened the dispute.
    /// @param segments Number of segments in the unit's trace.
    /// @param step Selected segment, counted from 0: from the boundary of that number to the next. 0 until selection.
    /// @param deadline Last second to respond, in Unix time; the maximum value while no deadline applies.
    /// @param status Current state.
    /// @param draw Number of the current committee, counted from 0.
    /// @param provider Provider of the unit.
    /// @param seedBlock Block number. Its hash seeds the draw.
    /// @param pool Number of referees in the draw, from the start of the list.
    /// @param payer Payer of the job.
    /// @param listedBy Unix time at which the first draw was scheduled. Referees listed later serve only if the others
    /// do not fill the seats.
    /// @param scheduledAt Unix time at which the current draw was scheduled. Entries must last until then.
    /// @param unitId `Messages.leaf` of the unit's commitment.
    /// @param committee keccak256 of the ABI-encoded list of the current committee.
    struct Dispute {
        address challenger;
        uint16 segments;
        uint16 step;
        uint40 deadline;
        Status status;
        uint8 draw;
        address provider;
        uint64 seedBlock;
        uint32 pool;
        address payer;
        uint40 listedBy;
        uint40 scheduledAt;
        bytes32 unitId;
        bytes32 committee;
    }

    /// @param open Number of disputes that have not ended.
    /// @param disputableUntil Last second at which the unit can be disputed, in Unix time. The earliest window that a
    /// call has shown counts.
    /// @param unpaid Whether the payout goes to the payer, after an upheld or inconclusive dispute.
    /// @param convicted Whether a dispute over the unit was upheld. // prose: ok
    struct Unit {
        uint32 open;
        uint40 disputableUntil;
        bool unpaid;
        bool convicted;
    }

    /// @notice `challenger` disputes a unit of `segments` segments.
    event DisputeOpened(
        bytes32 indexed disputeId, bytes32 indexed unitId, address indexed provider, address challenger, uint16 segments
    );
    /// @notice The dispute enters `status`; the party to act must respond by `deadline`.
    event TurnStarted(bytes32 indexed disputeId, Status status, uint256 deadline);
    /// @notice The provider's trace is revealed: state digests from boundary 0 on, all of one environment class.
    event TraceShown(bytes32 indexed disputeId, bytes32 environmentClass, bytes32[] states);
    /// @notice The challenger selected the segment from boundary `step` to the next.
    event StepNamed(bytes32 indexed disputeId, uint16 step);
    /// @notice The hash of block `seedBlock` will draw committee `draw` from the first `pool` referees.
    event DrawScheduled(bytes32 indexed disputeId, uint32 draw, uint256 seedBlock, uint256 pool);
    /// @notice `committee` is drawn and must sign a verdict.
    event CommitteeDrawn(bytes32 indexed disputeId, uint32 draw, address[] committee);
    /// @notice Committee `draw` reached its quorum with `signatures` signatures.
    event VerdictGiven(bytes32 indexed disputeId, uint32 draw, bool providerCorrect, uint256 signatures);
    /// @notice `account` can withdraw another `amount` wei.
    event Credited(bytes32 indexed disputeId, address indexed account, uint256 amount);
    /// @notice The dispute ended with `outcome`; `burned` wei of the bond or the penalty were burned.
    event DisputeEnded(bytes32 indexed disputeId, bytes32 indexed unitId, Status outcome, uint256 burned);
    /// @notice `account` withdrew `amount` wei.
    event Withdrawn(address indexed account, uint256 amount);

    /// @notice A constructor argument is outside its range.
    /// @param parameter Argument that is invalid.
    error InvalidParameter(string parameter);
    /// @notice The order does not hash to the unit's job id.
    error WrongOrder(bytes32 jobId);
    /// @notice `segments` is not between 1 and `MAX_SEGMENTS`.
    error InvalidSegments(uint16 segments);
    /// @notice The window does not include the unit.
    error NotInWindow(bytes32 windowRoot);
    /// @notice The dispute period of the unit ended at `end`.
    error DisputePeriodOver(uint256 end);
    /// @notice The dispute was opened by `end`, within the dispute period.
    error OpenedInTime(uint256 end);
    /// @notice The signature is not the provider's signature of this commitment.
    error InvalidCommitmentSignature();
    /// @notice The caller has already disputed this unit.
    error DisputeExists(bytes32 disputeId);
    /// @notice The dispute is in `status`, in which this call is not allowed.
    error WrongStatus(bytes32 disputeId, Status status);
    /// @notice Another dispute over the unit was upheld. Only `dismiss` is allowed.
    error UnitConvicted(bytes32 unitId);
    /// @notice No dispute over the unit was upheld.
    error UnitNotConvicted(bytes32 unitId);
    /// @notice The response deadline `deadline` has passed.
    error TurnOver(uint256 deadline);
    /// @notice The response deadline `deadline` has not passed.
    error TurnNotOver(uint256 deadline);
    /// @notice The commitment is not the disputed one.
    error WrongUnit(bytes32 unitId);
    /// @notice `count` is not the number of segments plus one.
    error WrongStateCount(uint256 count);
    /// @notice The states do not hash to the signed root in this order and environment class.
    error InvalidTrace();
    /// @notice `account` is not the challenger.
    error NotChallenger(address account);
    /// @notice `step` is not less than `segments`.
    error NoSuchStep(uint16 step, uint16 segments);
    /// @notice The current block is not after `seedBlock`.
    error SeedNotReady(uint256 seedBlock);
    /// @notice The list differs from the drawn committee, or its length differs from the number of signatures.
    error WrongCommittee();
    /// @notice The signature of `referee` is not valid for this verdict.
    error InvalidVerdictSignature(address referee);
    /// @notice The unit has no open, upheld or inconclusive dispute.
    error NotDisputed(bytes32 unitId);
    /// @notice The payout is forfeited, a dispute is open, or a dispute can be opened until `end`.
    error NotRestorable(bytes32 unitId, uint256 end);
    /// @notice The caller has no credit.
    error NothingToWithdraw();

    /// @notice Opens a dispute and locks the bond of the caller, the challenger. Requires an allowance.
    /// @param order Order of the unit's job. It defines the number of segments.
    /// @param unit Commitment of the unit.
    /// @param commitmentSignature EIP-712 signature of the commitment by the provider's key. It prevents a dispute over
    /// a leaf that the provider never signed. ERC-1271 is not accepted, since a contract could later disown its
    /// signature.
    /// @param windowRoot Root of a committed window that includes the unit.
    /// @param windowProof Merkle proof of the unit in that window.
    /// @return disputeId `disputeIdOf(unitId, challenger)`.
    function open(
        JobOrder calldata order,
        UnitCommitment calldata unit,
        bytes calldata commitmentSignature,
        bytes32 windowRoot,
        bytes32[] calldata windowProof
    ) external returns (bytes32 disputeId);

    /// @notice Reveals the unit's trace. Any account may call, since the states prove themselves. If no call arrives in
    /// time, the provider loses with the penalty of an incorrect segment. A unit of one segment proceeds to its draw at
    /// once.
    /// @param unit Commitment of the unit.
    /// @param environmentClass Environment class of all states.
    /// @param states State digests, from boundary 0 on; one more than the number of segments.
    function showTrace(
        bytes32 disputeId,
        UnitCommitment calldata unit,
        bytes32 environmentClass,
        bytes32[] calldata states
    ) external;

    /// @notice Rejects a dispute that was opened after the dispute period of an earlier window of the unit. Allowed until
    /// the trace is revealed or its deadline passes. No later window makes the unit disputable again. Any account may
    /// call. A provider that keeps this proof needs no trace of an old unit.
    /// @param windowRoot Root of the earlier window.
    /// @param windowProof Merkle proof of the unit in that window.
    function rejectLate(bytes32 disputeId, bytes32 windowRoot, bytes32[] calldata windowProof) external;

    /// @notice Selects the first segment with a wrong end state, or segment 0 if the unit's start state is wrong. Only
    /// the challenger, which loses if it selects none in time.
    /// @param step Number of the boundary at which the segment starts.
    function nameStep(bytes32 disputeId, uint16 step) external;

    /// @notice Draws the committee once the hash of the seed block is known. Any account may call. The hash is
    /// available for 8,191 blocks (EIP-2935). After them, the call sets a new seed block instead. A draw that cannot fill its seats counts as a
    /// missed quorum.
    /// @return committee The drawn referees; empty if no committee was drawn. A simulated call predicts them.
    function drawCommittee(bytes32 disputeId) external returns (address[] memory committee);

    /// @notice Executes the verdict once a quorum has signed the same one. Stores fewer signatures and adds them to
    /// those of other calls before the deadline. Any account may call.
    /// @param committee The drawn referees, as in CommitteeDrawn.
    /// @param signatures For each referee its EIP-712 signature of the Verdict, or empty. Against the provider, a
    /// signature of the Objection counts too. Only signers of the Verdict are paid.
    function submitVerdict(
        bytes32 disputeId,
        bool providerCorrect,
        address[] calldata committee,
        bytes[] calldata signatures
    ) external;

    /// @notice Ends a dispute after a missed response deadline: the party to act loses. For a committee use
    /// `replaceCommittee`.
    function expire(bytes32 disputeId) external;

    /// @notice Replaces a committee that missed its quorum, with a draw from a later block's hash. After the last
    /// committee the dispute ends as inconclusive. Delists members without a stored signature (`signedSeats`). Any
    /// account may call.
    /// @param committee The drawn referees, as in CommitteeDrawn.
    function replaceCommittee(bytes32 disputeId, address[] calldata committee) external;

    /// @notice Ends a dispute after another dispute over the unit was upheld, and returns the bond.
    function dismiss(bytes32 disputeId) external;

    /// @notice Withholds the payout of a disputed unit from its settlement batch, before the batch's claims open. Any
    /// account may call.
    /// @param unit Commitment of the unit.
    /// @param batchId Number of the batch in the escrow.
    /// @param price Wei of ZEN per GPU-hour in the batch's leaf.
    /// @param proof Merkle proof of the paid unit in the batch.
    function withhold(UnitCommitment calldata unit, uint256 batchId, uint80 price, bytes32[] calldata proof) external;

    /// @notice Pays the held payout of a unit that survived its disputes, once none can be opened. Any account may
    /// call.
    function restore(bytes32 unitId) external;

    /// @notice Pays out the caller's credit.
    function withdraw() external;

    /// @notice Returns the credit of `account` that is not withdrawn, in wei.
    function credits(address account) external view returns (uint256);

    /// @notice Returns the dispute; all zero if it does not exist.
    function disputes(bytes32 disputeId) external view returns (Dispute memory);

    /// @notice Returns the effect of disputes on the unit; all zero if it was never disputed.
    function units(bytes32 unitId) external view returns (Unit memory);

    /// @notice Returns the id of a challenger's dispute over a unit.
    function disputeIdOf(bytes32 unitId, address challenger) external pure returns (bytes32);

    /// @notice Returns the fixed terms.
    function terms() external view returns (Terms memory);
}
