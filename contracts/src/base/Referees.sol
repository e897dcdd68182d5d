// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";
import {IDisputeStaking} from "../interfaces/IDisputes.sol";
import {IReferees} from "../interfaces/IReferees.sol";

/// @title The list of referees and the draw of a committee from it
abstract contract Referees is IReferees {
    /// @dev Candidates looked at per seat before a draw counts as failed; bounds its gas.
    uint256 private constant TRIES_PER_SEAT = 10;
    uint8 private constant VERIFIER_TIER = 0;
    /// @inheritdoc IReferees
    uint256 public constant LISTING_PERIOD = 30 days;

    /// @notice Where stakes are.
    IDisputeStaking public immutable staking;
    /// @inheritdoc IReferees
    uint256 public pendingDraws;

    address[] private _referees;
    mapping(address referee => Entry) private _entries;

    /// @param position Index in the list plus one; zero: not listed.
    /// @param until Last second of the entry.
    struct Entry {
        uint32 position;
        uint40 until;
    }

    /// @param staking_ Where stakes are.
    constructor(IDisputeStaking staking_) {
        staking = staking_;
    }

    /// @inheritdoc IReferees
    function registerReferee() external {
        require(_qualifies(msg.sender), NotQualified(msg.sender));
        Entry storage entry = _entries[msg.sender];
        if (entry.position == 0) {
            _referees.push(msg.sender);
            entry.position = SafeCast.toUint32(_referees.length);
        }
        entry.until = SafeCast.toUint40(block.timestamp + LISTING_PERIOD);
        emit RefereeRegistered(msg.sender, entry.until);
    }

    /// @inheritdoc IReferees
    function resign() external {
        _remove(msg.sender);
    }

    /// @inheritdoc IReferees
    function evict(address referee) external {
        require(!_canBeDrawn(referee), StillQualified(referee));
        _remove(referee);
    }

    /// @inheritdoc IReferees
    function refereeCount() public view returns (uint256) {
        return _referees.length;
    }

    /// @inheritdoc IReferees
    function isReferee(address account) external view returns (bool) {
        return _entries[account].position != 0;
    }

    /// @inheritdoc IReferees
    function listedUntil(address account) public view returns (uint256) {
        return _entries[account].until;
    }

    /// @dev Draws `seats` distinct qualified referees from the first `pool` of the list, in the order of `seed`.
    /// @param parties Who has an interest in the outcome and is passed over.
    /// @return drawn The referees.
    /// @return complete Whether all seats were filled before the tries ran out.
    function _drawReferees(bytes32 seed, uint256 pool, uint256 seats, address[3] memory parties)
        internal
        view
        returns (address[] memory drawn, bool complete)
    {
        drawn = new address[](seats);
        uint256 count = 0;
        uint256 tries = pool == 0 ? 0 : seats * TRIES_PER_SEAT;
        for (uint256 i = 0; i < tries && count < seats; ++i) {
            address candidate = _referees[uint256(keccak256(abi.encode(seed, i))) % pool];
            if (candidate == parties[0] || candidate == parties[1] || candidate == parties[2]) continue;
            if (_contains(drawn, count, candidate) || !_canBeDrawn(candidate)) continue;
            drawn[count++] = candidate;
        }
        complete = count == seats;
    }

    function _remove(address referee) private {
        uint32 position = _entries[referee].position;
        require(position != 0, NotReferee(referee));
        require(pendingDraws == 0, DrawsPending(pendingDraws));
        address last = _referees[_referees.length - 1];
        _referees[position - 1] = last;
        _entries[last].position = position;
        delete _entries[referee];
        _referees.pop();
        emit RefereeRemoved(referee);
    }

    function _canBeDrawn(address referee) private view returns (bool) {
        return block.timestamp <= listedUntil(referee) && _qualifies(referee);
    }

    function _qualifies(address account) private view returns (bool) {
        return staking.qualifies(account, VERIFIER_TIER);
    }

    function _contains(address[] memory list, uint256 count, address account) private pure returns (bool) {
        for (uint256 i = 0; i < count; ++i) {
            if (list[i] == account) return true;
        }
        return false;
    }
}
