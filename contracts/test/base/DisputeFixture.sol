// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Disputes} from "../../src/Disputes.sol";
import {IDisputes} from "../../src/interfaces/IDisputes.sol";
import {IWorkWindows} from "../../src/interfaces/IWorkWindows.sol";
import {IZenToken} from "../../src/interfaces/IZenToken.sol";
import {JobOrder, UnitCommitment} from "../../src/Messages.sol";
import {WorkWindows} from "../../src/WorkWindows.sol";
import {ZenToken} from "../../src/ZenToken.sol";
import {EscrowDouble, StakingDouble} from "./Doubles.sol";
import {Traces} from "./Traces.sol";
import {Tree} from "./Tree.sol";
import {Vm} from "./Vm.sol";

/// @notice A unit in a committed window, a challenger and referees, with the calls of a dispute.
/// @dev The replay rule here: the correct state of boundary j + 1 is `_replay(s)` of the state s of boundary j.
abstract contract DisputeFixture {
    Vm internal constant vm = Vm(address(uint160(uint256(keccak256("hevm cheat code")))));

    uint256 internal constant PROVIDER_KEY = 0xB0B;
    uint256 internal constant FIRST_REFEREE_KEY = 0x5EED;
    uint256 internal constant REFEREES = 8;
    uint256 internal constant OTHERS = 4;
    uint96 internal constant BOND = 100 ether;
    uint96 internal constant COST = 20 ether;
    uint96 internal constant FEE = 5 ether;
    uint96 internal constant STAKE = 2_000 ether;
    uint40 internal constant DISPUTE_PERIOD = 2 days;
    uint40 internal constant RESPONSE_PERIOD = 2 hours;
    uint40 internal constant VERDICT_PERIOD = 6 hours;
    bytes32 internal constant ENVIRONMENT = keccak256("environment");

    address internal immutable provider = vm.addr(PROVIDER_KEY);
    address internal immutable challenger = address(uint160(0xC001));
    address internal immutable payer = address(uint160(0xFA1));
    address internal immutable thirdParty = address(uint160(0x57A));

    ZenToken internal token;
    StakingDouble internal staking;
    EscrowDouble internal escrow;
    WorkWindows internal windows;
    Disputes internal disputes;

    address[] internal referees; // the key of referee i is FIRST_REFEREE_KEY + i
    JobOrder internal order;
    UnitCommitment internal unit;
    bytes32[] internal states; // the provider's states, by boundary
    bytes internal commitmentSignature;
    bytes32 internal windowRoot;
    bytes32[] internal windowProof;

    function setUp() public virtual {
        vm.warp(1_800_000_000);
        vm.roll(1_000);
        token = new ZenToken(1_000_000_000 ether, 1_000_000 ether, address(this), 1 days, address(this), address(0));
        staking = new StakingDouble(token);
        escrow = new EscrowDouble(token, payer);
        windows = new WorkWindows(2, 1 days, address(this), address(this));
        disputes = _deploy(_terms());
        token.transfer(address(staking), 100_000 ether);
        token.transfer(address(escrow), 100 ether);
        _fund(challenger);
        staking.setStake(provider, STAKE);
        for (uint256 i = 0; i < REFEREES; ++i) {
            referees.push(vm.addr(FIRST_REFEREE_KEY + i));
            _register(referees[i]);
        }
        _honestStates(8);
        _commitUnit();
    }

    // --- the network

    function _terms() internal pure returns (IDisputes.Terms memory) {
        return IDisputes.Terms({
            bond: BOND,
            cost: COST,
            refereeFee: FEE,
            disputePeriod: DISPUTE_PERIOD,
            turnPeriod: RESPONSE_PERIOD,
            verdictPeriod: VERDICT_PERIOD,
            seedDelay: 2,
            seats: 5,
            quorum: 3,
            maxDraws: 3
        });
    }

    /// @dev Accounts that can dispute the same unit in addition to `challenger`.
    function _other(uint256 pick) internal pure returns (address) {
        return address(uint160(0xC100 + pick % OTHERS));
    }

    function _deploy(IDisputes.Terms memory terms) internal returns (Disputes) {
        return new Disputes(IZenToken(address(token)), staking, windows, escrow, terms);
    }

    function _fund(address account) internal {
        token.transfer(account, 1_000 ether);
        vm.prank(account);
        token.approve(address(disputes), type(uint256).max);
    }

    function _register(address referee) internal {
        staking.setStake(referee, 1_000 ether);
        vm.prank(referee);
        disputes.registerReferee();
    }

    // --- the unit

    function _honestStates(uint256 segments) internal {
        delete states;
        states.push(keccak256("start"));
        for (uint256 j = 1; j <= segments; ++j) {
            states.push(_replay(states[j - 1]));
        }
    }

    function _replay(bytes32 state) internal pure returns (bytes32) {
        return keccak256(abi.encode("step", state));
    }

    /// @dev Creates the unit of `states`, signs it and commits it in a window with one other unit.
    function _commitUnit() internal {
        order.payer = payer;
        order.segments = uint16(states.length - 1);
        unit.jobId = _jobId();
        (unit.round, unit.slot, unit.provider) = (3, 1, provider);
        unit.traceRoot = Tree.root(_leaves());
        unit.payloadHash = keccak256("payload");
        commitmentSignature = _sign(PROVIDER_KEY, escrow.commitmentDigest(unit));
        _commitWindow("another unit");
    }

    /// @dev Commits a new honest unit of `segments` segments.
    function _newUnit(uint256 segments) internal {
        _honestStates(segments);
        order.nonce += 1;
        _commitUnit();
    }

    function _commitWindow(bytes32 neighbour) internal {
        bytes32[] memory units = new bytes32[](2);
        (units[0], units[1]) = (_unitId(), neighbour);
        windowRoot = Tree.root(units);
        windowProof = Tree.proof(units, 0);
        windows.commitWindow(windowRoot, 2);
    }

    function _jobId() internal view returns (bytes32) {
        bytes32 orderType = keccak256(
            "JobOrder(address payer,bytes32 specHash,uint8 tier,uint32 units,uint48 unitWeight,uint16 segments,uint16 samplingBps,uint96 budget,uint80 maxPrice,uint40 waitUntil,uint256 nonce)"
        );
        return keccak256(abi.encode(orderType, order));
    }

    function _unitId() internal view returns (bytes32) {
        return keccak256(abi.encode(keccak256(abi.encode(unit))));
    }

    function _leaves() internal view returns (bytes32[] memory leaves) {
        leaves = new bytes32[](states.length);
        for (uint256 j = 0; j < states.length; ++j) {
            leaves[j] = _stateLeaf(j, states[j], ENVIRONMENT);
        }
    }

    function _stateLeaf(uint256 boundary, bytes32 state, bytes32 environment) internal view returns (bytes32) {
        return Traces.leaf(unit, boundary, state, environment);
    }

    // --- the calls

    function _open() internal returns (bytes32) {
        return _openAs(challenger);
    }

    function _openAs(address account) internal returns (bytes32) {
        vm.prank(account);
        return disputes.open(order, unit, commitmentSignature, windowRoot, windowProof);
    }

    function _revealTrace(bytes32 id) internal {
        disputes.showTrace(id, unit, ENVIRONMENT, states);
    }

    function _selectSegment(bytes32 id, uint16 step) internal {
        address account = disputes.disputes(id).challenger;
        vm.prank(account);
        disputes.nameStep(id, step);
    }

    /// @dev Opens a dispute, reveals the trace and selects segment `step`. The draw is scheduled.
    function _openAndSelect(uint16 step) internal returns (bytes32) {
        return _openAndSelectAs(challenger, step);
    }

    function _openAndSelectAs(address account, uint16 step) internal returns (bytes32 id) {
        id = _openAs(account);
        _revealTrace(id);
        _selectSegment(id, step);
    }

    function _draw(bytes32 id) internal returns (address[] memory committee) {
        vm.roll(disputes.disputes(id).seedBlock + 1);
        vm.recordLogs();
        disputes.drawCommittee(id);
        return _drawnIn(vm.getRecordedLogs());
    }

    function _drawnIn(Vm.Log[] memory logs) internal pure returns (address[] memory committee) {
        for (uint256 i = 0; i < logs.length; ++i) {
            if (logs[i].topics[0] == IDisputes.CommitteeDrawn.selector) {
                (, committee) = abi.decode(logs[i].data, (uint32, address[]));
            }
        }
    }

    function _drawAndDecide(bytes32 id, bool providerCorrect) internal {
        address[] memory committee = _draw(id);
        disputes.submitVerdict(id, providerCorrect, committee, _verdicts(id, providerCorrect, committee, 3));
    }

    /// @dev Signatures of the first `count` members; empty for the others.
    function _verdicts(bytes32 id, bool providerCorrect, address[] memory committee, uint256 count)
        internal
        view
        returns (bytes[] memory signatures)
    {
        bytes32 digest = disputes.verdictDigest(id, disputes.disputes(id).draw, providerCorrect);
        signatures = new bytes[](committee.length);
        for (uint256 i = 0; i < count; ++i) {
            signatures[i] = _sign(_refereeKey(committee[i]), digest);
        }
    }

    function _refereeKey(address referee) internal view returns (uint256) {
        uint256 i = 0;
        while (referees[i] != referee) ++i;
        return FIRST_REFEREE_KEY + i;
    }

    function _sign(uint256 key, bytes32 digest) internal pure returns (bytes memory) {
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(key, digest);
        return abi.encodePacked(r, s, v);
    }

    // --- state

    function _status(bytes32 id) internal view returns (uint256) {
        return uint256(disputes.disputes(id).status);
    }

    function _assertStatus(bytes32 id, IDisputes.Status status) internal view {
        vm.assertEq(_status(id), uint256(status));
    }

    /// @dev The contract holds the bonds of the unit's open disputes and all credits, to the wei.
    function _assertConserved() internal view {
        uint256 held = uint256(BOND) * disputes.units(_unitId()).open;
        held += disputes.credits(provider) + disputes.credits(challenger) + disputes.credits(thirdParty);
        for (uint256 i = 0; i < referees.length; ++i) {
            held += disputes.credits(referees[i]);
        }
        for (uint256 i = 0; i < OTHERS; ++i) {
            held += disputes.credits(_other(i));
        }
        vm.assertEq(token.balanceOf(address(disputes)), held);
    }

    function _bound(uint256 x, uint256 low, uint256 high) internal pure returns (uint256) {
        return low + x % (high - low + 1);
    }
}
