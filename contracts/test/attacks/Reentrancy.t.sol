// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";
import {ERC20Burnable} from "@openzeppelin/contracts/token/ERC20/extensions/ERC20Burnable.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {IJobEscrow} from "../../src/interfaces/IJobEscrow.sol";
import {IZenToken} from "../../src/interfaces/IZenToken.sol";
import {JobEscrow} from "../../src/JobEscrow.sol";
import {JobOrder, UnitCommitment} from "../../src/Messages.sol";
import {ProviderStaking} from "../../src/ProviderStaking.sol";
import {Treasury} from "../../src/Treasury.sol";
import {Settlements} from "../base/Settlements.sol";

/// @dev A hostile token with every role that calls back on each transfer.
contract ReentrantToken is ERC20Burnable {
    address private target;
    bytes private callback;
    bytes public answer;

    constructor() ERC20("Hostile", "H") {}

    function mint(address to, uint256 amount) external {
        _mint(to, amount);
    }

    /// @dev Calls `target_` with `call`, and with `callback_` during the transfer. Stores the second result.
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

/// @notice Calls that transfer tokens cannot be reentered.
contract ReentrancyTest is Settlements {
    ReentrantToken private hostile;

    function setUp() public override {
        super.setUp();
        hostile = new ReentrantToken();
        IZenToken zen = IZenToken(address(hostile));
        uint96[5] memory minimumStakes;
        treasury = new Treasury(zen, [uint16(5_000), 3_000, 2_000], 1 days, admin, address(hostile));
        staking = new ProviderStaking(zen, 0, minimumStakes, 1 days, admin, admin, address(hostile), admin);
        escrow = new JobEscrow(
            zen,
            staking,
            JobEscrow.Parties(address(treasury), address(hostile), address(hostile), address(hostile)),
            500,
            REFUND_DELAY,
            CANCEL_DELAY,
            CHALLENGE_PERIOD,
            1 days,
            admin
        );
        hostile.mint(payer, 10 ether);
        hostile.mint(address(hostile), 10 ether);
        hostile.mint(address(treasury), 10 ether);
        vm.prank(payer);
        hostile.approve(address(escrow), 10 ether);
        escrow.deposit(payer, 4 ether, 0, 0, 0, 0);
        vm.prank(address(hostile));
        hostile.approve(address(escrow), 10 ether);
        vm.prank(address(hostile));
        hostile.approve(address(staking), 10 ether);
    }

    /// @dev Every token-transferring call of the escrow, each with another one inside.
    function test_escrow_cannotBeReentered() public {
        bytes32 first = _openForHostile(1);
        bytes32 second = _openForHostile(2);
        bytes memory open = _encodeOpen(3);
        Bill memory bill = _billForHostile(_line(first, 0, 1, true));
        bytes memory settle = _encodeSettle(bill);
        bytes memory deposit = abi.encodeCall(escrow.deposit, (address(hostile), 1 ether, 0, 0, 0, 0));
        bytes memory withdraw = abi.encodeCall(escrow.withdraw, (1 ether, thirdParty));
        _expectRefused(address(escrow), deposit, withdraw);
        _expectRefused(address(escrow), deposit, open);
        _expectRefused(address(escrow), withdraw, deposit);
        _expectRefused(address(escrow), settle, open);

        bill.batchId = 1;
        for (uint256 i = 0; i < 3; ++i) {
            bytes32[] memory proof = _unitProof(bill, i);
            vm.prank(address(hostile));
            escrow.withhold(1, bill.units[i], PRICE, proof);
        }
        vm.prank(address(hostile));
        escrow.release(_unitId(bill, 2), false);

        vm.warp(escrow.jobs(second).settleBy + 1);
        bytes memory claim = abi.encodeCall(escrow.claim, (thirdParty, _claimsOf(bill, 0)));
        bytes memory strike = abi.encodeCall(escrow.release, (_unitId(bill, 0), false));
        bytes memory restore = abi.encodeCall(escrow.release, (_unitId(bill, 1), true));
        bytes memory giveBack = abi.encodeCall(escrow.returnStruck, (_unitId(bill, 2)));
        bytes memory collect = abi.encodeCall(escrow.collectFees, (_roots(bill)));
        _expectRefused(address(escrow), abi.encodeCall(escrow.refund, (second)), claim);
        _expectRefused(address(escrow), claim, collect);
        _expectRefused(address(escrow), collect, strike);
        _expectRefused(address(escrow), strike, restore);
        _expectRefused(address(escrow), restore, giveBack);
        _expectRefused(address(escrow), giveBack, abi.encodeCall(escrow.refund, (second)));
    }

    /// @dev A veto transfers tokens if a job was refunded in between.
    function test_veto_cannotBeReentered() public {
        bytes32 jobId = _openForHostile(1);
        vm.warp(escrow.jobs(jobId).settleBy);
        Bill memory bill = _billForHostile(_line(jobId, 0, 1, false));
        vm.prank(address(hostile));
        escrow.settle(_claimsRoot(bill), _unitsRoot(bill), bill.lines);
        vm.warp(block.timestamp + 1);
        escrow.refund(jobId);
        bytes memory veto = abi.encodeCall(escrow.veto, (1, _claimsRoot(bill), _unitsRoot(bill), bill.lines));
        _expectRefused(address(escrow), veto, veto);
        vm.assertEq(hostile.balanceOf(address(escrow)), 3 ether); // the payer's balance
    }

    function test_staking_cannotBeReentered() public {
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

    function test_treasury_cannotBeReentered() public {
        bytes memory spend = abi.encodeCall(treasury.spend, (0, thirdParty, 1, "a"));
        _expectRefused(address(treasury), spend, spend);
    }

    function _openForHostile(uint256 nonce) private returns (bytes32) {
        (bool done, bytes memory jobId) = address(escrow).call(_encodeOpen(nonce));
        require(done, "not opened");
        return abi.decode(jobId, (bytes32));
    }

    function _encodeOpen(uint256 nonce) private view returns (bytes memory) {
        JobOrder memory order = _order(4, 1 ether);
        (order.nonce, order.samplingBps) = (nonce, 10_000);
        bytes memory signature = _signature(PAYER_KEY, escrow.orderDigest(order));
        return abi.encodeCall(escrow.openJob, (order, signature));
    }

    function _billForHostile(IJobEscrow.JobLine memory line) private view returns (Bill memory) {
        UnitCommitment[] memory units = new UnitCommitment[](4);
        for (uint32 i = 0; i < 4; ++i) {
            units[i] = _unit(line.jobId, 0, i, address(hostile));
        }
        IJobEscrow.JobLine[] memory lines = new IJobEscrow.JobLine[](1);
        lines[0] = line;
        return _bill(lines, units);
    }

    function _encodeSettle(Bill memory bill) private view returns (bytes memory) {
        return abi.encodeCall(escrow.settle, (_claimsRoot(bill), _unitsRoot(bill), bill.lines));
    }

    function _roots(Bill memory bill) private pure returns (bytes32[] memory roots) {
        roots = new bytes32[](1);
        roots[0] = _batchRoot(bill);
    }

    function _expectRefused(address target, bytes memory call, bytes memory callback) private {
        hostile.attack(target, call, callback);
        vm.assertEq(
            hostile.answer(), abi.encodeWithSelector(ReentrancyGuardTransient.ReentrancyGuardReentrantCall.selector)
        );
    }
}
