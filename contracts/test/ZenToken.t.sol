// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ERC20Capped} from "@openzeppelin/contracts/token/ERC20/extensions/ERC20Capped.sol";
import {ERC20Permit} from "@openzeppelin/contracts/token/ERC20/extensions/ERC20Permit.sol";
import {Network} from "./base/Network.sol";

contract ZenTokenTest is Network {
    function test_nobodyMintsUntilTheAdminSaysSo() public {
        bytes32 role = token.MINTER_ROLE();
        vm.prank(admin);
        _expectMissingRole(admin, role);
        token.mint(admin, 1);
        vm.prank(admin);
        token.grantRole(role, operator);
        vm.prank(operator);
        token.mint(stranger, 5);
        vm.assertEq(token.balanceOf(stranger), 5);
    }

    function test_theCapHolds() public {
        bytes32 role = token.MINTER_ROLE();
        vm.prank(admin);
        token.grantRole(role, operator);
        vm.prank(operator);
        token.mint(stranger, 900_000_000 ether);
        vm.expectRevert(
            abi.encodeWithSelector(ERC20Capped.ERC20ExceededCap.selector, 1_000_000_000 ether + 1, 1_000_000_000 ether)
        );
        vm.prank(operator);
        token.mint(stranger, 1);
    }

    function test_aPermitWorksOnceAndInTime() public {
        (uint8 v, bytes32 r, bytes32 s) = _signPermit(PAYER_KEY, stranger, 3, block.timestamp);
        token.permit(payer, stranger, 3, block.timestamp, v, r, s);
        vm.assertEq(token.allowance(payer, stranger), 3);
        vm.expectPartialRevert(ERC20Permit.ERC2612InvalidSigner.selector);
        token.permit(payer, stranger, 3, block.timestamp, v, r, s);

        (v, r, s) = _signPermit(PAYER_KEY, stranger, 4, block.timestamp - 1);
        vm.expectRevert(abi.encodeWithSelector(ERC20Permit.ERC2612ExpiredSignature.selector, block.timestamp - 1));
        token.permit(payer, stranger, 4, block.timestamp - 1, v, r, s);
    }
}
