// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title What referees sign, and what a wrong signature costs
/// @notice A verdict says what a replay gave, which is the same for everybody. An objection says what is wrong with what a referee was
/// given, or was not, which nobody else can check later. So only verdicts are paid, and only they can be punished. Signatures are made by an account's
/// key and never ERC-1271: a contract could disown its signature later.
///
/// A signature of a member that nobody sent with the verdict can be shown here by whoever has it. What a penalty takes is burned:
/// nobody gains by another's. One committee costs a referee each penalty once, and both together at most its stake.
interface IVerdicts {
    /// @notice `referee` is punished for what it signed as a member of committee `draw`, by this row of the penalty table.
    event RefereePunished(bytes32 indexed disputeId, uint32 draw, address indexed referee, uint8 offence);

    /// @notice The members of committee `draw` in `seats` (bit i: seat i) have signed for this outcome, too few to decide.
    event VotesKept(bytes32 indexed disputeId, uint32 draw, bool providerCorrect, uint256 seats);

    /// @notice The two signatures are not both sides' by one account.
    error NoContradiction();
    /// @notice Against fewer than two others nobody can be said to be wrong.
    error TooFewMembers(uint256 members);
    /// @notice That a member stood against all others could be shown until `end`.
    error ProofTooLate(uint256 end);

    /// @notice Punishes an account that signed both verdicts for one committee: it loses all that it has at risk. Anybody may call, at
    /// any time.
    /// @param draw Number of the committee within the dispute.
    /// @param forProvider Its EIP-712 signature of the Verdict for the provider.
    /// @param forChallenger Its EIP-712 signature of the Verdict for the challenger.
    function proveContradiction(
        bytes32 disputeId,
        uint32 draw,
        bytes calldata forProvider,
        bytes calldata forChallenger
    ) external;

    /// @notice Punishes the one member of the present or last committee that signed one verdict while all others signed the
    /// opposite, as a wrong replay. Anybody may call, until one dispute period after the committee's last second: as long as whoever
    /// signs the opposite now of what it signed then has a stake to lose by that, and keys that outlived their stakes accuse
    /// nobody. Of two members against the others neither is punished, so that a bare majority that was bribed cannot punish
    /// those who were not.
    /// @param providerCorrect What the others signed.
    /// @param committee The drawn referees, as in CommitteeDrawn.
    /// @param signatures Each member's EIP-712 signature of its Verdict.
    /// @param odd Place of the one that signed the opposite.
    function proveWrongVerdict(
        bytes32 disputeId,
        bool providerCorrect,
        address[] calldata committee,
        bytes[] calldata signatures,
        uint256 odd
    ) external;

    /// @notice Which members of the present committee have signatures here that did not decide yet: bit i for the seat of that number.
    /// Who has is not struck if the committee misses its quorum.
    function signedSeats(bytes32 disputeId) external view returns (uint256);

    /// @notice What a referee signs that has replayed the step in dispute.
    function verdictDigest(bytes32 disputeId, uint32 draw, bool providerCorrect) external view returns (bytes32);

    /// @notice What a referee signs that rejects the unit for another reason than the end that a replay gave.
    function objectionDigest(bytes32 disputeId, uint32 draw) external view returns (bytes32);
}
