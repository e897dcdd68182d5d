// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Attestations} from "../../src/Attestations.sol";
import {Emission} from "../../src/Emission.sol";
import {IZenToken} from "../../src/interfaces/IZenToken.sol";
import {Rewards} from "../../src/Rewards.sol";
import {Network} from "./Network.sol";

/// @notice A network with emission, rewards and attestations.
abstract contract RewardNetwork is Network {
    uint16 internal constant APY_BPS = 2_000;
    uint40 internal constant MIN_EPOCH = 1 days;
    uint40 internal constant CLAIM_DELAY = 2 days;
    uint40 internal constant MAX_VALIDITY = 30 days;

    address internal immutable rewarder = _account("rewarder");
    address internal immutable attester = _account("attester");

    Rewards internal rewards;
    Emission internal emission;
    Attestations internal attestations;

    function setUp() public virtual override {
        super.setUp();
        IZenToken zen = IZenToken(address(token));
        rewards = new Rewards(zen, address(staking), APY_BPS, MIN_EPOCH, CLAIM_DELAY, 1 days, admin, rewarder, guardian);
        emission = new Emission(zen, address(rewards), _yearly());
        attestations = new Attestations(MAX_VALIDITY, 1 days, admin, attester);
        bytes32 role = token.MINTER_ROLE();
        vm.prank(admin);
        token.grantRole(role, address(emission));
    }

    /// @dev Amounts that are not divisible by the seconds of a year.
    function _yearly() internal pure returns (uint96[] memory yearly) {
        yearly = new uint96[](3);
        yearly[0] = 30_000_000 ether + 1;
        yearly[1] = 20_000_000 ether + 7;
        yearly[2] = 10_000_000 ether + 3;
    }

    function _post(bytes32 root, uint96 base, uint96 bandwidth, uint96 verifier) internal {
        vm.prank(rewarder);
        rewards.postEpoch(root, base, bandwidth, verifier);
    }

    /// @dev Leaf of the tree of cumulative rewards.
    function _leaf(address account, uint256 cumulative) internal pure returns (bytes32) {
        return keccak256(bytes.concat(keccak256(abi.encode(account, cumulative))));
    }
}
