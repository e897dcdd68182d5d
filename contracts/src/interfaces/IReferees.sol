// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title Referees that can be drawn into dispute committees
/// @notice Staked verifiers register here. A committee is drawn from the referees registered when the seed block was
/// fixed. They must be staked and not jailed at the draw. An entry ends after LISTING_PERIOD unless it is renewed. If a
/// committee misses its quorum, members without a signature are delisted: their entries end at once, without a penalty.
/// A delisted referee can register again at once. It is drawn for the same dispute only if too few others are
/// available.
/// @dev While a draw is pending, the list only grows at its end. So knowledge of the seed cannot be used to rearrange
/// it.
interface IReferees {
    /// @notice `referee` can be drawn until `until`.
    event RefereeRegistered(address indexed referee, uint256 until);
    /// @notice `referee` is delisted: it did not sign in a committee that missed its quorum. `until` was its last
    /// second.
    event RefereeStruck(address indexed referee, uint256 until);
    /// @notice `referee` is removed from the list.
    event RefereeRemoved(address indexed referee);

    /// @notice `account` is jailed or has less than a verifier's minimum stake.
    error NotQualified(address account);
    /// @notice `account` is not registered.
    error NotReferee(address account);
    /// @notice `account` can still be drawn. Only it can remove itself.
    error StillQualified(address account);
    /// @notice `pending` draws are pending. Complete them first.
    error DrawsPending(uint256 pending);

    /// @notice Registers the caller for LISTING_PERIOD from now, or renews its entry. Requires a verifier's stake. An
    /// expired entry restarts.
    function registerReferee() external;

    /// @notice Removes the caller from the list. Reverts while draws are pending. Unstaking does not wait for them.
    function resign() external;

    /// @notice Removes a referee that lacks stake, is jailed, or has an expired entry. Any account may call.
    function evict(address referee) external;

    /// @notice Number of registered referees.
    function refereeCount() external view returns (uint256);

    /// @notice Returns whether `account` is registered.
    function isReferee(address account) external view returns (bool);

    /// @notice Returns the last second of the entry of `account`, in Unix time; 0 if it is not registered.
    function listedUntil(address account) external view returns (uint256);

    /// @notice Seconds that an entry lasts.
    function LISTING_PERIOD() external view returns (uint256);

    /// @notice Number of committees that wait to be drawn.
    function pendingDraws() external view returns (uint256);
}
