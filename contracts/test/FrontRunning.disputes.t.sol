// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IDisputes} from "../src/interfaces/IDisputes.sol";
import {IOmissions} from "../src/interfaces/IOmissions.sol";
import {IZenToken} from "../src/interfaces/IZenToken.sol";
import {UnitCommitment} from "../src/Messages.sol";
import {Omissions} from "../src/Omissions.sol";
import {Game} from "./base/Game.sol";
import {Races} from "./base/Races.sol";

/// @notice Of each call of a dispute or an omission: who sends it first gains nothing and is in nobody's way.
contract FrontRunningDisputesTest is Game, Races {
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

    // --- the moves

    /// @dev Somebody else's dispute over the same unit is another one, with another bond.
    function test_open() public {
        _fund(THIEF);
        bytes32 copied = _openAs(THIEF);
        id = _open();
        vm.assertTrue(copied != id);
        vm.assertEq(disputes.units(_unitId()).open, 2);
        vm.assertEq(token.balanceOf(address(disputes)), 2 * uint256(BOND));
    }

    function test_showTraceAndNameStep() public {
        id = _open();
        bytes memory show = abi.encodeCall(disputes.showTrace, (id, unit, ENVIRONMENT, states));
        _sameWhoeverIsFirst(address(disputes), provider, show);
        _onlyFor(address(disputes), challenger, abi.encodeCall(disputes.nameStep, (id, 4)));
    }

    /// @dev Neither the moment nor the sender of a draw changes the committee.
    function test_drawCommittee() public {
        id = _named(2);
        vm.roll(disputes.disputes(id).seedBlock + 1);
        _sameWhoeverIsFirst(address(disputes), challenger, abi.encodeCall(disputes.drawCommittee, (id)));
    }

    /// @dev Who becomes a referee ahead of a draw is not in its pool.
    function test_registerAheadOfADraw() public {
        id = _named(2);
        _register(THIEF);
        vm.assertEq(disputes.disputes(id).pool, REFEREES);
        address[] memory committee = _draw(id);
        for (uint256 i = 0; i < committee.length; ++i) {
            vm.assertTrue(committee[i] != THIEF);
        }
    }

    function test_submitVerdict() public {
        id = _named(2);
        address[] memory committee = _draw(id);
        bytes[] memory signatures = _verdicts(id, true, committee, 4);
        bytes memory call = abi.encodeCall(disputes.submitVerdict, (id, true, committee, signatures));
        _sameWhoeverIsFirst(address(disputes), challenger, call);
    }

    /// @dev Members that send the verdict first, without the signatures of others, get no more than with them.
    function test_aVerdictWithFewerSignaturesPaysNobodyMore() public {
        staking.setStake(provider, 290 ether); // of which 10 % comes here: 9 more than the challenger's cost
        id = _named(2);
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

    function test_expire() public {
        id = _open();
        vm.warp(block.timestamp + TURN + 1);
        _sameWhoeverIsFirst(address(disputes), challenger, abi.encodeCall(disputes.expire, (id)));
    }

    function test_replaceCommittee() public {
        id = _named(2);
        address[] memory committee = _draw(id);
        disputes.submitVerdict(id, false, committee, _verdicts(id, false, committee, 1));
        vm.warp(block.timestamp + VERDICT + 1);
        bytes memory call = abi.encodeCall(disputes.replaceCommittee, (id, committee));
        _sameWhoeverIsFirst(address(disputes), challenger, call);
    }

    /// @dev Fewer signatures sent first take nothing from those that come after.
    function test_fewerSignaturesAheadOfAVerdict() public {
        id = _named(2);
        address[] memory committee = _draw(id);
        bytes memory fewer =
            abi.encodeCall(disputes.submitVerdict, (id, false, committee, _verdicts(id, false, committee, 2)));
        vm.assertTrue(_send(THIEF, address(disputes), fewer));
        vm.assertTrue(_send(THIEF, address(disputes), fewer));
        disputes.submitVerdict(id, false, committee, _verdicts(id, false, committee, 5));
        for (uint256 i = 0; i < 5; ++i) {
            vm.assertEq(disputes.credits(committee[i]), FEE);
        }
    }

    /// @dev A last-minute move and its expiry never are both possible, so their order decides nothing.
    function test_expireAheadOfAMove() public {
        id = _open();
        vm.warp(disputes.disputes(id).deadline);
        vm.assertFalse(_send(THIEF, address(disputes), abi.encodeCall(disputes.expire, (id))));
        _showTrace(id);
    }

    /// @dev Who copies a dispute puts up as much and can be the one whose cost is covered, which happens once.
    /// The other's bond comes back in full.
    function test_aCopiedDisputeTakesNothingButTheOneCover() public {
        id = _open();
        _fund(THIEF);
        bytes32 copied = _openAs(THIEF);
        vm.warp(block.timestamp + TURN + 1);
        vm.assertTrue(_send(THIEF, address(disputes), abi.encodeCall(disputes.expire, (copied))));
        vm.assertEq(disputes.credits(THIEF), BOND + COST);
        vm.assertFalse(_send(challenger, address(disputes), abi.encodeCall(disputes.expire, (id))));
        disputes.dismiss(id);
        vm.assertEq(disputes.credits(challenger), BOND);
        vm.prank(challenger);
        disputes.withdraw();
        vm.prank(THIEF);
        disputes.withdraw();
        vm.assertEq(token.balanceOf(address(disputes)), 0);
    }

    function test_dismiss() public {
        id = _open();
        _fund(THIEF);
        bytes32 other = _openAs(THIEF);
        vm.warp(block.timestamp + TURN + 1);
        vm.assertTrue(_send(THIEF, address(disputes), abi.encodeCall(disputes.expire, (other))));
        _sameWhoeverIsFirst(address(disputes), challenger, abi.encodeCall(disputes.dismiss, (id)));
    }

    function test_withdraw() public {
        id = _open();
        vm.warp(block.timestamp + TURN + 1);
        disputes.expire(id);
        _onlyFor(address(disputes), challenger, abi.encodeCall(disputes.withdraw, ()));
    }

    // --- the unit's pay

    function test_withhold() public {
        id = _open();
        bytes memory call = abi.encodeCall(disputes.withhold, (unit, 7, 5, new bytes32[](1)));
        _sameWhoeverIsFirst(address(disputes), challenger, call);
    }

    function test_restore() public {
        id = _open();
        disputes.withhold(unit, 7, 5, new bytes32[](1));
        _showTrace(id);
        vm.warp(block.timestamp + TURN + 1);
        disputes.expire(id); // for the provider
        vm.warp(block.timestamp + DISPUTE_PERIOD);
        _sameWhoeverIsFirst(address(disputes), provider, abi.encodeCall(disputes.restore, (_unitId())));
    }

    /// @dev Calls that are sent together fail together if one of them was done ahead by somebody who put up a bond for that;
    /// what is left goes through by itself, and the pay is withheld either way.
    function test_multicall() public {
        _fund(THIEF);
        bytes[] memory calls = new bytes[](2);
        calls[0] = abi.encodeCall(disputes.open, (order, unit, commitmentSignature, windowRoot, windowProof));
        calls[1] = abi.encodeCall(disputes.withhold, (unit, 7, 5, new bytes32[](1)));
        bytes memory both = abi.encodeCall(disputes.multicall, (calls));
        uint256 start = vm.snapshotState();
        vm.assertTrue(_send(challenger, address(disputes), both));
        vm.revertToState(start);

        vm.assertTrue(_send(THIEF, address(disputes), both));
        vm.assertFalse(_send(challenger, address(disputes), both));
        vm.assertTrue(_send(challenger, address(disputes), calls[0]));
        vm.assertEq(escrow.withheld(_unitId()), provider);
    }

    /// @dev A draw that somebody makes ahead takes the draw out of a call that has its verdict, too; the verdict stands.
    function test_aDrawAheadOfItAndItsVerdict() public {
        id = _named(2);
        vm.roll(disputes.disputes(id).seedBlock + 1);
        uint256 start = vm.snapshotState();
        address[] memory committee = disputes.drawCommittee(id);
        vm.revertToState(start);
        bytes[] memory signatures = _verdicts(id, true, committee, 3);
        bytes[] memory calls = new bytes[](2);
        calls[0] = abi.encodeCall(disputes.drawCommittee, (id));
        calls[1] = abi.encodeCall(disputes.submitVerdict, (id, true, committee, signatures));
        bytes memory both = abi.encodeCall(disputes.multicall, (calls));
        _sameWhoeverIsFirst(address(disputes), challenger, both);

        vm.revertToState(start);
        vm.assertTrue(_send(THIEF, address(disputes), calls[0]));
        vm.assertFalse(_send(challenger, address(disputes), both));
        vm.assertTrue(_send(challenger, address(disputes), calls[1]));
        _assertStatus(id, IDisputes.Status.ChallengerLost);
    }

    // --- referees

    function test_referees() public {
        address newcomer = address(0x4EF);
        staking.setStake(newcomer, 1_000 ether);
        _onlyFor(address(disputes), newcomer, abi.encodeCall(disputes.registerReferee, ()));
        _onlyFor(address(disputes), newcomer, abi.encodeCall(disputes.resign, ()));
        staking.setStake(referees[0], 0);
        _sameWhoeverIsFirst(address(disputes), referees[1], abi.encodeCall(disputes.evict, (referees[0])));
    }

    /// @dev What a penalty takes is burned, so being first with a proof brings nothing.
    function test_proofsAgainstReferees() public {
        id = _named(2);
        address[] memory committee = _draw(id);
        bytes[] memory signatures = _verdicts(id, true, committee, 5);
        bytes memory right = signatures[0];
        signatures[0] = _sign(_refereeKey(committee[0]), disputes.verdictDigest(id, 0, false));
        bytes memory wrong = abi.encodeCall(disputes.proveWrongVerdict, (id, true, committee, signatures, 0));
        _sameWhoeverIsFirst(address(disputes), challenger, wrong);
        bytes memory contradiction = abi.encodeCall(disputes.proveContradiction, (id, 0, right, signatures[0]));
        _sameWhoeverIsFirst(address(disputes), challenger, contradiction);
    }

    // --- omissions

    function test_omissionDeposit() public {
        bytes memory deposit = abi.encodeCall(omissions.deposit, (1 ether));
        _onlyFor(address(omissions), address(this), deposit); // a thief that pays in itself would only add to the bond
    }

    function test_omissionWithdrawal() public {
        _onlyFor(address(omissions), OPERATOR, abi.encodeCall(omissions.requestWithdrawal, (10 ether)));
        vm.warp(block.timestamp + 5 days);
        _onlyFor(address(omissions), OPERATOR, abi.encodeCall(omissions.withdraw, ()));
    }

    /// @dev The operator cannot take the bond ahead of a claim over what it acknowledged before it announced that.
    function test_theBondCannotLeaveAheadOfAClaim() public {
        uint40 includeBy = uint40(block.timestamp);
        vm.prank(OPERATOR);
        omissions.requestWithdrawal(60 ether);
        vm.warp(includeBy + 3 days); // the last moment to claim
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

    function test_omissionClaim() public {
        unit.round = 99; // in no window
        vm.warp(block.timestamp + 1);
        _onlyFor(address(omissions), provider, _encodeClaim(uint40(block.timestamp - 1)));
        vm.warp(block.timestamp + 1 days + 1);
        _sameWhoeverIsFirst(address(omissions), provider, abi.encodeCall(omissions.resolve, (_unitId())));
    }

    function test_omissionResponse() public {
        vm.warp(block.timestamp + 1);
        vm.assertTrue(_send(provider, address(omissions), _encodeClaim(uint40(block.timestamp - 1))));
        bytes memory respond = abi.encodeCall(omissions.respond, (unit, windowRoot, windowProof));
        _sameWhoeverIsFirst(address(omissions), OPERATOR, respond);
    }

    // --- the fixture

    function _picture() internal view override returns (bytes32) {
        address[8] memory all =
            [provider, challenger, payer, THIEF, OPERATOR, address(disputes), address(escrow), address(omissions)];
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
        bytes32 court = keccak256(
            abi.encode(
                disputes.disputes(id), disputes.units(_unitId()), disputes.pendingDraws(), disputes.refereeCount()
            )
        );
        bytes32 bond = keccak256(
            abi.encode(omissions.bond(), omissions.openClaims(), omissions.withdrawal(), omissions.claims(_unitId()))
        );
        return keccak256(abi.encode(balances, credits, fees, court, bond, escrow.withheld(_unitId())));
    }

    function _encodeClaim(uint40 includeBy) private view returns (bytes memory) {
        UnitCommitment memory claimed = unit;
        bytes memory acknowledgement = _sign(ACKNOWLEDGER_KEY, omissions.acknowledgementDigest(_unitId(), includeBy));
        return abi.encodeCall(omissions.claim, (claimed, includeBy, acknowledgement));
    }
}
