// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {UnitCommitment} from "../Messages.sol";

/// @title Commitments that the operator promised to include and left out
/// @notice The operator acknowledges every commitment that a provider delivers: signed, with a time by which a window that
/// holds it will be on chain. If none is, the provider shows the acknowledgement here; the operator has a while to
/// answer with the window, or its bond pays a fixed compensation. Nothing can be paused. Amounts in wei of ZEN, times
/// in Unix seconds.
interface IOmissions {
    enum State {
        None,
        Open,
        Answered,
        Compensated
    }

    /// @param claimant Who put up the deposit.
    /// @param includeBy What the operator promised.
    /// @param answerBy Last time to answer.
    /// @param state None, Open, Answered or Compensated.
    struct Claim {
        address claimant;
        uint40 includeBy;
        uint40 answerBy;
        State state;
    }

    /// @param compensation What the unit's provider gets for an omission, if the bond has as much.
    /// @param deposit What a claimant puts up; lost to the bond if the operator answers.
    /// @param claimPeriod Seconds after `includeBy` in which an omission can be claimed.
    /// @param answerPeriod Seconds that the operator has to answer.
    /// @param withdrawDelay Seconds between asking for bond back and taking it; at least the other two together.
    struct Parameters {
        uint96 compensation;
        uint96 deposit;
        uint40 claimPeriod;
        uint40 answerPeriod;
        uint40 withdrawDelay;
    }

    /// @notice `amount` was added; the bond is `bond` now.
    event BondAdded(address indexed from, uint256 amount, uint256 bond);
    /// @notice `amount` of the bond can be taken back from `releaseAt` on.
    event BondRequested(uint256 amount, uint256 releaseAt);
    /// @notice `amount` of the bond went to `to`.
    event BondWithdrawn(address indexed to, uint256 amount);
    /// @notice `claimant` says that `unitId` was left out; the operator can answer until `answerBy`.
    event OmissionClaimed(bytes32 indexed unitId, address indexed claimant, uint256 answerBy);
    /// @notice The unit stands in the window with this root; the deposit is the bond's.
    event OmissionAnswered(bytes32 indexed unitId, bytes32 windowRoot);
    /// @notice Nobody answered: `amount` of the bond went to `provider`.
    event OmissionCompensated(bytes32 indexed unitId, address indexed provider, uint256 amount);

    /// @notice A constructor argument makes no sense.
    /// @param parameter Its name.
    error InvalidParameter(string parameter);
    /// @notice The amount is zero, or there is nothing to take.
    error ZeroAmount();
    /// @notice More than the bond.
    error InsufficientBond(uint256 requested, uint256 bond);
    /// @notice The bond is held until `releaseAt`.
    error BondHeld(uint256 releaseAt);
    /// @notice No acknowledging key signed this.
    error InvalidAcknowledgement(address signer);
    /// @notice The operator has until `includeBy` to include the unit.
    error NotDueYet(uint256 includeBy);
    /// @notice Omissions could be claimed until `end`.
    error ClaimPeriodOver(uint256 end);
    /// @notice This unit was claimed before.
    error AlreadyClaimed(bytes32 unitId);
    /// @notice There is no open claim for this unit.
    error NoOpenClaim(bytes32 unitId);
    /// @notice The window does not hold the unit, or was committed after `includeBy`.
    error NotIncluded(bytes32 unitId);
    /// @notice The operator could answer until `answerBy`.
    error AnswerPeriodOver(uint256 answerBy);
    /// @notice The operator can answer until `answerBy`.
    error AnswerPending(uint256 answerBy);

    /// @notice Adds to the operator's bond (needs an allowance). Anybody may.
    function addBond(uint96 amount) external;

    /// @notice Asks for bond back; a further request joins it and the whole waits again. Only OPERATOR_ROLE. It stays
    /// liable until it is taken.
    function requestBond(uint96 amount) external;

    /// @notice Takes what was asked for, or what claims have left of it. Only OPERATOR_ROLE.
    function withdrawBond(address to) external returns (uint256 amount);

    /// @notice Claims that an acknowledged unit is in no window. Anybody may, with the deposit (needs an allowance).
    /// @param unit The commitment.
    /// @param includeBy As acknowledged.
    /// @param signature The operator's EIP-712 signature over the acknowledgement, in this contract's domain.
    function claim(UnitCommitment calldata unit, uint40 includeBy, bytes calldata signature) external;

    /// @notice Shows the window that holds the unit. Anybody may.
    function answer(UnitCommitment calldata unit, bytes32 windowRoot, bytes32[] calldata proof) external;

    /// @notice Compensates the provider of a unit whose claim was not answered. Anybody may.
    function resolve(UnitCommitment calldata unit) external returns (uint256 amount);

    /// @notice The claim about a unit, all zero if there is none.
    function claims(bytes32 unitId) external view returns (Claim memory);

    /// @notice The operator's bond: all that compensations can be paid from.
    function bond() external view returns (uint256);

    /// @notice The parameters, fixed when the contract was deployed.
    function parameters() external view returns (Parameters memory);

    /// @notice What the operator signs to acknowledge a commitment.
    function acknowledgementDigest(bytes32 unitId, uint40 includeBy) external view returns (bytes32);
}
