// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {EIP712} from "@openzeppelin/contracts/utils/cryptography/EIP712.sol";
import {IDisputeEscrow, IDisputeStaking} from "../../src/interfaces/IDisputes.sol";
import {Messages, UnitCommitment} from "../../src/Messages.sol";
import {ZenToken} from "../../src/ZenToken.sol";

/// @dev Test double of ProviderStaking with settable stakes and shares. It holds and moves real ZEN.
contract StakingDouble is IDisputeStaking {
    ZenToken private immutable token;
    mapping(address account => uint256) public atRisk;
    mapping(address account => bool) public jailed;
    mapping(address account => uint8) public lastOffence;
    mapping(bytes32 evidence => bool) public used;

    constructor(ZenToken token_) {
        token = token_;
    }

    function setStake(address account, uint256 amount) external {
        atRisk[account] = amount;
    }

    function slash(address provider, uint8 offence, bytes32 evidence) external returns (uint256 amount, uint256 share) {
        require(!used[evidence], "evidence used");
        (used[evidence], jailed[provider], lastOffence[provider]) = (true, true, offence);
        uint256 bps = offence == 6 ? 10_000 : offence == 5 ? 2_000 : 5_000;
        amount = atRisk[provider] * bps / 10_000;
        share = amount / 5;
        atRisk[provider] -= amount;
        token.burn(amount - share);
        token.transfer(msg.sender, share);
    }

    function qualifies(address account, uint8 tier) external view returns (bool) {
        require(tier == 0, "referees are verifiers");
        return !jailed[account] && atRisk[account] >= 1_000 ether;
    }
}

/// @dev Test double of JobEscrow with a fixed unit in a batch. It holds and moves real ZEN.
contract EscrowDouble is IDisputeEscrow, EIP712("ZooCompute", "1") {
    using Messages for UnitCommitment;

    uint256 public constant PAY = 3 ether;
    ZenToken private immutable token;
    address public immutable payer;
    mapping(bytes32 unitId => address) public withheld; // the provider

    constructor(ZenToken token_, address payer_) {
        token = token_;
        payer = payer_;
    }

    function withhold(uint256 batchId, UnitCommitment calldata unit, uint80 price, bytes32[] calldata proof)
        external
        returns (bytes32 unitId)
    {
        require(batchId == 7 && price == 5 && proof.length == 1, "not in the batch");
        unitId = unit.leaf();
        require(withheld[unitId] == address(0), "withheld before");
        withheld[unitId] = unit.provider;
    }

    function release(bytes32 unitId, bool restored) external returns (bool) {
        if (withheld[unitId] == address(0)) return false;
        token.transfer(restored ? withheld[unitId] : payer, PAY);
        delete withheld[unitId];
        return true;
    }

    function commitmentDigest(UnitCommitment calldata unit) external view returns (bytes32) {
        return _hashTypedDataV4(unit.hash());
    }
}
