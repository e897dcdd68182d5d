// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title Signatures of referees and the penalties for wrong ones
/// @notice A Verdict is the result of a replay, which is reproducible. An Objection reports a fault in the data that
/// the referee received, or missing data, which cannot be verified later. So only Verdicts are paid, and only Verdicts
/// can be slashed. Signatures are made by the account's key. ERC-1271 is not accepted, since a contract could later
/// disown its signature.
///
/// A proof can use a member's signature that was never submitted with the verdict. Slashed ZEN is burned, so the caller
/// gains nothing by a proof. For one committee each penalty applies to a referee once. Both together cost at most its
/// slashable balance.
interface IVerdicts {
    /// @notice `referee` was slashed with row `offence` of the penalty table for its signature in committee `draw`.
    event RefereePunished(bytes32 indexed disputeId, uint32 draw, address indexed referee, uint8 offence);

    /// @notice Members of committee `draw` in `seats` (bit i: seat i) have signed this verdict, fewer than the quorum.
    event VotesKept(bytes32 indexed disputeId, uint32 draw, bool providerCorrect, uint256 seats);

    /// @notice The signatures are not one account's for both verdicts.
    error NoContradiction();
    /// @notice The committee has fewer than three members.
    error TooFewMembers(uint256 members);
    /// @notice A dissenting verdict could be proven until `end`.
    error ProofTooLate(uint256 end);

    /// @notice Proves equivocation: slashes an account that signed both verdicts for one committee. Any account may
    /// call, at any time.
    /// @param draw Number of the committee within the dispute.
    /// @param forProvider Its EIP-712 signature of the Verdict for the provider.
    /// @param forChallenger Its EIP-712 signature of the Verdict for the challenger.
    function proveContradiction(
        bytes32 disputeId,
        uint32 draw,
        bytes calldata forProvider,
        bytes calldata forChallenger
    ) external;

    /// @notice Proves a wrong replay: slashes the single member that signed against all others of the current or last
    /// committee. Any account may call, until one dispute period after the committee's deadline.
    /// @dev The time limit keeps the signers' stakes slashable: a member that now signs the opposite of its earlier
    /// verdict can lose them. With two dissenting members neither is slashed, so a bribed bare majority cannot slash
    /// the others.
    /// @param providerCorrect Verdict of the other members.
    /// @param committee The drawn referees, as in CommitteeDrawn.
    /// @param signatures Each member's EIP-712 signature of its Verdict.
    /// @param odd Index of the dissenting member.
    function proveWrongVerdict(
        bytes32 disputeId,
        bool providerCorrect,
        address[] calldata committee,
        bytes[] calldata signatures,
        uint256 odd
    ) external;

    /// @notice Returns the seats of the current committee with a stored signature, as a bit mask (bit i: seat i). These
    /// members are not delisted if the committee misses its quorum.
    function signedSeats(bytes32 disputeId) external view returns (uint256);

    /// @notice Returns the EIP-712 digest that a referee signs after replaying the disputed segment.
    function verdictDigest(bytes32 disputeId, uint32 draw, bool providerCorrect) external view returns (bytes32);

    /// @notice Returns the EIP-712 digest that a referee signs to reject the unit for another reason than the replay's
    /// result.
    function objectionDigest(bytes32 disputeId, uint32 draw) external view returns (bytes32);
}
