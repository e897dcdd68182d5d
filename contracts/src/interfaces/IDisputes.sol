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
/// @notice A challenger bonds ZEN and names two boundaries of a unit's trace, `lo` and `hi`: it accepts the provider's state
/// at `lo` and rejects the one at `hi`. Both are opened against the trace root that the provider signed. Then the range is
/// halved: the provider opens the state in the middle, the challenger says whether it agrees, until one step is left. A
/// committee of referees, drawn from the staked verifiers by the hash of a later block, replays that step and signs.
/// Whoever lets a turn pass loses. Amounts in wei of ZEN, times in Unix seconds. There is no admin and no pause.
///
/// The committee finds for the provider if, and only if, the data behind the state at `lo` can be had, replaying the step from
/// it in the committed environment gives the state at `hi`, for `lo` = 0 that state is the one the job's round starts
/// from, and for the last boundary it covers the committed payload.
///
/// A challenger that saw states off chain opens both ends itself, in the same `multicall` as `open`, so that a provider
/// with two leaves for one boundary cannot choose between them. One that did not see the state at `lo` starts from 0.
///
/// A unit may have several disputes at a time, since one that its own provider opens must not keep the others out. A
/// step found correct stays correct; a convicted unit ends all its disputes. Withheld pay is released to the provider once no dispute is
/// open and none can be opened any more.
///
/// Terms, the penalty table and the unbonding delay must fit: a dispute opened at the last moment has to end before the
/// provider's stake can leave.
interface IDisputes {
    /// @notice Ends, Middle: the provider's turn. Answer: the challenger's. Drawing: a committee waits for its seed. Judging:
    /// the committee's turn. The others are final. Undecided: no committee ruled in time. Moot: the unit was convicted
    /// in another dispute.
    enum Status {
        None,
        Ends,
        Middle,
        Answer,
        Drawing,
        Judging,
        ProviderLost,
        ChallengerLost,
        Undecided,
        Moot
    }

    /// @param bond Wei that a challenger puts up.
    /// @param cost Wei that covers the winner's cost.
    /// @param refereeFee Wei for each referee whose signature decided; less where the penalty cannot pay all seats that much.
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
    /// @param lo Boundary whose state is accepted.
    /// @param hi Boundary whose state is rejected.
    /// @param deadline Last second of the present turn; the largest number while no clock runs.
    /// @param status Where it stands.
    /// @param draw Number of the present committee, counted from 0.
    /// @param provider Who did the unit.
    /// @param seedBlock Block whose hash draws the committee.
    /// @param pool Referees to draw from.
    /// @param payer Who pays for the job.
    /// @param unitId The unit: `Messages.leaf` of its commitment.
    /// @param environmentClass Class of all states opened in this dispute.
    /// @param loState Digest of the state at `lo`.
    /// @param hiState Digest of the state at `hi`.
    /// @param middleState Digest of the state in the middle, from its opening to the answer.
    /// @param committee keccak256 of the encoded list of the present committee.
    struct Dispute {
        address challenger;
        uint16 lo;
        uint16 hi;
        uint40 deadline;
        Status status;
        uint8 draw;
        address provider;
        uint64 seedBlock;
        uint32 pool;
        address payer;
        bytes32 unitId;
        bytes32 environmentClass;
        bytes32 loState;
        bytes32 hiState;
        bytes32 middleState;
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

    /// @param state Digest of a boundary's state.
    /// @param proof Merkle proof of its leaf in the unit's trace.
    struct Opening {
        bytes32 state;
        bytes32[] proof;
    }

