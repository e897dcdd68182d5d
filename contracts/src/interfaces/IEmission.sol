// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title Emission of rewards
/// @notice All new ZEN comes from here, to one recipient, by a schedule that is published at deployment and that nobody can
/// change: an amount per year of 365 days from the deployment on, which vests evenly, second by second, within its
/// year. Nothing vests after the last year. Amounts in wei of ZEN, times in Unix seconds.
///
/// The token's cap stands above the schedule. If what is due does not fit under the cap, nothing is minted and
/// nothing is lost: it stays due until burning has made room. A schedule that fits under the cap next to the initial
/// supply never meets this.
interface IEmission {
    /// @notice `amount` was minted; `total` is all that ever was.
    event Released(uint256 amount, uint256 total);

    /// @notice A constructor argument makes no sense.
    /// @param parameter Its name.
    error InvalidParameter(string parameter);
    /// @notice All that has vested is minted already.
    error NothingToRelease();

    /// @notice Mints what has vested and is not minted yet to the recipient. Anybody may call it.
    /// @return amount Wei minted.
    function release() external returns (uint256 amount);

    /// @notice Who gets the new ZEN.
    function recipient() external view returns (address);

    /// @notice Start of the first year.
    function start() external view returns (uint256);

    /// @notice All that was minted so far.
    function released() external view returns (uint256);

    /// @notice All that has vested by `time`: the bound of `released`.
    function vested(uint256 time) external view returns (uint256);

    /// @notice Wei that vest in each year.
    function schedule() external view returns (uint256[] memory yearly);
}
