// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IDisputes} from "../../src/interfaces/IDisputes.sol";
import {IOmissions} from "../../src/interfaces/IOmissions.sol";
import {IZenToken} from "../../src/interfaces/IZenToken.sol";
import {UnitCommitment} from "../../src/Messages.sol";
import {Omissions} from "../../src/Omissions.sol";
import {DisputeFixture} from "../base/DisputeFixture.sol";
import {FrontRunningCheck} from "../base/FrontRunningCheck.sol";

/// @notice Calls of disputes and omissions: front-running them gains nothing and blocks no one else's call.
contract FrontRunningDisputesTest is DisputeFixture, FrontRunningCheck {
    uint256 private constant ACKNOWLEDGER_KEY = 0xACC;
    address private constant OPERATOR = address(0x0BE7);

    bytes32 private id;
    Omissions private omissions;

    function setUp() public override {
        super.setUp();
        IOmissions.Terms memory terms = IOmissions.Terms(2 ether, 30 ether, 3 days, 1 days, 5 days);
        omissions = new Omissions(
            IZenToken(address(token)), windows, terms, 1 days, address(this), OPERATOR, vm.addr(ACKNOWLEDGER_KEY)
        );
        token.transfer(provider, 10 ether);
        vm.prank(provider);
        token.approve(address(omissions), 10 ether);
        token.approve(address(omissions), 100 ether);
        omissions.deposit(60 ether);
    }

    // --- dispute calls

    /// @dev Another account's dispute over the same unit is separate, with its own bond.
    function test_open_resistsFrontRunning() public {
        _fund(ATTACKER);
        bytes32 copied = _openAs(ATTACKER);
        id = _open();
        vm.assertTrue(copied != id);
        vm.assertEq(disputes.units(_unitId()).open, 2);
        vm.assertEq(token.balanceOf(address(disputes)), 2 * uint256(BOND));
    }

    function test_revealAndSelection_resistFrontRunning() public {
        id = _open();
        bytes memory show = abi.encodeCall(disputes.showTrace, (id, unit, ENVIRONMENT, states));
        _assertSameForAnySender(address(disputes), provider, show);
        _assertSenderOnly(address(disputes), challenger, abi.encodeCall(disputes.nameStep, (id, 4)));
    }

    /// @dev Time and sender of a draw do not change the committee.
    function test_drawCommittee_resistsFrontRunning() public {
        id = _openAndSelect(2);
        vm.roll(disputes.disputes(id).seedBlock + 1);
        _assertSameForAnySender(address(disputes), challenger, abi.encodeCall(disputes.drawCommittee, (id)));
    }

    /// @dev A referee that registers before a scheduled draw is not in its pool.
    function test_registration_doesNotChangePendingDraw() public {
        id = _openAndSelect(2);
        _register(ATTACKER);
        vm.assertEq(disputes.disputes(id).pool, REFEREES);
        address[] memory committee = _draw(id);
        for (uint256 i = 0; i < committee.length; ++i) {
            vm.assertTrue(committee[i] != ATTACKER);
        }
    }

    function test_submitVerdict_resistsFrontRunning() public {
        id = _openAndSelect(2);
        address[] memory committee = _draw(id);
        bytes[] memory signatures = _verdicts(id, true, committee, 4);
        bytes memory call = abi.encodeCall(disputes.submitVerdict, (id, true, committee, signatures));
        _assertSameForAnySender(address(disputes), challenger, call);
    }

    /// @dev Members that submit the verdict without the other signatures get the same fee.
    function test_fewerSignatures_doNotIncreaseFees() public {
        staking.setStake(provider, 290 ether); // the share of 10 % exceeds the challenger's cost by 9
        id = _openAndSelect(2);
        address[] memory committee = _draw(id);
        bytes[] memory signatures = _verdicts(id, false, committee, 5);
        uint256 start = vm.snapshotState();
        disputes.submitVerdict(id, false, committee, signatures);
        uint256 fee = disputes.credits(committee[0]);
        vm.assertEq(fee, 1.8 ether);
        vm.revertToState(start);
        (signatures[3], signatures[4]) = (bytes(""), bytes(""));
        disputes.submitVerdict(id, false, committee, signatures);
        vm.assertEq(disputes.credits(committee[0]), fee);
        _assertConserved();
    }

    function test_expire_resistsFrontRunning() public {
        id = _open();
        vm.warp(block.timestamp + RESPONSE_PERIOD + 1);
        _assertSameForAnySender(address(disputes), challenger, abi.encodeCall(disputes.expire, (id)));
    }

    function test_replaceCommittee_resistsFrontRunning() public {
        id = _openAndSelect(2);
        address[] memory committee = _draw(id);
        disputes.submitVerdict(id, false, committee, _verdicts(id, false, committee, 1));
        vm.warp(block.timestamp + VERDICT_PERIOD + 1);
        bytes memory call = abi.encodeCall(disputes.replaceCommittee, (id, committee));
        _assertSameForAnySender(address(disputes), challenger, call);
    }

    /// @dev An earlier call with fewer signatures does not affect later signatures.
    function test_fewerSignatures_doNotBlockVerdict() public {
        id = _openAndSelect(2);
        address[] memory committee = _draw(id);
        bytes memory fewer =
            abi.encodeCall(disputes.submitVerdict, (id, false, committee, _verdicts(id, false, committee, 2)));
        vm.assertTrue(_send(ATTACKER, address(disputes), fewer));
        vm.assertTrue(_send(ATTACKER, address(disputes), fewer));
        disputes.submitVerdict(id, false, committee, _verdicts(id, false, committee, 5));
        for (uint256 i = 0; i < 5; ++i) {
            vm.assertEq(disputes.credits(committee[i]), FEE);
        }
    }

    /// @dev A call in the last second and its expiry are never both possible, so their order decides nothing.
    function test_expire_cannotPrecedeTimelyCall() public {
        id = _open();
        vm.warp(disputes.disputes(id).deadline);
        vm.assertFalse(_send(ATTACKER, address(disputes), abi.encodeCall(disputes.expire, (id))));
        _revealTrace(id);
    }

    /// @dev A copied dispute needs the same bond and can only win the cost cover, which is paid once.
    /// The other challenger's bond returns in full.
    function test_copiedDispute_gainsOnlyTheCostCover() public {
        id = _open();
        _fund(ATTACKER);
        bytes32 copied = _openAs(ATTACKER);
        vm.warp(block.timestamp + RESPONSE_PERIOD + 1);
        vm.assertTrue(_send(ATTACKER, address(disputes), abi.encodeCall(disputes.expire, (copied))));
        vm.assertEq(disputes.credits(ATTACKER), BOND + COST);
        vm.assertFalse(_send(challenger, address(disputes), abi.encodeCall(disputes.expire, (id))));
        disputes.dismiss(id);
        vm.assertEq(disputes.credits(challenger), BOND);
        vm.prank(challenger);
        disputes.withdraw();
        vm.prank(ATTACKER);
        disputes.withdraw();
        vm.assertEq(token.balanceOf(address(disputes)), 0);
    }

    function test_dismiss_resistsFrontRunning() public {
        id = _open();
        _fund(ATTACKER);
        bytes32 other = _openAs(ATTACKER);
        vm.warp(block.timestamp + RESPONSE_PERIOD + 1);
        vm.assertTrue(_send(ATTACKER, address(disputes), abi.encodeCall(disputes.expire, (other))));
        _assertSameForAnySender(address(disputes), challenger, abi.encodeCall(disputes.dismiss, (id)));
    }

    function test_rejectLate_resistsFrontRunning() public {
        (bytes32 first, bytes32[] memory proof) = (windowRoot, windowProof);
        vm.warp(block.timestamp + DISPUTE_PERIOD + 1);
        _commitWindow("a third unit");
        id = _open();
        bytes memory call = abi.encodeCall(disputes.rejectLate, (id, first, proof));
        _assertSameForAnySender(address(disputes), provider, call);
    }

    function test_withdraw_resistsFrontRunning() public {
        id = _open();
        vm.warp(block.timestamp + RESPONSE_PERIOD + 1);
        disputes.expire(id);
        _assertSenderOnly(address(disputes), challenger, abi.encodeCall(disputes.withdraw, ()));
    }

    // --- payout of the unit

    function test_withhold_resistsFrontRunning() public {
        id = _open();
        bytes memory call = abi.encodeCall(disputes.withhold, (unit, 7, 5, new bytes32[](1)));
        _assertSameForAnySender(address(disputes), challenger, call);
    }

    function test_restore_resistsFrontRunning() public {
        id = _open();
        disputes.withhold(unit, 7, 5, new bytes32[](1));
        _revealTrace(id);
        vm.warp(block.timestamp + RESPONSE_PERIOD + 1);
        disputes.expire(id); // rejects the dispute
        vm.warp(block.timestamp + DISPUTE_PERIOD);
        _assertSameForAnySender(address(disputes), provider, abi.encodeCall(disputes.restore, (_unitId())));
    }

    /// @dev A multicall fails if another account, with a bond of its own, made one of its calls first.
    /// The remaining call workUnits alone, and the payout is held in both cases.
    function test_multicall_resistsFrontRunning() public {
        _fund(ATTACKER);
        bytes[] memory calls = new bytes[](2);
        calls[0] = abi.encodeCall(disputes.open, (order, unit, commitmentSignature, windowRoot, windowProof));
        calls[1] = abi.encodeCall(disputes.withhold, (unit, 7, 5, new bytes32[](1)));
        bytes memory both = abi.encodeCall(disputes.multicall, (calls));
        uint256 start = vm.snapshotState();
        vm.assertTrue(_send(challenger, address(disputes), both));
        vm.revertToState(start);

        vm.assertTrue(_send(ATTACKER, address(disputes), both));
        vm.assertFalse(_send(challenger, address(disputes), both));
        vm.assertTrue(_send(challenger, address(disputes), calls[0]));
        vm.assertEq(escrow.withheld(_unitId()), provider);
    }

    /// @dev An earlier draw makes a multicall of draw and verdict fail. The verdict alone still workUnits.
    function test_earlierDraw_leavesVerdictSubmittable() public {
        id = _openAndSelect(2);
        vm.roll(disputes.disputes(id).seedBlock + 1);
        uint256 start = vm.snapshotState();
        address[] memory committee = disputes.drawCommittee(id);
        vm.revertToState(start);
        bytes[] memory signatures = _verdicts(id, true, committee, 3);
        bytes[] memory calls = new bytes[](2);
        calls[0] = abi.encodeCall(disputes.drawCommittee, (id));
        calls[1] = abi.encodeCall(disputes.submitVerdict, (id, true, committee, signatures));
        bytes memory both = abi.encodeCall(disputes.multicall, (calls));
        _assertSameForAnySender(address(disputes), challenger, both);

        vm.revertToState(start);
        vm.assertTrue(_send(ATTACKER, address(disputes), calls[0]));
        vm.assertFalse(_send(challenger, address(disputes), both));
        vm.assertTrue(_send(challenger, address(disputes), calls[1]));
        _assertStatus(id, IDisputes.Status.ChallengerLost);
    }

    // --- referees

    function test_refereeList_resistsFrontRunning() public {
        address newcomer = address(0x4EF);
        staking.setStake(newcomer, 1_000 ether);
        _assertSenderOnly(address(disputes), newcomer, abi.encodeCall(disputes.registerReferee, ()));
        _assertSenderOnly(address(disputes), newcomer, abi.encodeCall(disputes.resign, ()));
        staking.setStake(referees[0], 0);
        _assertSameForAnySender(address(disputes), referees[1], abi.encodeCall(disputes.evict, (referees[0])));
    }

    /// @dev Penalties are burned, so the first account with a proof gains nothing.
    function test_refereeProofs_resistFrontRunning() public {
        id = _openAndSelect(2);
        address[] memory committee = _draw(id);
        bytes[] memory signatures = _verdicts(id, true, committee, 5);
        bytes memory right = signatures[0];
        signatures[0] = _sign(_refereeKey(committee[0]), disputes.verdictDigest(id, 0, false));
        bytes memory wrong = abi.encodeCall(disputes.proveWrongVerdict, (id, true, committee, signatures, 0));
        _assertSameForAnySender(address(disputes), challenger, wrong);
        bytes memory contradiction = abi.encodeCall(disputes.proveContradiction, (id, 0, right, signatures[0]));
        _assertSameForAnySender(address(disputes), challenger, contradiction);
    }

    // --- omissions

    function test_omissionDeposit_resistsFrontRunning() public {
        bytes memory deposit = abi.encodeCall(omissions.deposit, (1 ether));
        _assertSenderOnly(address(omissions), address(this), deposit); // a second deposit only adds to the bond
    }

    function test_omissionWithdrawal_resistsFrontRunning() public {
        _assertSenderOnly(address(omissions), OPERATOR, abi.encodeCall(omissions.requestWithdrawal, (10 ether)));
        vm.warp(block.timestamp + 5 days);
        _assertSenderOnly(address(omissions), OPERATOR, abi.encodeCall(omissions.withdraw, ()));
    }

    /// @dev The operator cannot withdraw the bond before a claim over an earlier acknowledgement.
    function test_bond_cannotLeaveAheadOfClaim() public {
        uint40 includeBy = uint40(block.timestamp);
        vm.prank(OPERATOR);
        omissions.requestWithdrawal(60 ether);
        vm.warp(includeBy + 3 days); // the last second to claim
        vm.assertFalse(_send(OPERATOR, address(omissions), abi.encodeCall(omissions.withdraw, ())));
        unit.round = 99;
        vm.assertTrue(_send(provider, address(omissions), _encodeClaim(includeBy)));
        vm.warp(block.timestamp + 5 days);
        vm.prank(OPERATOR);
        omissions.withdraw();
        vm.assertEq(omissions.bond(), 30 ether);
        omissions.resolve(_unitId());
        vm.assertEq(token.balanceOf(provider), 40 ether);
    }

    function test_omissionClaim_resistsFrontRunning() public {
        unit.round = 99; // in no window
        vm.warp(block.timestamp + 1);
        _assertSenderOnly(address(omissions), provider, _encodeClaim(uint40(block.timestamp - 1)));
        vm.warp(block.timestamp + 1 days + 1);
        _assertSameForAnySender(address(omissions), provider, abi.encodeCall(omissions.resolve, (_unitId())));
    }

    function test_omissionResponse_resistsFrontRunning() public {
        vm.warp(block.timestamp + 1);
        vm.assertTrue(_send(provider, address(omissions), _encodeClaim(uint40(block.timestamp - 1))));
        bytes memory respond = abi.encodeCall(omissions.respond, (unit, windowRoot, windowProof));
        _assertSameForAnySender(address(omissions), OPERATOR, respond);
    }

    // --- the fixture

    function _stateHash() internal view override returns (bytes32) {
        address[8] memory all =
            [provider, challenger, payer, ATTACKER, OPERATOR, address(disputes), address(escrow), address(omissions)];
        uint256[8] memory balances;
        uint256[8] memory credits;
        for (uint256 i = 0; i < all.length; ++i) {
            (balances[i], credits[i]) = (token.balanceOf(all[i]), disputes.credits(all[i]));
        }
        uint256[8] memory fees;
        for (uint256 i = 0; i < REFEREES; ++i) {
            address referee = referees[i];
            fees[i] = uint256(
                keccak256(abi.encode(disputes.credits(referee), staking.atRisk(referee), disputes.listedUntil(referee)))
            );
        }
        bytes32 disputeState = keccak256(
            abi.encode(
                disputes.disputes(id), disputes.units(_unitId()), disputes.pendingDraws(), disputes.refereeCount()
            )
        );
        bytes32 bond = keccak256(
            abi.encode(omissions.bond(), omissions.openClaims(), omissions.withdrawal(), omissions.claims(_unitId()))
        );
        return keccak256(abi.encode(balances, credits, fees, disputeState, bond, escrow.withheld(_unitId())));
    }

    function _encodeClaim(uint40 includeBy) private view returns (bytes memory) {
        UnitCommitment memory claimed = unit;
        bytes memory acknowledgement = _sign(ACKNOWLEDGER_KEY, omissions.acknowledgementDigest(_unitId(), includeBy));
        return abi.encodeCall(omissions.claim, (claimed, includeBy, acknowledgement));
    }
}
