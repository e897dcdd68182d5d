// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Emission} from "../../src/Emission.sol";
import {IRewards} from "../../src/interfaces/IRewards.sol";
import {Rewards} from "../../src/Rewards.sol";
import {ZenToken} from "../../src/ZenToken.sol";
import {RewardNetwork} from "../base/RewardNetwork.sol";
import {Tree} from "../base/Tree.sol";

/// @notice Random calls that fund, post, veto and claim rewards. Only the attacker's calls may revert.
contract RewardActions is RewardNetwork {
    uint256 public constant ACCOUNTS = 4;

    uint256 public given; // from other sources than the emission
    uint256[ACCOUNTS] private earned; // cumulative, as recorded by the rewarder
    mapping(bytes32 root => uint256[ACCOUNTS]) private leavesOf;

    /// @dev The paid total of an account never decreases.
    modifier onlyGrows() {
        uint256[ACCOUNTS] memory before;
        for (uint256 i = 0; i < ACCOUNTS; ++i) {
            before[i] = rewards.claimed(account(i));
        }
        _;
        for (uint256 i = 0; i < ACCOUNTS; ++i) {
            require(rewards.claimed(account(i)) >= before[i], "a paid total decreased");
        }
    }

    function setUp() public override {
        super.setUp();
        token.transfer(address(treasury), 1_000_000 ether);
        _stake(thirdParty, 1_000_000 ether);
    }

    function give(uint96 amount) external onlyGrows {
        amount = uint96(_bound(amount, 1, 50_000 ether));
        token.transfer(address(rewards), amount);
        given += amount;
    }

    function giveFromTreasury(uint96 amount) external onlyGrows {
        uint256 available = treasury.available(0);
        if (available == 0) return;
        uint256 part = _bound(amount, 1, available);
        vm.prank(treasurer);
        treasury.spend(0, address(rewards), part, "rewards");
        given += part;
    }

    function mint() external onlyGrows {
        if (emission.vested(block.timestamp) > emission.released()) emission.release();
    }

    function earn(uint256 pick, uint96 amount) external {
        earned[pick % ACCOUNTS] += _bound(amount, 0, 10_000 ether);
    }

    /// @dev Sometimes posts a wrong tree with leaves above the posted total.
    function post(uint256 seed) external onlyGrows {
        (, uint256 claimableAt) = rewards.pendingEpoch();
        IRewards.Epoch memory current = rewards.currentEpoch();
        if (block.timestamp < claimableAt || block.timestamp < current.postedAt + MIN_EPOCH) return;
        uint256 sum;
        for (uint256 i = 0; i < ACCOUNTS; ++i) {
            sum += earned[i];
        }
        uint256 due = sum > current.total ? sum - current.total : 0;
        if (due > rewards.postBound()) due = rewards.postBound();
        if (seed % 4 == 0) due /= 2;
        uint256 base = rewards.baseBound() < due ? rewards.baseBound() : due;
        bytes32 root = Tree.root(_leaves(earned));
        leavesOf[root] = earned;
        uint256 above = rewards.postBound() + 1;
        vm.prank(rewarder);
        (bool done,) = address(rewards).call(abi.encodeCall(rewards.postEpoch, (root, 0, uint96(above), 0)));
        require(!done, "posted above bound");
        _post(root, uint96(base), uint96(due - base), 0);
    }

    function veto(uint256 chance) external onlyGrows {
        (IRewards.Epoch memory pending,) = rewards.pendingEpoch();
        if (pending.number == 0 || chance % 3 > 0) return;
        vm.prank(guardian);
        rewards.veto();
    }

    /// @dev By a third party for the account, or by the account to any recipient.
    function claim(uint256 pick, bool payout) external onlyGrows {
        _claim(pick % ACCOUNTS, payout);
    }

    /// @dev An attacker with all proofs receives nothing.
    function steal(uint256 pick, uint256 amount) external onlyGrows {
        uint256 index = pick % ACCOUNTS;
        uint256[ACCOUNTS] memory leaves = leavesOf[rewards.currentEpoch().root];
        bytes32[] memory proof = Tree.proof(_leaves(leaves), index);
        _expectNothing(abi.encodeCall(rewards.claimTo, (thirdParty, leaves[index], proof)));
        _expectNothing(abi.encodeCall(rewards.claim, (thirdParty, leaves[index], proof)));
        uint256 more = leaves[index] + _bound(amount, 1, 1e30);
        _expectNothing(abi.encodeCall(rewards.claim, (account(index), more, proof)));
    }

    function wait(uint256 time) external {
        vm.warp(block.timestamp + _bound(time, 1 hours, 3 days));
    }

    function waitLong(uint256 time) external {
        vm.warp(block.timestamp + _bound(time, 1 days, 200 days));
    }

    /// @dev All accounts claim in the epoch in force.
    function claimAll() external {
        vm.warp(block.timestamp + CLAIM_DELAY);
        for (uint256 i = 0; i < ACCOUNTS; ++i) {
            _claim(i, i % 2 == 0);
        }
    }

    function account(uint256 index) public pure returns (address) {
        return address(uint160(0x9000 + index));
    }

    function payoutOf(uint256 index) public pure returns (address) {
        return address(uint160(0xA000 + index));
    }

    /// @dev Returns whether an account can claim more in the tree in force, within the epoch's total.
    function isOwed(uint256 index) external view returns (bool) {
        (uint256 amount,) = _claimable(index);
        return amount > 0;
    }

    function economy() external view returns (ZenToken, Rewards, Emission, address) {
        return (token, rewards, emission, thirdParty);
    }

    function _claim(uint256 index, bool payout) private {
        (uint256 amount, uint256[ACCOUNTS] memory leaves) = _claimable(index);
        if (amount == 0) return _claimTooMuch(index, leaves);
        bytes32[] memory proof = Tree.proof(_leaves(leaves), index);
        vm.prank(payout ? account(index) : thirdParty);
        if (payout) rewards.claimTo(payoutOf(index), leaves[index], proof);
        else rewards.claim(account(index), leaves[index], proof);
    }

    /// @dev Claims an amount that is already paid, or above the epoch's total.
    function _claimTooMuch(uint256 index, uint256[ACCOUNTS] memory leaves) private {
        bytes32[] memory proof = Tree.proof(_leaves(leaves), index);
        _expectNothing(abi.encodeCall(rewards.claim, (account(index), leaves[index], proof)));
    }

    function _claimable(uint256 index) private view returns (uint256 amount, uint256[ACCOUNTS] memory leaves) {
        IRewards.Epoch memory current = rewards.currentEpoch();
        leaves = leavesOf[current.root];
        uint256 before = rewards.claimed(account(index));
        if (leaves[index] > before) amount = leaves[index] - before;
        if (rewards.paidOut() + amount > current.total) amount = 0;
    }

    function _expectNothing(bytes memory call) private {
        vm.prank(thirdParty);
        (bool done,) = address(rewards).call(call);
        require(!done, "an attacker was paid");
    }

    function _leaves(uint256[ACCOUNTS] memory amounts) private pure returns (bytes32[] memory leaves) {
        leaves = new bytes32[](ACCOUNTS);
        for (uint256 i = 0; i < ACCOUNTS; ++i) {
            leaves[i] = _leaf(account(i), amounts[i]);
        }
    }
}
