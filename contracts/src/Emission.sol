// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";
import {IEmission} from "./interfaces/IEmission.sol";
import {IZenToken} from "./interfaces/IZenToken.sol";

/// @title Emission of rewards
/// @dev Stores the running totals of the schedule, so that `vested` needs no loop over the years.
contract Emission is IEmission {
    uint256 private constant YEAR = 365 days;
    /// @notice Maximum number of years in a schedule.
    uint256 public constant MAX_YEARS = 50;

    /// @notice The ZEN token. This contract needs MINTER_ROLE there.
    IZenToken public immutable token;
    /// @inheritdoc IEmission
    address public immutable recipient;
    /// @inheritdoc IEmission
    uint256 public immutable start;
    /// @inheritdoc IEmission
    uint256 public released;

    uint128[] private _totals; // vested wei at the start of each year, then at the end of the last

    /// @param zen The ZEN token.
    /// @param recipient_ Account that receives the new ZEN: the rewards contract.
    /// @param yearly Wei that vest in each year from now on, 1 to MAX_YEARS entries.
    constructor(IZenToken zen, address recipient_, uint96[] memory yearly) {
        require(address(zen) != address(0), InvalidParameter("token"));
        require(recipient_ != address(0), InvalidParameter("recipient"));
        require(yearly.length > 0 && yearly.length <= MAX_YEARS, InvalidParameter("yearly"));
        token = zen;
        recipient = recipient_;
        start = block.timestamp;
        uint128 total;
        _totals.push(total);
        for (uint256 i = 0; i < yearly.length; ++i) {
            total += yearly[i];
            _totals.push(total);
        }
    }

    /// @inheritdoc IEmission
    function release() external returns (uint256 amount) {
        uint256 total = vested(block.timestamp);
        amount = total - released;
        require(amount > 0, NothingToRelease());
        released = total;
        emit Released(amount, total);
        token.mint(recipient, amount);
    }

    /// @inheritdoc IEmission
    function schedule() external view returns (uint256[] memory yearly) {
        yearly = new uint256[](_totals.length - 1);
        for (uint256 i = 0; i < yearly.length; ++i) {
            yearly[i] = _totals[i + 1] - _totals[i];
        }
    }

    /// @inheritdoc IEmission
    function vested(uint256 time) public view returns (uint256) {
        uint256 elapsed = Math.saturatingSub(time, start);
        uint256 year = elapsed / YEAR;
        uint256 last = _totals.length - 1;
        if (year >= last) return _totals[last];
        uint256 before = _totals[year];
        return before + (_totals[year + 1] - before) * (elapsed % YEAR) / YEAR;
    }
}
