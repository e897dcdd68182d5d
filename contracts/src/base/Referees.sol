// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IDisputes} from "../interfaces/IDisputes.sol";
import {IProviderStaking} from "../interfaces/IProviderStaking.sol";

/// @title The verifiers who can be drawn as referees
/// @dev Every referee has a verifier's stake, so a uniform draw costs a stake for each chance in it.
abstract contract Referees is IDisputes {
    uint8 internal constant VERIFIER_TIER = 0;
    /// @dev Looks into the list for each seat: enough to pass over others who are not qualified, without an endless loop.
    uint256 private constant TRIES_PER_SEAT = 8;

    /// @notice Knows who is qualified.
    IProviderStaking public immutable staking;

    address[] private _referees;
    mapping(address referee => uint256) private _place; // counted from 1

    /// @param staking_ Knows who is qualified.
    constructor(IProviderStaking staking_) {
        require(address(staking_) != address(0), InvalidParameter("staking"));
        staking = staking_;
    }

    /// @inheritdoc IDisputes
    function registerReferee() external {
        require(_place[msg.sender] == 0, AlreadyReferee(msg.sender));
        require(staking.qualifies(msg.sender, VERIFIER_TIER), NotQualified(msg.sender));
        _referees.push(msg.sender);
        _place[msg.sender] = _referees.length;
        emit RefereeRegistered(msg.sender);
    }

    /// @inheritdoc IDisputes
    function leaveReferees() external {
        uint256 place = _place[msg.sender];
        require(place > 0, NotReferee(msg.sender));
        address last = _referees[_referees.length - 1];
        _referees[place - 1] = last;
        _place[last] = place;
        _referees.pop();
        delete _place[msg.sender];
        emit RefereeLeft(msg.sender);
    }

    /// @inheritdoc IDisputes
    function refereeCount() external view returns (uint256) {
        return _referees.length;
    }

    /// @dev Up to `seats` different qualified referees, none of them a party, drawn by `seed`; fewer if a bounded number of
    /// tries finds no more.
    function _draw(bytes32 seed, uint256 seats, address[3] memory parties)
        internal
        view
        returns (address[] memory committee)
    {
        committee = new address[](seats);
        uint256 found = 0;
        uint256 count = _referees.length;
        uint256 tries = count == 0 ? 0 : seats * TRIES_PER_SEAT;
        for (uint256 i = 0; i < tries && found < seats; ++i) {
            address referee = _referees[uint256(keccak256(abi.encode(seed, i))) % count];
            if (_isIn(committee, found, referee) || _isParty(parties, referee)) continue;
            if (staking.qualifies(referee, VERIFIER_TIER)) committee[found++] = referee;
        }
        assembly ("memory-safe") {
            mstore(committee, found) // shortens the list to those that were found
        }
    }

    function _isIn(address[] memory list, uint256 count, address account) private pure returns (bool) {
        for (uint256 i = 0; i < count; ++i) {
            if (list[i] == account) return true;
        }
        return false;
    }

    function _isParty(address[3] memory parties, address account) private pure returns (bool) {
        return account == parties[0] || account == parties[1] || account == parties[2];
    }
}
