// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IProviderStaking} from "../../src/interfaces/IProviderStaking.sol";
import {Network} from "./Network.sol";

/// @notice Calls of one provider and of the accounts that can slash it.
abstract contract StakeFixture is Network {
    uint8 internal constant DOWNTIME = 1;
    uint8 internal constant INCORRECT = 2;
    uint8 internal constant BANDWIDTH = 3;
    uint8 internal constant WITHHELD = 4;
    uint8 internal constant WRONG_REPLAY = 5;
    uint8 internal constant REFUSED = 7;
    address internal immutable provider = address(0x1111);

    function _commit(address account, uint256 ahead) internal {
        vm.prank(account);
        staking.commit(uint40(block.timestamp + ahead));
    }

    function _requestUnstake(uint96 amount) internal {
        vm.prank(provider);
        staking.requestUnstake(amount);
    }

    function _withdraw() internal {
        vm.prank(provider);
        staking.withdraw();
    }

    function _slash(uint8 offence, bytes32 evidence) internal {
        vm.prank(operator);
        staking.slash(provider, offence, evidence);
    }

    function _assertAccount(uint256 stake, uint256 unbonding, bool jailed) internal view {
        IProviderStaking.Account memory account = staking.accountOf(provider);
        vm.assertEq(account.stake, stake);
        vm.assertEq(account.unbonding, unbonding);
        vm.assertTrue(account.jailed == jailed);
        vm.assertEq(staking.stakeOf(provider), stake);
        vm.assertEq(staking.atRisk(provider), stake + unbonding);
        vm.assertTrue(staking.isJailed(provider) == jailed);
    }
}
