// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {JobOrder} from "../../src/Messages.sol";
import {RewardNetwork} from "../base/RewardNetwork.sol";
import {Network} from "../base/Network.sol";
import {FrontRunningCheck} from "../base/FrontRunningCheck.sol";
import {Settlements} from "../base/Settlements.sol";
import {Tree} from "../base/Tree.sol";

/// @notice Calls that move jobs, stakes, rewards or windows: front-running them gains nothing and blocks no other call.
contract FrontRunningTest is RewardNetwork, Settlements, FrontRunningCheck {
    bytes32 private jobId;
    bytes32 private batchRoot;
    bytes32 private window;

    function setUp() public override(RewardNetwork, Network) {
        super.setUp();
        token.transfer(ATTACKER, 1_000 ether);
        vm.prank(ATTACKER);
        token.approve(address(escrow), type(uint256).max);
        _stake(ALICE, 10_000 ether);
    }

    // --- escrow: payers

    /// @dev Only the payer's signature draws from the payer's balance.
    function test_openJob_resistsFrontRunning() public {
        _prepay(2 ether);
        JobOrder memory order = _order(4, 1 ether);
        bytes memory open = _encodeOpen(order, _signature(PAYER_KEY, escrow.orderDigest(order)));
        _assertSameForAnySender(address(escrow), payer, open);

        order.nonce = 2;
        open = _encodeOpen(order, _signature(PAYER_KEY, escrow.orderDigest(order)));
        order.payer = ATTACKER; // the attacker cannot draw it for a job of its own
        bytes memory signature = _signature(0x7417F, escrow.orderDigest(order));
        vm.assertFalse(_send(ATTACKER, address(escrow), _encodeOpen(order, signature)));
        order.payer = payer;
        vm.assertFalse(_send(ATTACKER, address(escrow), _encodeOpen(order, signature)));
        vm.assertTrue(_send(payer, address(escrow), open));
    }

    /// @dev A permit serves its owner's balance only, also if it was used early.
    function test_deposit_resistsFrontRunning() public {
        (uint8 v, bytes32 r, bytes32 s) = _signPermit(PAYER_KEY, address(escrow), 1 ether, block.timestamp);
        bytes memory deposit = abi.encodeCall(escrow.deposit, (payer, 1 ether, block.timestamp, v, r, s));
        _assertSameForAnySender(address(escrow), payer, deposit);
        (v, r, s) = _signPermit(PAYER_KEY, address(escrow), 1 ether, block.timestamp);
        deposit = abi.encodeCall(escrow.deposit, (payer, 1 ether, block.timestamp, v, r, s));
        vm.prank(ATTACKER);
        token.permit(payer, address(escrow), 1 ether, block.timestamp, v, r, s);
        vm.assertTrue(_send(ATTACKER, address(escrow), deposit));
        vm.assertEq(escrow.balances(payer).free, 2 ether);
        vm.assertFalse(_send(ATTACKER, address(escrow), deposit)); // it serves once
        vm.assertFalse(_send(ATTACKER, address(escrow), abi.encodeCall(escrow.withdraw, (1 ether, ATTACKER))));
        _assertSenderOnly(address(escrow), payer, abi.encodeCall(escrow.withdraw, (1 ether, payer)));
    }

    function test_cancel_resistsFrontRunning() public {
        _openOne();
        _assertSenderOnly(address(escrow), payer, abi.encodeCall(escrow.cancel, (jobId)));
    }

    /// @dev A cancellation before a settlement does not reduce it.
    function test_cancel_doesNotBlockPendingSettlement() public {
        _openOne();
        Bill memory bill = _billFor(_line(jobId, 0, 1, false), 1, 0);
        vm.prank(payer);
        escrow.cancel(jobId);
        vm.assertFalse(_send(payer, address(escrow), abi.encodeCall(escrow.refund, (jobId))));
        _post(bill);
    }

    function test_refund_resistsFrontRunning() public {
        _openOne();
        vm.warp(escrow.jobs(jobId).settleBy + 1);
        _assertSameForAnySender(address(escrow), payer, abi.encodeCall(escrow.refund, (jobId)));
    }

    // --- escrow: settlement

    function test_settle_resistsFrontRunning() public {
        _openOne();
        Bill memory bill = _billFor(_line(jobId, 0, 1, false), 2, 1);
        batchRoot = _batchRoot(bill);
        bytes memory settle = abi.encodeCall(escrow.settle, (_claimsRoot(bill), _unitsRoot(bill), bill.lines));
        _assertSenderOnly(address(escrow), operator, settle);
    }

    function test_veto_resistsFrontRunning() public {
        Bill memory bill = _settled();
        bytes memory veto = abi.encodeCall(escrow.veto, (1, _claimsRoot(bill), _unitsRoot(bill), bill.lines));
        _assertSenderOnly(address(escrow), guardian, veto);
    }

    /// @dev A proof workUnits only for the provider in its leaf.
    function test_claim_resistsFrontRunning() public {
        Bill memory bill = _settled();
        _endChallenge(bill);
        _assertSenderOnly(address(escrow), ALICE, abi.encodeCall(escrow.claim, (ALICE, _claimsOf(bill, 0))));
    }

    function test_collectFees_resistsFrontRunning() public {
        Bill memory bill = _settled();
        _endChallenge(bill);
        bytes32[] memory roots = new bytes32[](1);
        roots[0] = _batchRoot(bill);
        _assertSameForAnySender(address(escrow), treasurer, abi.encodeCall(escrow.collectFees, (roots)));
    }

    function test_withholdAndRelease_resistFrontRunning() public {
        Bill memory bill = _settled();
        bytes32[] memory proof = _unitProof(bill, 0);
        bytes memory call = abi.encodeCall(escrow.withhold, (1, bill.units[0], bill.prices[0], proof));
        _assertSenderOnly(address(escrow), disputes, call);
        _assertSenderOnly(address(escrow), disputes, abi.encodeCall(escrow.release, (_unitId(bill, 0), true)));
    }

    function test_returnStruck_resistsFrontRunning() public {
        Bill memory bill = _settled();
        bytes32 unitId = _withhold(bill, 0);
        _release(unitId, false);
        _endChallenge(bill);
        _assertSameForAnySender(address(escrow), payer, abi.encodeCall(escrow.returnStruck, (unitId)));
    }

    function test_pauseAndFee_resistFrontRunning() public {
        _assertSenderOnly(address(escrow), guardian, abi.encodeCall(escrow.pause, ()));
        _assertSenderOnly(address(escrow), guardian, abi.encodeCall(escrow.unpause, ()));
        _assertSenderOnly(address(escrow), admin, abi.encodeCall(escrow.setFee, (100)));
        _assertSenderOnly(address(staking), guardian, abi.encodeCall(staking.pause, ()));
        _assertSenderOnly(address(staking), guardian, abi.encodeCall(staking.unpause, ()));
    }

    // --- stakes: each call moves only its sender's stake

    function test_stake_resistsFrontRunning() public {
        token.transfer(ALICE, 5 ether);
        vm.prank(ALICE);
        token.approve(address(staking), 5 ether);
        _assertSenderOnly(address(staking), ALICE, abi.encodeCall(staking.stake, (5 ether)));
    }

    /// @dev A copied permit stakes nothing for the attacker. Used early, it still serves its owner.
    function test_stakeWithPermit_resistsFrontRunning() public {
        (uint8 v, bytes32 r, bytes32 s) = _signPermit(PAYER_KEY, address(staking), 5 ether, block.timestamp);
        bytes memory call = abi.encodeCall(staking.stakeWithPermit, (5 ether, block.timestamp, v, r, s));
        _assertSenderOnly(address(staking), payer, call);
        (v, r, s) = _signPermit(PAYER_KEY, address(staking), 5 ether, block.timestamp);
        vm.prank(ATTACKER);
        token.permit(payer, address(staking), 5 ether, block.timestamp, v, r, s);
        vm.prank(payer);
        staking.stakeWithPermit(5 ether, block.timestamp, v, r, s);
        vm.assertEq(staking.stakeOf(payer), 10 ether);
    }

    function test_unstakeAndWithdraw_resistFrontRunning() public {
        _assertSenderOnly(address(staking), ALICE, abi.encodeCall(staking.requestUnstake, (10_000 ether)));
        vm.warp(block.timestamp + UNBONDING_DELAY);
        _assertSenderOnly(address(staking), ALICE, abi.encodeCall(staking.withdraw, ()));
    }

    /// @dev A commitment binds only its sender.
    function test_commit_resistsFrontRunning() public {
        bytes memory commit = abi.encodeCall(staking.commit, (uint40(block.timestamp + 30 days)));
        vm.assertTrue(_send(ATTACKER, address(staking), commit));
        vm.assertEq(staking.committedUntil(ALICE), 0);
        vm.assertTrue(_send(ALICE, address(staking), commit));
        vm.assertEq(staking.committedUntil(ALICE), block.timestamp + 30 days);
    }

    function test_slashAndRelease_resistFrontRunning() public {
        _assertSenderOnly(address(staking), operator, abi.encodeCall(staking.slash, (ALICE, 2, "evidence")));
        _assertSenderOnly(address(staking), admin, abi.encodeCall(staking.release, (ALICE)));
    }

    /// @dev A request to unstake before a slash does not reduce the slash.
    function test_unstake_doesNotEscapePendingSlash() public {
        vm.prank(ALICE);
        staking.requestUnstake(10_000 ether);
        vm.prank(operator);
        (uint256 amount,) = staking.slash(ALICE, 2, "evidence");
        vm.assertEq(amount, 5_000 ether);
    }

    function test_penaltiesAndMinimumStakes_resistFrontRunning() public {
        _assertSenderOnly(address(staking), admin, abi.encodeCall(staking.setPenalty, (2, 6_000, 0)));
        _assertSenderOnly(address(staking), admin, abi.encodeCall(staking.setMinimumStake, (1, 1 ether)));
    }

    // --- windows

    function test_commitWindow_resistsFrontRunning() public {
        _assertSenderOnly(address(windows), operator, abi.encodeCall(windows.commitWindow, ("root", 1)));
    }

    /// @dev Caller and time do not change the seed, since its block was fixed before.
    function test_latchSeed_resistsFrontRunning() public {
        vm.prank(operator);
        windows.commitWindow("root", 1);
        window = "root";
        vm.roll(block.number + SEED_DELAY + 1);
        bytes memory latch = abi.encodeCall(windows.latchSeed, (window));
        _assertSameForAnySender(address(windows), operator, latch);

        vm.prank(operator);
        windows.commitWindow("late", 1);
        window = "late";
        vm.roll(block.number + SEED_DELAY + 257); // the hash is unavailable; a later seed block is set once
        _assertSameForAnySender(address(windows), operator, abi.encodeCall(windows.latchSeed, (window)));
    }

    // --- treasury, emission, rewards

    function test_treasury_resistsFrontRunning() public {
        token.transfer(address(treasury), 100 ether);
        _assertSenderOnly(address(treasury), treasurer, abi.encodeCall(treasury.spend, (0, ALICE, 1 ether, "a")));
        _assertSenderOnly(address(treasury), treasurer, abi.encodeCall(treasury.grant, (ALICE, 1 ether, "a")));
    }

    function test_emission_resistsFrontRunning() public {
        vm.warp(block.timestamp + 10 days);
        _assertSameForAnySender(address(emission), rewarder, abi.encodeCall(emission.release, ()));
    }

    function test_rewardEpochs_resistFrontRunning() public {
        token.transfer(address(rewards), 100 ether);
        vm.warp(block.timestamp + MIN_EPOCH);
        _assertSenderOnly(address(rewards), rewarder, abi.encodeCall(rewards.postEpoch, ("root", 0, 1 ether, 0)));
        _assertSenderOnly(address(rewards), guardian, abi.encodeCall(rewards.veto, ()));
        _assertSenderOnly(address(rewards), admin, abi.encodeCall(rewards.setApy, (2_100)));
    }

    /// @dev Any account can claim for another, which is then paid. Only the account itself can choose the recipient. An
    /// attacker can make a `claimTo` fail, but cannot take a wei: the account has its rewards.
    function test_rewardClaims_resistFrontRunning() public {
        token.transfer(address(rewards), 100 ether);
        bytes32[] memory leaves = new bytes32[](2);
        (leaves[0], leaves[1]) = (_leaf(ALICE, 3 ether), _leaf(BOB, 4 ether));
        vm.warp(block.timestamp + MIN_EPOCH);
        _post(Tree.root(leaves), 0, 7 ether, 0);
        vm.warp(block.timestamp + CLAIM_DELAY);
        bytes memory claim = abi.encodeCall(rewards.claim, (ALICE, 3 ether, Tree.proof(leaves, 0)));
        _assertSameForAnySender(address(rewards), ALICE, claim);
        bytes memory claimTo = abi.encodeCall(rewards.claimTo, (payer, 4 ether, Tree.proof(leaves, 1)));
        _assertSenderOnly(address(rewards), BOB, claimTo);
    }

    // --- attestations

    function test_attestations_resistFrontRunning() public {
        _assertSenderOnly(address(attestations), admin, abi.encodeCall(attestations.setMeasurement, ("m", true)));
        uint40 end = uint40(block.timestamp + 1 days);
        _assertSenderOnly(
            address(attestations), attester, abi.encodeCall(attestations.attest, (ALICE, "k", "m", end, "r"))
        );
        _assertSenderOnly(address(attestations), attester, abi.encodeCall(attestations.revoke, (ALICE)));
    }

    // --- the fixture

    function _stateHash() internal view override returns (bytes32) {
        address[11] memory all = [
            payer,
            ALICE,
            BOB,
            ATTACKER,
            operator,
            address(escrow),
            address(staking),
            address(treasury),
            address(rewards),
            treasurer,
            thirdParty
        ];
        uint256[11] memory balances;
        for (uint256 i = 0; i < all.length; ++i) {
            balances[i] = token.balanceOf(all[i]);
        }
        bytes32 jobs =
            keccak256(abi.encode(escrow.jobs(jobId), escrow.batchCount(), escrow.batches(batchRoot), escrow.feeBps()));
        bytes32 held = keccak256(abi.encode(escrow.withheldOf(1, ALICE), escrow.paused(), staking.paused()));
        bytes32 stakes = keccak256(
            abi.encode(
                staking.accountOf(ALICE), staking.accountOf(payer), staking.accountOf(ATTACKER), staking.penalty(2)
            )
        );
        bytes32 economy = keccak256(abi.encode(rewards.currentEpoch(), rewards.paidOut(), emission.released()));
        bytes32 others = keccak256(
            abi.encode(
                attestations.attestationOf(ALICE),
                attestations.isAccepted("m"),
                staking.minimumStake(1),
                windows.windowCount(),
                rewards.apyBps(),
                treasury.grantCount()
            )
        );
        bytes32 seed = window == 0 ? bytes32(0) : keccak256(abi.encode(windows.windows(window)));
        return keccak256(abi.encode(balances, jobs, held, stakes, economy, others, seed));
    }

    function _openOne() private {
        jobId = _open(_order(4, 1 ether));
    }

    function _settled() private returns (Bill memory bill) {
        _openOne();
        bill = _post(_billFor(_line(jobId, 0, 1, false), 2, 1));
        batchRoot = _batchRoot(bill);
    }

    function _encodeOpen(JobOrder memory order, bytes memory signature) private view returns (bytes memory) {
        return abi.encodeCall(escrow.openJob, (order, signature));
    }
}
