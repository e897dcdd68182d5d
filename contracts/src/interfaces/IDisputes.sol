// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {JobOrder, UnitCommitment} from "../Messages.sol";

/// @notice What disputes need of ProviderStaking.
interface IDisputeStaking {
    /// @notice Punishes `provider`; `share` of the `amount` taken is sent to the caller.
    function slash(address provider, uint8 offence, bytes32 evidence) external returns (uint256 amount, uint256 share);

    /// @notice Whether `account` is not jailed and has the stake that `tier` demands (0: verifier).
    function qualifies(address account, uint8 tier) external view returns (bool);
}

/// @notice What disputes need of JobEscrow.
interface IDisputeEscrow {
    /// @notice Takes a unit's pay out of a batch whose claims are not open yet.
    function withhold(uint256 batchId, UnitCommitment calldata unit, uint80 price, bytes32[] calldata proof)
        external
        returns (bytes32 unitId);

    /// @notice Pays a withheld unit as settled, or returns it to the payer. Does nothing where nothing is withheld.
    function release(bytes32 unitId, bool restored) external returns (bool);

    /// @notice What a provider signs to commit to a unit.
    function commitmentDigest(UnitCommitment calldata unit) external view returns (bytes32);
}

/// @title Disputes over units of work
/// @notice A challenger bonds ZEN. The provider shows the states at all boundaries of the unit's trace, which must give the
/// root that it signed. The challenger names the first step whose end it rejects. A committee of referees, drawn from the
/// staked verifiers by the hash of a later block, replays that step and signs. A party that lets its turn pass loses; a committee
/// that misses its quorum is replaced, and who was silent in it is struck off the list. Amounts in wei of ZEN, times in
/// Unix seconds. There is no admin and no pause.
///
/// The committee finds for the provider if, and only if, the data behind the state at the start of the step can be had,
/// replaying the step from it in the shown environment gives the state at its end, for the first step its start is the
/// state that the job's round starts from, and for the last one its end covers the committed payload.
///
/// A root has one list of states of the trace's length, so nobody can show another trace in another dispute, and a root
/// that is not one of such a list cannot be shown at all: its provider loses.
///
/// That is five transactions whatever the length: `open`, `showTrace`, `nameStep`, `drawCommittee`, `submitVerdict`; a unit
/// of one segment needs no naming. A draw can go with its verdict in one `multicall` while the seed block's hash is in reach.
///
/// A unit may have several disputes at a time, since one that its own provider opens must not keep the others out: a
/// challenger has one of a unit. A step found correct stays correct; a convicted unit ends all its disputes. Withheld pay is
/// released to the provider once no dispute is open and none can be opened any more.
///
/// Terms, the penalty table and the unbonding delay must fit: a dispute opened at the last moment has to end before the
/// provider's stake can leave.
interface IDisputes {
    /// @notice Trace: the provider's turn. Step: the challenger's. Drawing: a committee waits for its seed. Judging: the
    /// committee's turn. The others are final. Undecided: no committee ruled in time, however often it was replaced. Moot: the unit was convicted
    /// in another dispute.
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

    /// @param bond Wei that a challenger puts up.
    /// @param cost Wei that covers the winner's cost.
    /// @param refereeFee Wei for each referee whose verdict decided; less where the penalty cannot pay all seats that much.
    /// @param disputePeriod Seconds after its window's commitment during which a unit can be disputed.
    /// @param turnPeriod Seconds for each turn.
    /// @param verdictPeriod Seconds that a committee has.
    /// @param seedDelay Blocks until the block that seeds a draw, 1 to 200.
    /// @param seats Referees in a committee, 1 to 15.
    /// @param quorum Signatures that decide, more than half of the seats.
    /// @param maxDraws Committees that a dispute gets at most.
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

    /// @param challenger Who rejects the unit.
    /// @param segments Of the unit's trace.
    /// @param step The named step, from the boundary of that number to the next; 0 until it is named.
    /// @param deadline Last second of the present turn; the largest number while no clock runs.
    /// @param status Where it stands.
    /// @param draw Number of the present committee, counted from 0.
    /// @param provider Who did the unit.
    /// @param seedBlock Block whose hash draws the committee.
    /// @param pool Referees to draw from.
    /// @param payer Who pays for the job.
    /// @param listedBy When the first draw was scheduled: who came to the list after that is in no committee, as long as others
    /// fill it.
    /// @param scheduledAt When the present draw was scheduled: entries must last until then.
    /// @param unitId The unit: `Messages.leaf` of its commitment.
    /// @param committee keccak256 of the encoded list of the present committee.
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

