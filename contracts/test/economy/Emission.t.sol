// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ERC20Capped} from "@openzeppelin/contracts/token/ERC20/extensions/ERC20Capped.sol";
import {Emission} from "../../src/Emission.sol";
import {IEmission} from "../../src/interfaces/IEmission.sol";
import {IZenToken} from "../../src/interfaces/IZenToken.sol";
import {ZenToken} from "../../src/ZenToken.sol";
import {RewardNetwork} from "../base/RewardNetwork.sol";

/// @dev A token that calls the emission again during a mint.
contract GreedyToken {
    uint256 public minted;

    function mint(address, uint256 amount) external {
        minted += amount;
        (bool done,) = msg.sender.call(abi.encodeCall(Emission.release, ()));
        require(!done, "released twice");
    }
}

contract EmissionTest is RewardNetwork {
    uint256 private constant YEAR = 365 days;
    uint256 private constant TOTAL = 60_000_000 ether + 11;

    function test_schedule_isPublished() public view {
        uint256[] memory yearly = emission.schedule();
        vm.assertEq(yearly.length, 3);
        for (uint256 i = 0; i < 3; ++i) {
            vm.assertEq(yearly[i], _yearly()[i]);
        }
        vm.assertEq(emission.recipient(), address(rewards));
        vm.assertEq(address(emission.token()), address(token));
        vm.assertEq(emission.start(), block.timestamp);
    }

    function test_vesting_isLinearWithinYear() public view {
        uint256 start = emission.start();
        vm.assertEq(emission.vested(0), 0);
        vm.assertEq(emission.vested(start - 1), 0);
        vm.assertEq(emission.vested(start), 0);
        vm.assertEq(emission.vested(start + 1), (30_000_000 ether + 1) / YEAR);
        vm.assertEq(emission.vested(start + YEAR / 2), 15_000_000 ether);
        vm.assertEq(emission.vested(start + YEAR), 30_000_000 ether + 1);
        vm.assertEq(emission.vested(start + YEAR + YEAR / 2), 40_000_000 ether + 1 + 3);
        vm.assertEq(emission.vested(start + 2 * YEAR), 50_000_000 ether + 8);
        vm.assertLe(emission.vested(start + 3 * YEAR - 1), TOTAL - 1);
        vm.assertEq(emission.vested(start + 3 * YEAR), TOTAL);
        vm.assertEq(emission.vested(type(uint256).max), TOTAL);
    }

    function test_release_mintsVestedAmountForAnyCaller() public {
        vm.expectRevert(IEmission.NothingToRelease.selector);
        emission.release();

        vm.warp(emission.start() + YEAR / 2);
        vm.expectEmit(address(emission));
        emit IEmission.Released(15_000_000 ether, 15_000_000 ether);
        vm.prank(thirdParty);
        vm.assertEq(emission.release(), 15_000_000 ether);
        vm.assertEq(token.balanceOf(address(rewards)), 15_000_000 ether);
        vm.assertEq(token.balanceOf(thirdParty), 0);
        vm.assertEq(emission.released(), 15_000_000 ether);
        vm.expectRevert(IEmission.NothingToRelease.selector);
        emission.release();

        vm.warp(emission.start() + YEAR);
        vm.expectEmit(address(emission));
        emit IEmission.Released(15_000_000 ether + 1, 30_000_000 ether + 1);
        emission.release();
    }

    function test_vesting_endsAfterLastYear() public {
        vm.warp(emission.start() + 100 * YEAR);
        vm.assertEq(emission.release(), TOTAL);
        vm.warp(block.timestamp + 100 * YEAR);
        vm.expectRevert(IEmission.NothingToRelease.selector);
        emission.release();
        vm.assertEq(token.totalSupply(), 100_000_000 ether + TOTAL);
    }

    function test_amountAboveCap_staysDue() public {
        token = new ZenToken(100 ether, 95 ether, address(this), 1 days, admin, address(0));
        uint96[] memory yearly = new uint96[](1);
        yearly[0] = 10 ether;
        emission = new Emission(IZenToken(address(token)), address(rewards), yearly);
        bytes32 role = token.MINTER_ROLE();
        vm.prank(admin);
        token.grantRole(role, address(emission));

        vm.warp(emission.start() + YEAR);
        vm.expectRevert(abi.encodeWithSelector(ERC20Capped.ERC20ExceededCap.selector, 105 ether, 100 ether));
        emission.release();
        vm.assertEq(emission.released(), 0);
        token.burn(5 ether);
        vm.assertEq(emission.release(), 10 ether);
        vm.assertEq(token.totalSupply(), 100 ether);
    }

    function test_release_revertsWithoutMinterRole() public {
        bytes32 role = token.MINTER_ROLE();
        vm.prank(admin);
        token.revokeRole(role, address(emission));
        vm.warp(emission.start() + 1 days);
        _expectMissingRole(address(emission), role);
        emission.release();
        vm.assertEq(emission.released(), 0);
    }

    function test_release_paysOnceWithReentrantToken() public {
        GreedyToken greedy = new GreedyToken();
        emission = new Emission(IZenToken(address(greedy)), address(rewards), _yearly());
        vm.warp(emission.start() + 1 days);
        emission.release();
        vm.assertEq(greedy.minted(), emission.vested(block.timestamp));
    }

    function test_constructor_revertsOnInvalidParameters() public {
        IZenToken zen = IZenToken(address(token));
        vm.expectRevert(abi.encodeWithSelector(IEmission.InvalidParameter.selector, "token"));
        new Emission(IZenToken(address(0)), address(rewards), _yearly());
        vm.expectRevert(abi.encodeWithSelector(IEmission.InvalidParameter.selector, "recipient"));
        new Emission(zen, address(0), _yearly());
        vm.expectRevert(abi.encodeWithSelector(IEmission.InvalidParameter.selector, "yearly"));
        new Emission(zen, address(rewards), new uint96[](0));
        vm.expectRevert(abi.encodeWithSelector(IEmission.InvalidParameter.selector, "yearly"));
        new Emission(zen, address(rewards), new uint96[](51));
        vm.assertEq(new Emission(zen, address(rewards), new uint96[](50)).schedule().length, 50);
    }

    /// The supply follows the schedule to the wei, for any caller and frequency of releases.
    function testFuzz_supply_followsSchedule(uint32[8] memory waits) public {
        for (uint256 i = 0; i < waits.length; ++i) {
            vm.warp(block.timestamp + _bound(waits[i], 1, 250 days));
            (bool done,) = address(emission).call(abi.encodeCall(emission.release, ()));
            vm.assertTrue(done || emission.vested(block.timestamp) == emission.released());
            vm.assertEq(emission.released(), emission.vested(block.timestamp));
            vm.assertEq(token.totalSupply(), 100_000_000 ether + emission.released());
            vm.assertEq(token.balanceOf(address(rewards)), emission.released());
        }
    }

    /// The vested amount equals the sum over the years, floored once in the current year, and never decreases.
    function testFuzz_vested_equalsSumOverYears(uint96[6] memory amounts, uint256 elapsed, uint256 more) public {
        uint96[] memory yearly = new uint96[](amounts.length);
        for (uint256 i = 0; i < amounts.length; ++i) {
            yearly[i] = amounts[i];
        }
        emission = new Emission(IZenToken(address(token)), address(rewards), yearly);
        elapsed = _bound(elapsed, 0, 7 * YEAR);
        uint256 expected;
        for (uint256 i = 0; i < yearly.length; ++i) {
            if (elapsed >= (i + 1) * YEAR) expected += yearly[i];
            else if (elapsed > i * YEAR) expected += uint256(yearly[i]) * (elapsed - i * YEAR) / YEAR;
        }
        uint256 time = emission.start() + elapsed;
        vm.assertEq(emission.vested(time), expected);
        vm.assertLe(expected, emission.vested(time + _bound(more, 0, 7 * YEAR)));
    }
}
