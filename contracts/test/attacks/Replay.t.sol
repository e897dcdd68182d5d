// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IDisputes} from "../../src/interfaces/IDisputes.sol";
import {IOmissions} from "../../src/interfaces/IOmissions.sol";
import {IZenToken} from "../../src/interfaces/IZenToken.sol";
import {Omissions} from "../../src/Omissions.sol";
import {EscrowDouble} from "../base/Doubles.sol";
import {DisputeFixture} from "../base/DisputeFixture.sol";

/// @notice A signature is valid for one chain, contract, job, round and slot. Orders and verdicts have their own files.
contract ReplayTest is DisputeFixture {
    function test_commitment_isBoundToJobRoundAndSlot() public {
        unit.round += 1;
        _expectRefused();
        unit.round -= 1;
        unit.slot += 1;
        _expectRefused();
        unit.slot -= 1;
        order.nonce += 1;
        unit.jobId = _jobId();
        _expectRefused();
        order.nonce -= 1;
        unit.jobId = _jobId();
        _commitWindow("again");
        _open();
    }

    function test_commitment_isBoundToChain() public {
        uint256 here = block.chainid;
        vm.chainId(here + 1);
        _expectRefused();
        vm.chainId(here);
        _open();
    }

    function test_commitment_isBoundToEscrow() public {
        EscrowDouble other = new EscrowDouble(token, payer);
        commitmentSignature = _sign(PROVIDER_KEY, other.commitmentDigest(unit));
        _expectRefused();
    }

    function test_acknowledgement_isBoundToContract() public {
        IOmissions.Terms memory terms = IOmissions.Terms(2 ether, 30 ether, 3 days, 1 days, 5 days);
        IZenToken zen = IZenToken(address(token));
        Omissions here = new Omissions(zen, windows, terms, 1 days, address(this), address(this), challenger);
        Omissions there = new Omissions(zen, windows, terms, 1 days, address(this), address(this), provider);
        uint40 includeBy = uint40(block.timestamp - 1);
        bytes memory signature = _sign(PROVIDER_KEY, here.acknowledgementDigest(_unitId(), includeBy));
        vm.prank(provider);
        vm.expectPartialRevert(IOmissions.NotAcknowledged.selector);
        there.claim(unit, includeBy, signature);
    }

    /// @dev The window includes the unit, but the signature belongs to another one.
    function _expectRefused() private {
        _commitWindow(keccak256(abi.encode(unit, block.chainid)));
        vm.expectRevert(IDisputes.InvalidCommitmentSignature.selector);
        _open();
    }
}
