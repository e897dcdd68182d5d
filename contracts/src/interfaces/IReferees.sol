// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title Who may be drawn to judge disputes
/// @notice Staked verifiers register here. A committee is drawn from those who were registered when its seed's block was
/// fixed, and who are still staked and not jailed when it is drawn. While a draw is pending the list only grows at its
/// end, so that nobody who sees the seed can rearrange it. An entry ends after LISTING_PERIOD unless it is renewed, and at once
/// where a committee missed its quorum and the referee had a seat in it and signed nothing: who does not run any more is not
/// drawn for long, and loses nothing. Who is struck may register again at once; of the dispute that it was silent in it is
/// drawn again only where too few others are left.
interface IReferees {
    /// @notice `referee` can be drawn until `until`.
    event RefereeRegistered(address indexed referee, uint256 until);
    /// @notice `referee` signed nothing in a committee that missed its quorum; its entry ended with the second `until`.
    event RefereeStruck(address indexed referee, uint256 until);
    /// @notice `referee` is not drawn any more.
    event RefereeRemoved(address indexed referee);

    /// @notice Only a staked verifier that is not jailed can be drawn.
    error NotQualified(address account);
    /// @notice The account is not registered.
    error NotReferee(address account);
    /// @notice The account can still be drawn; only it can remove itself.
    error StillQualified(address account);
    /// @notice `pending` committees wait to be drawn from the list; draw them first.
    error DrawsPending(uint256 pending);

    /// @notice Registers the caller for LISTING_PERIOD from now on, or renews its entry. It must have the stake of a verifier. An
    /// entry that has ended begins anew.
    function registerReferee() external;

    /// @notice Takes the caller off the list. Waits for pending draws; unstaking does not.
    function resign() external;

    /// @notice Takes a referee off the list that is no longer staked, is jailed, or has not renewed its entry. Anybody may call.
    function evict(address referee) external;

    /// @notice Number of registered referees.
    function refereeCount() external view returns (uint256);

    /// @notice Whether `account` is registered.
    function isReferee(address account) external view returns (bool);

    /// @notice Last second in which `account` can be drawn, as far as its entry goes; 0 if it is not registered.
    function listedUntil(address account) external view returns (uint256);

    /// @notice Seconds that an entry lasts.
    function LISTING_PERIOD() external view returns (uint256);

    /// @notice Committees that wait to be drawn.
    function pendingDraws() external view returns (uint256);
}