    /// @param open Disputes that have not ended.
    /// @param disputableUntil Last second at which the unit can be disputed.
    /// @param unpaid Whether its pay goes back to the payer: it was convicted, or a dispute stayed undecided.
    /// @param convicted Whether its provider lost a dispute over it.
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
    /// @notice The dispute waits for what `status` says until `deadline`.
    event TurnStarted(bytes32 indexed disputeId, Status status, uint256 deadline);
    /// @notice The digests of the states at all boundaries, from 0 on, all of one environment class.
    event TraceShown(bytes32 indexed disputeId, bytes32 environmentClass, bytes32[] states);
    /// @notice The dispute is about the step from boundary `step` to the next.
    event StepNamed(bytes32 indexed disputeId, uint16 step);
    /// @notice Committee `draw` comes from the first `pool` referees by the hash of block `seedBlock`.
    event DrawScheduled(bytes32 indexed disputeId, uint32 draw, uint256 seedBlock, uint256 pool);
    /// @notice `committee` judges.
    event CommitteeDrawn(bytes32 indexed disputeId, uint32 draw, address[] committee);
    /// @notice Committee `draw` has judged, with `signatures` of its members.
    event VerdictGiven(bytes32 indexed disputeId, uint32 draw, bool providerCorrect, uint256 signatures);
    /// @notice `amount` can be withdrawn by `account`.
    event Credited(bytes32 indexed disputeId, address indexed account, uint256 amount);
    /// @notice The dispute is over; `burned` of bond or penalty was left over.
    event DisputeEnded(bytes32 indexed disputeId, bytes32 indexed unitId, Status outcome, uint256 burned);
    /// @notice `account` took `amount` out.
    event Withdrawn(address indexed account, uint256 amount);

    /// @notice A constructor argument makes no sense.
    /// @param parameter Its name.
    error InvalidParameter(string parameter);
    /// @notice The order is not the one of the unit's job.
    error WrongOrder(bytes32 jobId);
    /// @notice A unit that can be disputed has 1 to `MAX_SEGMENTS` segments.
    error InvalidSegments(uint16 segments);
    /// @notice The window does not include the unit.
    error NotInWindow(bytes32 windowRoot);
    /// @notice The unit could be disputed until `end`.
    error DisputePeriodOver(uint256 end);
    /// @notice The provider did not sign this commitment.
    error InvalidCommitmentSignature();
    /// @notice The same challenger has disputed the unit before.
    error DisputeExists(bytes32 disputeId);
    /// @notice Not what the dispute waits for.
    error WrongStatus(bytes32 disputeId, Status status);
    /// @notice The unit was convicted in another dispute; only `dismiss` is left.
    error UnitConvicted(bytes32 unitId);
    /// @notice The unit was not convicted in another dispute.
    error UnitNotConvicted(bytes32 unitId);
    /// @notice The turn ended at `deadline`.
    error TurnOver(uint256 deadline);
    /// @notice The turn lasts until `deadline`.
    error TurnNotOver(uint256 deadline);
    /// @notice The commitment is not the disputed one.
    error WrongUnit(bytes32 unitId);
    /// @notice A trace has one state more than it has segments.
    error WrongStateCount(uint256 count);
    /// @notice These states, in this order and environment, do not give the signed root.
    error InvalidTrace();
    /// @notice Only the challenger names the step.
    error NotChallenger(address account);
    /// @notice Steps are counted from 0 to `segments` - 1.
    error NoSuchStep(uint16 step, uint16 segments);
    /// @notice The draw's block is not yet behind the head: wait until after `seedBlock`.
    error SeedNotReady(uint256 seedBlock);
    /// @notice These are not the drawn referees, one signature (or an empty one) for each.
    error WrongCommittee();
    /// @notice The signature of `referee` is not one of this verdict.
    error InvalidVerdictSignature(address referee);
    /// @notice No dispute over the unit is open, and none took its pay.
    error NotDisputed(bytes32 unitId);
    /// @notice The unit's pay is not to be restored: it went back to the payer, or a dispute is open or possible until `end`.
    error NotRestorable(bytes32 unitId, uint256 end);
    /// @notice The caller has nothing here.
    error NothingToWithdraw();

