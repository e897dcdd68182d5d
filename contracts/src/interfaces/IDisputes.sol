// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {JobOrder, UnitCommitment} from "../Messages.sol";

/// @title Disputes about units of work
/// @notice Anybody can challenge a committed unit by putting up a bond and naming a stretch of its trace whose start it
/// accepts and whose end it does not. The stretch is halved until one step is left: in each turn the provider opens the
/// state in the middle, and the challenger says whether it accepts that. A committee of referees, drawn at random from
/// staked verifiers, then replays the one step and signs what it found. Who misses a turn has lost.
///
/// The loser pays: a provider as for incorrect computation, of which a share comes here and covers the challenger's cost and the
/// referees; a challenger with its bond, which covers the provider's cost and the referees. The rest is burned, so that
/// nobody earns by accusing. What anybody is owed waits for `withdraw`.
///
/// Nothing here has an admin, and nothing can be paused. Amounts in wei of ZEN, times in Unix seconds.
interface IDisputes {
    enum Phase {
        None,
        Reveal, // the provider opens the state in the middle
        Choose, // the challenger takes a half
        Open, // the provider opens both ends of the last step
        Draw, // the referees can be drawn after `seedBlock`
        Judge, // the referees replay and sign
        Over
    }

    /// @param bond What a challenger puts up; covers `providerCost` and a full committee's fees.
    /// @param challengerCost What a challenger that is right gets beyond its bond, at most.
    /// @param providerCost What a provider that is right gets.
    /// @param refereeFee What each referee who signs gets, at most.
    /// @param turn Seconds that each turn lasts.
    /// @param period Seconds after a window's commitment in which its units can be challenged.
    /// @param seedDelay Blocks until the block whose hash draws a committee, 1 to 200.
    /// @param committee Referees that are drawn.
    /// @param quorum Referees who must agree; more than half of them.
    struct Parameters {
        uint96 bond;
        uint96 challengerCost;
        uint96 providerCost;
        uint96 refereeFee;
        uint40 turn;
        uint40 period;
        uint16 seedDelay;
        uint8 committee;
        uint8 quorum;
    }

    /// @param challenger Who disputes.
    /// @param deadline End of the present turn.
    /// @param lo Start of the disputed stretch, whose state both accept.
    /// @param hi End of the disputed stretch, whose state the challenger does not accept.
    /// @param phase Whose turn it is.
    /// @param draws Committees drawn so far.
    /// @param seedBlock Block whose hash draws the next committee.
    /// @param committeeHash Hash of the present committee, `keccak256(abi.encode(address[]))`.
    struct Dispute {
        address challenger;
        uint40 deadline;
        uint16 lo;
        uint16 hi;
        Phase phase;
        uint8 draws;
        uint64 seedBlock;
        bytes32 committeeHash;
    }

    /// @param open Disputes about the unit that are not over.
    /// @param condemned Whether one was lost by the provider, or ended without a verdict: the unit is not paid.
    /// @param withheld Whether its pay is withheld in the escrow.
    struct Unit {
        uint32 open;
        bool condemned;
        bool withheld;
    }

    /// @notice `challenger` disputes boundary `hi` of a unit and accepts boundary `lo`.
    event DisputeOpened(
        bytes32 indexed disputeId,
        bytes32 indexed unitId,
        address indexed provider,
        address challenger,
        uint16 lo,
        uint16 hi
    );
    /// @notice The provider opened the state at a boundary; the next turn ends at `deadline`.
    event StateRevealed(
        bytes32 indexed disputeId, uint16 boundary, bytes32 state, bytes32 environment, uint256 deadline
    );
    /// @notice The challenger took the half from `lo` to `hi`.
    event HalfChosen(bytes32 indexed disputeId, uint16 lo, uint16 hi, uint256 deadline);
    /// @notice A committee is drawn by the hash of block `seedBlock`.
    event DrawScheduled(bytes32 indexed disputeId, uint256 seedBlock);
    /// @notice These referees replay the step and sign until `deadline`.
    event CommitteeDrawn(bytes32 indexed disputeId, uint32 draw, address[] committee, uint256 deadline);
    /// @notice The provider lost; `slashed` of its stake went, `share` of it came here.
    event ProviderConvicted(bytes32 indexed disputeId, bytes32 indexed unitId, uint256 slashed, uint256 share);
    /// @notice The challenger lost its bond.
    event ProviderAcquitted(bytes32 indexed disputeId, bytes32 indexed unitId);
    /// @notice No committee came to a verdict, or the unit was condemned in another dispute: the bond went back.
    event DisputeVoided(bytes32 indexed disputeId, bytes32 indexed unitId);
    /// @notice `account` is owed `amount` more.
    event Credited(address indexed account, uint256 amount);
    /// @notice `account` took `amount`.
    event Withdrawn(address indexed account, uint256 amount);
    /// @notice `referee` may be drawn.
    event RefereeRegistered(address indexed referee);
    /// @notice `referee` is not drawn any more.
    event RefereeLeft(address indexed referee);

