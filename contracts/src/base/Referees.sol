// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";
import {IDisputeStaking} from "../interfaces/IDisputes.sol";
import {IReferees} from "../interfaces/IReferees.sol";

/// @title Referee list and committee draw
abstract contract Referees is IReferees {
    /// @dev Candidates per seat before a draw counts as failed, and as many again from the reserve. Bounds the gas of a
    /// draw.
    uint256 private constant TRIES_PER_SEAT = 10;
    uint8 private constant VERIFIER_TIER = 0;
    /// @inheritdoc IReferees
    uint256 public constant LISTING_PERIOD = 30 days;

    /// @notice Staking contract.
    IDisputeStaking public immutable staking;
    /// @inheritdoc IReferees
    uint256 public pendingDraws;

    address[] private _referees;
    mapping(address referee => Entry) private _entries;

    /// @param position Index in the list plus one; zero if not listed.
    /// @param since First second of the entry. A renewal in time keeps it.
    /// @param until Last second of the entry.
    struct Entry {
        uint32 position;
        uint40 since;
        uint40 until;
    }

    /// @dev Inputs of a draw. All except the seed are fixed before the seed is known.
    /// @param seed Seed of the draw.
    /// @param pool Number of referees in the draw, from the start of the list.
    /// @param seats Number of seats to fill.
    /// @param listedBy Unix time at which the dispute's first draw was scheduled.
    /// @param scheduledAt Unix time at which this draw was scheduled.
    struct Draw {
        bytes32 seed;
        uint256 pool;
        uint256 seats;
        uint40 listedBy;
        uint40 scheduledAt;
    }

    /// @param staking_ Staking contract.
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
        if (entry.until < block.timestamp) entry.since = SafeCast.toUint40(block.timestamp);
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

    /// @dev Draws distinct qualified referees from the pool, in the order of the seed. First come entries that lasted
    /// from the dispute's first draw to this one. This excludes later registrations and delisted referees. If they do
    /// not fill the seats, the reserve follows: entries that were valid at or after the first draw. A small network has
    /// no other referees.
    /// @param draw Inputs of the draw.
    /// @param parties Parties with an interest in the outcome; they are excluded.
    /// @return drawn The referees.
    /// @return complete Whether all seats were filled before the tries ran out.
    function _drawReferees(Draw memory draw, address[3] memory parties)
        internal
        view
        returns (address[] memory drawn, bool complete)
    {
        drawn = new address[](draw.seats);
        uint256 count = 0;
        uint256 tries = draw.pool == 0 ? 0 : draw.seats * TRIES_PER_SEAT;
        for (uint256 i = 0; i < 2 * tries && count < draw.seats; ++i) {
            address candidate = _referees[uint256(keccak256(abi.encode(draw.seed, i))) % draw.pool];
            if (candidate == parties[0] || candidate == parties[1] || candidate == parties[2]) continue;
            if (!_wasListed(candidate, draw, i >= tries) || _contains(drawn, count, candidate)) continue;
            if (_qualifies(candidate)) drawn[count++] = candidate;
        }
        complete = count == draw.seats;
    }

    /// @dev Ends the entry of a listed referee. Its position stays until it is evicted. So pending draws do not change.
    function _delist(address referee) internal {
        Entry storage entry = _entries[referee];
        if (entry.until < block.timestamp) return;
        entry.until = SafeCast.toUint40(block.timestamp - 1);
        emit RefereeStruck(referee, entry.until);
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

    function _wasListed(address referee, Draw memory draw, bool fromReserve) private view returns (bool) {
        Entry memory entry = _entries[referee];
        if (fromReserve) return entry.until >= draw.listedBy;
        return entry.since <= draw.listedBy && entry.until >= draw.scheduledAt;
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
