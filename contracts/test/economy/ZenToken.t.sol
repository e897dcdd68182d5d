// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ERC20Capped} from "@openzeppelin/contracts/token/ERC20/extensions/ERC20Capped.sol";
import {ERC20Permit} from "@openzeppelin/contracts/token/ERC20/extensions/ERC20Permit.sol";
import {ZenToken} from "../../src/ZenToken.sol";
import {Network} from "../base/Network.sol";

contract ZenTokenTest is Network {
    function test_mint_revertsUntilAdminGrantsRole() public {
        bytes32 role = token.MINTER_ROLE();
        vm.prank(admin);
        _expectMissingRole(admin, role);
        token.mint(admin, 1);
        vm.prank(admin);
        token.grantRole(role, operator);
        vm.prank(operator);
        token.mint(thirdParty, 5);
        vm.assertEq(token.balanceOf(thirdParty), 5);
    }

    function test_initialMinter_canMint() public {
        token = new ZenToken(100, 90, address(this), 1 days, admin, operator);
        vm.prank(operator);
        token.mint(thirdParty, 10);
        vm.assertEq(token.balanceOf(thirdParty), 10);
        bytes32 role = token.MINTER_ROLE();
        _expectMissingRole(address(this), role);
        token.mint(thirdParty, 1);
    }

    function test_minterRole_isUnassigned_whenMinterIsZero() public {
        token = new ZenToken(100, 90, address(this), 1 days, admin, address(0));
        vm.assertFalse(token.hasRole(token.MINTER_ROLE(), address(0)));
        vm.assertEq(token.balanceOf(address(this)), 90);
        vm.assertEq(token.defaultAdmin(), admin);
        vm.assertEq(token.defaultAdminDelay(), 1 days);
    }

    function test_initialSupply_isCapped() public {
        vm.expectRevert(abi.encodeWithSelector(ERC20Capped.ERC20ExceededCap.selector, 101, 100));
        new ZenToken(100, 101, address(this), 1 days, admin, operator);
    }

    function test_burning_freesCapacityUnderCap() public {
        token = new ZenToken(100, 100, address(this), 1 days, admin, operator);
        token.burn(10);
        vm.prank(operator);
        token.mint(thirdParty, 10);
        vm.assertEq(token.totalSupply(), 100);
    }

    function test_cap_isEnforced() public {
        bytes32 role = token.MINTER_ROLE();
        vm.prank(admin);
        token.grantRole(role, operator);
        vm.prank(operator);
        token.mint(thirdParty, 900_000_000 ether);
        vm.expectRevert(
            abi.encodeWithSelector(ERC20Capped.ERC20ExceededCap.selector, 1_000_000_000 ether + 1, 1_000_000_000 ether)
        );
        vm.prank(operator);
        token.mint(thirdParty, 1);
    }

    function test_permit_worksOnceBeforeDeadline() public {
        (uint8 v, bytes32 r, bytes32 s) = _signPermit(PAYER_KEY, thirdParty, 3, block.timestamp);
        token.permit(payer, thirdParty, 3, block.timestamp, v, r, s);
        vm.assertEq(token.allowance(payer, thirdParty), 3);
        vm.expectPartialRevert(ERC20Permit.ERC2612InvalidSigner.selector);
        token.permit(payer, thirdParty, 3, block.timestamp, v, r, s);

        (v, r, s) = _signPermit(PAYER_KEY, thirdParty, 4, block.timestamp - 1);
        vm.expectRevert(abi.encodeWithSelector(ERC20Permit.ERC2612ExpiredSignature.selector, block.timestamp - 1));
        token.permit(payer, thirdParty, 4, block.timestamp - 1, v, r, s);
    }
}
