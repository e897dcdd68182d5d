// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {UnitCommitment} from "../Messages.sol";

/// @title Commitments that the operator acknowledged and left out
/// @notice The operator signs an Acknowledgement for each commitment that a provider delivers, and deposits a bond here. A
/// provider whose acknowledged unit is in no window by `includeBy` claims with a small stake. The operator, or anybody,
/// answers by showing the unit in a window that was committed in time, which costs the provider its stake; otherwise the
/// provider gets a fixed compensation out of the bond. Once per unit. Amounts in wei of ZEN, times in Unix seconds.
///
/// An acknowledgement counts while its signer holds ACKNOWLEDGER_ROLE. The signer cannot renounce the role, and the
/// admin is a timelock: its delay leaves providers the time to claim before a role goes.
interface IOmissions {
    enum State {
        None,
        Open,
        Answered,
        Compensated
    }

    /// @param stake Wei that a claim costs if it is answered.
    /// @param compensation Wei out of the bond for an omitted unit.
    /// @param claimPeriod Seconds after `includeBy` in which a claim can be opened.
    /// @param responsePeriod Seconds in which it can be answered.
    /// @param withdrawalDelay Seconds between announcing and taking a withdrawal from the bond, at least the claim period.
    struct Terms {
        uint96 stake;
        uint96 compensation;
        uint40 claimPeriod;
        uint40 responsePeriod;
        uint40 withdrawalDelay;
    }

    /// @param provider Who claims and is compensated.
    /// @param includeBy Time by which the operator promised to include the unit.
    /// @param deadline Last second to answer.
    /// @param state None, Open, Answered or Compensated.
    struct Claim {
        address provider;
        uint40 includeBy;
        uint40 deadline;
        State state;
    }

    /// @param amount Wei announced, still part of the bond.
    /// @param releaseAt Earliest time to take it.
    struct Withdrawal {
        uint96 amount;
        uint40 releaseAt;
    }

    /// @notice `account` added `amount` to the bond.
    event Deposited(address indexed account, uint256 amount, uint256 bond);
    /// @notice The operator may take `amount` at `releaseAt`.
    event WithdrawalRequested(uint256 amount, uint256 releaseAt);
    /// @notice The operator took `amount` to `to`.
    event Withdrawn(address indexed to, uint256 amount, uint256 bond);
    /// @notice `provider` says that its unit is in no window by `includeBy`; to be answered by `deadline`.
    event ClaimOpened(bytes32 indexed unitId, address indexed provider, uint256 includeBy, uint256 deadline);
    /// @notice The unit is in the window `windowRoot` in time; the claim's stake joins the bond.
    event ClaimAnswered(bytes32 indexed unitId, bytes32 indexed windowRoot);
    /// @notice `provider` got its stake back and `compensation` out of the bond.
    event Compensated(bytes32 indexed unitId, address indexed provider, uint256 compensation);

    /// @notice A constructor argument makes no sense.
    /// @param parameter Its name.
    error InvalidParameter(string parameter);
    /// @notice The amount is zero.
    error ZeroAmount();
    /// @notice No withdrawal was announced.
    error NoWithdrawal();
    /// @notice The withdrawal waits until `releaseAt`.
    error WithdrawalTooEarly(uint256 releaseAt);
    /// @notice All of the bond is held for open claims.
    error BondHeld(uint256 bond, uint256 held);
    /// @notice Only the unit's provider claims.
    error NotProvider(address account);
    /// @notice The operator has until `includeBy`.
    error ClaimTooEarly(uint256 includeBy);
    /// @notice A claim could be opened until `end`.
    error ClaimTooLate(uint256 end);
    /// @notice The unit was claimed before.
    error ClaimExists(bytes32 unitId);
    /// @notice No open claim for the unit.
    error NoOpenClaim(bytes32 unitId);
    /// @notice The signer `signer` does not hold ACKNOWLEDGER_ROLE.
    error NotAcknowledged(address signer);
    /// @notice The window does not include the unit.
    error NotInWindow(bytes32 windowRoot);
    /// @notice The window was committed at `committedAt`, after `includeBy`.
    error IncludedTooLate(uint256 committedAt, uint256 includeBy);
    /// @notice The claim could be answered until `deadline`.
    error ResponseOver(uint256 deadline);
    /// @notice The claim can be answered until `deadline`.
    error ResponseNotOver(uint256 deadline);
    /// @notice An acknowledger could void its acknowledgements so; only the admin takes the role away.
    error CannotRenounce();

    /// @notice Adds `amount` to the operator's bond (needs an allowance). Anybody may.
    function deposit(uint96 amount) external;

    /// @notice Announces to take `amount` out of the bond; replaces an earlier announcement and its time. Only OPERATOR_ROLE.
    function requestWithdrawal(uint96 amount) external;

    /// @notice Takes the announced amount to the caller, as far as the bond is not held for open claims. Only OPERATOR_ROLE.
    function withdraw() external;

    /// @notice Claims that the caller's unit was left out (needs an allowance for the stake).
    /// @param unit The caller's commitment.
    /// @param includeBy As acknowledged.
    /// @param acknowledgement EIP-712 signature of the Acknowledgement by a key with ACKNOWLEDGER_ROLE.
    function claim(UnitCommitment calldata unit, uint40 includeBy, bytes calldata acknowledgement) external;

    /// @notice Shows that a claimed unit is in a window that was committed by `includeBy`. Anybody may.
    function respond(UnitCommitment calldata unit, bytes32 windowRoot, bytes32[] calldata proof) external;

    /// @notice Compensates the provider of a claim that was not answered in time. Anybody may.
    function resolve(bytes32 unitId) external;

    /// @notice The operator's bond, including what open claims hold and what is announced to leave.
    function bond() external view returns (uint256);

    /// @notice Claims that wait for an answer.
    function openClaims() external view returns (uint256);

    /// @notice The announced withdrawal.
    function withdrawal() external view returns (Withdrawal memory);

    /// @notice The claim for a unit, all zero if there is none.
    function claims(bytes32 unitId) external view returns (Claim memory);

    /// @notice What the operator signs to acknowledge.
    function acknowledgementDigest(bytes32 unitId, uint40 includeBy) external view returns (bytes32);

    /// @notice The fixed terms.
    function terms() external view returns (Terms memory);
}
