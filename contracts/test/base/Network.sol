// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IAccessControl} from "@openzeppelin/contracts/access/IAccessControl.sol";
import {IZenToken} from "../../src/interfaces/IZenToken.sol";
import {JobEscrow} from "../../src/JobEscrow.sol";
import {JobOrder} from "../../src/Messages.sol";
import {ProviderStaking} from "../../src/ProviderStaking.sol";
import {Treasury} from "../../src/Treasury.sol";
import {WorkWindows} from "../../src/WorkWindows.sol";
import {ZenToken} from "../../src/ZenToken.sol";
import {Vm} from "./Vm.sol";

/// @notice A deployed network and the calls that its tests share.
abstract contract Network {
    Vm internal constant vm = Vm(address(uint160(uint256(keccak256("hevm cheat code")))));

    uint40 internal constant UNBONDING_DELAY = 14 days;
    uint40 internal constant REFUND_DELAY = 7 days;
    uint40 internal constant CANCEL_DELAY = 2 days;
    uint40 internal constant CHALLENGE_PERIOD = 3 days;
    uint256 internal constant SEED_DELAY = 2;
    uint80 internal constant PRICE = 2.5 ether;
    uint48 internal constant WEIGHT = 90_000_000; // 90 reference GPU-seconds
    uint256 internal constant UNIT = 0.0625 ether; // price of one such unit at PRICE
    uint256 internal constant NET = UNIT - UNIT / 20; // of UNIT, for the provider
    uint256 internal constant PAYER_KEY = 0xA11CE;

    address internal immutable admin = _account("admin");
    address internal immutable operator = _account("operator");
    address internal immutable guardian = _account("guardian");
    address internal immutable disputes = _account("disputes");
    address internal immutable treasurer = _account("treasurer");
    address internal immutable thirdParty = _account("thirdParty");
    address internal immutable payer = vm.addr(PAYER_KEY);

    ZenToken internal token;
    Treasury internal treasury;
    ProviderStaking internal staking;
    WorkWindows internal windows;
    JobEscrow internal escrow;

    function setUp() public virtual {
        vm.warp(1_800_000_000);
        vm.roll(1_000);
        token = new ZenToken(1_000_000_000 ether, 100_000_000 ether, address(this), 1 days, admin, address(0));
        IZenToken zen = IZenToken(address(token));
        treasury = new Treasury(zen, [uint16(5_000), 3_000, 2_000], 1 days, admin, treasurer);
        uint96[5] memory minimumStakes =
            [uint96(1_000 ether), 10_000 ether, 20_000 ether, 40_000 ether, 10_000 ether];
        staking = new ProviderStaking(zen, UNBONDING_DELAY, minimumStakes, 1 days, admin, guardian, operator, disputes);
        windows = new WorkWindows(SEED_DELAY, 1 days, admin, operator);
        escrow = _deployEscrow(zen, address(treasury), operator, disputes);
        token.transfer(payer, 1_000_000 ether);
    }

    function _deployEscrow(IZenToken zen, address fees, address settler, address disputesHolder)
        internal
        returns (JobEscrow)
    {
        return new JobEscrow(
            zen,
            staking,
            JobEscrow.Parties(fees, settler, guardian, disputesHolder),
            500,
            REFUND_DELAY,
            CANCEL_DELAY,
            CHALLENGE_PERIOD,
            1 days,
            admin
        );
    }

    // --- jobs

    function _order(uint32 units, uint96 budget) internal view virtual returns (JobOrder memory) {
        return JobOrder({
            payer: payer,
            specHash: keccak256("spec"),
            tier: 1,
            units: units,
            unitWeight: WEIGHT,
            segments: 64,
            samplingBps: 200,
            budget: budget,
            maxPrice: PRICE,
            waitUntil: uint40(block.timestamp + 1 hours),
            nonce: 1
        });
    }

    function _signature(uint256 key, bytes32 digest) internal pure returns (bytes memory) {
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(key, digest);
        return abi.encodePacked(r, s, v);
    }

    function _signPermit(uint256 key, address spender, uint256 amount, uint256 deadline)
        internal
        view
        returns (uint8 v, bytes32 r, bytes32 s)
    {
        address owner = vm.addr(key);
        bytes32 typehash =
            keccak256("Permit(address owner,address spender,uint256 value,uint256 nonce,uint256 deadline)");
        bytes32 structHash = keccak256(abi.encode(typehash, owner, spender, amount, token.nonces(owner), deadline));
        return vm.sign(key, keccak256(abi.encodePacked(hex"1901", token.DOMAIN_SEPARATOR(), structHash)));
    }

    /// @dev Adds to the payer's balance with its permit, relayed by a third party.
    function _prepay(uint96 amount) internal {
        uint256 deadline = block.timestamp + 1 hours;
        (uint8 v, bytes32 r, bytes32 s) = _signPermit(PAYER_KEY, address(escrow), amount, deadline);
        vm.prank(thirdParty);
        escrow.deposit(payer, amount, deadline, v, r, s);
    }

    /// @dev Deposits an order's budget and opens its job, relayed by a third party.
    function _open(JobOrder memory order) internal returns (bytes32) {
        return _openSigned(order, _signature(PAYER_KEY, escrow.orderDigest(order)));
    }

    function _openSigned(JobOrder memory order, bytes memory signature) internal returns (bytes32) {
        _prepay(order.budget);
        vm.prank(thirdParty);
        return escrow.openJob(order, signature);
    }

    // --- stakes

    function _stake(address provider, uint96 amount) internal {
        token.transfer(provider, amount);
        vm.prank(provider);
        token.approve(address(staking), amount);
        vm.prank(provider);
        staking.stake(amount);
    }

    // --- general

    function _account(string memory name) internal returns (address account) {
        account = address(uint160(uint256(keccak256(bytes(name)))));
        vm.label(account, name);
    }

    /// @dev Maps any number into [low, high].
    function _bound(uint256 x, uint256 low, uint256 high) internal pure returns (uint256) {
        return high - low == type(uint256).max ? x : low + x % (high - low + 1);
    }

    function _expectMissingRole(address account, bytes32 role) internal {
        vm.expectRevert(abi.encodeWithSelector(IAccessControl.AccessControlUnauthorizedAccount.selector, account, role));
    }
}
