// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {
    IAccessControlDefaultAdminRules
} from "@openzeppelin/contracts/access/extensions/IAccessControlDefaultAdminRules.sol";
import {IAccessControl} from "@openzeppelin/contracts/access/IAccessControl.sol";
import {IOmissions} from "../src/interfaces/IOmissions.sol";
import {IZenToken} from "../src/interfaces/IZenToken.sol";
import {Omissions} from "../src/Omissions.sol";
import {Timelock} from "../src/Timelock.sol";
import {Economy} from "./base/Economy.sol";
import {Races} from "./base/Races.sol";

/// @notice Of each call of the token, of the roles and of the timelock: who sends it first gains nothing.
contract FrontRunningRolesTest is Economy, Races {
    bytes32 private constant ROLE = keccak256("ANY_ROLE");
    address private immutable heir = _account("heir");

    address[] private guarded;
    Timelock private timelock;

    function setUp() public override {
        super.setUp();
        IOmissions.Terms memory terms = IOmissions.Terms(2 ether, 30 ether, 3 days, 1 days, 5 days);
        Omissions omissions =
            new Omissions(IZenToken(address(token)), windows, terms, 1 days, admin, operator, stranger);
        guarded = [
            address(token),
            address(treasury),
            address(staking),
            address(windows),
            address(escrow),
            address(rewards),
            address(attestations),
            address(omissions)
        ];
        address[] memory council = new address[](1);
        council[0] = operator;
        timelock = new Timelock(2 days, council, new address[](1));
    }

    // --- roles

    function test_rolesAreGivenAndTakenByTheAdmin() public {
        for (uint256 i = 0; i < guarded.length; ++i) {
            _onlyFor(guarded[i], admin, abi.encodeCall(IAccessControl.grantRole, (ROLE, heir)));
            _onlyFor(guarded[i], admin, abi.encodeCall(IAccessControl.revokeRole, (ROLE, heir)));
            vm.prank(admin);
            IAccessControl(guarded[i]).grantRole(ROLE, heir);
            _onlyFor(guarded[i], heir, abi.encodeCall(IAccessControl.renounceRole, (ROLE, heir)));
        }
    }

    function test_theAdminsOfficeGoesToItsHeirAlone() public {
        for (uint256 i = 0; i < guarded.length; ++i) {
            IAccessControlDefaultAdminRules rules = IAccessControlDefaultAdminRules(guarded[i]);
            _onlyFor(guarded[i], admin, abi.encodeCall(rules.changeDefaultAdminDelay, (2 days)));
            _onlyFor(guarded[i], admin, abi.encodeCall(rules.rollbackDefaultAdminDelay, ()));
            _onlyFor(guarded[i], admin, abi.encodeCall(rules.beginDefaultAdminTransfer, (heir)));
            _onlyFor(guarded[i], admin, abi.encodeCall(rules.cancelDefaultAdminTransfer, ()));
            vm.prank(admin);
            rules.beginDefaultAdminTransfer(heir);
        }
        vm.warp(block.timestamp + 1 days + 1);
        for (uint256 i = 0; i < guarded.length; ++i) {
            bytes memory accept = abi.encodeCall(IAccessControlDefaultAdminRules.acceptDefaultAdminTransfer, ());
            _onlyFor(guarded[i], heir, accept);
            vm.assertEq(IAccessControlDefaultAdminRules(guarded[i]).defaultAdmin(), heir);
        }
    }

    // --- the timelock

    function test_timelock() public {
        token.transfer(address(timelock), 10 ether);
        bytes memory pay = abi.encodeCall(token.transfer, (heir, 10 ether));
        bytes memory schedule =
            abi.encodeCall(timelock.schedule, (address(token), 0, pay, bytes32(0), bytes32(0), 2 days));
        bytes memory cancel =
            abi.encodeCall(timelock.cancel, (timelock.hashOperation(address(token), 0, pay, bytes32(0), bytes32(0))));
        _onlyFor(address(timelock), operator, schedule);
        _onlyFor(address(timelock), operator, cancel);
        vm.assertTrue(_send(operator, address(timelock), schedule));
        vm.warp(block.timestamp + 2 days);
        bytes memory execute = abi.encodeCall(timelock.execute, (address(token), 0, pay, bytes32(0), bytes32(0)));
        _sameWhoeverIsFirst(address(timelock), operator, execute);
        vm.assertEq(token.balanceOf(heir), 10 ether);
    }

    function test_timelockBatches() public {
        token.transfer(address(timelock), 10 ether);
        address[] memory targets = new address[](1);
        bytes[] memory calls = new bytes[](1);
        (targets[0], calls[0]) = (address(token), abi.encodeCall(token.transfer, (heir, 10 ether)));
        uint256[] memory values = new uint256[](1);
        bytes memory schedule =
            abi.encodeCall(timelock.scheduleBatch, (targets, values, calls, bytes32(0), bytes32(0), 2 days));
        _onlyFor(address(timelock), operator, schedule);
        vm.warp(block.timestamp + 2 days);
        bytes memory execute = abi.encodeCall(timelock.executeBatch, (targets, values, calls, bytes32(0), bytes32(0)));
        _sameWhoeverIsFirst(address(timelock), operator, execute);
    }

    /// @dev Its own roles and delay change by its own operations only.
    function test_timelockGovernsItself() public {
        bytes32 role = timelock.PROPOSER_ROLE();
        address self = address(timelock);
        _onlyFor(self, self, abi.encodeCall(timelock.grantRole, (role, heir)));
        _onlyFor(self, heir, abi.encodeCall(timelock.renounceRole, (role, heir)));
        _onlyFor(self, self, abi.encodeCall(timelock.revokeRole, (role, operator)));
        _onlyFor(self, self, abi.encodeCall(timelock.updateDelay, (1 days)));
    }

    /// @dev What it answers to tokens that are sent to it changes nothing.
    function test_timelockTakesTokensOfAllKinds() public {
        uint256[] memory none = new uint256[](0);
        address self = address(timelock);
        _sameWhoeverIsFirst(self, stranger, abi.encodeCall(timelock.onERC721Received, (heir, heir, 1, "")));
        _sameWhoeverIsFirst(self, stranger, abi.encodeCall(timelock.onERC1155Received, (heir, heir, 1, 1, "")));
        bytes memory batch = abi.encodeCall(timelock.onERC1155BatchReceived, (heir, heir, none, none, ""));
        _sameWhoeverIsFirst(self, stranger, batch);
    }

    // --- the token

    function test_transferAndBurn() public {
        _onlyFor(address(token), payer, abi.encodeCall(token.transfer, (heir, 1 ether)));
        _onlyFor(address(token), payer, abi.encodeCall(token.burn, (1 ether)));
        vm.prank(payer);
        token.approve(operator, 3 ether);
        _onlyFor(address(token), operator, abi.encodeCall(token.transferFrom, (payer, heir, 1 ether)));
        _onlyFor(address(token), operator, abi.encodeCall(token.burnFrom, (payer, 1 ether)));
    }

    /// @dev A permit says who may spend how much, whoever brings it.
    function test_permit() public {
        (uint8 v, bytes32 r, bytes32 s) = _signPermit(PAYER_KEY, operator, 1 ether, block.timestamp);
        bytes memory permit = abi.encodeCall(token.permit, (payer, operator, 1 ether, block.timestamp, v, r, s));
        _sameWhoeverIsFirst(address(token), payer, permit);
    }

    /// @dev As in every ERC-20, a spender can use the old allowance ahead of a new one. The network's contracts take an
    /// allowance in their owner's calls only, so between them and their users nobody can.
    function test_approve() public {
        vm.prank(payer);
        token.approve(address(staking), 2 ether);
        vm.assertFalse(_send(THIEF, address(staking), abi.encodeCall(staking.stake, (2 ether))));
        vm.assertFalse(_send(THIEF, address(token), abi.encodeCall(token.transferFrom, (payer, THIEF, 1))));
        vm.prank(payer);
        token.approve(address(staking), 1 ether);
        vm.prank(payer);
        staking.stake(1 ether);
        vm.assertEq(staking.stakeOf(payer), 1 ether);
        vm.assertEq(token.allowance(payer, address(staking)), 0);
    }

    function test_mint() public {
        bytes32 role = token.MINTER_ROLE();
        vm.prank(admin);
        token.grantRole(role, heir);
        _onlyFor(address(token), heir, abi.encodeCall(token.mint, (heir, 1 ether)));
    }

    function _picture() internal view override returns (bytes32) {
        bytes32[] memory roles = new bytes32[](guarded.length);
        for (uint256 i = 0; i < guarded.length; ++i) {
            IAccessControlDefaultAdminRules rules = IAccessControlDefaultAdminRules(guarded[i]);
            bool has = IAccessControl(guarded[i]).hasRole(ROLE, heir);
            (address next, uint48 due) = rules.pendingDefaultAdmin();
            (uint48 delay, uint48 from) = rules.pendingDefaultAdminDelay();
            roles[i] = keccak256(abi.encode(has, rules.defaultAdmin(), next, due, delay, from));
        }
        address[5] memory all = [payer, heir, operator, THIEF, address(timelock)];
        uint256[5] memory balances;
        for (uint256 i = 0; i < all.length; ++i) {
            balances[i] = token.balanceOf(all[i]);
        }
        bytes32 role = timelock.PROPOSER_ROLE();
        bytes32 lock = keccak256(
            abi.encode(timelock.getMinDelay(), timelock.hasRole(role, heir), timelock.hasRole(role, operator))
        );
        bytes32 allowed =
            keccak256(abi.encode(token.allowance(payer, operator), token.allowance(payer, THIEF), token.totalSupply()));
        return keccak256(abi.encode(roles, balances, lock, allowed));
    }
}