    /// @notice `challenger` rejects the state at `hi` of a unit and accepts that at `lo`.
    event DisputeOpened(
        bytes32 indexed disputeId,
        bytes32 indexed unitId,
        address indexed provider,
        address challenger,
        uint16 lo,
        uint16 hi
    );
    /// @notice The dispute waits for what `status` says until `deadline`.
    event TurnStarted(bytes32 indexed disputeId, Status status, uint256 deadline);
    /// @notice Both ends are open.
    event EndsRevealed(bytes32 indexed disputeId, bytes32 environmentClass, bytes32 loState, bytes32 hiState);
    /// @notice The state at `middle` is open.
    event MiddleRevealed(bytes32 indexed disputeId, uint16 middle, bytes32 state);
    /// @notice The challenger has answered: the dispute is now about `lo` to `hi`.
    event Narrowed(bytes32 indexed disputeId, uint16 lo, uint16 hi);
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
    /// @notice A range needs lo < hi <= segments.
    error InvalidRange(uint16 lo, uint16 hi, uint16 segments);
    /// @notice The window does not include the unit.
    error NotInWindow(bytes32 windowRoot);
    /// @notice The unit could be disputed until `end`.
    error DisputePeriodOver(uint256 end);
    /// @notice The provider did not sign this commitment.
    error InvalidCommitmentSignature();
    /// @notice The same challenger has disputed this range of the unit before.
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
    /// @notice The state is not at this boundary of the signed trace.
    error InvalidOpening(uint16 boundary);
    /// @notice Only the challenger answers.
    error NotChallenger(address account);
    /// @notice Both openings of the boundary are the same.
    error SameState(uint16 boundary);
    /// @notice The draw's block is not yet behind the head: wait until after `seedBlock`.
    error SeedNotReady(uint256 seedBlock);
    /// @notice These are not the drawn referees, one signature (or an empty one) for each.
    error WrongCommittee();
    /// @notice The signature of `referee` is not one of this verdict.
    error InvalidVerdictSignature(address referee);
    /// @notice Fewer signatures than decide.
    error QuorumMissed(uint256 signatures, uint256 quorum);
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
    /// @param lo Boundary whose state the challenger accepts.
    /// @param hi Boundary whose state it rejects.
    /// @return disputeId `disputeIdOf(unitId, challenger, lo, hi)`.
    function open(
        JobOrder calldata order,
        UnitCommitment calldata unit,
        bytes calldata commitmentSignature,
        bytes32 windowRoot,
        bytes32[] calldata windowProof,
        uint16 lo,
        uint16 hi
    ) external returns (bytes32 disputeId);

    /// @notice Opens the states at `lo` and `hi`. Anybody may, since the openings prove themselves; if nobody does in time,
    /// the provider loses as for a false step.
    /// @param environmentClass Class of both states, and of all that are opened later.
    function revealEnds(
        bytes32 disputeId,
        UnitCommitment calldata unit,
        bytes32 environmentClass,
        Opening calldata lo,
        Opening calldata hi
    ) external;

    /// @notice Opens the state at `middleOf(disputeId)`. Anybody may; if nobody does in time, the provider loses as for a false step.
    function revealMiddle(bytes32 disputeId, UnitCommitment calldata unit, Opening calldata middle) external;

    /// @notice Says whether the challenger agrees with the state in the middle. Only the challenger; it loses if it does
    /// not answer in time.
    function answer(bytes32 disputeId, bool agrees) external;

    /// @notice Draws the committee once its seed's block is known. Anybody may call. If that block is more than 256 blocks old its
    /// hash is gone, and a new seed block is set instead. A draw that cannot fill its seats counts as one without verdict.
    function drawCommittee(bytes32 disputeId) external;

    /// @notice Executes what the committee found. Anybody may call.
    /// @param committee The drawn referees, as in CommitteeDrawn.
    /// @param signatures For each its EIP-712 signature of the Verdict (ERC-1271 for contracts), or nothing. Those that signed
    /// are paid.
    function submitVerdict(
        bytes32 disputeId,
        bool providerCorrect,
        address[] calldata committee,
        bytes[] calldata signatures
    ) external;

    /// @notice Ends a turn that was let pass: its side loses; a committee is replaced, and after the last one the dispute stays undecided.
    function expire(bytes32 disputeId) external;

    /// @notice Convicts a provider whose trace opens one boundary to two states, by which it could show each side another.
    /// Anybody may, at any time while the dispute is open.
    /// @param boundary The boundary.
    /// @param environments Environment classes of the two openings.
    /// @param first One opening.
    /// @param second Another, of another state or class.
    function proveTwoStates(
        bytes32 disputeId,
        UnitCommitment calldata unit,
        uint16 boundary,
        bytes32[2] calldata environments,
        Opening calldata first,
        Opening calldata second
    ) external;

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

    /// @notice Boundary that is opened next, or waits for its answer.
    function middleOf(bytes32 disputeId) external view returns (uint16);

    /// @notice Id of a challenger's dispute over a range of a unit.
    function disputeIdOf(bytes32 unitId, address challenger, uint16 lo, uint16 hi) external pure returns (bytes32);

    /// @notice What a referee signs.
    function verdictDigest(bytes32 disputeId, uint32 draw, bool providerCorrect) external view returns (bytes32);

    /// @notice The fixed terms.
    function terms() external view returns (Terms memory);
}
