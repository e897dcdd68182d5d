// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";
import {ERC20Burnable} from "@openzeppelin/contracts/token/ERC20/extensions/ERC20Burnable.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {Disputes} from "../../src/Disputes.sol";
import {IDisputes} from "../../src/interfaces/IDisputes.sol";
import {IOmissions} from "../../src/interfaces/IOmissions.sol";
import {IZenToken} from "../../src/interfaces/IZenToken.sol";
import {Omissions} from "../../src/Omissions.sol";
import {DisputeFixture} from "../base/DisputeFixture.sol";

/// @dev A hostile token that calls back once during a transfer and stores the result.
contract CallbackToken is ERC20Burnable {
    address private target;
    bytes private callback;
    bytes public answer;

    constructor() ERC20("Hostile", "H") {
        _mint(msg.sender, 1_000_000 ether);
    }

    function arm(address target_, bytes calldata callback_) external {
        (target, callback) = (target_, callback_);
        delete answer;
    }

    function _update(address from, address to, uint256 amount) internal override {
        super._update(from, to, amount);
        if (callback.length == 0) return;
        bytes memory call = callback;
        delete callback;
        (bool done, bytes memory result) = target.call(call);
        require(!done, "the callback went through");
        answer = result;
    }
}

/// @notice Conservation: the contract always holds exactly the bonds of open disputes and the credits.
contract DisputesMoneyTest is DisputeFixture {
    bytes32[] private ids;
    mapping(bytes32 disputeId => address[]) private committeeOf;

    /// forge-config: default.fuzz.runs = 64
    /// forge-config: ci.fuzz.runs = 16
    /// forge-config: long.fuzz.runs = 1000
    function testFuzz_anyCallSequence_conservesTokens(uint256[48] calldata moves) public {
        for (uint256 i = 0; i < OTHERS; ++i) {
            _fund(_other(i));
        }
        for (uint256 i = 0; i < moves.length; ++i) {
            _move(moves[i]);
            _assertConserved();
            _assertPending();
        }
    }

    function _move(uint256 random) private {
        uint256 kind = random % 10;
        random >>= 8;
        if (kind == 0 || ids.length == 0) {
            address account = _other(random);
            bool known = disputes.disputes(disputes.disputeIdOf(_unitId(), account)).challenger != address(0);
            bool over = block.timestamp > 1_800_000_000 + uint256(DISPUTE_PERIOD);
            if (known || over || token.balanceOf(account) < BOND || disputes.units(_unitId()).convicted) return;
            ids.push(_openAs(account));
            return;
        }
        bytes32 id = ids[random % ids.length];
        IDisputes.Dispute memory d = disputes.disputes(id);
        if (kind == 1) {
            vm.warp(block.timestamp + (random >> 8) % (3 * uint256(RESPONSE_PERIOD)));
        } else if (d.status < IDisputes.Status.ProviderLost && disputes.units(d.unitId).convicted) {
            disputes.dismiss(id);
        } else if (d.status == IDisputes.Status.Judging && block.timestamp > d.deadline) {
            disputes.replaceCommittee(id, committeeOf[id]);
        } else if (d.status < IDisputes.Status.ProviderLost && block.timestamp > d.deadline) {
            disputes.expire(id);
        } else if (d.status == IDisputes.Status.Trace) {
            _revealTrace(id);
        } else if (d.status == IDisputes.Status.Step) {
            _selectSegment(id, uint16((random >> 8) % 8));
        } else if (d.status == IDisputes.Status.Drawing) {
            vm.roll(block.number + (random >> 8) % 300);
            if (block.number > d.seedBlock) {
                vm.recordLogs();
                disputes.drawCommittee(id);
                address[] memory committee = _drawnIn(vm.getRecordedLogs());
                committeeOf[id] = committee;
                bool correct = random >> 32 & 3 > 0;
                if (committee.length > 0 && random >> 40 & 3 > 0) {
                    disputes.submitVerdict(id, correct, committee, _verdicts(id, correct, committee, 3));
                }
            }
        } else if (disputes.credits(d.challenger) > 0) {
            vm.prank(d.challenger);
            disputes.withdraw();
        }
    }

    function _assertPending() private view {
        uint256 pending = 0;
        for (uint256 i = 0; i < ids.length; ++i) {
            if (disputes.disputes(ids[i]).status == IDisputes.Status.Drawing) ++pending;
        }
        vm.assertEq(disputes.pendingDraws(), pending);
    }

    // --- reentrant token

    function test_disputeCalls_cannotBeReentered() public {
        CallbackToken hostile = new CallbackToken();
        disputes = new Disputes(IZenToken(address(hostile)), staking, windows, escrow, _terms());
        for (uint256 i = 0; i < REFEREES; ++i) {
            _register(referees[i]);
        }
        hostile.transfer(challenger, 1_000 ether);
        vm.prank(challenger);
        hostile.approve(address(disputes), 1_000 ether);

        bytes32 id = disputes.disputeIdOf(_unitId(), challenger);
        hostile.arm(address(disputes), abi.encodeCall(disputes.showTrace, (id, unit, ENVIRONMENT, states)));
        vm.assertEq(_open(), id);
        _assertRefused(hostile);
        _revealTrace(id);
        vm.warp(block.timestamp + RESPONSE_PERIOD + 1);

        bytes[13] memory calls;
        calls[0] = abi.encodeCall(disputes.expire, (id));
        calls[1] = abi.encodeCall(disputes.dismiss, (id));
        calls[2] = abi.encodeCall(disputes.withdraw, ());
        calls[3] = abi.encodeCall(disputes.nameStep, (id, 4));
        calls[4] = abi.encodeCall(disputes.drawCommittee, (id));
        calls[5] = abi.encodeCall(disputes.submitVerdict, (id, true, new address[](0), new bytes[](0)));
        calls[6] = abi.encodeCall(disputes.withhold, (unit, 7, 5, new bytes32[](1)));
        calls[7] = abi.encodeCall(disputes.restore, (_unitId()));
        calls[8] = abi.encodeCall(disputes.open, (order, unit, commitmentSignature, windowRoot, windowProof));
        calls[9] = abi.encodeCall(disputes.proveContradiction, (id, 0, "", ""));
        calls[10] = abi.encodeCall(disputes.proveWrongVerdict, (id, true, new address[](0), new bytes[](0), 0));
        calls[11] = abi.encodeCall(disputes.replaceCommittee, (id, new address[](0)));
        calls[12] = abi.encodeCall(disputes.rejectLate, (id, windowRoot, windowProof));
        for (uint256 i = 0; i < calls.length; ++i) {
            hostile.arm(address(disputes), calls[i]);
            uint256 before = vm.snapshotState();
            disputes.expire(id); // burns
            _assertRefused(hostile);
            vm.revertToState(before);
        }
        disputes.expire(id);
        hostile.arm(address(disputes), calls[2]);
        vm.prank(provider);
        disputes.withdraw();
        _assertRefused(hostile);
    }

    function test_omissionCalls_cannotBeReentered() public {
        CallbackToken hostile = new CallbackToken();
        IOmissions.Terms memory terms = IOmissions.Terms(1 ether, 10 ether, 1 days, 1 days, 1 days);
        Omissions omissions = new Omissions(
            IZenToken(address(hostile)), windows, terms, 1 days, address(this), address(hostile), provider
        );
        hostile.approve(address(omissions), 1_000 ether);
        hostile.transfer(provider, 10 ether);
        vm.prank(provider);
        hostile.approve(address(omissions), 10 ether);
        uint40 includeBy = uint40(block.timestamp - 1);
        bytes memory acknowledgement = _sign(PROVIDER_KEY, omissions.acknowledgementDigest(_unitId(), includeBy));

        bytes memory deposit = abi.encodeCall(omissions.deposit, (1 ether));
        bytes memory resolve = abi.encodeCall(omissions.resolve, (_unitId()));
        bytes memory claim = abi.encodeCall(omissions.claim, (unit, includeBy, acknowledgement));
        bytes memory withdraw = abi.encodeCall(omissions.withdraw, ());
        hostile.arm(address(omissions), resolve);
        omissions.deposit(100 ether);
        _assertRefused(hostile);
        hostile.arm(address(omissions), deposit);
        vm.prank(provider);
        omissions.claim(unit, includeBy, acknowledgement);
        _assertRefused(hostile);
        vm.prank(address(hostile));
        omissions.requestWithdrawal(1 ether);
        vm.warp(block.timestamp + 1 days + 1);
        hostile.arm(address(omissions), claim);
        vm.prank(address(hostile));
        omissions.withdraw();
        _assertRefused(hostile);
        hostile.arm(address(omissions), withdraw);
        omissions.resolve(_unitId());
        _assertRefused(hostile);
    }

    function _assertRefused(CallbackToken hostile) private view {
        vm.assertEq(
            hostile.answer(), abi.encodeWithSelector(ReentrancyGuardTransient.ReentrancyGuardReentrantCall.selector)
        );
    }
}
