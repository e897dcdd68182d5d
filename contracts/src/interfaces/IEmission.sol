// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title Emission of rewards
/// @notice Mints all new ZEN to one recipient by a schedule that is published at deployment and cannot change. The
/// schedule gives an amount for each year of 365 days from deployment. It vests linearly, per second, within its year.
/// Nothing vests after the last year. Amounts in wei of ZEN, times in Unix seconds.
/// @dev The token's cap takes precedence. An amount above the cap is not minted and stays due until burning makes room.
/// This cannot happen if schedule and initial supply together fit under the cap.
interface IEmission {
    /// @notice `amount` wei were minted; `total` is the sum of all releases.
    event Released(uint256 amount, uint256 total);

    /// @notice A constructor argument is outside its range.
    /// @param parameter Argument that is invalid.
    error InvalidParameter(string parameter);
    /// @notice Everything vested is already minted.
    error NothingToRelease();

    /// @notice Mints the vested amount that is not yet minted, to the recipient. Any account may call.
    /// @return amount Wei minted.
    function release() external returns (uint256 amount);

    /// @notice Account that receives the new ZEN.
    function recipient() external view returns (address);

    /// @notice Unix time at which the first year starts.
    function start() external view returns (uint256);

    /// @notice Wei minted so far.
    function released() external view returns (uint256);

    /// @notice Returns the wei vested by `time`, the upper bound of `released`.
    function vested(uint256 time) external view returns (uint256);

    /// @notice Returns the wei that vest in each year.
    function schedule() external view returns (uint256[] memory yearly);
}
