// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {ExactTransfers} from "../../src/base/ExactTransfers.sol";
import {Disputes} from "../../src/Disputes.sol";
import {IOmissions} from "../../src/interfaces/IOmissions.sol";
import {IZenToken} from "../../src/interfaces/IZenToken.sol";
import {Omissions} from "../../src/Omissions.sol";
import {ProviderStaking} from "../../src/ProviderStaking.sol";
import {Rewards} from "../../src/Rewards.sol";
import {Treasury} from "../../src/Treasury.sol";
import {FalseToken, FeeToken} from "../base/BadTokens.sol";
import {DisputeFixture} from "../base/DisputeFixture.sol";

/// @notice Contracts credit only tokens that arrived and record only payments that left. JobEscrow.open.t.sol has the escrow's.
contract BadTokensTest is DisputeFixture {
    ProviderStaking private stakes;
    Disputes private disputeContract;
    Omissions private omissions;

    function test_feeToken_depositsRevert() public {
        FeeToken taking = new FeeToken();
        _deployOn(address(taking));
        taking.mint(provider, 1_000 ether);
        _approveAll(taking, provider);
        bytes32 digest = omissions.acknowledgementDigest(_unitId(), uint40(block.timestamp - 1));
        bytes memory acknowledgement = _sign(PROVIDER_KEY, digest);
        taking.setFee(1);
        _expectShort(1 ether);
        vm.prank(provider);
        stakes.stake(1 ether);
        _expectShort(1 ether);
        vm.prank(provider);
        omissions.deposit(1 ether);
        _expectShort(2 ether);
        _claimOmission(acknowledgement);
        disputes = disputeContract;
        _expectShort(BOND);
        _openAs(provider);

        taking.setFee(0);
        vm.prank(provider);
        stakes.stake(1 ether);
        vm.prank(provider);
        omissions.deposit(1 ether);
        _claimOmission(acknowledgement);
        _openAs(provider);
        vm.assertEq(taking.balanceOf(address(omissions)), 3 ether);
        vm.assertEq(taking.balanceOf(address(disputeContract)), BOND);
    }

    function test_falseReturningToken_transfersRevert() public {
        FalseToken lying = new FalseToken();
        _deployOn(address(lying));
        bytes memory failed = abi.encodeWithSelector(SafeERC20.SafeERC20FailedOperation.selector, address(lying));
        vm.prank(provider);
        vm.expectRevert(failed);
        stakes.stake(1 ether);
        vm.expectRevert(failed);
        omissions.deposit(1 ether);
        disputes = disputeContract;
        vm.expectRevert(failed);
        _openAs(provider);

        Treasury treasury = new Treasury(
            IZenToken(address(lying)), [uint16(5_000), 3_000, 2_000], 1 days, address(this), address(this)
        );
        lying.mint(address(treasury), 10 ether);
        vm.expectRevert(failed);
        treasury.spend(0, provider, 1 ether, "x");

        Rewards rewards = new Rewards(
            IZenToken(address(lying)), address(stakes), 2_000, 0, 0, 1 days, address(this), address(this), provider
        );
        lying.mint(address(rewards), 10 ether);
        bytes32 leaf = keccak256(bytes.concat(keccak256(abi.encode(provider, 1 ether))));
        rewards.postEpoch(leaf, 0, 1 ether, 0);
        vm.expectRevert(failed);
        rewards.claim(provider, 1 ether, new bytes32[](0));
        vm.assertEq(rewards.claimed(provider), 0);
    }

    function _deployOn(address bad) private {
        IZenToken zen = IZenToken(bad);
        uint96[5] memory minima;
        stakes = new ProviderStaking(
            zen, 1 days, minima, 1 days, address(this), address(this), address(this), address(this)
        );
        disputeContract = new Disputes(zen, staking, windows, escrow, _terms());
        IOmissions.Terms memory terms = IOmissions.Terms(2 ether, 30 ether, 3 days, 1 days, 5 days);
        omissions = new Omissions(zen, windows, terms, 1 days, address(this), address(this), provider);
    }

    function _approveAll(FeeToken taking, address account) private {
        address[3] memory spenders = [address(stakes), address(disputeContract), address(omissions)];
        for (uint256 i = 0; i < spenders.length; ++i) {
            vm.prank(account);
            taking.approve(spenders[i], type(uint256).max);
        }
    }

    function _claimOmission(bytes memory acknowledgement) private {
        vm.prank(provider);
        omissions.claim(unit, uint40(block.timestamp - 1), acknowledgement);
    }

    function _expectShort(uint256 amount) private {
        vm.expectRevert(abi.encodeWithSelector(ExactTransfers.TransferShort.selector, amount, amount - 1));
    }
}