    /// @notice A constructor argument makes no sense.
    /// @param parameter Its name.
    error InvalidParameter(string parameter);
    /// @notice The order is not that of the unit's job.
    error WrongOrder(bytes32 jobId);
    /// @notice The provider did not sign this commitment.
    error InvalidCommitmentSignature();
    /// @notice The proof does not lead to the root.
    error InvalidProof();
    /// @notice A stretch goes from `lo` to a higher `hi`, which is at most `segments`.
    error InvalidStretch(uint256 lo, uint256 hi, uint256 segments);
    /// @notice The window's units could be challenged until `end`.
    error PeriodOver(uint256 end);
    /// @notice The unit was condemned.
    error UnitCondemned(bytes32 unitId);
    /// @notice The unit is neither disputed nor condemned.
    error UnitNotDisputed(bytes32 unitId);
    /// @notice This challenger disputed this unit before.
    error DisputeExists(bytes32 disputeId);
    /// @notice It is another turn.
    error WrongPhase(Phase phase);
    /// @notice It is somebody else's turn.
    error NotYourTurn(address caller);
    /// @notice The turn ended at `deadline`.
    error TurnOver(uint256 deadline);
    /// @notice The turn lasts until `deadline`.
    error TurnRunning(uint256 deadline);
    /// @notice The block that draws is not yet behind the head: wait until after `seedBlock`.
    error SeedNotReady(uint256 seedBlock);
    /// @notice The list is not the drawn committee.
    error WrongCommittee();
    /// @notice Fewer than the quorum signed this verdict.
    error NoQuorum(uint256 signatures, uint256 quorum);
    /// @notice A referee needs the stake of a verifier and must not be jailed.
    error NotQualified(address account);
    /// @notice The account is a referee already.
    error AlreadyReferee(address account);
    /// @notice The account is no referee.
    error NotReferee(address account);
    /// @notice Nothing is owed to the caller.
    error NothingOwed();

    /// @notice Disputes a unit. The caller puts up the bond (needs an allowance); it can dispute a unit once.
    /// @param order The order of the unit's job, which says how many segments a unit has.
    /// @param unit The unit.
    /// @param signature The provider's EIP-712 signature over the unit (in the escrow's domain).
    /// @param windowRoot Root of the window that the unit stands in.
    /// @param windowProof Leads from the unit to that root.
    /// @param lo Boundary whose state the caller accepts; 0 is the state that the unit starts from.
    /// @param hi Boundary whose state the caller does not accept.
    /// @return disputeId `keccak256(abi.encode(unitId, caller))`.
    function open(
        JobOrder calldata order,
        UnitCommitment calldata unit,
        bytes calldata signature,
        bytes32 windowRoot,
        bytes32[] calldata windowProof,
        uint16 lo,
        uint16 hi
    ) external returns (bytes32 disputeId);

    /// @notice Opens the state in the middle of the stretch, boundary (lo + hi) / 2. The provider's turn.
    /// @param unit The unit.
    /// @param challenger Who disputes it.
    /// @param state Digest of the state.
    /// @param environment Environment class of the trace.
    /// @param proof Leads from the boundary's leaf to the unit's trace root.
    function reveal(
        UnitCommitment calldata unit,
        address challenger,
        bytes32 state,
        bytes32 environment,
        bytes32[] calldata proof
    ) external;

    /// @notice Takes the half whose end the caller does not accept: the later one if it accepts the state in the middle.
    /// The challenger's turn.
    function choose(UnitCommitment calldata unit, bool acceptsMiddle) external;

    /// @notice Opens both ends of the last step. The provider's turn.
    /// @param states Digests at `lo` and `hi`.
    /// @param proofs Lead from their leaves to the unit's trace root.
    function openStep(
        UnitCommitment calldata unit,
        address challenger,
        bytes32[2] calldata states,
        bytes32 environment,
        bytes32[][2] calldata proofs
    ) external;

    /// @notice Draws the referees, once their block is behind the head. If its hash is out of reach, or too few referees
    /// are to be had, another block is set. Anybody may call.
    function drawCommittee(UnitCommitment calldata unit, address challenger) external;

    /// @notice Ends a dispute by the referees' finding. Anybody may call.
    /// @param committee The drawn committee, as the event gave it.
    /// @param providerCorrect The finding.
    /// @param signatures One for each member of the committee, in its order; empty for those who did not sign.
    function submitVerdict(
        UnitCommitment calldata unit,
        address challenger,
        address[] calldata committee,
        bool providerCorrect,
        bytes[] calldata signatures
    ) external;

    /// @notice Ends a turn that was missed. Anybody may call after its deadline.
    function timeout(UnitCommitment calldata unit, address challenger) external;

    /// @notice Withholds the unit's pay in a settlement batch, while it is disputed or because it was condemned. Anybody
    /// may call.
    /// @param batchId The batch.
    /// @param price The price that the batch pays it at.
    /// @param proof Leads from the paid unit's leaf to the batch's root.
    function withhold(UnitCommitment calldata unit, uint256 batchId, uint80 price, bytes32[] calldata proof) external;

    /// @notice Pays out what the caller is owed.
    function withdraw() external returns (uint256 amount);

    /// @notice Makes the caller one of those who can be drawn; it needs a verifier's stake.
    function registerReferee() external;

    /// @notice Takes the caller out again.
    function leaveReferees() external;

    /// @notice The dispute of a challenger about a unit, all zero if there is none.
    function disputes(bytes32 disputeId) external view returns (Dispute memory);

    /// @notice What is known of a unit.
    function units(bytes32 unitId) external view returns (Unit memory);

    /// @notice What an account can withdraw.
    function owed(address account) external view returns (uint256);

    /// @notice Number of registered referees.
    function refereeCount() external view returns (uint256);

    /// @notice What a referee signs.
    function verdictDigest(bytes32 disputeId, uint32 draw, bool providerCorrect) external view returns (bytes32);

    /// @notice The parameters, fixed when the contract was deployed.
    function parameters() external view returns (Parameters memory);
}