    /// @notice Opens a dispute; the caller is the challenger and pays the bond (needs an allowance).
    /// @param order Order of the unit's job, which says how many segments the trace has.
    /// @param unit The commitment.
    /// @param commitmentSignature The provider's EIP-712 signature of it, so that nobody is framed by a leaf that it never
    /// made. By its key and never ERC-1271: a contract could disown its signature later.
    /// @param windowRoot A committed window with the unit.
    /// @param windowProof Merkle proof of the unit in that window.
    /// @return disputeId `disputeIdOf(unitId, challenger)`.
    function open(
        JobOrder calldata order,
        UnitCommitment calldata unit,
        bytes calldata commitmentSignature,
        bytes32 windowRoot,
        bytes32[] calldata windowProof
    ) external returns (bytes32 disputeId);

    /// @notice Shows the unit's trace. Anybody may, since it proves itself; if nobody does in time, the provider loses as for a
    /// false step. A unit of one segment goes to its draw at once.
    /// @param environmentClass Class of all states.
    /// @param states Digests of the states at all boundaries, from 0 to `segments`.
    function showTrace(
        bytes32 disputeId,
        UnitCommitment calldata unit,
        bytes32 environmentClass,
        bytes32[] calldata states
    ) external;

    /// @notice Names the first step whose end the challenger rejects; step 0 also where it rejects the start of the unit. Only
    /// the challenger; it loses if it names none in time.
    /// @param step Number of the boundary that the step starts from.
    function nameStep(bytes32 disputeId, uint16 step) external;

    /// @notice Draws the committee once its seed's block is known. Anybody may call. If that block is more than 256 blocks old its
    /// hash is gone, and a new seed block is set instead. A draw that cannot fill its seats counts as one without verdict.
    /// @return committee The drawn referees; empty if there is no committee yet. A call that is not sent tells them ahead.
    function drawCommittee(bytes32 disputeId) external returns (address[] memory committee);

    /// @notice Executes what the committee found, once a quorum has signed the same. Fewer signatures are kept for whoever
    /// adds the rest, also those of other calls before the deadline. Anybody may call.
    /// @param committee The drawn referees, as in CommitteeDrawn.
    /// @param signatures For each its EIP-712 signature of the Verdict, or of Objection against the provider, or nothing. Those
    /// that signed the Verdict are paid.
    function submitVerdict(
        bytes32 disputeId,
        bool providerCorrect,
        address[] calldata committee,
        bytes[] calldata signatures
    ) external;

    /// @notice Ends a turn that was let pass: its side loses. A committee has no side: `replaceCommittee`.
    function expire(bytes32 disputeId) external;

    /// @notice Replaces a committee that missed its quorum, by a draw from a later block's hash; after the last one the dispute
    /// stays undecided. Members without a signature here (`signedSeats`) are struck off the list. Anybody may call.
    /// @param committee The drawn referees, as in CommitteeDrawn.
    function replaceCommittee(bytes32 disputeId, address[] calldata committee) external;

    /// @notice Ends a dispute whose unit was convicted in another one; the bond goes back.
    function dismiss(bytes32 disputeId) external;

    /// @notice Takes the pay of a disputed unit out of its settlement batch, before the batch's claims open. Anybody may call.
    /// @param batchId Batch of the escrow.
    /// @param price Wei of ZEN per GPU-hour in the batch's leaf.
    /// @param proof Merkle proof of the unit in the batch.
    function withhold(UnitCommitment calldata unit, uint256 batchId, uint80 price, bytes32[] calldata proof) external;

    /// @notice Pays a withheld unit that survived its disputes, once none can be opened any more. Anybody may call.
    function restore(bytes32 unitId) external;

    /// @notice Pays out what the caller was credited.
    function withdraw() external;

    /// @notice What `account` was credited and has not withdrawn.
    function credits(address account) external view returns (uint256);

    /// @notice The dispute, all zero if there is none.
    function disputes(bytes32 disputeId) external view returns (Dispute memory);

    /// @notice What disputes have made of the unit, all zero if it had none.
    function units(bytes32 unitId) external view returns (Unit memory);

    /// @notice Id of a challenger's dispute over a unit.
    function disputeIdOf(bytes32 unitId, address challenger) external pure returns (bytes32);

    /// @notice The fixed terms.
    function terms() external view returns (Terms memory);
}
