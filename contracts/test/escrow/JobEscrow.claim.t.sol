// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Hashes} from "@openzeppelin/contracts/utils/cryptography/Hashes.sol";
import {IJobEscrow} from "../../src/interfaces/IJobEscrow.sol";
import {JobOrder, UnitCommitment} from "../../src/Messages.sol";
import {Settlements} from "../base/Settlements.sol";

contract JobEscrowClaimTest is Settlements {
    bytes32 private jobId; // 12 units, 1 ZEN

    function setUp() public override {
        super.setUp();
        jobId = _open(_order(12, 1 ether));
    }

    function test_claim_paysAmountInTree() public {
        Bill memory bill = _post(_billFor(_line(jobId, 0, 1, true), 5, 3));
        _endChallenge(bill);
        vm.expectEmit(address(escrow));
        emit IJobEscrow.Claimed(1, ALICE, 5 * NET);
        _claim(bill, 0);
        vm.assertEq(token.balanceOf(ALICE), 5 * NET);
        vm.assertEq(escrow.batches(_batchRoot(bill)).net, 3 * NET);
        vm.assertTrue(escrow.isClaimed(1, ALICE));
        vm.assertFalse(escrow.isClaimed(1, BOB));

        vm.expectEmit(address(escrow));
        emit IJobEscrow.FeesCollected(1, 8 * (UNIT - NET));
        vm.assertEq(_collect(bill), 8 * (UNIT - NET));
        vm.assertEq(token.balanceOf(address(treasury)), 8 * (UNIT - NET));
        vm.assertEq(_collect(bill), 0); // once
        _claim(bill, 1);
        vm.assertEq(token.balanceOf(address(escrow)), 0);
    }

    function test_claim_paysManyBatchesToPayoutAddress() public {
        IJobEscrow.Claim[] memory claims = new IJobEscrow.Claim[](3);
        Bill memory bill;
        for (uint32 i = 0; i < 3; ++i) {
            bill = _post(_billFor(_line(jobId, i, i + 1, false), i + 1, 1));
            claims[2 - i] = _claimOf(bill, 0); // in any order
        }
        _endChallenge(bill);
        vm.prank(ALICE);
        vm.assertEq(escrow.claim(thirdParty, claims), 6 * NET);
        vm.assertEq(token.balanceOf(thirdParty), 6 * NET);
        vm.assertEq(token.balanceOf(ALICE), 0);
    }

    function test_claim_revertsDuringChallengePeriod() public {
        Bill memory bill = _post(_billFor(_line(jobId, 0, 1, true), 1, 0));
        uint256 claimableAt = block.timestamp + CHALLENGE_PERIOD;
        vm.warp(claimableAt - 1);
        bytes memory reason = abi.encodeWithSelector(IJobEscrow.ChallengePeriodRunning.selector, claimableAt);
        _expectClaimRefused(ALICE, _claimsOf(bill, 0), reason);
        vm.expectRevert(reason);
        _collect(bill);
        vm.warp(claimableAt);
        _claim(bill, 0);
        _collect(bill);
    }

    function test_claim_paysOnce() public {
        Bill memory bill = _post(_billFor(_line(jobId, 0, 1, true), 1, 3));
        _endChallenge(bill);
        bytes memory reason = abi.encodeWithSelector(IJobEscrow.AlreadyClaimed.selector, 1, ALICE);
        IJobEscrow.Claim[] memory twice = new IJobEscrow.Claim[](2);
        twice[0] = twice[1] = _claimOf(bill, 0);
        _expectClaimRefused(ALICE, twice, reason);
        _claim(bill, 0);
        _expectClaimRefused(ALICE, _claimsOf(bill, 0), reason);
    }

    /// @dev A copied claim workUnits for no other account and cannot be changed.
    function test_claim_revertsOnInvalidProof() public {
        Bill memory bill = _post(_billFor(_line(jobId, 0, 1, true), 1, 3));
        _endChallenge(bill);
        IJobEscrow.Claim[] memory claims = _claimsOf(bill, 0);
        _expectUnknownRoot(BOB, claims);
        claims[0].amount += 1;
        _expectUnknownRoot(ALICE, claims);
        claims = _claimsOf(bill, 1);
        _expectUnknownRoot(ALICE, claims);
        claims = _claimsOf(bill, 0);
        claims[0].proof = new bytes32[](0);
        _expectUnknownRoot(ALICE, claims);

        claims[0] = IJobEscrow.Claim(NET, _unitProof(bill, 0)); // a leaf of the other branch
        _expectUnknownRoot(ALICE, claims);
    }

    function test_claim_revertsOnInvalidRecipient() public {
        Bill memory bill = _post(_billFor(_line(jobId, 0, 1, true), 1, 0));
        _endChallenge(bill);
        address[2] memory recipients = [address(0), address(escrow)];
        for (uint256 i = 0; i < 2; ++i) {
            vm.prank(ALICE);
            vm.expectRevert(abi.encodeWithSelector(IJobEscrow.InvalidRecipient.selector, recipients[i]));
            escrow.claim(recipients[i], _claimsOf(bill, 0));
        }
    }

    /// @dev A tree above the totals of its lines takes at most from its own batch.
    function test_claimAboveTotals_takesNothingFromOtherBatches() public {
        Bill memory honest = _post(_billFor(_line(jobId, 0, 1, false), 2, 2));
        Bill memory bill = _billFor(_line(jobId, 1, 2, false), 1, 1);
        bill.amounts[1] = NET + 1;
        _post(bill);
        _endChallenge(bill);
        _claim(bill, 0);
        _expectClaimRefused(
            BOB, _claimsOf(bill, 1), abi.encodeWithSelector(IJobEscrow.BatchOverdrawn.selector, 2, NET + 1, NET)
        );
        _claim(honest, 0);
        _claim(honest, 1);
        vm.assertEq(escrow.batches(_batchRoot(bill)).net, NET);
    }

    function test_collectFees_collectsManyBatches() public {
        Bill memory first = _post(_billFor(_line(jobId, 0, 1, false), 1, 0));
        Bill memory second = _post(_billFor(_line(jobId, 1, 2, false), 2, 0));
        _endChallenge(second);
        bytes32[] memory roots = new bytes32[](3);
        (roots[0], roots[1], roots[2]) = (_batchRoot(first), _batchRoot(second), _batchRoot(first));
        vm.prank(thirdParty);
        vm.assertEq(escrow.collectFees(roots), 3 * (UNIT - NET));
        roots[1] = bytes32("none");
        vm.expectRevert(abi.encodeWithSelector(IJobEscrow.UnknownBatch.selector, bytes32("none")));
        escrow.collectFees(roots);
    }

    /// @dev Claimed flags are stored in words of 256 batches.
    function test_claimedFlag_isStoredForEveryBatch() public {
        JobOrder memory order = _order(300, 20 ether);
        jobId = _open(order);
        Bill[] memory bills = new Bill[](258);
        for (uint32 i = 0; i < 258; ++i) {
            bills[i] = _post(_billFor(_line(jobId, i, i + 1, false), 1, 0));
        }
        _endChallenge(bills[257]);
        uint16[5] memory ids = [256, 1, 255, 257, 2];
        for (uint256 i = 0; i < 5; ++i) {
            vm.assertFalse(escrow.isClaimed(ids[i], ALICE));
            _claim(bills[ids[i] - 1], 0);
            vm.assertTrue(escrow.isClaimed(ids[i], ALICE));
            _expectClaimRefused(
                ALICE,
                _claimsOf(bills[ids[i] - 1], 0),
                abi.encodeWithSelector(IJobEscrow.AlreadyClaimed.selector, ids[i], ALICE)
            );
        }
        for (uint256 i = 0; i < 5; ++i) {
            vm.assertTrue(escrow.isClaimed(ids[i], ALICE)); // a later claim keeps the earlier flags
        }
        vm.assertFalse(escrow.isClaimed(258, ALICE));
        vm.assertEq(token.balanceOf(ALICE), 5 * NET);
    }

    /// @dev Any number of providers, so any tree shape: each receives its amount, and the amounts add up to the batch.
    function testFuzz_claim_paysEveryProviderOfTree(uint8 providers, uint256 seed) public {
        uint256 count = _bound(providers, 1, 12);
        IJobEscrow.JobLine[] memory lines = new IJobEscrow.JobLine[](1);
        lines[0] = _line(jobId, 0, 1, true);
        UnitCommitment[] memory units = new UnitCommitment[](12);
        for (uint32 i = 0; i < 12; ++i) {
            units[i] = _unit(jobId, 0, i, address(uint160(uint256(keccak256(abi.encode(seed, i % count))))));
        }
        Bill memory bill = _post(_bill(lines, units));
        _endChallenge(bill);
        for (uint256 i = 0; i < bill.providers.length; ++i) {
            _claim(bill, i);
            vm.assertEq(token.balanceOf(bill.providers[i]), bill.amounts[i]);
        }
        _collect(bill);
        vm.assertEq(token.balanceOf(address(escrow)), 0);
    }

    /// @dev Settling, claiming and collecting single units yields no wei more than all at once.
    function testFuzz_claim_yieldsNoDustFromSmallUnits(uint80 price, uint48 weight, uint16 feeBps) public {
        vm.prank(admin);
        escrow.setFee(uint16(_bound(feeBps, 0, 1_000)));
        JobOrder memory order = _order(6, 100 ether);
        order.maxPrice = uint80(_bound(price, 1e9, 10 ether));
        order.unitWeight = uint48(_bound(weight, 1_000_000, 3_600_000_000));
        order.samplingBps = 10_000;
        order.waitUntil += 30 days;
        jobId = _open(order);
        order.nonce = 2;
        bytes32 atOnce = _open(order);
        IJobEscrow.JobLine memory line;
        Bill memory bill;
        for (uint32 i = 0; i < 6; ++i) {
            line = _line(jobId, i, i + 1, i == 5);
            line.price = order.maxPrice;
            bill = _post(_billFor(line, 1, 0));
            _endChallenge(bill);
            _claim(bill, 0);
            _collect(bill);
        }
        uint256 fee = token.balanceOf(address(treasury));
        line = _line(atOnce, 0, 1, true);
        line.price = order.maxPrice;
        bill = _post(_billFor(line, 0, 6));
        _endChallenge(bill);
        _claim(bill, 0);
        vm.assertEq(token.balanceOf(ALICE), token.balanceOf(BOB));
        vm.assertEq(_collect(bill), fee);
    }

    function _expectUnknownRoot(address provider, IJobEscrow.Claim[] memory claims) private {
        bytes32 root = keccak256(bytes.concat(keccak256(abi.encode(provider, claims[0].amount))));
        for (uint256 i = 0; i < claims[0].proof.length; ++i) {
            root = Hashes.commutativeKeccak256(root, claims[0].proof[i]);
        }
        _expectClaimRefused(provider, claims, abi.encodeWithSelector(IJobEscrow.UnknownBatch.selector, root));
    }

    function _expectClaimRefused(address provider, IJobEscrow.Claim[] memory claims, bytes memory reason) private {
        vm.prank(provider);
        vm.expectRevert(reason);
        escrow.claim(provider, claims);
    }
}
