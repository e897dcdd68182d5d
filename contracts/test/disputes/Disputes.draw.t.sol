// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IDisputes} from "../../src/interfaces/IDisputes.sol";
import {BlockHistory} from "../base/BlockHistory.sol";
import {DisputeFixture} from "../base/DisputeFixture.sol";

/// @notice Committee draws: eligible referees, seed block and failed draws.
contract DisputesDrawTest is DisputeFixture {
    function test_draw_selectsDistinctRefereesByLaterBlock() public {
        bytes32 id = _openAndSelect(2);
        uint256 seedBlock = disputes.disputes(id).seedBlock;
        vm.assertEq(seedBlock, block.number + 2);
        vm.roll(seedBlock);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.SeedNotReady.selector, seedBlock));
        disputes.drawCommittee(id);

        vm.setBlockhash(seedBlock, keccak256("later block"));
        vm.roll(seedBlock + 1);
        vm.setBlockhash(seedBlock, keccak256("later block"));
        address[] memory committee = _expectedDraw(keccak256("later block"), id, 0);
        vm.expectEmit(address(disputes));
        emit IDisputes.CommitteeDrawn(id, 0, committee);
        vm.expectEmit(address(disputes));
        emit IDisputes.TurnStarted(id, IDisputes.Status.Judging, block.timestamp + VERDICT_PERIOD);
        vm.prank(thirdParty);
        disputes.drawCommittee(id);
        vm.assertEq(committee.length, 5);
        for (uint256 i = 0; i < 5; ++i) {
            for (uint256 j = 0; j < i; ++j) {
                vm.assertTrue(committee[i] != committee[j]);
            }
        }
        vm.assertEq(disputes.pendingDraws(), 0);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.WrongStatus.selector, id, IDisputes.Status.Judging));
        disputes.drawCommittee(id);
    }

    /// @dev Independent implementation of the draw rule.
    function _expectedDraw(bytes32 blockHash, bytes32 id, uint8 draw) private view returns (address[] memory drawn) {
        bytes32 seed = keccak256(abi.encode(blockHash, id, draw));
        drawn = new address[](5);
        uint256 count = 0;
        for (uint256 i = 0; count < 5; ++i) {
            address candidate = referees[uint256(keccak256(abi.encode(seed, i))) % REFEREES];
            bool known = false;
            for (uint256 j = 0; j < count; ++j) {
                known = known || drawn[j] == candidate;
            }
            if (!known) drawn[count++] = candidate;
        }
    }

    /// @dev A draw after 256 blocks still selects by the hash of the announced block.
    function test_draw_keepsCommittee_whenCalledLate() public {
        bytes32 id = _openAndSelect(2);
        uint256 seedBlock = disputes.disputes(id).seedBlock;
        BlockHistory.store(seedBlock, keccak256("seed block"));
        vm.roll(seedBlock + BlockHistory.REACH);
        address[] memory committee = disputes.drawCommittee(id);
        vm.assertEq(abi.encode(committee), abi.encode(_expectedDraw(keccak256("seed block"), id, 0)));
    }

    function test_draw_isRescheduled_whenHashUnavailable() public {
        bytes32 id = _openAndSelect(2);
        BlockHistory.store(disputes.disputes(id).seedBlock, keccak256("seed block"));
        vm.roll(disputes.disputes(id).seedBlock + BlockHistory.REACH + 1);
        vm.expectEmit(address(disputes));
        emit IDisputes.DrawScheduled(id, 0, block.number + 2, REFEREES);
        disputes.drawCommittee(id);
        _assertStatus(id, IDisputes.Status.Drawing);
        vm.assertEq(disputes.disputes(id).seedBlock, block.number + 2);
        vm.assertEq(disputes.pendingDraws(), 1);
        _drawAndDecide(id, true);
    }

    function test_draw_hasNoDeadline() public {
        bytes32 id = _openAndSelect(2);
        vm.warp(block.timestamp + 365 days);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.TurnNotOver.selector, type(uint40).max));
        disputes.expire(id);
        for (uint256 i = 0; i < REFEREES; ++i) {
            _register(referees[i]);
        }
        _draw(id);
    }

    function testFuzz_draw_excludesPartiesAndUnqualifiedReferees(uint256 salt) public {
        _register(provider);
        _register(challenger);
        _register(payer);
        staking.setStake(referees[0], 1_000 ether - 1);
        bytes32 id = _openAndSelect(2);
        _register(thirdParty); // registered too late for this draw
        uint256 seedBlock = disputes.disputes(id).seedBlock;
        vm.roll(seedBlock + 1);
        vm.setBlockhash(seedBlock, keccak256(abi.encode(salt)));
        vm.recordLogs();
        disputes.drawCommittee(id);
        address[] memory committee = _drawnIn(vm.getRecordedLogs());
        for (uint256 i = 0; i < committee.length; ++i) {
            vm.assertTrue(committee[i] != provider && committee[i] != challenger && committee[i] != payer);
            vm.assertTrue(committee[i] != thirdParty && committee[i] != referees[0]);
        }
    }

    function test_draw_fails_whenTooFewReferees() public {
        for (uint256 i = 4; i < REFEREES; ++i) {
            staking.setStake(referees[i], 0);
        }
        bytes32 id = _openAndSelect(2);
        for (uint256 draw = 0; draw < 3; ++draw) {
            vm.assertEq(disputes.disputes(id).draw, draw);
            vm.assertEq(disputes.pendingDraws(), 1);
            vm.assertEq(_draw(id).length, 0);
        }
        _assertStatus(id, IDisputes.Status.Undecided);
        vm.assertEq(disputes.pendingDraws(), 0);
        vm.assertEq(disputes.credits(challenger), BOND);
        _assertConserved();
    }

    function test_draw_excludesExpiredReferees() public {
        bytes32 id = _openAndSelect(2);
        vm.warp(disputes.listedUntil(referees[0]));
        for (uint256 i = 0; i < 5; ++i) {
            _register(referees[i]);
        }
        vm.roll(disputes.disputes(id).seedBlock + 257);
        disputes.drawCommittee(id); // new seed block in the last second of the other entries
        uint256 before = vm.snapshotState();
        uint256 late = 0;
        for (uint256 salt = 0; salt < 8; ++salt) {
            late += _lateIn(_drawWith(id, salt));
            vm.revertToState(before);
        }
        vm.assertTrue(late > 0);
        vm.roll(disputes.disputes(id).seedBlock + 257);
        vm.warp(block.timestamp + 1);
        disputes.drawCommittee(id);
        before = vm.snapshotState();
        for (uint256 salt = 0; salt < 8; ++salt) {
            vm.assertEq(_lateIn(_drawWith(id, salt)), 0);
            vm.revertToState(before);
        }
    }

    /// @dev Returns the number of members outside the first five referees.
    function _lateIn(address[] memory committee) private view returns (uint256 late) {
        vm.assertEq(committee.length, 5);
        for (uint256 i = 0; i < 5; ++i) {
            if (_refereeKey(committee[i]) >= FIRST_REFEREE_KEY + 5) ++late;
        }
    }

    function _drawWith(bytes32 id, uint256 salt) private returns (address[] memory) {
        uint256 seedBlock = disputes.disputes(id).seedBlock;
        vm.roll(seedBlock + 1);
        vm.setBlockhash(seedBlock, keccak256(abi.encode(salt)));
        return _draw(id);
    }

    function test_draw_fails_whenNoReferees() public {
        for (uint256 i = 0; i < REFEREES; ++i) {
            vm.prank(referees[i]);
            disputes.resign();
        }
        bytes32 id = _openAndSelect(2);
        vm.assertEq(disputes.disputes(id).pool, 0);
        for (uint256 draw = 0; draw < 3; ++draw) {
            _draw(id);
        }
        _assertStatus(id, IDisputes.Status.Undecided);
    }
}
