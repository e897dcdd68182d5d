// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {UnitCommitment} from "../Messages.sol";

/// @title Omission claims against the operator
/// @notice The operator signs an inclusion acknowledgement for each commitment that a provider delivers, and deposits a
/// bond here. If an acknowledged unit is in no commitment window by `includeBy`, its provider can open an omission
/// claim with a small stake. Any account can answer by proving the unit in a window committed in time. The provider
/// then loses its stake. Without an answer the provider receives a fixed compensation from the bond. A unit can be
/// claimed once. Amounts in wei of ZEN, times in Unix seconds.
/// @dev An acknowledgement counts while its signer holds ACKNOWLEDGER_ROLE. The signer cannot renounce the role. The
/// admin is a timelock. Its delay leaves providers time to claim before the role is revoked.
interface IOmissions {
    /// @notice State of an omission claim. Answered and Compensated are final.
    enum State {
        None,
        Open,
        Answered,
        Compensated
    }

    /// @param stake Wei that a claimant loses if the claim is answered.
    /// @param compensation Wei from the bond for an omitted unit.
    /// @param claimPeriod Seconds after `includeBy` in which a claim can be opened.
    /// @param responsePeriod Seconds in which a claim can be answered.
    /// @param withdrawalDelay Seconds between request and withdrawal of bond, at least the claim period.
    struct Terms {
        uint96 stake;
        uint96 compensation;
        uint40 claimPeriod;
        uint40 responsePeriod;
        uint40 withdrawalDelay;
    }

    /// @param provider Claimant, which receives the compensation.
    /// @param includeBy Acknowledged inclusion deadline, in Unix time.
    /// @param deadline Last second to answer, in Unix time.
    /// @param state None, Open, Answered or Compensated.
    struct Claim {
        address provider;
        uint40 includeBy;
        uint40 deadline;
        State state;
    }

    /// @param amount Requested wei, still part of the bond.
    /// @param releaseAt Earliest Unix time of the withdrawal.
    struct Withdrawal {
        uint96 amount;
        uint40 releaseAt;
    }

    /// @notice `account` added `amount` wei to the bond, which is now `bond`.
    event Deposited(address indexed account, uint256 amount, uint256 bond);
    /// @notice The operator can withdraw `amount` wei from `releaseAt` on.
    event WithdrawalRequested(uint256 amount, uint256 releaseAt);
    /// @notice The operator withdrew `amount` wei to `to`; `bond` wei remain.
    event Withdrawn(address indexed to, uint256 amount, uint256 bond);
    /// @notice `provider` claims that its unit is in no window by `includeBy`. The response deadline is `deadline`.
    event ClaimOpened(bytes32 indexed unitId, address indexed provider, uint256 includeBy, uint256 deadline);
    /// @notice The unit is in window `windowRoot`, committed in time. The claim's stake was added to the bond.
    event ClaimAnswered(bytes32 indexed unitId, bytes32 indexed windowRoot);
    /// @notice `provider` received its stake and `compensation` wei from the bond.
    event Compensated(bytes32 indexed unitId, address indexed provider, uint256 compensation);

    /// @notice A constructor argument is outside its range.
    /// @param parameter Argument that is invalid.
    error InvalidParameter(string parameter);
    /// @notice The amount is zero.
    error ZeroAmount();
    /// @notice No withdrawal was requested.
    error NoWithdrawal();
    /// @notice The withdrawal delay lasts until `releaseAt`.
    error WithdrawalTooEarly(uint256 releaseAt);
    /// @notice Open claims hold the whole bond.
    error BondHeld(uint256 bond, uint256 held);
    /// @notice `account` is not the provider of the unit.
    error NotProvider(address account);
    /// @notice The inclusion deadline `includeBy` has not passed.
    error ClaimTooEarly(uint256 includeBy);
    /// @notice The claim period ended at `end`.
    error ClaimTooLate(uint256 end);
    /// @notice The unit was already claimed.
    error ClaimExists(bytes32 unitId);
    /// @notice The unit has no open claim.
    error NoOpenClaim(bytes32 unitId);
    /// @notice `signer`, recovered from the signature, does not hold ACKNOWLEDGER_ROLE.
    error NotAcknowledged(address signer);
    /// @notice The window does not include the unit.
    error NotInWindow(bytes32 windowRoot);
    /// @notice The window was committed at `committedAt`, after `includeBy`.
    error IncludedTooLate(uint256 committedAt, uint256 includeBy);
    /// @notice The response deadline `deadline` has passed.
    error ResponseOver(uint256 deadline);
    /// @notice The response deadline `deadline` has not passed.
    error ResponseNotOver(uint256 deadline);
    /// @notice ACKNOWLEDGER_ROLE cannot be renounced, since that would void acknowledgements. Only the admin revokes
    /// it.
    error CannotRenounce();

    /// @notice Adds `amount` wei to the operator's bond. Requires an allowance. Any account may call.
    function deposit(uint96 amount) external;

    /// @notice Requests a withdrawal of `amount` wei from the bond. Replaces an earlier request and its time. Only
    /// OPERATOR_ROLE.
    function requestWithdrawal(uint96 amount) external;

    /// @notice Pays the requested amount to the caller, limited to the bond that open claims do not hold. Only
    /// OPERATOR_ROLE.
    function withdraw() external;

    /// @notice Opens an omission claim for the caller's unit. Requires an allowance for the stake.
    /// @param unit The caller's commitment.
    /// @param includeBy Acknowledged inclusion deadline, in Unix time.
    /// @param acknowledgement EIP-712 signature of the Acknowledgement by a key with ACKNOWLEDGER_ROLE.
    function claim(UnitCommitment calldata unit, uint40 includeBy, bytes calldata acknowledgement) external;

    /// @notice Answers a claim with a proof that the unit is in a window committed by `includeBy`. Any account may
    /// call.
    function respond(UnitCommitment calldata unit, bytes32 windowRoot, bytes32[] calldata proof) external;

    /// @notice Compensates the provider of a claim that was not answered in time. Any account may call.
    function resolve(bytes32 unitId) external;

    /// @notice The operator's bond in wei, including the parts held for open claims or requested for withdrawal.
    function bond() external view returns (uint256);

    /// @notice Number of open claims.
    function openClaims() external view returns (uint256);

    /// @notice Returns the requested withdrawal; all zero if none.
    function withdrawal() external view returns (Withdrawal memory);

    /// @notice Returns the claim for a unit; all zero if it does not exist.
    function claims(bytes32 unitId) external view returns (Claim memory);

    /// @notice Returns the EIP-712 digest of an inclusion acknowledgement, signed by the operator.
    function acknowledgementDigest(bytes32 unitId, uint40 includeBy) external view returns (bytes32);

    /// @notice Returns the fixed terms.
    function terms() external view returns (Terms memory);
}
