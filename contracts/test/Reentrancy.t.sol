// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";
import {ERC20Burnable} from "@openzeppelin/contracts/token/ERC20/extensions/ERC20Burnable.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {IZenToken} from "../src/interfaces/IZenToken.sol";
import {JobEscrow} from "../src/JobEscrow.sol";
import {JobOrder} from "../src/Messages.sol";
import {ProviderStaking} from "../src/ProviderStaking.sol";
import {Treasury} from "../src/Treasury.sol";
import {Network} from "./base/Network.sol";

/// @dev A hostile token that holds every role and calls back whenever it moves.
contract ReentrantToken is ERC20Burnable {
    address private target;
    bytes private callback;
    bytes public answer;

    constructor() ERC20("Hostile", "H") {}

    function mint(address to, uint256 amount) external {
        _mint(to, amount);
    }

    /// @dev Calls `target_` with `call`, and again with `callback_` while the token moves. Keeps the second answer.
    function attack(address target_, bytes calldata call, bytes calldata callback_) external {
        (target, callback, answer) = (target_, callback_, "");
        (bool done,) = target_.call(call);
        require(done, "the call itself failed");
        delete callback;
    }

    function _update(address from, address to, uint256 amount) internal override {
        super._update(from, to, amount);
        if (callback.length > 0) {
            (bool done, bytes memory result) = target.call(callback);
            require(!done, "the callback went through");
            answer = result;
        }
    }
}

/// @notice No call that moves tokens can be entered from within another.
contract ReentrancyTest is Network {
    ReentrantToken private hostile;

    function setUp() public override {
        super.setUp();
        hostile = new ReentrantToken();
        IZenToken zen = IZenToken(address(hostile));
        uint96[4] memory minimumStakes;
        treasury = new Treasury(zen, [uint16(5_000), 3_000, 2_000], 1 days, admin, address(hostile));
        staking = new ProviderStaking(zen, 0, minimumStakes, 1 days, admin, address(hostile), admin);
        escrow = new JobEscrow(zen, address(treasury), 500, 0, 1 days, admin, address(hostile));
        hostile.mint(payer, 10 ether);
        hostile.mint(address(hostile), 10 ether);
        hostile.mint(address(treasury), 10 ether);
        vm.prank(payer);
        hostile.approve(address(escrow), 10 ether);
        vm.prank(address(hostile));
        hostile.approve(address(staking), 10 ether);
    }

    function test_escrow() public {
        JobOrder memory order = _order(2, 1 ether);
        bytes32 jobId = escrow.jobIdOf(order);
        bytes memory signature = _signature(PAYER_KEY, escrow.orderDigest(order));
        bytes memory open = abi.encodeCall(escrow.openJob, (order, signature, 0, 0, 0, 0));
        bytes memory settle = abi.encodeCall(escrow.settle, (jobId, PRICE, _payments(stranger, 1), 0, 0));
        bytes memory refund = abi.encodeCall(escrow.refund, (jobId));

        _expectRefused(address(escrow), open, settle);
        _expectRefused(address(escrow), settle, refund);
        vm.assertEq(hostile.balanceOf(stranger), UNIT - UNIT / 20);

        order.nonce = 2;
        signature = _signature(PAYER_KEY, escrow.orderDigest(order));
        escrow.openJob(order, signature, 0, 0, 0, 0);
        vm.warp(order.waitUntil + 1);
        refund = abi.encodeCall(escrow.refund, (escrow.jobIdOf(order)));
        _expectRefused(address(escrow), refund, refund);
        _expectRefused(address(escrow), _openAnother(3), open);
    }

    function test_staking() public {
        bytes memory stake = abi.encodeCall(staking.stake, (1 ether));
        bytes memory permit = abi.encodeCall(staking.stakeWithPermit, (1 ether, 0, 0, 0, 0));
        bytes memory withdraw = abi.encodeCall(staking.withdraw, ());
        bytes memory slash = abi.encodeCall(staking.slash, (address(hostile), 2, "a"));

        _expectRefused(address(staking), stake, permit);
        _expectRefused(address(staking), permit, stake);
        vm.prank(address(hostile));
        staking.requestUnstake(1 ether);
        _expectRefused(address(staking), slash, withdraw);
        _expectRefused(address(staking), withdraw, slash);
    }

    function test_treasury() public {
        bytes memory spend = abi.encodeCall(treasury.spend, (0, stranger, 1, "a"));
        _expectRefused(address(treasury), spend, spend);
    }

    function _openAnother(uint256 nonce) private view returns (bytes memory) {
        JobOrder memory order = _order(2, 1 ether);
        order.nonce = nonce;
        bytes memory signature = _signature(PAYER_KEY, escrow.orderDigest(order));
        return abi.encodeCall(escrow.openJob, (order, signature, 0, 0, 0, 0));
    }

    function _expectRefused(address target, bytes memory call, bytes memory callback) private {
        hostile.attack(target, call, callback);
        vm.assertEq(
            hostile.answer(), abi.encodeWithSelector(ReentrancyGuardTransient.ReentrancyGuardReentrantCall.selector)
        );
    }
}
