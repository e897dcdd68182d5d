// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IDisputeStaking} from "../../src/interfaces/IDisputes.sol";
import {Referees} from "../../src/base/Referees.sol";
import {DisputeFixture} from "../base/DisputeFixture.sol";

/// Exposes the list, with draws of any time.
contract List is Referees {
    constructor(IDisputeStaking staking_) Referees(staking_) {}

    function delist(address referee) external {
        _delist(referee);
    }

    function draw(Draw memory draw_) external view returns (address[] memory drawn, bool complete) {
        address[3] memory parties;
        return _drawReferees(draw_, parties);
    }
}

contract RefereesDrawTest is DisputeFixture {
    uint256 private constant TRIES = 10;
    List private list;

    function _listed(uint256 number) private returns (address[] memory referees) {
        list = new List(IDisputeStaking(address(staking)));
        referees = new address[](number);
        for (uint256 i = 0; i < number; ++i) {
            referees[i] = address(uint160(0xa0 + i));
            staking.setStake(referees[i], 1_000 ether);
            vm.prank(referees[i]);
            list.registerReferee();
        }
    }

    function _draw(uint256 seed, uint256 pool, uint256 listedBy) private view returns (Referees.Draw memory) {
        return Referees.Draw(bytes32(seed), pool, 1, uint40(listedBy), uint40(block.timestamp));
    }

    function testFuzz_reserve_isDrawnAfterTheLastRegularTry(uint256 seed) public {
        address[] memory referees = _listed(2);
        (address[] memory drawn, bool complete) = list.draw(_draw(seed, 2, block.timestamp - 1)); // both then listed
        vm.assertTrue(complete);
        vm.assertEq(drawn[0], referees[uint256(keccak256(abi.encode(bytes32(seed), TRIES))) % 2]);
    }

    function test_reserve_includesEntriesExpiredAfterFirstDraw() public {
        _listed(1);
        uint256 last = block.timestamp + list.LISTING_PERIOD();
        vm.warp(last + 1);
        (, bool complete) = list.draw(_draw(1, 1, last));
        vm.assertTrue(complete);
        (, complete) = list.draw(_draw(1, 1, last + 1));
        vm.assertFalse(complete);
    }

    function test_delisting_countsInLastSecondOfEntry() public {
        address referee = _listed(1)[0];
        vm.warp(list.listedUntil(referee));
        list.delist(referee);
        vm.assertEq(list.listedUntil(referee), block.timestamp - 1);
        vm.warp(block.timestamp + 10);
        list.delist(referee);
        vm.assertEq(list.listedUntil(referee), block.timestamp - 11);
    }
}
