// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {
    IAccessControlDefaultAdminRules
} from "@openzeppelin/contracts/access/extensions/IAccessControlDefaultAdminRules.sol";
import {IAccessControl} from "@openzeppelin/contracts/access/IAccessControl.sol";
import {IOmissions} from "../../src/interfaces/IOmissions.sol";
import {IZenToken} from "../../src/interfaces/IZenToken.sol";
import {Omissions} from "../../src/Omissions.sol";
import {Timelock} from "../../src/Timelock.sol";
import {RewardNetwork} from "../base/RewardNetwork.sol";
import {FrontRunningCheck} from "../base/FrontRunningCheck.sol";

/// @notice Calls of the token, the roles and the timelock: front-running them gains nothing.
contract FrontRunningRolesTest is RewardNetwork, FrontRunningCheck {
    bytes32 private constant ROLE = keccak256("ANY_ROLE");
    address private immutable heir = _account("heir");

    address[] private guarded;
    Timelock private timelock;

    function setUp() public override {
        super.setUp();
        IOmissions.Terms memory terms = IOmissions.Terms(2 ether, 30 ether, 3 days, 1 days, 5 days);
        Omissions omissions =
            new Omissions(IZenToken(address(token)), windows, terms, 1 days, admin, operator, thirdParty);
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

    function test_roles_areChangedOnlyByAdmin() public {
        for (uint256 i = 0; i < guarded.length; ++i) {
            _assertSenderOnly(guarded[i], admin, abi.encodeCall(IAccessControl.grantRole, (ROLE, heir)));
            _assertSenderOnly(guarded[i], admin, abi.encodeCall(IAccessControl.revokeRole, (ROLE, heir)));
            vm.prank(admin);
            IAccessControl(guarded[i]).grantRole(ROLE, heir);
            _assertSenderOnly(guarded[i], heir, abi.encodeCall(IAccessControl.renounceRole, (ROLE, heir)));
        }
    }

    function test_adminRole_transfersOnlyToPendingAdmin() public {
        for (uint256 i = 0; i < guarded.length; ++i) {
            IAccessControlDefaultAdminRules rules = IAccessControlDefaultAdminRules(guarded[i]);
            _assertSenderOnly(guarded[i], admin, abi.encodeCall(rules.changeDefaultAdminDelay, (2 days)));
            _assertSenderOnly(guarded[i], admin, abi.encodeCall(rules.rollbackDefaultAdminDelay, ()));
            _assertSenderOnly(guarded[i], admin, abi.encodeCall(rules.beginDefaultAdminTransfer, (heir)));
            _assertSenderOnly(guarded[i], admin, abi.encodeCall(rules.cancelDefaultAdminTransfer, ()));
            vm.prank(admin);
            rules.beginDefaultAdminTransfer(heir);
        }
        vm.warp(block.timestamp + 1 days + 1);
        for (uint256 i = 0; i < guarded.length; ++i) {
            bytes memory accept = abi.encodeCall(IAccessControlDefaultAdminRules.acceptDefaultAdminTransfer, ());
            _assertSenderOnly(guarded[i], heir, accept);
            vm.assertEq(IAccessControlDefaultAdminRules(guarded[i]).defaultAdmin(), heir);
        }
    }

    // --- the timelock

    function test_timelock_resistsFrontRunning() public {
        token.transfer(address(timelock), 10 ether);
        bytes memory pay = abi.encodeCall(token.transfer, (heir, 10 ether));
        bytes memory schedule =
            abi.encodeCall(timelock.schedule, (address(token), 0, pay, bytes32(0), bytes32(0), 2 days));
        bytes memory cancel =
            abi.encodeCall(timelock.cancel, (timelock.hashOperation(address(token), 0, pay, bytes32(0), bytes32(0))));
        _assertSenderOnly(address(timelock), operator, schedule);
        _assertSenderOnly(address(timelock), operator, cancel);
        vm.assertTrue(_send(operator, address(timelock), schedule));
        vm.warp(block.timestamp + 2 days);
        bytes memory execute = abi.encodeCall(timelock.execute, (address(token), 0, pay, bytes32(0), bytes32(0)));
        _assertSameForAnySender(address(timelock), operator, execute);
        vm.assertEq(token.balanceOf(heir), 10 ether);
    }

    function test_timelockBatches_resistFrontRunning() public {
        token.transfer(address(timelock), 10 ether);
        address[] memory targets = new address[](1);
        bytes[] memory calls = new bytes[](1);
        (targets[0], calls[0]) = (address(token), abi.encodeCall(token.transfer, (heir, 10 ether)));
        uint256[] memory values = new uint256[](1);
        bytes memory schedule =
            abi.encodeCall(timelock.scheduleBatch, (targets, values, calls, bytes32(0), bytes32(0), 2 days));
        _assertSenderOnly(address(timelock), operator, schedule);
        vm.warp(block.timestamp + 2 days);
        bytes memory execute = abi.encodeCall(timelock.executeBatch, (targets, values, calls, bytes32(0), bytes32(0)));
        _assertSameForAnySender(address(timelock), operator, execute);
    }

    /// @dev Only its own operations change its roles and delay.
    function test_timelock_governsItself() public {
        bytes32 role = timelock.PROPOSER_ROLE();
        address self = address(timelock);
        _assertSenderOnly(self, self, abi.encodeCall(timelock.grantRole, (role, heir)));
        _assertSenderOnly(self, heir, abi.encodeCall(timelock.renounceRole, (role, heir)));
        _assertSenderOnly(self, self, abi.encodeCall(timelock.revokeRole, (role, operator)));
        _assertSenderOnly(self, self, abi.encodeCall(timelock.updateDelay, (1 days)));
    }

    /// @dev Its response to received tokens changes nothing.
    function test_timelock_acceptsTokensOfAllKinds() public {
        uint256[] memory none = new uint256[](0);
        address self = address(timelock);
        _assertSameForAnySender(self, thirdParty, abi.encodeCall(timelock.onERC721Received, (heir, heir, 1, "")));
        _assertSameForAnySender(self, thirdParty, abi.encodeCall(timelock.onERC1155Received, (heir, heir, 1, 1, "")));
        bytes memory batch = abi.encodeCall(timelock.onERC1155BatchReceived, (heir, heir, none, none, ""));
        _assertSameForAnySender(self, thirdParty, batch);
    }

    // --- the token

    function test_transferAndBurn_resistFrontRunning() public {
        _assertSenderOnly(address(token), payer, abi.encodeCall(token.transfer, (heir, 1 ether)));
        _assertSenderOnly(address(token), payer, abi.encodeCall(token.burn, (1 ether)));
        vm.prank(payer);
        token.approve(operator, 3 ether);
        _assertSenderOnly(address(token), operator, abi.encodeCall(token.transferFrom, (payer, heir, 1 ether)));
        _assertSenderOnly(address(token), operator, abi.encodeCall(token.burnFrom, (payer, 1 ether)));
    }

    /// @dev A permit fixes spender and amount for any submitter.
    function test_permit_resistsFrontRunning() public {
        (uint8 v, bytes32 r, bytes32 s) = _signPermit(PAYER_KEY, operator, 1 ether, block.timestamp);
        bytes memory permit = abi.encodeCall(token.permit, (payer, operator, 1 ether, block.timestamp, v, r, s));
        _assertSameForAnySender(address(token), payer, permit);
    }

    /// @dev As in every ERC-20, a spender can use the old allowance before a new one is set. The network's contracts
    /// use an allowance only in calls of its owner or for the owner's balance, so this cannot happen with them.
    function test_approve_resistsFrontRunning() public {
        vm.prank(payer);
        token.approve(address(staking), 2 ether);
        vm.assertFalse(_send(ATTACKER, address(staking), abi.encodeCall(staking.stake, (2 ether))));
        vm.assertFalse(_send(ATTACKER, address(token), abi.encodeCall(token.transferFrom, (payer, ATTACKER, 1))));
        vm.prank(payer);
        token.approve(address(staking), 1 ether);
        vm.prank(payer);
        staking.stake(1 ether);
        vm.assertEq(staking.stakeOf(payer), 1 ether);
        vm.assertEq(token.allowance(payer, address(staking)), 0);
    }

    function test_mint_resistsFrontRunning() public {
        bytes32 role = token.MINTER_ROLE();
        vm.prank(admin);
        token.grantRole(role, heir);
        _assertSenderOnly(address(token), heir, abi.encodeCall(token.mint, (heir, 1 ether)));
    }

    function _stateHash() internal view override returns (bytes32) {
        bytes32[] memory roles = new bytes32[](guarded.length);
        for (uint256 i = 0; i < guarded.length; ++i) {
            IAccessControlDefaultAdminRules rules = IAccessControlDefaultAdminRules(guarded[i]);
            bool has = IAccessControl(guarded[i]).hasRole(ROLE, heir);
            (address next, uint48 due) = rules.pendingDefaultAdmin();
            (uint48 delay, uint48 from) = rules.pendingDefaultAdminDelay();
            roles[i] = keccak256(abi.encode(has, rules.defaultAdmin(), next, due, delay, from));
        }
        address[5] memory all = [payer, heir, operator, ATTACKER, address(timelock)];
        uint256[5] memory balances;
        for (uint256 i = 0; i < all.length; ++i) {
            balances[i] = token.balanceOf(all[i]);
        }
        bytes32 role = timelock.PROPOSER_ROLE();
        bytes32 lock = keccak256(
            abi.encode(timelock.getMinDelay(), timelock.hasRole(role, heir), timelock.hasRole(role, operator))
        );
        bytes32 allowed = keccak256(
            abi.encode(token.allowance(payer, operator), token.allowance(payer, ATTACKER), token.totalSupply())
        );
        return keccak256(abi.encode(roles, balances, lock, allowed));
    }
}
